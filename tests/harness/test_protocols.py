"""One round of one case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from countperf.harness.clock import FakeClock, Timing
from countperf.harness.protocols import PAPER, QUICK, Round, time_round
from countperf.measurements import Protocol


def _round(protocol: Protocol, durations: list[float]) -> Round:
    clock = FakeClock(durations)
    run: Callable[[], Timing] = lambda: clock.time_run(list)  # noqa: E731 - reads as what it is
    return time_round(run, protocol, clock.now)


def test_the_paper_runs_thirty_times_and_keeps_every_sample() -> None:
    durations = [1.0 + i for i in range(40)]

    done = _round(PAPER, durations)

    assert [timing.time_s for timing in done.timings] == durations[:30]
    assert not done.cut_short
    assert (PAPER.drops, PAPER.max_seconds) == (4, None)


@pytest.mark.parametrize(
    ("duration", "runs"),
    [
        pytest.param(0.001, 7, id="all of them"),
        pytest.param(0.06, 5, id="until the time is up"),
        pytest.param(10.0, 4, id="never fewer than two that count"),
    ],
)
def test_quick_stops_slow_cases(duration: float, runs: int) -> None:
    done = _round(QUICK, [duration] * 10)

    assert len(done.timings) == runs
    assert done.cut_short is (runs < QUICK.runs)
    assert runs >= QUICK.drops + 2
