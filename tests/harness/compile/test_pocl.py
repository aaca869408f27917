"""Kernels of which it is known how PoCL compiles them, and what stands in the way."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import DeviceError, KernelBuildError, ParameterError
from countperf.harness.binding import bind_arguments
from countperf.harness.compile import build
from countperf.harness.compile import pocl as module
from countperf.harness.compile.compiled_kernel import read_compiled
from countperf.harness.compile.pocl import codes_of, compile_with_pocl
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.harness.session import Session, build_kernel
from countperf.machine_code.code import CompiledCode
from countperf.machine_code.objdump import disassemble, find_objdump
from measurement_kernels import catalog
from tests.harness.fakes import make_device
from tests.harness.loopy_cases import double, row_sums, two_launches

needs_objdump = pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")


@cache
def ragged_sums(group: int = 16) -> Any:
    """Sum rows whose lengths are data: each work item has a loop of its own."""
    unit = lp.make_kernel(
        ["{[i]: 0<=i<n}", "{[j]: 0<=j<m}"],
        """
        for i
            <> m = length[i]
            out[i] = sum(j, a[j,i])
        end
        """,
        [
            lp.GlobalArg("a", np.float32, shape="n,n"),
            lp.GlobalArg("out", np.float32, shape="n"),
            lp.GlobalArg("length", np.int32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        name="ragged_sums",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "i", group, outer_tag="g.0", inner_tag="l.0")
    return lp.assume(unit, f"n mod {group} = 0 and n >= {group}")


@cache
def axpy(group: int = 64) -> Any:
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        "y[i] = factor*x[i] + y[i]",
        [
            lp.GlobalArg("x,y", np.float32, shape="n"),
            lp.ValueArg("factor", np.float32),
            lp.ValueArg("n", np.int32),
        ],
        name="axpy",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "i", group, outer_tag="g.0", inner_tag="l.0")
    return lp.assume(unit, f"n mod {group} = 0 and n >= {group}")


@pytest.fixture(scope="module")
def pocl() -> Device:
    try:
        return find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))


UNITS = {
    "axpy": (axpy, {"n": 256}),
    "two axes": (catalog.entry("group-shapes/axpy-2d-192/48x4").build, {"n": 8, "m": 144}),
    "alone": (lambda: double(1), {"n": 8}),
    "ragged": (ragged_sums, {"n": 32}),
    "row sums": (row_sums, {"n": 32, "m": 8}),
    "two launches": (two_launches, {"n": 32}),
    "too large": (lambda: double(2**16), {"n": 2**16}),
    "behind it": (axpy, {"n": 256}),
}


_Compiled = dict[str, dict[str, CompiledCode] | KernelBuildError]


@pytest.fixture(scope="module")
def compiled(pocl: Device) -> _Compiled:
    units = [(build(), sizes) for build, sizes in UNITS.values()]
    found = zip(UNITS.items(), read_compiled(units, pocl), strict=True)
    return {
        name: each if isinstance(each, KernelBuildError) else codes_of(each, sizes)
        for (name, (_, sizes)), each in found
    }


def _codes(compiled: _Compiled, name: str) -> list[CompiledCode]:
    found = compiled[name]
    assert not isinstance(found, KernelBuildError)
    return [*found.values()]


@pytest.mark.device
@needs_objdump
def test_stride_1_arithmetic_runs_in_vectors(compiled: _Compiled) -> None:
    (code,) = _codes(compiled, "axpy")
    shares = code.shares(innermost=True)

    assert (code.kernel, code.group_shape) == ("axpy", (64, 1, 1))
    assert shares.packed == shares.fused == 1
    assert code.totals()["load.scalar.32"] == 1  # the factor
    assert shares.mean_lanes is not None
    assert shares.mean_lanes >= 4
    # the loop over the items of a group is unrolled: every one of them is in the code
    fused = {name: n for name, n in code.totals().items() if name.startswith("flop.fma.f32")}
    assert sum(int(name.rpartition(".")[2]) * count for name, count in fused.items()) == 64


@pytest.mark.device
@needs_objdump
def test_a_version_for_indices_that_overflow_is_left_aside(compiled: _Compiled) -> None:
    (code,) = _codes(compiled, "two axes")

    assert code.aside["flop.fma.f32.1"] >= 1
    assert code.shares(innermost=True).packed == code.shares().packed == 1


@pytest.mark.device
@needs_objdump
def test_a_group_of_one_item_is_scalar(compiled: _Compiled) -> None:
    (code,) = _codes(compiled, "alone")
    totals = code.totals()

    assert [region.name for region in code.regions] == ["body"]
    assert totals["load.scalar.32"] == totals["store.scalar.32"] == 1
    shares = code.shares()
    assert (shares.packed, shares.mean_lanes, shares.vector_accesses) == (0, 1, 0)


@pytest.mark.device
@needs_objdump
@pytest.mark.parametrize("name", ["ragged", "row sums"])
def test_loops_of_an_item_keep_it_from_vectors(name: str, compiled: _Compiled) -> None:
    (code,) = _codes(compiled, name)
    loops = [region for region in code.regions if region.depth]

    assert loops
    assert any("flop." in key for loop in loops for key in loop.counts)
    assert code.shares(innermost=True).packed == 0
    assert code.shares(innermost=True).vector_accesses == 0


@pytest.mark.device
@needs_objdump
def test_each_launch_and_each_unit_has_code_of_its_own(compiled: _Compiled) -> None:
    names = [code.kernel for code in _codes(compiled, "two launches")]

    assert names == ["two_launches", "two_launches_0"]
    assert compiled["behind it"] == compiled["axpy"]


@pytest.mark.device
@needs_objdump
def test_a_kernel_that_cannot_run_says_why_and_keeps_no_other_from_it(
    compiled: _Compiled, pocl: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = compiled["too large"]
    monkeypatch.setattr(module, "read_compiled", lambda *_: (failed,))

    assert _codes(compiled, "behind it")
    with pytest.raises(KernelBuildError, match="groups of 65536 work items"):
        compile_with_pocl(double(2**16), pocl, {"n": 2**16})


@pytest.mark.device
def test_missing_sizes_are_named(pocl: Device) -> None:
    with pytest.raises(ParameterError, match=r"'row_sums': no value for parameter m") as caught:
        compile_with_pocl(row_sums(), pocl, {"n": 32})

    assert caught.value.parameter == "m"


@needs_objdump
def test_what_no_other_process_can_have_is_refused() -> None:
    device = make_device("pocl:0", "CPU", platform="Portable Computing Language")
    entry = SimpleNamespace(name="odd", args=[])
    unit = SimpleNamespace(default_entrypoint=entry, function=lambda: 0)

    with pytest.raises(KernelBuildError, match=r"kernel 'odd' cannot be handed to another process"):
        compile_with_pocl(unit, device, {})


def test_devices_that_keep_no_code_are_refused() -> None:
    device = make_device("intel:0", "CPU", platform="Intel(R) OpenCL")

    with pytest.raises(DeviceError, match=r"intel:0 \(Intel\(R\) OpenCL\) does not keep"):
        compile_with_pocl(double(), device, {"n": 16})


def test_without_objdump_there_is_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COUNTPERF_OBJDUMP", "/no/such/objdump")

    with pytest.raises(DeviceError, match="no objdump found: install binutils"):
        disassemble(tmp_path / "kernel.so")


@needs_objdump
def test_what_is_no_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_text("nothing of the kind")

    with pytest.raises(DeviceError, match=r"does not read kernel\.so"):
        disassemble(path)


def test_llvm_is_found_by_its_highest_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for version in ("9", "14"):
        (tmp_path / f"llvm-objdump-{version}").touch()
    monkeypatch.delenv("COUNTPERF_OBJDUMP", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_objdump() == tmp_path / "llvm-objdump-14"


_EVERY_GROUP = """
import os, sys
from pathlib import Path
from countperf.harness.compile import build
place = Path(sys.argv[1])
os.environ["POCL_CACHE_DIR"] = str(place / build.CACHE)
if sys.argv[2] == "all":
    build.fewest_groups = lambda groups, group_shape: groups
build.main(place)
"""


def _code_of_launch(folder: Path, unit: Any, sizes: dict[str, int], groups: str) -> dict[str, str]:
    """Return the disassembled code by the name that PoCL gives its folder."""
    (folder / build.CACHE).mkdir(parents=True)
    (folder / build.UNITS).write_bytes(pickle.dumps(("pocl:0", [(unit, sizes)])))
    subprocess.run([sys.executable, "-c", _EVERY_GROUP, str(folder), groups], check=True)
    (outcome,) = (folder / build.OUTCOMES).read_text().splitlines()
    assert json.loads(outcome)["problem"] == ""
    return {
        Path(path).parent.name: disassemble(Path(path)).replace(str(folder), "")
        for path in json.loads(outcome)["objects"]
    }


@needs_objdump
@pytest.mark.parametrize("n", [64 * 1023, 65536, 2**20])
def test_few_groups_give_the_code_of_a_launch_of_all(tmp_path: Path, pocl: Device, n: int) -> None:
    assert pocl.label == "pocl:0"
    whole = _code_of_launch(tmp_path / "all", axpy(), {"n": n}, "all")
    few = _code_of_launch(tmp_path / "few", axpy(), {"n": n}, "few")
    assert few == whole
    assert any(name.endswith("smallgrid") for name in few) == (n < 65535)


def test_a_launch_runs_the_groups_that_are_chosen(pocl: Device) -> None:
    session = Session.open(pocl)
    kernel = build_kernel(session, axpy(), choose_groups=lambda *_: (2,))
    n = 640
    ones = np.ones(n, np.float32)
    bound = bind_arguments(session, kernel, {"n": n, "factor": 2}, {"x": ones, "y": ones.copy()})
    kernel.launch(bound.arguments)
    session.finish()
    assert bound.read("y").tolist() == [3.0] * 128 + [1.0] * 512
