"""Flushing the caches before each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.errors import MeasurementError
from countperf.harness import cold
from countperf.harness.clock import FakeClock
from countperf.harness.cold import CacheFlush, ColdRunner, cache_bytes, processor_cache_bytes
from countperf.harness.device import Device
from countperf.harness.registry import open_session
from tests.harness.fakes import make_case, make_device

MIB = 2**20


def _cache(root: Path, core: int, index: int, level: int, size: str, shared: str) -> None:
    folder = root / f"cpu{core}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
        (folder / name).write_text(f"{text}\n")


def test_the_last_level_of_all_our_cores_is_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two complexes of two cores with 16 MiB each, of which the process may use three cores
    for core in range(6):
        _cache(tmp_path, core, 0, 1, "32K", str(core))
        _cache(tmp_path, core, 2, 2, "1024K", str(core))
        _cache(tmp_path, core, 3, 3, "16M", f"{core // 2 * 2}-{core // 2 * 2 + 1}")
    monkeypatch.setattr(cold.os, "sched_getaffinity", lambda _: {0, 1, 2})

    assert processor_cache_bytes(tmp_path) == 32 * MIB


def test_a_system_that_does_not_say_has_caches_of_unknown_size(tmp_path: Path) -> None:
    assert processor_cache_bytes(tmp_path) == 0


class _Program:
    def __init__(self, log: list[Any]) -> None:
        self._log = log

    def launch(self, name: str, groups: int, group_size: int, arguments: Any) -> list[Any]:
        self._log.append((name, groups, group_size, arguments))
        return []


class _Session:
    """Notes what is allocated and launched."""

    def __init__(self, **limits: int) -> None:
        device = make_device("fake:0", "Abacus")
        self.device = replace(device, limits=replace(device.limits, **limits))
        self.log: list[Any] = []
        self.allocated: list[int] = []

    def load(self, source: str) -> _Program:
        assert "flush_caches" in source
        return _Program(self.log)

    def allocate(self, size: int) -> str:
        self.allocated.append(size)
        return f"{size} byte"

    def finish(self) -> None:
        self.log.append("finish")

    def build_kernel(self, t_unit: Any) -> Any:
        del t_unit
        return _Kernel(self.log)


class _Kernel:
    arrays = ()

    def __init__(self, log: list[Any]) -> None:
        self._log = log

    def launch(self, arguments: Any) -> list[Any]:
        del arguments
        self._log.append("run")
        return []


def _session(**limits: int) -> Any:
    return _Session(**{"max_allocation_bytes": 2**32, "global_memory_bytes": 2**34} | limits)


def test_four_times_the_caches_are_read() -> None:
    session = _session()

    flush = CacheFlush(session, 100 * MIB)
    flush()

    assert 399 * MIB < flush.size_bytes <= 400 * MIB
    assert session.allocated[0] == flush.size_bytes
    (name, groups, _, (_, _, chunk)), end = session.log
    assert (name, end) == ("flush_caches", "finish")
    assert groups * int(chunk) * 16 == flush.size_bytes


@pytest.mark.parametrize(("caches", "least"), [(MIB, 63 * MIB), (0, 511 * MIB)])
def test_small_and_unknown_caches_get_a_large_buffer(caches: int, least: int) -> None:
    assert CacheFlush(_session(), caches).size_bytes > least


def test_a_small_memory_gets_what_it_has_while_that_is_enough() -> None:
    assert CacheFlush(_session(max_allocation_bytes=250 * MIB), 100 * MIB).size_bytes > 249 * MIB
    with pytest.raises(MeasurementError, match="cannot be flushed"):
        CacheFlush(_session(max_allocation_bytes=150 * MIB), 100 * MIB)


class _LaunchingClock(FakeClock):
    def time_run(self, launch: Any) -> Any:
        launch()
        return super().time_run(launch)


def test_caches_are_flushed_before_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bound:
        arguments = ()

    monkeypatch.setattr("countperf.harness.runner.bind_arguments", lambda *_: Bound())
    session = _session()
    runner = ColdRunner(session, _LaunchingClock([1.0, 2.0]))
    with runner.loaded(make_case()) as run:
        session.log.clear()
        assert [run().time_s, run().time_s] == [1.0, 2.0]

    flushes = [entry if isinstance(entry, str) else entry[0] for entry in session.log]
    assert flushes == ["flush_caches", "finish", "run"] * 2


@pytest.mark.device
def test_all_of_the_buffer_is_read(device: Device) -> None:
    session = open_session(device)
    flush = CacheFlush(session, 16 * MIB)  # of any device: a buffer for large caches takes long
    words = flush.size_bytes // 4
    # a one in each word: the sums of all work items add up to the number of words
    session.copy_in(flush._data, np.ones(words, np.float32))  # pyright: ignore[reportPrivateUsage]

    flush()

    items = flush._groups * flush._group_size  # pyright: ignore[reportPrivateUsage]
    sums = session.download(flush._sums, np.dtype(np.float32), items)  # pyright: ignore[reportPrivateUsage]
    assert np.sum(sums, dtype=np.float64) == words
    assert 63 * MIB < flush.size_bytes <= 64 * MIB
    known = cache_bytes(device)
    assert known == 0 or known >= 16 * 2**10  # no smaller than a first-level cache
