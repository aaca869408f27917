"""Instructions that the code of real runtimes executes, against exact counts of operations."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from countperf.counting.count_properties import count_kernel
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES
from countperf.devices.compile.compiled_kernel import (
    BUSIEST,
    LARGEST,
    CompiledKernel,
    busiest_unit,
    counts_of_many,
    read_compiled,
)
from countperf.devices.compile.objects import HostCode
from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.errors import CountingError, DeviceError
from countperf.machine_code import throughput
from countperf.machine_code.classify_x86 import properties_of
from countperf.machine_code.interpreter import MachineProgram
from countperf.machine_code.machine_state import widest
from countperf.machine_code.object_file import entry_of
from countperf.machine_code.tools import find_analyzer, find_objdump
from countperf.models.function import model_inputs
from countperf.models.shipped import make_compiled_model
from measurement_kernels import catalog
from tests.counting import test_work_groups as shapes
from tests.devices.fakes import make_device

CASES = {
    "vector-scale-add/stride1/256x1/f32": {"n": 4096},
    "matmul-tiled/square/16x16/f32": {"n": 64, "m": 96, "l": 32},
    "atax/128x1/f32": {"n": 256, "m": 128},
    **{"finite-differences/16x16/f32": {"n": 64}, "transpose/tiled/16x16/f32": {"n": 64, "m": 32}},
}
"""Launched in groups that are all alike, but for those at a border of the differences."""
_OPERATION = re.compile(r"v?(fn?m(?:add|sub)+\d*|(?:add|sub)+|mul|div|sqrt)([ps])([sd])")
_BITS = {"s": 32, "d": 64}


@pytest.fixture(scope="module", params=["pocl:0", "intel:0"])
def device(request: pytest.FixtureRequest) -> Device:
    if find_objdump() is None or find_analyzer() is None:
        pytest.skip("objdump or llvm-mca is not installed")
    try:
        return find_device(request.param)
    except DeviceError as error:
        pytest.skip(str(error))


SPMV = catalog.entry("spmv/random/128x1/f32")


@cache
def compiled(device: Device) -> dict[str, CompiledKernel]:
    units = [(catalog.entry(name).build(), sizes) for name, sizes in CASES.items()]
    units.append((SPMV.build(), dict(SPMV.check_parameters)))
    by_name = zip((*CASES, SPMV.name), read_compiled(units, device), strict=True)
    return {name: kernel for name, kernel in by_name if isinstance(kernel, CompiledKernel)}


def operations(kernel: CompiledKernel, sizes: dict[str, int]) -> int:
    """Return operations on numbers that all groups execute, lane by lane."""
    found = 0
    for launch in kernel.follow(sizes):
        (group,) = launch.groups
        for place, count in group.executed.items():
            line = launch.program.lines[place]
            if match := _OPERATION.fullmatch(line.mnemonic):
                lanes = 8 * widest(line.operands) // _BITS[match[3]] if match[2] == "p" else 1
                each = lanes * (2 if match[1].startswith("f") else 1)
                found += each * count * int(group.times)
    return found


UNEVEN: dict[str, tuple[Any, dict[str, int]]] = {
    "no edge": (shapes.ROWS, {"n": 320, "m": 50}),
    "edge": (shapes.ROWS, {"n": 257, "m": 50}),
    "edge of two": (shapes.ROWS, {"n": 65, "m": 50}),
    "edges": (shapes.TILES, {"n": 60, "m": 35}),
    "three axes": (shapes.BLOCKS, {"n": 50, "m": 11, "l": 5}),
    **{"triangle": (shapes.TRIANGLE, {"n": 100}), "half": (shapes.HALF, {"n": 70})},
    **{"band": (shapes.BAND, {"n": 320}), "guard": (shapes.GUARD, {"n": 322})},
    **{"sides": (shapes.SIDES, {"n": 320}), "every second": (shapes.SECOND, {"n": 320})},
    **{"idle groups": (shapes.NAMED, {"n": 320}), "halo": (shapes.HALO, {"n": 321})},
}


@cache
def uneven(device: Device) -> dict[str, CompiledKernel]:
    found = zip(UNEVEN, read_compiled(list(UNEVEN.values()), device), strict=True)
    return {name: kernel for name, kernel in found if isinstance(kernel, CompiledKernel)}


@pytest.mark.device
@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("name", [*CASES][:3])
def test_operations_are_those_of_the_exact_counts(device: Device, name: str, factor: int) -> None:
    kernel = compiled(device)[name]
    sizes = {n: size * factor for n, size in CASES[name].items()}
    exact = count_kernel(catalog.entry(name).build(), view="compiled").evaluate(sizes)
    flops = {each: count for each, count in exact.items() if each.startswith("flop.")}
    expected = sum(count * (2 if ".fma." in each else 1) for each, count in flops.items())
    assert operations(kernel, sizes) == expected


@pytest.mark.device
def test_counts_are_of_all_groups(device: Device) -> None:
    kernel = compiled(device)["transpose/tiled/16x16/f32"]
    once, twice = kernel.counts({"n": 64, "m": 32}), kernel.counts({"n": 128, "m": 32})
    assert once["code.all"] > 0
    assert once["code.cycles"] >= once["code.cycles_throughput"] > 0
    assert {name: 2 * number for name, number in once.items()} == twice


@pytest.mark.device
@pytest.mark.parametrize("name", UNEVEN)
def test_kinds_of_groups_stand_for_all(device: Device, name: str) -> None:
    sizes, kernel = UNEVEN[name][1], uneven(device)[name]
    (launch,) = kernel.follow(sizes)
    assert len(launch.groups) < launch.number_of_groups or launch.number_of_groups <= 4
    each = kernel.counts(sizes, every_group=True)
    if len(launch.groups) == 1:
        assert each.pop(BUSIEST) * device.identity.compute_units >= each["code.cycles"]
        assert each.pop(LARGEST) * launch.number_of_groups == each["code.cycles"]
    assert kernel.counts(sizes) == each


@pytest.mark.device
def test_few_kinds_stand_for_many(device: Device) -> None:
    kernel = uneven(device)["triangle"]
    few, all_ = (kernel.counts({"n": 1000}, every_group=each) for each in (False, True))
    assert len(kernel.follow({"n": 1000})[0].groups) == 3
    for name in ("code.all", "code.cycles"):
        assert few[name] == pytest.approx(all_[name], rel=0.02)


@pytest.mark.device
def test_more_rows_take_no_less_of_the_busiest_unit(device: Device) -> None:
    kernel = uneven(device)["edge"]
    units = device.identity.compute_units
    rounds = make_compiled_model("lanes", units=units)
    busiest: list[float] = []
    for n in (64, 65, 128, 129, 192, 193):
        counts = kernel.counts({"n": n, "m": 50}) | {"groups": -(-n // 64), "launches": 1}
        share = model_inputs(rounds, counts).variables["rounds"]
        busiest.append(float(share) * counts["code.cycles"])
    assert busiest == sorted(busiest)


@pytest.mark.parametrize(
    ("work", "units", "in_chunks", "expected"),
    [
        # the first unit takes two at once
        *(([2, 2, 2], 2, True, 4), ([2, 2, 1], 2, True, 4), ([2, 2, 1], 2, False, 3)),
        ([1, 2, 3, 4], 2, True, 7),  # 1 + 2 beside 3, then 4
        ([1, 2, 3, 4], 2, False, 6),  # 1 + 3 beside 2 + 4
        *(([2, 1], 2, True, 2), ([1] * 1000, 2, True, 500), ([4] * 5, 8, False, 4)),
    ],
)
def test_the_unit_with_the_most_work(
    work: list[float], units: int, in_chunks: bool, expected: float
) -> None:
    assert busiest_unit(np.array(work, np.float64), units, in_chunks=in_chunks) == expected


@pytest.mark.device
def test_all_launches_are_counted(device: Device) -> None:
    kernel = compiled(device)["atax/128x1/f32"]
    assert len(kernel.programs) >= 2
    without_first = {**kernel.programs}
    del without_first["atax"]
    with pytest.raises(CountingError, match="no code of kernel 'atax'"):
        replace(kernel, programs=without_first).counts(CASES["atax/128x1/f32"])


@pytest.mark.device
@pytest.mark.parametrize("mean", [16, 5, Fraction(5, 2)])
def test_loops_over_data_take_their_mean_trip_counts(device: Device, mean: Fraction) -> None:
    kernel, sizes = compiled(device)[SPMV.name], SPMV.check_parameters
    with pytest.raises(CountingError, match=r"loop 'j' runs, bounded by length, is data"):
        kernel.counts(sizes)
    with pytest.raises(CountingError, match=r"statistics={'j': 12.5}"):
        kernel.counts(sizes, {"x": "stride1"})
    more, less = (kernel.counts(sizes, {"j": each}) for each in (mean, mean / 2))
    if device.label.startswith("pocl"):  # a product is fused with an addition, element by element
        assert more["code.arithmetic_scalar"] == mean * sizes["n"]
    assert less["code.all"] < more["code.all"]


def test_other_runtimes_are_refused() -> None:
    entry = catalog.entry("transpose/tiled/16x16/f32")
    with pytest.raises(DeviceError, match="does not keep its machine code"):
        read_compiled([(entry.build(), {"n": 16, "m": 16})], make_device("fake:0", "fake"))


def test_launches_without_a_device() -> None:
    host = HostCode.of(catalog.entry("atax/128x1/f32").build())
    first, second = host.launches({"n": 300, "m": 128})
    assert first.kernel == "atax"
    assert first.arguments == (None, None, None, b"\x2c\x01\x00\x00", b"\x80\x00\x00\x00")
    assert (first.groups, first.group_shape) == ((3, 1, 1), (128, 1, 1))
    assert {first.arrays[k] for k in range(3)} == {"a", "x", "t"}
    assert (second.kernel, second.number_of_groups) == ("atax_0", 1)


@pytest.mark.parametrize(("index", "lanes"), [("dps", 8), ("qpd", 4)])
def test_lanes_of_gathers(index: str, lanes: int) -> None:
    found = dict(properties_of(f"vgather{index}", "(%rax,%ymm1,4),%ymm2{%k1}"))
    assert found == {"code.all": 1, "code.gather": 1, "code.gather_lanes": lanes}


def test_which_function_runs_a_group() -> None:
    intel = MachineProgram((), {"product": 0, "_ZGVeN16uuu_product": 64})
    assert entry_of(intel, "product", (32, 1, 1)) == "_ZGVeN16uuu_product"
    assert entry_of(intel, "product", (8, 2, 1)) == "product"
    pocl = MachineProgram((), {"_pocl_kernel_product_workgroup": 0})
    assert entry_of(pocl, "product", (8, 2, 1)) == "_pocl_kernel_product_workgroup"


@pytest.mark.device
def test_many_kernels_take_one_run_of_the_analyzer(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    *kernels, of_data = compiled(device).values()
    alone = [each.counts(sizes) for each, sizes in zip(kernels, CASES.values(), strict=True)]
    runs: list[int] = []
    run = throughput._run  # pyright: ignore[reportPrivateUsage]

    def counting(blocks: Sequence[Sequence[str]]) -> subprocess.CompletedProcess[str]:
        runs.append(len(blocks))
        return run(blocks)

    monkeypatch.setattr(throughput, "_run", counting)
    l1 = DEFAULT_CACHES.code
    requests = [(each, sizes, {}, l1) for each, sizes in zip(kernels, CASES.values(), strict=True)]
    monkeypatch.setattr(throughput, "_ANALYZED", {})
    *together, refused = counts_of_many([*requests, (of_data, SPMV.check_parameters, {}, l1)])
    assert together == alone
    assert isinstance(refused, CountingError)
    assert len(runs) == 1
