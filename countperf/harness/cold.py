"""Timing with cold caches: the caches of a device are filled with other data before each run.

A kernel reads a buffer that is several times as large as the caches and writes a few sums, so that
hardly a line is left to be written back while the timed kernel runs. On a processor its work groups
outnumber the cores by far, so that each core reads much more than its own caches hold. Caches of
instructions and of address translations keep some of what they had.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from countperf.errors import MeasurementError
from countperf.harness.backend import Session
from countperf.harness.clock import Clock, Timing
from countperf.harness.device import Device
from countperf.harness.registry import open_session
from countperf.harness.runner import KernelRunner, Run
from countperf.measurements import KernelCase

_TIMES_THE_CACHES = 4
_LEAST_BYTES = 2**26
_GPU_BYTES = 2**29
"""For a GPU whose driver does not tell its cache: twice the largest that there is, 256 MiB."""

_GROUPS_PER_UNIT = 64
_SOURCE = """
KERNEL flush_caches(GLOBAL const F4 *RESTRICT data, GLOBAL float *RESTRICT sums, int chunk)
{
    I64 first = (I64) GROUP_ID * chunk;
    float sum = 0;
    for (int i = LOCAL_ID; i < chunk; i += LOCAL_SIZE) {
        F4 some = data[first + i];
        sum += some.x + some.y + some.z + some.w;
    }
    sums[GLOBAL_ID] = sum;
}
"""


class CacheFlush:
    """Fills the caches of a device with data that no kernel uses."""

    def __init__(self, session: Session, caches_bytes: int | None = None) -> None:
        device = session.device
        known = cache_bytes(device) if caches_bytes is None else caches_bytes
        is_cpu = device.identity.device_type == "cpu"
        wanted = max(_LEAST_BYTES if known else _GPU_BYTES, _TIMES_THE_CACHES * known)
        largest = min(device.limits.max_allocation_bytes, device.limits.global_memory_bytes // 2)
        if largest < min(wanted, 2 * known):
            raise MeasurementError(
                f"{device.label}: its caches of {known} byte cannot be flushed, since it allocates"
                f" at most {largest} byte; time with warm caches"
            )
        self._session = session
        self._groups = _GROUPS_PER_UNIT * device.identity.compute_units
        self._group_size = 1 if is_cpu else min(256, device.limits.max_group_size)
        self._chunk = max(1, min(wanted, largest) // (16 * self._groups))
        self.size_bytes = 16 * self._chunk * self._groups
        self._program = session.load(_SOURCE)
        self._data = session.allocate(self.size_bytes)
        self._sums = session.allocate(4 * self._groups * self._group_size)

    def __call__(self) -> None:
        """Fill the caches, and wait until that is done."""
        arguments = (self._data, self._sums, np.int32(self._chunk))
        self._program.launch("flush_caches", self._groups, self._group_size, arguments)
        self._session.finish()


class ColdRunner(KernelRunner):
    """Runs cases on a device, with cold caches each time.

    Parameters and attributes are those of `KernelRunner`.
    """

    def __init__(self, session: Session, clock: Clock | None = None, *, seed: int = 0) -> None:
        super().__init__(session, clock, seed=seed)
        self._flush = CacheFlush(session)

    @classmethod
    def open(cls, device: Device, clock: Clock | None = None) -> ColdRunner:
        """Open a device and return what runs cases on it."""
        return cls(open_session(device), clock)

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        """Put a case's arguments into fresh memory, and give what flushes the caches and runs it.

        Parameters, what is yielded and errors are as of `KernelRunner.loaded`.
        """
        with super().loaded(case) as run:

            def run_cold() -> Timing:
                self._flush()
                return run()

            yield run_cold


def cache_bytes(device: Device) -> int:
    """Return the size of a device's last level of caches, byte; 0 where nobody tells it."""
    told = getattr(device.handle, "global_mem_cache_size", 0)
    reported = told if isinstance(told, int) else 0
    if device.identity.device_type == "cpu":
        return max(reported, processor_cache_bytes())
    return reported


def processor_cache_bytes(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the size of the last level of caches of the cores that this process may use."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    caches: dict[tuple[int, str], int] = {}
    for core in cores:
        for folder in root.glob(f"cpu{core}/cache/index*"):
            try:
                level = int((folder / "level").read_text())
                shared = (folder / "shared_cpu_list").read_text().strip()
                caches[level, shared] = _bytes((folder / "size").read_text().strip())
            except (OSError, ValueError):
                continue
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)


def _bytes(text: str) -> int:
    """Return the size that Linux writes as ``32768K``, byte."""
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
