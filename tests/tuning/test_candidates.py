"""Which variant a search tries next, and in which order points are predicted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from countperf.tuning.candidates import PRIOR_S, WRITTEN, BuildTimes, Candidates
from countperf.tuning.points import Point, Predicted, PredictionTask, Refused
from countperf.tuning.posterior import Surrogate
from countperf.tuning.ranker import Ranker
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import Key, Plan, Trial, as_key
from countperf.tuning.space import Choice, SearchSpace
from tests.tuning.spaces import make_space
from tests.tuning.test_ranking import WEIGHTS, Inline

SPACE = make_space(parameters={"x": range(8), "y": [1, 2]}, sizes={})
INFINITE = float("inf")


def _known(*points: Predicted) -> Candidates:
    candidates = Candidates(SPACE, Plan())
    candidates.look(
        Ranking(
            space="toy",
            sizes={},
            device="abacus",
            best=tuple(sorted(points, key=lambda point: point.time_s)),
            predicted=len(points),
            refusals={},
            complete=True,
            seconds=0.0,
        )
    )
    return candidates


def _point(x: int, time_s: float, written: int = 1) -> Predicted:
    return Predicted(choice={"x": x, "y": 1}, time_s=time_s, written=written)


def test_building_takes_longer_the_more_is_written() -> None:
    times = BuildTimes()
    before = times.expected_s(np.array([WRITTEN]))
    times.add(WRITTEN, 4.0)
    times.add(0.0, 1.0)

    assert before == 2 * PRIOR_S
    assert times.expected_s(np.array([3 * WRITTEN])) == pytest.approx(4 * 1.5)


@pytest.mark.parametrize(
    ("other_s", "cut_short", "regret"),
    [
        pytest.param((2.2e-3,), True, 1 - 1.1 / 1.5, id="half of it after one run"),
        pytest.param((1.8e-3, 1.65e-3), True, 1 - 1.1 / 1.5, id="two thirds after two"),
        pytest.param((1.2e-3,) * 10, False, 1 - 1.2 / 1.5, id="what there is after all"),
        pytest.param((2.2e-3,) * 10, False, 0.0, id="slower than any run of the winner"),
    ],
)
def test_of_measured_variants_those_cut_short_may_have_been_faster_than_the_winner(
    other_s: tuple[float, ...], cut_short: bool, regret: float
) -> None:
    """Every other run of the winner takes half as long again, so that its median may."""
    first, second = _point(1, 1e-3), _point(2, 1.1e-3)
    candidates = _known(first, second)
    winner = Trial(choice=first.choice, predicted_s=1e-3, samples_s=(1e-3, 1.5e-3) * 5)
    candidates.learn(winner)
    candidates.learn(
        Trial(choice=second.choice, predicted_s=1.1e-3, samples_s=other_s, cut_short=cut_short)
    )

    assert candidates.regret(winner) == pytest.approx(regret)


def test_where_seconds_are_scarce_what_takes_long_to_build_comes_later() -> None:
    large, small, slow = _point(1, 1e-3, written=1000), _point(2, 1.1e-3), _point(3, 1.0)
    candidates = _known(large, small, slow)

    assert candidates.promising(INFINITE, (), 1) == [large]
    assert candidates.promising(60.0, (), 1) == [small]


def test_unrolled_loops_do_not_come_later_for_what_takes_a_few_times_as_long_to_build() -> None:
    """80 instructions take three times as long to build as none, 1,000 take 26 times."""
    unrolled, plain, slow = _point(1, 1e-3, written=80), _point(2, 1.1e-3), _point(3, 1.0)

    assert _known(unrolled, plain, slow).promising(60.0, (), 1) == [unrolled]


def test_what_there_is_no_time_for_is_not_tried_but_the_first_one_always_is() -> None:
    large, small = _point(1, 1e-3, written=1000), _point(2, 1.1e-3)
    candidates = _known(large, small)

    assert candidates.promising(0.01, (), 1)
    candidates.learn(Trial(choice=small.choice, predicted_s=1.1e-3, samples_s=(1e-3,)), build_s=0.1)
    assert candidates.promising(1.0, (), 1) == []
    assert candidates.promising(10.0, (), 2) == [large]


def test_what_is_built_needs_no_time_but_that_of_its_runs() -> None:
    large, small = _point(1, 1e-3, written=1000), _point(2, 1.1e-3)
    candidates = _known(large, small)
    candidates.learn(Trial(choice=small.choice, predicted_s=1.1e-3, samples_s=(1e-3,)), build_s=0.1)

    assert candidates.worth_a_try(1.0, [as_key(large.choice)]) == large
    assert candidates.worth_a_try(1e-4, [as_key(large.choice)]) is None


def test_what_is_built_already_is_tried_if_it_is_nearly_as_good() -> None:
    first, second, hopeless = _point(1, 1e-3), _point(4, 1.01e-3), _point(7, 1.0)
    candidates = _known(first, second, hopeless)
    keys = [as_key(each.choice) for each in (first, second, hopeless)]

    assert candidates.promising(INFINITE, (), 2) == [first, second]
    assert candidates.promising(INFINITE, keys[:1], 2) == [second, hopeless]
    assert candidates.worth_a_try(INFINITE, ()) is None
    assert candidates.worth_a_try(INFINITE, keys[1:2]) == second
    assert candidates.worth_a_try(INFINITE, keys[1:2], keys[:1]) == second
    assert candidates.worth_a_try(INFINITE, keys[2:]) is None
    assert candidates.worth_a_try(INFINITE, keys[2:], keys[:1]) is None


def _looks(build_s: float) -> tuple[Callable[..., Key | None], list[Key]]:
    """Five variants that took so long to build; what is looked at again, given what is settled."""
    points = [_point(place, 1e-3) for place in range(1, 6)]
    candidates = _known(*points)
    for point, time_s in zip(points, (1e-3, 1.9e-3, 1.2e-3, 2.1e-3, 1.5), strict=True):
        tried = Trial(choice=point.choice, predicted_s=1e-3, samples_s=(time_s,))
        candidates.learn(tried, build_s=build_s)

    def looked_at(*settled: Key, left_s: float = INFINITE) -> Key | None:
        found = candidates.disturbed(settled, left_s)
        return None if found is None else as_key(found.choice)

    return looked_at, [as_key(point.choice) for point in points]


def test_what_may_only_have_been_disturbed_is_worth_another_look() -> None:
    looked_at, keys = _looks(build_s=0.3)

    assert looked_at() == keys[2]
    assert looked_at(keys[2]) == keys[1]
    assert looked_at(keys[2], keys[1]) is None
    assert looked_at(left_s=Plan().warm_up_s + 1.1e-3) is None


def test_where_variants_build_fast_another_look_costs_too_much() -> None:
    """The device has to be warm for it, which takes as long as half a build."""
    looked_at, _ = _looks(build_s=2 * Plan().warm_up_s)

    assert looked_at() is None


def test_measurements_say_what_promises_short_times() -> None:
    """Of points that are alike, the one that was measured is four times as slow as predicted."""
    first, alike, other = _point(1, 1e-3), _point(2, 1.1e-3), _point(7, 1.5e-3)
    candidates = _known(first, alike, other)
    keys = [as_key(each.choice) for each in (first, alike, other)]

    assert candidates.promising_s == {}
    candidates.learn(Trial(choice=first.choice, predicted_s=1e-3, samples_s=(4e-3,)))
    found_s = candidates.promising_s
    assert found_s[keys[0]] == pytest.approx(4e-3, rel=0.1)
    assert found_s[keys[1]] > 1.1e-3
    assert found_s[keys[2]] < found_s[keys[0]]


def _time_s(choice: Choice) -> float | None:
    """Short for large x and y; a corner has no prediction."""
    x, y = int(choice["x"]), int(choice["y"])
    return None if x == 0 else 2.0 ** -(x + y)


def test_points_like_fast_ones_promise_to_be_fast() -> None:
    promise = Surrogate(SPACE)
    choices = list(SPACE.choices())
    for choice in choices[::2]:
        promise.add(choice, _time_s(choice))

    order = [choices[1::2][place] for place in promise.order(choices[1::2])]

    assert Surrogate(SPACE).order(choices) == list(range(len(choices)))
    actual = [_time_s(choice) or 1.0 for choice in order]
    assert max(actual[:3]) < min(actual[-3:])


def test_points_unlike_those_that_were_measured_to_be_slow_promise_to_be_fast() -> None:
    promise = Surrogate(SPACE)
    known = [choice for choice in SPACE.choices() if int(choice["x"]) % 3 == 0]
    for choice in known:
        promise.add(choice, _time_s(choice))
    asked = [choice for choice in SPACE.choices() if int(choice["x"]) % 3]

    before = asked[promise.order(asked)[0]]
    promise.correct({as_key(c): 1.0 / (_time_s(c) or 1.0) for c in known if int(c["x"]) > 0})
    after = asked[promise.order(asked)[0]]

    assert int(before["x"]) > int(after["x"])


def _ranked(space: SearchSpace, points: int, *, by_promise: bool) -> tuple[float, Ranking]:
    """Return the shortest time among so many points of a space, and the ranking."""

    class Told(Inline):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            del fn
            return super().submit(told, *args, **kwargs)

    def told(_: PredictionTask, choices: list[Choice]) -> list[Point]:
        times = [(dict(choice), _time_s(choice)) for choice in choices]
        return [
            Refused(choice=choice, stage="build", reason="no corner")
            if time_s is None
            else Predicted(choice=choice, time_s=time_s)
            for choice, time_s in times
        ]

    question = PredictionTask(space=space, weights=WEIGHTS, sizes={})
    with Ranker(question, Told(), points=points, by_promise=by_promise) as ranker:
        while not ranker.is_done:
            ranker.work(None, most=1)
        ranking = ranker.ranking()
    return ranking.best[0].time_s, ranking


def test_promising_points_are_predicted_early_and_none_twice() -> None:
    space = replace(SPACE, parameters={"x": range(60), "y": range(10)})

    spread_s, _ = _ranked(space, 60, by_promise=False)
    chosen_s, part = _ranked(space, 60, by_promise=True)
    _, whole = _ranked(space, 10**6, by_promise=True)

    assert chosen_s < spread_s
    assert part.predicted + part.refused == 60
    assert (part.complete, whole.complete) == (False, True)
    assert whole.predicted + whole.refused == space.cardinality
    assert len({as_key(point.choice) for point in whole.best}) == whole.predicted
