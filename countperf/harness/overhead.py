"""Limits of kernel sizes on a device: launch overhead and memory."""

from __future__ import annotations

from statistics import median

from countperf.harness.backend import Session
from countperf.harness.clock import Clock, EventClock, Timing
from countperf.harness.device import DeviceLimits
from countperf.harness.environment import available_memory
from countperf.harness.sizes import SizeLimits

_EMPTY_SOURCE = "KERNEL nothing(GLOBAL float *unused) { }"
_EMPTY_GROUP = 64


def measure_launch_overhead(
    session: Session, clock: Clock | None = None, *, runs: int = 40
) -> Timing:
    """Return the median times of the launch of a single group that does nothing."""
    clock = clock or EventClock()
    program = session.load(_EMPTY_SOURCE)
    arguments = (session.allocate(4),)

    def run() -> Timing:
        return clock.time_run(lambda: program.launch("nothing", 1, _EMPTY_GROUP, arguments))

    timings = [run() for _ in range(runs)][runs // 4 :]
    return Timing(
        time_s=median(timing.time_s for timing in timings),
        host_s=median(timing.host_s for timing in timings),
    )


def memory_limit(limits: DeviceLimits, host_bytes: int | None) -> int:
    """Return how large the arguments of a kernel may be together."""
    bounds = [limits.max_allocation_bytes, limits.global_memory_bytes // 4]
    if host_bytes is not None:
        bounds.append(host_bytes // 4)
    return max(1, min(bounds))


def measure_limits(
    session: Session,
    clock: Clock | None = None,
    *,
    overhead_factor: float = 10.0,
    max_run_s: float = 0.25,
    max_setup_s: float = 2.0,
) -> SizeLimits:
    """Find out what bounds the sizes on a device."""
    overhead = measure_launch_overhead(session, clock)
    return SizeLimits(
        launch_overhead_s=max(overhead.time_s, overhead.host_s),
        memory_bytes=memory_limit(session.device.limits, available_memory()),
        overhead_factor=overhead_factor,
        max_run_s=max_run_s,
        max_setup_s=max_setup_s,
    )
