"""Kernels of which it is known how PoCL compiles them, what stands in the way, and what is kept."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest
from loopy import TranslationUnit

from countperf.caches import OBJECTS
from countperf.devices.binding import bind_arguments
from countperf.devices.compile import objects
from countperf.devices.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.devices.compile.objects import key_of
from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.devices.opencl import OpenCLSession
from countperf.errors import CacheWarning, DeviceError, ParameterError
from countperf.machine_code.object_file import disassemble
from countperf.machine_code.tools import find_objdump
from measurement_kernels import catalog
from tests.devices.fakes import make_device
from tests.devices.loopy_cases import double, row_sums, two_launches
from tests.kernels import made

needs_objdump = pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")


@cache
def axpy(group: int = 64) -> Any:
    whole = f"n mod {group} = 0 and n >= {group}"
    arguments = "x,y f32 n; factor f32; n i32"
    body = "y[i] = factor*x[i] + y[i]"
    return made("i<n", body, arguments, assumptions=whole, name="axpy", split=f"i:{group}")


def triangle() -> Any:
    """Sums over the columns up to the diagonal, one multiply-add each."""
    domain = "{ [i, j] : 0 <= i < n and 0 <= j <= i }"
    return made(domain, "z[i] = sum(j, x[j] * y[i])", "x,y,z f32 n; n i32", split="i:32")


def calls_functions() -> Any:
    def function(name: str, body: str) -> Any:
        arguments = [lp.GlobalArg("x,y", np.float32, shape="m"), lp.ValueArg("m", np.int32)]
        return lp.make_function("{[j]: 0<=j<m}", body, arguments, name=name, lang_version=(2018, 2))

    inner = function("inner", "y[j] = 2*x[j]")
    outer = function("outer", "[j]: y[j] = inner([j]: x[j], m)")
    caller = made("i<n", "[i]: z[i] = outer([i]: x[i], n)", "x,z f32 n; n i32")
    return lp.merge([caller, outer, inner])


def sparse_product(extent: str | None) -> Any:
    body = "for i\n<> s = starts[i]\n<> e = starts[i+1]\ny[i] = sum(j, value[j]*x[column[j]])\nend"
    data = (lp.GlobalArg(n, t, shape=extent) for n, t in (("column", "i4"), ("value", "f4")))
    arguments = "starts i32 n+1; x,y f32 n; n,q i32"
    domains = ["i<n", "{[j]: s<=j<e}"]
    return made(domains, body, arguments, *data, assumptions="n>=64", split="i:64")


SPARSE = {"n": 4096, "q": 81920}
WORD = made("i<lambda", "z[i] = 2*x[i]", "x,z f32 lambda; lambda i32")
UNITS = {
    "axpy": (axpy(), {"n": 256}),
    "alone": (double(1), {"n": 8}),
    "two launches": (two_launches(), {"n": 32}),
    "too large": (double(2**16), {"n": 2**16}),
    "behind it": (axpy(), {"n": 256}),
    "triangle": (triangle(), {"n": 1000}),
    "functions": (calls_functions(), {"n": 64}),
    "a word": (WORD, {"lambda": 8}),
    "declared": (sparse_product("q"), SPARSE),
    "undeclared": (sparse_product(None), SPARSE),
}
FAILURES = {
    "too large": "groups of 65536 work items",
    "a word": "give another name to what is called like a word of Python's",
    "undeclared": "has no declared shape, and data decides how far",
}


@pytest.mark.device
@needs_objdump
def test_each_launch_and_each_unit_has_code_of_its_own(pocl: Device) -> None:
    compiled = dict(zip(UNITS, read_compiled([*UNITS.values()], pocl), strict=True))
    for name, said in FAILURES.items():  # they say why, and keep no other from running
        assert said in str(compiled.pop(name))
    kernels = {name: k for name, k in compiled.items() if isinstance(k, CompiledKernel)}
    assert kernels.keys() == compiled.keys()
    assert {"two_launches", "two_launches_0"} <= set(kernels["two launches"].programs)
    counts = kernels["axpy"].counts({"n": 256})
    assert counts == kernels["behind it"].counts({"n": 256})
    assert counts["code.store_vector"] >= 256 // 16
    assert "code.store_vector" not in kernels["alone"].counts({"n": 8})
    # every group of a triangle executes what its rows have
    followed = kernels["triangle"]
    counts = followed.counts({"n": 1000}, every_group=True)
    assert counts["code.arithmetic_scalar"] == 1000 * 1001 // 2
    few = followed.counts({"n": 1000})
    assert few["code.arithmetic_scalar"] == pytest.approx(1000 * 1001 / 2, rel=0.001)
    counts = kernels["declared"].counts(SPARSE, {"j": 20})
    # an addition and a product of each of the elements
    assert counts["code.arithmetic_scalar"] + counts.get("code.arithmetic_vector", 0) >= 81920


@pytest.mark.device
def test_missing_sizes_are_named(pocl: Device) -> None:
    with pytest.raises(ParameterError, match=r"'row_sums': no value for parameter m") as caught:
        read_compiled([(row_sums(), {"n": 32})], pocl)
    assert caught.value.parameter == "m"


@needs_objdump
def test_what_no_other_process_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TypeError("cannot be pickled")

    device = make_device("pocl:0", "CPU", platform="Portable Computing Language")
    monkeypatch.setattr(TranslationUnit, "__reduce_ex__", refuse)
    (refused,) = read_compiled([(double(), {"n": 16})], device)
    said = "is not compiled in a process of its own: cannot"
    assert str(refused).startswith(f"kernel {double().default_entrypoint.name!r} {said}")


@needs_objdump
def test_what_keeps_no_code_is_no_object_or_lacks_objdump_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = make_device("nvidia:0", "GPU", platform="NVIDIA CUDA")
    with pytest.raises(DeviceError, match=r"nvidia:0 \(NVIDIA CUDA\) does not keep"):
        read_compiled([(double(), {"n": 16})], device)
    path = tmp_path / "kernel.so"
    path.write_text("nothing of the kind")
    with pytest.raises(DeviceError, match=r"does not read kernel\.so"):
        disassemble(path)
    monkeypatch.setenv("COUNTPERF_OBJDUMP", "/no/such/objdump")
    with pytest.raises(DeviceError, match="no objdump found: install binutils"):
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
import pickle, sys
from pathlib import Path
from countperf.devices.compile import objects
folder = Path(sys.argv[1])
if sys.argv[2] == "all":
    objects.fewest_groups = lambda groups, group_shape: groups
objects.build_unit("pocl:0", folder, 0, *pickle.loads((folder / "unit").read_bytes()))
"""


def _code_of_launch(folder: Path, unit: Any, sizes: dict[str, int], groups: str) -> dict[str, str]:
    """Return the disassembled code by the name that PoCL gives its folder."""
    folder.mkdir()
    (folder / "unit").write_bytes(pickle.dumps((unit, sizes)))
    subprocess.run([sys.executable, "-c", _EVERY_GROUP, str(folder), groups], check=True)
    return {
        path.parent.name: disassemble(path).replace(str(folder), "")
        for path in folder.rglob("*.so")
    }


@needs_objdump
@pytest.mark.parametrize("n", [64 * 1023, pytest.param(2**20, marks=pytest.mark.nightly)])
def test_few_groups_give_the_code_of_a_launch_of_all(tmp_path: Path, pocl: Device, n: int) -> None:
    assert pocl.label == "pocl:0"
    whole = _code_of_launch(tmp_path / "all", axpy(), {"n": n}, "all")
    few = _code_of_launch(tmp_path / "few", axpy(), {"n": n}, "few")
    assert few == whole
    assert any(name.endswith("smallgrid") for name in few) == (n < 65535)


def test_a_launch_runs_the_groups_that_are_chosen(pocl: Device) -> None:
    session = OpenCLSession(pocl)
    kernel = session.build_kernel(axpy(), choose_groups=lambda *_: (2,))
    n = 640
    ones = np.ones(n, np.float32)
    bound = bind_arguments(session, kernel, {"n": n, "factor": 2}, {"x": ones, "y": ones.copy()})
    kernel.launch(bound.arguments)
    session.finish()
    assert bound.read("y").tolist() == [3.0] * 128 + [1.0] * 512


DEVICE = make_device("pocl:0", "pthread-skylake", platform="Portable Computing Language")


def scaled(factor: int = 2, items: int = 32) -> Any:
    return made(
        "i<n", f"out[i] = {factor}*a[i]", "out,a f32 n; n i32", assumptions="", split=f"i:{items}"
    )


def test_names_tell_apart_what_is_compiled_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(OBJECTS, str(tmp_path))
    name = key_of(scaled(), {"n": 1000}, DEVICE)
    assert name == key_of(scaled(), {"n": 2000}, DEVICE)
    other = make_device("pocl:0", "pthread-znver4", platform="Portable Computing Language")
    names = {
        name,
        key_of(scaled(3), {"n": 1000}, DEVICE),
        key_of(scaled(items=64), {"n": 1000}, DEVICE),
        key_of(scaled(), {"n": 1_000_000}, DEVICE),  # a wide grid
        key_of(scaled(), {"n": 1000}, other),
    }
    monkeypatch.setenv("POCL_WORK_GROUP_METHOD", "loops")
    assert len({*names, key_of(scaled(), {"n": 1000}, DEVICE)}) == 6


KEPT = [(scaled(), {"n": 1000})]
MADE = [[("k.so", b"code")]]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(OBJECTS, str(tmp_path / "objects"))
    monkeypatch.setattr(objects, "_compile", lambda units, _: [*MADE] * len(units))
    return tmp_path / "objects"


def test_a_folder_that_cannot_be_written_keeps_nothing(folder: Path) -> None:
    folder.touch()
    with pytest.warns(CacheWarning, match=f"object files.*set {OBJECTS} to a folder"):
        assert objects.objects_of(KEPT, DEVICE) == MADE


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:9],
        lambda _: b"",
        lambda _: b"cnowhere\nnothing\n.",  # a module that is not there
        lambda _: b"\x80\x04\x8c\x01\xff.",  # a text that is not UTF-8
    ],
)
def test_a_damaged_file_is_made_anew(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    assert objects.objects_of(KEPT, DEVICE) == MADE
    (kept,) = folder.iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    with pytest.warns(CacheWarning, match="cannot be used"):
        assert objects.objects_of(KEPT, DEVICE) == MADE
    assert pickle.loads(kept.read_bytes()) == MADE[0]


@pytest.mark.device
@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
def test_what_is_kept_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pocl: Device
) -> None:
    monkeypatch.setenv(OBJECTS, str(tmp_path))
    units = [(scaled(factor), {"n": 1000}) for factor in (2, 3)]
    (first,) = read_compiled(units[:1], pocl)
    both = read_compiled(units, pocl)
    monkeypatch.setattr(objects, "Pool", None)  # nothing is compiled again
    # of another size, and in another order
    again = read_compiled([(unit, {"n": 96}) for unit, _ in reversed(units)], pocl)
    kernels = (*both, *reversed(again), first)
    launches = [k.follow({"n": 96})[0] for k in kernels if isinstance(k, CompiledKernel)]
    counts = [[(group.times, group.executed) for group in each.groups] for each in launches]
    assert counts[0] == counts[2] == counts[4]
    assert counts[1] == counts[3]


@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
@pytest.mark.parametrize("label", ["pocl:0", "intel:0"])
def test_the_code_is_the_same_at_all_sizes(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OBJECTS, "off")
    try:
        device = find_device(label)
    except DeviceError as error:
        pytest.skip(str(error))
    unit = catalog.entry("matmul-tiled/square/16x16/f32").build()
    first, second = (
        read_compiled([(unit, {"n": n, "m": m, "l": k})], device)[0]
        for n, m, k in ((64, 96, 32), (208, 48, 176))
    )
    assert isinstance(first, CompiledKernel)
    assert isinstance(second, CompiledKernel)
    assert first.programs.keys() == second.programs.keys() != set()
    for kernel, program in first.programs.items():
        assert program.lines == second.programs[kernel].lines
