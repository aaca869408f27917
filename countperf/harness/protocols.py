"""The protocols that campaigns use, and one round of one case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from countperf.harness.clock import Timing
from countperf.measurements import Protocol

_WARM_UP_S = 0.05
"""Threads of a device that have slept, while a kernel was built or checked, wake up on one core.

On two cores of a Zen 5, kernels of PoCL took 2 to 2.6 times as long for 10 to 20 ms, then 1.1 to
1.3 times as long for another 20, as they did after 40 ms.
"""

BROAD = Protocol(
    name="broad",
    rounds=3,
    runs=8,
    drops=2,
    spread_limit=0.5,
    noise_limit=0.15,
    extra_rounds=2,
    separation_s=20.0,
    max_seconds=0.1,
    warm_up_s=_WARM_UP_S,
)
"""For hundreds of kernels. Rounds some time apart find out more about a case than runs in a row:
other load on the machine can hold up all runs of a round without any spread among them.
"""

QUICK = BROAD.changed(
    name="quick",
    rounds=2,
    runs=7,
    noise_limit=0.2,
    extra_rounds=1,
    separation_s=5.0,
    max_seconds=0.3,
)
"""For a first look."""

TIMING = BROAD.changed(name="timing", runs=12, noise_limit=0.1, separation_s=2.0, max_seconds=1.0)
"""For one kernel of a user's at a few sizes (`countperf.time_kernel`), while they wait."""

CALIBRATION = QUICK.changed(name="calibration", runs=6, drops=1, separation_s=4.0, max_seconds=0.1)
"""For a device of which other devices say much already: many kernels rather than many runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Consecutive runs of one case."""

    timings: tuple[Timing, ...]  # every run
    cut_short: bool  # whether the protocol's time was up before its runs were done
    disturbed: bool = False  # whether other programs kept the processor busy meanwhile


def time_round(run: Callable[[], Timing], protocol: Protocol, now: Callable[[], float]) -> Round:
    """Run a case as often as the protocol says, once it has warmed up."""
    warm = now() + protocol.warm_up_s
    while now() < warm:
        run()
    started = now()
    timings: list[Timing] = []
    fewest = min(protocol.runs, protocol.drops + 2)
    while len(timings) < protocol.runs:
        spent = now() - started
        if (
            protocol.max_seconds is not None
            and spent >= protocol.max_seconds
            and len(timings) >= fewest
        ):
            break
        timings.append(run())
    return Round(timings=tuple(timings), cut_short=len(timings) < protocol.runs)
