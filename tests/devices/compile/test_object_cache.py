"""Object files that are kept between processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from countperf.caches import OBJECTS
from countperf.devices.compile import objects
from countperf.devices.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.devices.compile.objects import key_of
from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.errors import CacheWarning, DeviceError
from countperf.machine_code.tools import find_objdump
from measurement_kernels import catalog
from tests.devices.fakes import make_device
from tests.kernels import made

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


UNITS = [(scaled(), {"n": 1000})]
MADE = [[("k.so", b"code")]]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(OBJECTS, str(tmp_path / "objects"))
    monkeypatch.setattr(objects, "_compile", lambda units, _: [*MADE] * len(units))
    return tmp_path / "objects"


def test_a_folder_that_cannot_be_written_keeps_nothing(cache: Path) -> None:
    cache.touch()
    with pytest.warns(CacheWarning, match=f"object files.*set {OBJECTS} to a folder"):
        assert objects.objects_of(UNITS, DEVICE) == MADE


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:9],
        lambda _: b"",
        lambda _: b"cnowhere\nnothing\n.",  # a module that is not there
        lambda _: b"\x80\x04\x8c\x01\xff.",  # a text that is not UTF-8
    ],
)
def test_a_file_that_is_damaged_is_made_anew(cache: Path, damage: Callable[[bytes], bytes]) -> None:
    assert objects.objects_of(UNITS, DEVICE) == MADE
    (kept,) = cache.iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    with pytest.warns(CacheWarning, match="cannot be used"):
        assert objects.objects_of(UNITS, DEVICE) == MADE
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
