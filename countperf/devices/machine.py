"""The machine: processor, cores, memory, clocks, load of other programs."""

from __future__ import annotations

import os
import platform
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

_WINDOW_S = 0.5  # the system counts processor time in hundredths of a second
_BUSY_SHARE = 1 / 8


def available_cores() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(path: Path = Path("/proc/meminfo")) -> int | None:
    """Return the host's free memory, byte; None where it is not readable."""
    for key, value in _fields(path):
        if key == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


@cache
def read_processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """Describe the processor: model, vendor, family; as far as the system tells."""
    fields: dict[str, str] = {}
    for key, value in _fields(path):
        fields.setdefault(key, value)
    try:
        family = f"{fields['vendor_id']} family {int(fields['cpu family'])}"
        return f"{fields['model name']} ({family} model {int(fields['model'])})"
    except (KeyError, ValueError):  # not x86: Arm's cpuinfo has neither name nor family
        return platform.processor() or platform.machine()


def _fields(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def read_clocks(root: Path = Path("/")) -> dict[str, float]:
    """Return the processor's clock frequencies that are readable, MHz, by where they were read."""
    clocks: dict[str, float] = {}
    current = [
        float(value) for key, value in _fields(root / "proc/cpuinfo") if key == "cpu MHz" and value
    ]
    if current:
        clocks["cpu_current_mean"] = sum(current) / len(current)
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    for name in ("scaling_min_freq", "scaling_max_freq", "cpuinfo_max_freq", "base_frequency"):
        try:
            clocks[name] = int((folder / name).read_text()) / 1000
        except (OSError, ValueError):
            continue
    return clocks


def time_of_others_s(path: Path = Path("/proc/stat")) -> float | None:
    """Return the processor time that other programs have used so far on our cores, s.

    Time that a hypervisor gave to other machines counts as theirs.
    """
    try:
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        ticks = 0
        for name, user, nice, system, _idle, _waiting, irq, soft, stolen, *_ in (
            line for line in lines if line and line[0] in ours
        ):
            ticks += sum(map(int, (user, nice, system, irq, soft, stolen)))
            ours.remove(name)
        if ours:
            return None
        own = os.times()
        per_second = os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):  # not Linux, or not as we know it
        return None
    return ticks / per_second - sum(own[:4])


class Neighbors:
    """Watches how many cores other programs keep busy while one of their devices is timed.

    A program that keeps a core busy can hold up all runs of all rounds alike, so that nothing in
    their times tells.
    """

    def __init__(self, time_s: Callable[[], float | None], now: Callable[[], float]) -> None:
        self._time_s = time_s
        self._now = now
        self._readings: deque[tuple[float, float]] = deque()

    def look(self) -> float:
        """Return how many cores they have kept busy since the last look, or longer, on average.

        The times of the system are coarse: over half a second at least, and zero before.
        """
        spent = self._time_s()
        if spent is None:
            return 0.0
        now = self._now()
        while len(self._readings) > 1 and self._readings[1][0] <= now - _WINDOW_S:
            self._readings.popleft()
        self._readings.append((now, spent))
        began, before = self._readings[0]
        return max(spent - before, 0.0) / (now - began) if now - began >= _WINDOW_S else 0.0

    @staticmethod
    def disturb(cores: float) -> bool:
        """Return whether so many busy cores make times doubtful: more than an eighth of ours."""
        return cores > _BUSY_SHARE * available_cores()
