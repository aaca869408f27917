"""Which round runs next, and how long the rest takes."""

from __future__ import annotations

import pytest

from countperf.harness.clock import Timing
from countperf.harness.protocols import Round
from countperf.harness.schedule import (
    CaseState,
    Estimate,
    Schedule,
    in_mixed_order,
)
from tests.harness.fakes import PROTOCOL, make_case

SEPARATION_S = PROTOCOL.separation_s


def _round(*times: float) -> Round:
    timings = tuple(Timing(time_s=time, host_s=time) for time in times)
    return Round(timings=timings, cut_short=False)


def _next(schedule: Schedule, now: float) -> CaseState:
    state = schedule.next(now)
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
    schedule = Schedule([make_case(n=n) for n in (1, 2, 3)], PROTOCOL)
    first = _next(schedule, 0.0)
    first.rounds.append(_round(1))
    schedule.again(first, 0.0)

    second = _next(schedule, SEPARATION_S / 2)
    assert second.case.name == "fake/n=2"
    assert _next(schedule, SEPARATION_S + 1) is first
    assert _next(schedule, SEPARATION_S + 2).case.name == "fake/n=3"
    assert schedule.next(SEPARATION_S + 3) is None


def test_second_rounds_need_not_wait_when_nothing_else_is_left_but_extra_ones_do() -> None:
    schedule = Schedule([make_case(n=1), make_case(n=2)], PROTOCOL)
    unstable, early = _next(schedule, 0.0), _next(schedule, 0.0)
    unstable.rounds += [_round(1), _round(2)]
    early.rounds.append(_round(1))
    schedule.again(unstable, 0.0)
    schedule.again(early, 1.0)

    assert schedule.pause_s(2.0) == 0
    assert _next(schedule, 2.0) is early
    assert schedule.pause_s(3.0) == pytest.approx(SEPARATION_S - 3)
    assert _next(schedule, SEPARATION_S) is unstable
    assert schedule.pause_s(SEPARATION_S) == 0


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
    state = CaseState(case=make_case(), rounds=[_round(*times) for times in rounds])

    assert state.is_finished(PROTOCOL, 0.0) is finished


def test_the_estimate_counts_rounds_by_their_expected_time() -> None:
    cases = [make_case(n=1), make_case(n=2)]
    estimate = Estimate(PROTOCOL, {"fake/n=1": 1.0, "fake/n=2": 10.0})
    states = [CaseState(case=case) for case in cases]
    assert estimate.remaining_s(states) is None

    estimate.add(states[0], spent_s=4 * 1.0 + 0.5)
    states[0].rounds.append(_round(1))

    # half a second beyond the four runs: one round of the first case, two of the second
    assert estimate.remaining_s(states) == pytest.approx(4.5 + 2 * 40.5)


def test_without_expectations_the_mean_round_counts() -> None:
    estimate = Estimate(PROTOCOL, {})
    state = CaseState(case=make_case())
    estimate.add(state, 1.0)
    estimate.add(state, 3.0)

    assert estimate.remaining_s([state]) == pytest.approx(2 * 2.0)
