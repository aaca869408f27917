"""Object files that are kept between processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import CacheWarning, DeviceError
from countperf.harness.compile import object_cache, objects
from countperf.harness.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.harness.compile.object_cache import VARIABLE, keep, kept, key_of
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.machine_code.objdump import find_objdump
from measurement_kernels import catalog
from tests.harness.fakes import make_device

DEVICE = make_device("pocl:0", "pthread-skylake", platform="Portable Computing Language")


def scaled(factor: int = 2, items: int = 32) -> Any:
    unit = lp.make_kernel(
        "{[i]: 0 <= i < n}",
        f"out[i] = {factor}*a[i]",
        [lp.GlobalArg("out, a", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        lang_version=(2018, 2),
    )
    return lp.split_iname(unit, "i", items, outer_tag="g.0", inner_tag="l.0")


def test_names_tell_apart_what_is_compiled_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
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


def test_keeping_and_forgetting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(object_cache, "MOST_ENTRIES", 4)
    path = tmp_path / "k.so"
    path.write_bytes(b"code")

    assert kept("0") is None
    for number in range(5):
        keep(str(number), [path, path])
        if number < 4:
            os.utime(tmp_path / "cache" / str(number), (number, number))

    found = kept("1")
    assert found is not None
    assert [(each.name, each.read_bytes()) for each in found] == [("k.so", b"code")] * 2
    assert kept("0") is None  # the oldest of five
    keep("1", [path])  # again, as another process would
    assert kept("1") == found
    keep("5", [path])  # beyond the limit: the one used longest ago goes, although "1" is older
    assert kept("1") == found
    assert kept("2") is None
    assert sorted(each.name for each in (tmp_path / "cache").iterdir()) == ["1", "3", "4", "5"]
    monkeypatch.setenv(VARIABLE, "off")
    assert kept("1") is None


def test_a_folder_that_cannot_be_written_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))

    with pytest.warns(CacheWarning, match=f"object files.*set {VARIABLE} to a folder"):
        keep("0", [tmp_path / "file"])

    assert kept("0") is None


@pytest.mark.parametrize("content", [b"", b"cod", b"codf"])
def test_objects_that_are_not_as_written_are_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "k.so"
    path.write_bytes(b"code")
    keep("0", [path])
    (tmp_path / "cache" / "0" / "0" / "k.so").write_bytes(content)

    assert kept("0") is None
    assert list((tmp_path / "cache").iterdir()) == []
    keep("0", [path])
    assert [each.read_bytes() for each in kept("0") or ()] == [b"code"]


def _pocl() -> Device:
    try:
        return find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.device
@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
def test_what_is_kept_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = _pocl()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    units = [(scaled(factor), {"n": 1000}) for factor in (2, 3)]
    (first,) = read_compiled(units[:1], device)
    both = read_compiled(units, device)
    monkeypatch.setattr(objects.subprocess, "run", _refused)
    # of another size, and in another order
    again = read_compiled([(unit, {"n": 96}) for unit, _ in reversed(units)], device)

    found = (*both, *reversed(again), first)
    counts = [e.follow({"n": 96})[0].executed for e in found if isinstance(e, CompiledKernel)]
    assert counts[0] == counts[2] == counts[4]
    assert counts[1] == counts[3]


def _refused(command: list[str], **options: Any) -> Any:
    if "countperf.harness.compile.build" in command:
        raise AssertionError("compiled again")
    return _RUN(command, **options)


_RUN = objects.subprocess.run


@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
@pytest.mark.parametrize("label", ["pocl:0", "intel:0"])
def test_the_code_is_the_same_at_all_sizes(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
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
