"""One round of one case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from countperf.harness.clock import FakeClock, Timing
from countperf.harness.protocols import BROAD, QUICK, Round, time_round
from countperf.measurements import Protocol


def _round(protocol: Protocol, durations: list[float]) -> Round:
    clock = FakeClock(durations)
    run: Callable[[], Timing] = lambda: clock.time_run(list)  # noqa: E731 - reads as what it is
    return time_round(run, protocol, clock.now)


def test_without_a_limit_of_time_every_sample_is_kept() -> None:
    durations = [1.0 + i for i in range(40)]

    done = _round(BROAD.changed(runs=30, max_seconds=None), durations)

    # the first is longer than the time to warm up
    assert [timing.time_s for timing in done.timings] == durations[1:31]
    assert not done.cut_short


def test_runs_of_a_device_that_warms_up_are_not_kept() -> None:
    protocol = BROAD.changed(warm_up_s=0.02, runs=6)
    cold, warm = 0.0026, 0.001

    done = _round(protocol, [cold] * 8 + [warm] * 6)

    assert [timing.time_s for timing in done.timings] == [warm] * 6


def test_without_time_to_warm_up_all_runs_are_kept() -> None:
    done = _round(BROAD.changed(warm_up_s=0.0), [1.0 + i for i in range(30)])

    assert done.timings[0].time_s == 1.0


@pytest.mark.parametrize(
    ("duration", "runs"),
    [
        pytest.param(0.001, 7, id="all of them"),
        pytest.param(0.06, 5, id="until the time is up"),
        pytest.param(10.0, 4, id="never fewer than two that count"),
    ],
)
def test_quick_stops_slow_cases(duration: float, runs: int) -> None:
    done = _round(QUICK, [duration] * 100)

    assert len(done.timings) == runs
    assert done.cut_short is (runs < QUICK.runs)
    assert runs >= QUICK.drops + 2
