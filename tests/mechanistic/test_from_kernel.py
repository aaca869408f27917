"""Profiles of Loopy kernels against what is worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from countperf import errors
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.mechanistic.classes import with_known_classes
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.mwp_cwp import MwpCwpModel
from countperf.mechanistic.profile import InstructionGraph, KernelProfile
from measurement_kernels import catalog
from tests.counting import profiled
from tests.counting.applications import spmv
from tests.kernels import made
from tests.mechanistic.builders import example_device

K620 = load_device("nvidia-k620")  # sub-groups of 32, sectors of 32 bytes


def profile_at(
    t_unit: Any, sizes: dict[str, int], device: DeviceParameters = K620, **options: Any
) -> KernelProfile:
    given: dict[str, Any] = {"registers_per_work_item": 16, **options}
    return profile_kernel(t_unit, device, **given).at(sizes).profile


def spread(loops: str, body: str, arguments: str, group: int = 64, **options: Any) -> Any:
    """Spread loops from 0 to n over groups."""
    split = " ".join(f"{name}:{group}" for name in loops)
    domain, assumed = ", ".join(f"{i}<n" for i in loops), f"n mod {group} = 0 and n >= {group}"
    return made(domain, body, f"{arguments}; n i32", split=split, assumptions=assumed, **options)


def matmul() -> Any:
    return catalog.entry("matmul-tiled/square/16x16").builder()


def test_saxpy() -> None:
    kernel = profile_kernel(profiled.saxpy(), K620, registers_per_work_item=10).at({"n": 1024})
    assert (kernel.launch.work_items_per_group, kernel.launch.num_groups) == (64, 16)
    profile = kernel.profile
    assert dict(profile.alpha) == {"load.global.32": 2, "fma.f32": 1, "store.global.32": 1}
    assert profile.idg == InstructionGraph(
        ["load.global.32", "load.global.32", "fma.f32", "store.global.32"], [(0, 2), (1, 2), (2, 3)]
    )
    assert (profile.alpha_comp, profile.alpha_mem, profile.alpha_sync) == (1, 3, 0)
    assert (profile.alpha_mem_coal, profile.alpha_mem_uncoal) == (3, 0)
    assert (profile.load_bytes_per_sub_group, profile.gmem_bytes) == (128, 3 * 128)
    assert (profile.total_flops, profile.total_bytes) == (2 * 1024, 3 * 4 * 1024)
    assert (profile.work, profile.span) == (1024, 3)
    assert profile.transactions == 3 * 32  # lines of 128 bytes
    assert (profile.ins_cuda, profile.ins_issued) == (1, 4)
    assert (profile.registers_per_work_item, profile.local_bytes_per_group) == (10, 0)
    assert not profile.idg_is_sample


def _find_requests(profile: KernelProfile, sub_groups: float) -> float:
    """Return what a sub-group asks for, byte."""
    assert profile.traffic is not None
    return profile.traffic.asked / sub_groups


def test_transposition_touches_one_line_or_one_for_each_item() -> None:
    profile = profile_at(profiled.transpose(), {"n": 256})
    # a sub-group reads 128 bytes of a row and writes 32 sectors of 32 bytes, in 32 lines
    assert dict(profile.alpha) == {"load.global.32": 1, "store.global.32.x8": 1}
    assert (profile.alpha_mem_coal, profile.alpha_mem_uncoal) == (1, 1)
    assert profile.uncoal_per_mw == 32
    assert _find_requests(profile, 256 * 256 / 32) == 128 + 32 * 32
    assert profile.transactions == (1 + 32) * 256 * 256 / 32
    assert profile.ins_issued == 2 + 31
    # a CPU moves lines
    cpu = example_device(sub_group_size=16, cache_line_bytes=64)
    profile = profile_at(profiled.transpose(), {"n": 256}, cpu)
    assert dict(profile.alpha) == {"load.global.32": 1, "store.global.32.x16": 1}
    assert profile.uncoal_per_mw == 16


def test_neighbors_of_a_stencil_reach_into_the_next_line() -> None:
    profile = profile_at(profiled.stencil(), {"n": 256})
    # x[i] fills four sectors, x[i+1] and x[i+2] reach into a fifth
    loads = {"load.global.32": 1, "load.global.32.x1.25": 2}
    assert dict(profile.alpha) == {**loads, "add.f32": 2, "store.global.32": 1}
    assert _find_requests(profile, 256 / 32) == 128 + 160 + 160 + 128
    assert (profile.alpha_mem_coal, profile.alpha_mem_uncoal) == (2, 2)
    assert profile.uncoal_per_mw == 2  # two lines where one would do


def test_tiled_matrix_product() -> None:
    profile = profile_at(matmul(), {"n": 64, "m": 96, "l": 128})
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
    profile = profile_at(catalog.entry("finite-differences/16x16").builder(), {"n": 64})
    graphs = profile.sub_group_idgs
    assert graphs is not None
    assert len(graphs) == 8
    assert profile.idg_is_sample
    assert profile.repetitions(graphs) == pytest.approx(1, rel=1e-12)  # together exact
    fetches = sum(v for name, v in profile.alpha.items() if name.startswith("load.global"))
    assert fetches == 18 / 8


def test_a_long_program_is_a_sample() -> None:
    sizes = {"n": 64, "m": 4096, "l": 64}
    whole = profile_at(matmul(), sizes)
    short = profile_at(matmul(), sizes, max_instructions=1000)
    assert short.alpha == whole.alpha
    assert short.idg is not None
    assert len(short.idg.nodes) < 1100
    assert short.idg_is_sample
    assert short.repetitions() * len(short.idg.nodes) == sum(whole.alpha.values())


def test_registers_are_asked_for_where_the_occupancy_is_not_known() -> None:
    with pytest.raises(
        errors.ModelNotApplicableError, match=r"registers_per_work_item=N"
    ) as raised:
        profile_kernel(profiled.saxpy(), K620).at({"n": 64})
    assert raised.value.parameter == "registers_per_work_item"
    known: tuple[dict[str, Any], ...] = ({"occupancy": 8.0}, {"active_groups": 4})
    for options in known:
        stated = profile_kernel(profiled.saxpy(), K620, **options).at({"n": 64})
        assert stated.profile.registers_per_work_item is None
        launch = {
            "occupancy": stated.launch.occupancy,
            "active_groups": stated.launch.active_groups,
        }
        assert {name: value for name, value in launch.items() if value} == options


@pytest.mark.parametrize(
    ("sizes", "parameter"),
    [({}, "n"), ({"n": 64, "m": 1}, "m"), ({"n": 65}, None), ({"n": 64.5}, "n")],
)
def test_sizes_are_checked(sizes: dict[str, Any], parameter: str | None) -> None:
    with pytest.raises(errors.ParameterError) as raised:
        profile_at(profiled.saxpy(), sizes)
    assert raised.value.parameter == parameter


@pytest.mark.parametrize("field", ["sub_group_size", "cache_line_bytes"])
def test_a_device_without_sub_groups_or_lines_is_refused(field: str) -> None:
    device = example_device(cache_line_bytes=64).with_values(**{field: None})
    with pytest.raises(errors.DeviceParameterError, match=field) as raised:
        profile_at(profiled.saxpy(), {"n": 64}, device)
    assert raised.value.field == field


def test_lines_of_addresses_that_are_data_are_declared() -> None:
    gather = spread("i", "z[i] = x[index[i]]", "index i32 n; x,z f32 n")
    with pytest.raises(errors.DataDependentControlFlowError, match="'x': 'indirect'"):
        profile_at(gather, {"n": 128})
    profile = profile_at(gather, {"n": 128}, lines={"x": 32})
    assert profile.alpha == {"load.global.32": 1, "load.global.32.x8": 1, "store.global.32": 1}
    assert profile.idg is not None
    assert (0, 1) in profile.idg.edges


def test_a_sparse_matrix_needs_statistics_and_lines() -> None:
    lines = {"values": 32, "columns": 32, "x": 32, "starts": 999}
    with pytest.raises(errors.DataDependentControlFlowError, match="statistics="):
        profile_at(spmv(), {"n": 64})
    with pytest.raises(errors.DataDependentControlFlowError, match="'values': 'indirect'"):
        profile_at(spmv(), {"n": 64}, statistics={"j": 4})
    profile = profile_at(spmv(), {"n": 64}, statistics={"j": 4}, lines=lines)
    stated = {"j": 4, "values": "indirect", "columns": "indirect", "x": "indirect"}
    assert profile_at(spmv(), {"n": 64}, statistics=stated).alpha == profile.alpha
    assert dict(profile.alpha) == {
        "load.global.32": 2,  # where the row begins and ends: not declared, but known
        "add.i32": 1,
        "load.global.32.x8": 4 * 3,
        "fma.f32": 4,
        "store.global.32": 1,
    }


def test_a_kernel_of_several_launches_has_several_profiles() -> None:
    lines = (
        "y[i] = 2 * x[i] {id=first}",
        "... gbarrier {id=barrier, dep=first}",
        "z[j] = y[n - 1 - j] {dep=barrier}",
    )
    unit = spread("ij", "\n".join(lines), "x,y,z f32 n")
    profiler = profile_kernel(unit, K620, registers_per_work_item=16)
    with pytest.raises(errors.ModelNotApplicableError, match="2 device programs"):
        profiler.at({"n": 128})
    (first, once), (second, again) = profiler.launches_at({"n": 128})
    assert (once, again) == (1, 1)
    assert first.profile.alpha["mul.f32"] == 1
    assert dict(second.profile.alpha) == {"load.global.32": 1, "store.global.32": 1}


def test_kernels_that_do_nothing_or_work_atomically_are_refused() -> None:
    with pytest.raises(errors.ModelNotApplicableError, match="executes nothing"):
        profile_at(catalog.entry("empty/16x16").builder(), {"n": 64, "m": 64})
    atomic = spread("i", "x[i] = x[i] + 1 {atomic}", "x f32 n", arrays={"for_atomic": True})
    with pytest.raises(errors.CountperfError, match="plain assignment"):
        profile_kernel(atomic, K620)


_LIBRARY = [
    entry
    for entry in catalog.entries(purpose=None)
    if entry.group_shape in ((16, 16), (256, 1)) and entry.family != "empty"
    if entry.purpose != "application"  # whose groups are not all full
]


@pytest.mark.parametrize("entry", _LIBRARY, ids=lambda entry: entry.name)
def test_the_library_has_profiles(entry: Any) -> None:
    profile = profile_at(entry.builder(), dict(entry.check_parameters))
    # together, the sub-groups of the middle group execute what is counted on average
    graphs = profile.sub_group_idgs or (profile.idg,)
    assert None not in graphs
    total = sum(len(graph.nodes) for graph in graphs if graph is not None)
    assert total == pytest.approx(len(graphs) * sum(profile.alpha.values()), rel=1e-12)


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
    arguments = f"x f32 {max(stride, 1)}*n; y f32 n"
    unit = spread("i", f"y[i] = x[{stride}*i]", arguments, 128)
    profile = profile_at(unit, {"n": 1280}, load_device(slug))
    assert profile.alpha_mem_coal == (2 if coalesced else 1)
    assert profile.alpha_mem_uncoal == (0 if coalesced else 1)
    assert profile.uncoal_per_mw == transactions


def test_barriers_are_issued_like_computations_in_mwp_cwp() -> None:
    device = load_device("nvidia-8800-gtx")
    sizes = {"n": 64, "m": 64, "l": 64}
    product = profile_kernel(matmul(), device, registers_per_work_item=10).at(sizes)
    costed = device.with_values(classes=load_device("nvidia-c2050").classes)
    adapted = with_known_classes(costed, product.profile.alpha)[0]
    inputs = MwpCwpModel(device=adapted).inputs(product)
    assert product.profile.alpha_sync
    assert inputs.alpha_comp == product.profile.alpha_comp + product.profile.alpha_sync  # pyright: ignore[reportOptionalOperand] - kernels have it
    assert inputs.alpha_sync == product.profile.alpha_sync
