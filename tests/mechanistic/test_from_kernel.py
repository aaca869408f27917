"""Profiles of Loopy kernels against what is worked out by hand."""

from __future__ import annotations

from typing import Any

import loopy as lp
import pytest

from countperf.errors import (
    CountperfError,
    DataDependentControlFlowError,
    DeviceParameterError,
    ModelNotApplicableError,
    ParameterError,
)
from countperf.hardware.library import load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.classes import with_known_classes
from countperf.mechanistic.from_kernel import KernelProfiler, profile_kernel
from countperf.mechanistic.mwp_cwp import MwpCwpModel
from countperf.mechanistic.profile import InstructionGraph, KernelProfile
from measurement_kernels import catalog
from tests.counting import profiled
from tests.counting.applications import spmv
from tests.mechanistic.builders import example_device

K620 = load_device("nvidia-k620")  # sub-groups of 32, sectors of 32 bytes


def profile_at(
    t_unit: Any, sizes: dict[str, int], device: DeviceParameters = K620, **options: Any
) -> KernelProfile:
    given: dict[str, Any] = {"registers_per_work_item": 16, **options}
    profiler = profile_kernel(t_unit, device, **given)
    return profiler.at(sizes).profile


def test_saxpy() -> None:
    profiler = profile_kernel(profiled.saxpy(), K620, registers_per_work_item=10)

    found = profiler.at({"n": 1024})

    assert (found.launch.work_items_per_group, found.launch.num_groups) == (64, 16)
    profile = found.profile
    assert dict(profile.alpha) == {"load.global.32": 2, "fma.f32": 1, "store.global.32": 1}
    assert profile.idg == InstructionGraph(
        ["load.global.32", "load.global.32", "fma.f32", "store.global.32"],
        [(0, 2), (1, 2), (2, 3)],
    )
    assert (profile.alpha_comp, profile.alpha_mem, profile.alpha_sync) == (1, 3, 0)
    assert (profile.alpha_mem_coal, profile.alpha_mem_uncoal) == (3, 0)
    assert profile.load_bytes_per_sub_group == 128
    assert profile.gmem_bytes == 3 * 128
    assert profile.total_flops == 2 * 1024
    assert profile.total_bytes == 3 * 4 * 1024
    assert profile.work == 1024
    assert profile.span == 3
    assert profile.transactions == 3 * 32  # lines of 128 bytes
    assert (profile.ins_cuda, profile.ins_issued) == (1, 4)
    assert (profile.registers_per_work_item, profile.local_bytes_per_group) == (10, 0)
    assert not profile.idg_is_sample


def test_transposition_touches_one_line_or_one_for_each_item() -> None:
    profile = profile_at(profiled.transpose(), {"n": 256})

    # a sub-group reads 128 bytes of a row and writes 32 sectors of 32 bytes, in 32 lines
    assert dict(profile.alpha) == {"load.global.32": 1, "store.global.32.x8": 1}
    assert (profile.alpha_mem_coal, profile.alpha_mem_uncoal) == (1, 1)
    assert profile.uncoal_per_mw == 32
    assert profile.gmem_bytes == 128 + 32 * 32
    assert profile.transactions == (1 + 32) * 256 * 256 / 32
    assert profile.ins_issued == 2 + 31


def test_neighbors_of_a_stencil_reach_into_the_next_line() -> None:
    profile = profile_at(profiled.stencil(), {"n": 256})

    # x[i] fills four sectors, x[i+1] and x[i+2] reach into a fifth
    assert dict(profile.alpha) == {
        "load.global.32": 1,
        "load.global.32.x1.25": 2,
        "add.f32": 2,
        "store.global.32": 1,
    }
    assert profile.gmem_bytes == 128 + 160 + 160 + 128
    assert profile.alpha_mem_coal == 2
    assert profile.alpha_mem_uncoal == 2
    assert profile.uncoal_per_mw == 2  # two lines where one would do


def test_tiled_matrix_product() -> None:
    unit = catalog.entry("matmul-tiled/square/16x16").builder()

    profile = profile_at(unit, {"n": 64, "m": 96, "l": 128})

    steps = 96 // 16
    assert dict(profile.alpha) == {
        "load.global.32": 2 * steps,
        "store.local.32": 2 * steps,
        "load.local.32": 2 * 96,
        "fma.f32": 96,
        "store.global.32": 1,
        "barrier": 2 * steps,
    }
    assert profile.idg is not None
    assert profile.idg.counts() == {k: int(v) for k, v in profile.alpha.items()}
    assert profile.repetitions() == 1
    assert profile.local_bytes_per_group == 2 * 16 * 16 * 4
    assert profile.total_flops == 2 * 64 * 96 * 128


def test_halos_differ_between_sub_groups() -> None:
    unit = catalog.entry("finite-differences/16x16").builder()

    profile = profile_at(unit, {"n": 64})

    graphs = profile.sub_group_idgs
    assert graphs is not None
    assert len(graphs) == 8
    assert profile.idg_is_sample
    assert profile.repetitions(graphs) == pytest.approx(1, rel=1e-12)  # together exact
    fetches = sum(v for name, v in profile.alpha.items() if name.startswith("load.global"))
    assert fetches == 18 / 8


def test_a_long_program_is_a_sample() -> None:
    unit = catalog.entry("matmul-tiled/square/16x16").builder()
    sizes = {"n": 64, "m": 4096, "l": 64}

    whole = profile_at(unit, sizes)
    short = profile_at(unit, sizes, max_instructions=1000)

    assert short.alpha == whole.alpha
    assert short.idg is not None
    assert len(short.idg.nodes) < 1100
    assert short.idg_is_sample
    assert short.repetitions() * len(short.idg.nodes) == sum(whole.alpha.values())


def test_a_cpu_device_moves_lines() -> None:
    device = example_device(sub_group_size=16, cache_line_bytes=64)

    profile = profile_at(profiled.transpose(), {"n": 256}, device)

    assert dict(profile.alpha) == {"load.global.32": 1, "store.global.32.x16": 1}
    assert profile.uncoal_per_mw == 16


def test_counts_without_contraction() -> None:
    profile = profile_at(profiled.saxpy(), {"n": 64}, contract=False)

    assert profile.alpha["mul.f32"] == profile.alpha["add.f32"] == 1
    assert profile.total_flops == 2 * 64


def test_registers_that_nobody_declared_are_asked_for() -> None:
    profiler = profile_kernel(profiled.saxpy(), K620)

    with pytest.raises(
        ModelNotApplicableError, match=r"state them.*registers_per_work_item=N"
    ) as raised:
        profiler.at({"n": 64})
    assert raised.value.parameter == "registers_per_work_item"


@pytest.mark.parametrize("known", [{"occupancy": 8.0}, {"active_groups": 4}])
def test_registers_are_not_needed_where_the_occupancy_is_known(known: dict[str, Any]) -> None:
    found = profile_kernel(profiled.saxpy(), K620, **known).at({"n": 64})

    assert found.profile.registers_per_work_item is None
    assert (found.launch.occupancy, found.launch.active_groups) == (
        known.get("occupancy"),
        known.get("active_groups"),
    )


@pytest.mark.parametrize(
    ("sizes", "parameter"),
    [({}, "n"), ({"n": 64, "m": 1}, "m"), ({"n": 65}, None), ({"n": 64.5}, "n")],
)
def test_sizes_are_checked(sizes: dict[str, Any], parameter: str | None) -> None:
    profiler = profile_kernel(profiled.saxpy(), K620, registers_per_work_item=16)

    with pytest.raises(ParameterError) as raised:
        profiler.at(sizes)
    assert raised.value.parameter == parameter


@pytest.mark.parametrize("field", ["sub_group_size", "cache_line_bytes"])
def test_a_device_without_sub_groups_or_lines_is_refused(field: str) -> None:
    device = example_device(cache_line_bytes=64).replaced(**{field: None})
    profiler = profile_kernel(profiled.saxpy(), device)

    with pytest.raises(DeviceParameterError, match=field) as raised:
        profiler.at({"n": 64})
    assert raised.value.field == field


def _gather() -> Any:
    unit = lp.make_kernel(
        "{ [i]: 0 <= i < n }",
        "z[i] = x[index[i]]",
        [
            lp.GlobalArg("index", "int32", shape="n"),
            lp.GlobalArg("x,z", "float32", shape="n"),
            lp.ValueArg("n", "int32"),
        ],
        assumptions="n mod 64 = 0 and n >= 64",
        lang_version=(2018, 2),
    )
    return profiled.spread(unit, "i", 64)


def test_lines_of_addresses_that_are_data_are_declared() -> None:
    with pytest.raises(DataDependentControlFlowError, match="'x': 'indirect'"):
        profile_at(_gather(), {"n": 128})

    profile = profile_at(_gather(), {"n": 128}, lines={"x": 32})

    assert profile.alpha == {
        "load.global.32": 1,
        "load.global.32.x8": 1,
        "store.global.32": 1,
    }
    assert profile.idg is not None
    assert (0, 1) in profile.idg.edges


def test_a_sparse_matrix_needs_statistics_and_lines() -> None:
    lines = {"values": 32, "columns": 32, "x": 32, "starts": 999}
    options: dict[str, Any] = {"statistics": {"j": 4}, "lines": lines}
    sizes = {"n": 64}

    with pytest.raises(DataDependentControlFlowError, match="statistics="):
        profile_at(spmv(), sizes)
    with pytest.raises(DataDependentControlFlowError, match="'values': 'indirect'"):
        profile_at(spmv(), sizes, statistics={"j": 4})
    profile = profile_at(spmv(), sizes, **options)

    assert dict(profile.alpha) == {
        "load.global.32": 2,  # where the row begins and ends: not declared, but known
        "add.i32": 1,
        "load.global.32.x8": 4 * 3,
        "fma.f32": 4,
        "store.global.32": 1,
    }


def test_a_kernel_of_several_launches_has_several_profiles() -> None:
    unit = lp.make_kernel(
        "{ [i, j]: 0 <= i, j < n }",
        """
        y[i] = 2 * x[i] {id=first}
        ... gbarrier {id=barrier, dep=first}
        z[j] = y[n - 1 - j] {dep=barrier}
        """,
        [lp.GlobalArg("x,y,z", "float32", shape="n"), lp.ValueArg("n", "int32")],
        assumptions="n mod 64 = 0 and n >= 64",
        lang_version=(2018, 2),
    )
    unit = profiled.spread(profiled.spread(unit, "i", 64), "j", 64)
    profiler = profile_kernel(unit, K620, registers_per_work_item=16)

    with pytest.raises(ModelNotApplicableError, match="2 device programs"):
        profiler.at({"n": 128})
    (first, once), (second, again) = profiler.launches_at({"n": 128})

    assert (once, again) == (1, 1)
    assert first.profile.alpha["mul.f32"] == 1
    assert dict(second.profile.alpha) == {"load.global.32": 1, "store.global.32": 1}


def test_a_kernel_that_does_nothing_is_refused() -> None:
    unit = catalog.entry("empty/16x16").builder()

    with pytest.raises(ModelNotApplicableError, match="executes nothing"):
        profile_at(unit, {"n": 64, "m": 64})


_LIBRARY = [
    each
    for each in catalog.entries(purpose=None)
    if each.group_shape in ((16, 16), (256, 1)) and each.family != "empty"
    if each.purpose != "application"  # whose groups are not all full
]


@pytest.mark.parametrize("entry", _LIBRARY, ids=lambda each: each.name)
def test_the_library_has_profiles(entry: Any) -> None:
    profiler = profile_kernel(entry.builder(), K620, registers_per_work_item=32)
    assert isinstance(profiler, KernelProfiler)
    sizes = dict(entry.check_parameters)

    profile = profiler.at(sizes).profile

    # together, the sub-groups of the middle group execute what is counted on average
    graphs = profile.sub_group_idgs or (profile.idg,)
    assert None not in graphs
    total = sum(len(graph.nodes) for graph in graphs if graph is not None)
    assert total == pytest.approx(len(graphs) * sum(profile.alpha.values()), rel=1e-12)


def test_all_refusals_are_ours() -> None:
    unit = lp.make_kernel(
        "{ [i]: 0 <= i < 64 }",
        "x[i] = x[i] + 1 {atomic}",
        [lp.GlobalArg("x", "float32", shape=64, for_atomic=True)],
        lang_version=(2018, 2),
    )

    with pytest.raises(CountperfError, match="plain assignment"):
        profile_kernel(unit, K620)


@pytest.mark.parametrize(
    ("slug", "stride", "coalesced", "transactions"),
    [
        ("nvidia-8800-gtx", 1, True, 1),
        ("nvidia-8800-gtx", 2, False, 32),
        ("nvidia-8800-gtx", 3, False, 32),
        ("nvidia-8800-gtx", 0, False, 32),  # one address is not the k-th word for the k-th item
        ("nvidia-gtx-280", 2, False, 2),
        ("nvidia-gtx-280", 3, False, 3),
        ("nvidia-gtx-280", 32, False, 32),
        ("nvidia-gtx-280", 0, True, 1),
    ],
)
def test_coalescing_is_that_of_hong_and_kim(
    slug: str, stride: int, coalesced: bool, transactions: float
) -> None:
    unit = lp.make_kernel(
        "{ [i]: 0 <= i < n }",
        f"y[i] = x[{stride}*i]",
        [
            lp.GlobalArg("x", "float32", shape=f"{max(stride, 1)}*n"),
            lp.GlobalArg("y", "float32", shape="n"),
            lp.ValueArg("n", "int32"),
        ],
        assumptions="n mod 128 = 0 and n >= 128",
        lang_version=(2018, 2),
    )
    unit = profiled.spread(unit, "i", 128)

    found = profile_kernel(unit, load_device(slug), registers_per_work_item=10).at({"n": 1280})

    profile = found.profile
    assert profile.alpha_mem_coal == (2 if coalesced else 1)
    assert profile.alpha_mem_uncoal == (0 if coalesced else 1)
    assert profile.uncoal_per_mw == transactions


def test_barriers_are_issued_like_computations_in_mwp_cwp() -> None:
    device = load_device("nvidia-8800-gtx")
    unit = catalog.entry("matmul-tiled/square/16x16").builder()
    found = profile_kernel(unit, device, registers_per_work_item=10).at({"n": 64, "m": 64, "l": 64})
    costed = device.replaced(classes=load_device("nvidia-c2050").classes)
    adapted = with_known_classes(costed, found.profile.alpha)[0]

    inputs = MwpCwpModel(device=adapted).inputs(found.profile, found.launch)

    assert found.profile.alpha_sync is not None
    assert found.profile.alpha_sync > 0
    assert inputs.alpha_comp == found.profile.alpha_comp + found.profile.alpha_sync  # pyright: ignore[reportOptionalOperand] - kernels have it
    assert inputs.alpha_sync == found.profile.alpha_sync
