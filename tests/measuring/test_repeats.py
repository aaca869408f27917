"""Rounds: one of a case, which runs next, how long the rest takes; the clocks that time them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest

from countperf.devices.device import EventClock, RunTime, check_clocks
from countperf.measuring import Protocol
from countperf.measuring.runner import (
    BROAD,
    QUICK,
    Repeats,
    Round,
    RoundSchedule,
    in_mixed_order,
    time_round,
)
from tests.devices.fakes import PROTOCOL, FakeClock, make_case

SEPARATION_S = PROTOCOL.separation_s


def _round(*times: float) -> Round:
    return Round(samples_s=times, host_s=times, cut_short=False, disturbed=False)


def _schedule(*sizes: int) -> RoundSchedule:
    return RoundSchedule(Repeats(case=make_case(n=n), protocol=PROTOCOL) for n in sizes)


def _next(schedule: RoundSchedule, now: float) -> Repeats:
    state, _ = schedule.take(now)
    assert state is not None
    return state


def test_families_are_mixed_and_cases_of_a_kernel_come_together() -> None:
    kernels = [f"{family}/{number}" for family in ("walks", "stencil") for number in range(50)]
    cases = [make_case(kernel, n) for n in (1, 2) for kernel in kernels]
    mixed = in_mixed_order(cases)
    assert sorted(case.name for case in mixed) == sorted(case.name for case in cases)
    assert mixed == in_mixed_order(iter(cases))
    pairs = list(zip(mixed[::2], mixed[1::2], strict=True))
    assert all(a.kernel == b.kernel for a, b in pairs)
    assert all((a.parameters["n"], b.parameters["n"]) == (1, 2) for a, b in pairs)
    first_half = [case.kernel.partition("/")[0] for case in mixed[: len(mixed) // 2]]
    assert 30 <= first_half.count("walks") <= 70


def test_a_due_round_goes_before_a_fresh_case_and_an_early_one_after() -> None:
    schedule = _schedule(1, 2, 3)
    first = _next(schedule, 0.0)
    first.rounds.append(_round(1))
    schedule.again(first, 0.0)
    second = _next(schedule, SEPARATION_S / 2)
    assert second.case.name == "fake/n=2"
    assert _next(schedule, SEPARATION_S + 1) is first
    assert _next(schedule, SEPARATION_S + 2).case.name == "fake/n=3"
    assert schedule.take(SEPARATION_S + 3) == (None, 0)


def test_second_rounds_need_not_wait_when_nothing_else_is_left_but_extra_ones_do() -> None:
    schedule = _schedule(1, 2)
    unstable, early = _next(schedule, 0.0), _next(schedule, 0.0)
    unstable.rounds += [_round(1), _round(2)]
    early.rounds.append(_round(1))
    schedule.again(unstable, 0.0)
    schedule.again(early, 1.0)
    assert schedule.take(2.0) == (early, 0)
    assert schedule.take(3.0) == (unstable, pytest.approx(SEPARATION_S - 3))
    schedule.again(unstable, 0.0)
    assert schedule.take(SEPARATION_S) == (unstable, 0)


@pytest.mark.parametrize(
    ("rounds", "finished"),
    [
        pytest.param([(9, 1, 1)], False, id="one of two rounds"),
        pytest.param([(9, 1, 1), (9, 1, 1)], True, id="two that agree"),
        pytest.param([(9, 1, 1), (9, 2, 2)], False, id="two that disagree get a third"),
        pytest.param([(9, 1, 2, 2), (9, 1, 2, 2)], False, id="too much spread gets a third"),
        pytest.param([(9, 1, 1), (9, 2, 2), (9, 2, 2)], True, id="no fourth"),
    ],
)
def test_when_a_case_is_finished(rounds: list[tuple[float, ...]], finished: bool) -> None:
    turns = [_round(*times) for times in rounds]
    assert Repeats(case=make_case(), protocol=PROTOCOL, rounds=turns).is_finished() is finished


def _timed(protocol: Protocol, durations: list[float]) -> Round:
    clock = FakeClock(durations)
    run: Callable[[], RunTime] = lambda: clock.time_run(list)  # noqa: E731 - reads as what it is
    return time_round(run, protocol, clock.now)


@pytest.mark.parametrize(
    ("protocol", "durations", "kept"),
    [
        # the first is longer than the time to warm up
        (BROAD.with_values(runs=30, max_seconds=None), range(1, 41), range(2, 32)),
        (
            BROAD.with_values(warm_up_s=0.02, runs=6),
            [0.0026] * 8 + [0.001] * 6,  # of a device that warms up
            [0.001] * 6,
        ),
        (BROAD.with_values(warm_up_s=0.0, max_seconds=None), range(1, 31), range(1, 9)),
    ],
)
def test_runs_that_warm_up_are_not_kept_and_all_others_are(
    protocol: Protocol, durations: Iterable[float], kept: Iterable[float]
) -> None:
    done = _timed(protocol, list(durations))
    assert done.samples_s == tuple(kept)
    assert not done.cut_short


@pytest.mark.parametrize(
    ("duration", "runs"), [(0.001, 7), (0.06, 5), (10.0, 4)], ids=["all", "in time", "that count"]
)
def test_quick_stops_slow_cases(duration: float, runs: int) -> None:
    done = _timed(QUICK, [duration] * 100)
    assert len(done.samples_s) == runs
    assert done.cut_short is (runs < QUICK.runs)


@pytest.mark.parametrize(
    ("event_s", "host_s", "said"),
    [
        pytest.param(1e-5, 4.6e-5, "", id="PoCL: 36 us to launch and wake up"),
        pytest.param(1e-3, 1.005e-3, "", id="Intel: 5 us"),
        pytest.param(1e-5, 9e-4, "", id="a slow launch, still below 1 ms"),
        pytest.param(1.0, 0.995, "", id="clocks whose rates differ a little"),
        pytest.param(1.0, 1.2, "", id="a busy machine wakes us late"),
        pytest.param(1.1, 1.0, "exceeds the host's", id="an event longer than the host saw"),
        pytest.param(1e-3, 1.0, "far below", id="ticks taken for nanoseconds"),
        pytest.param(1e-6, 2e-3, "far below", id="more than any launch takes"),
    ],
)
def test_clocks_agree_or_not(event_s: float, host_s: float, said: str) -> None:
    # one odd run does not decide
    overhead_s, remark = check_clocks([*[(event_s, host_s)] * 4, (1.0, 5.0)])
    assert overhead_s == pytest.approx(host_s - event_s)
    assert said in remark
    assert bool(said) == bool(remark)


def test_several_launches_last_from_the_first_start_to_the_last_end() -> None:
    waited: list[int] = []
    events = [
        SimpleNamespace(profile=SimpleNamespace(start=s, end=e), wait=lambda: waited.append(1))
        for s, e in ((1000, 2000), (2500, 4000))
    ]
    assert EventClock().time_run(lambda: events).time_s == pytest.approx(3e-6)
    assert waited
