"""Which variant a search tries next, and in which order points are predicted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from countperf.tuning.candidates import Candidates
from countperf.tuning.points import Point, Predicted, PredictionTask, Refused
from countperf.tuning.posterior import Surrogate
from countperf.tuning.ranker import Ranker, Ranking
from countperf.tuning.result import Plan, Trial, as_key
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


def _point(x: int, time_s: float) -> Predicted:
    return Predicted(choice={"x": x, "y": 1}, time_s=time_s)


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


def test_what_there_is_no_time_for_is_not_tried_but_the_first_one_always_is() -> None:
    other, small = _point(1, 1e-3), _point(2, 1.1e-3)
    candidates = _known(other, small)

    assert candidates.promising(0.01, 1)
    candidates.learn(Trial(choice=small.choice, predicted_s=1.1e-3, samples_s=(1e-3,)), build_s=2.0)
    assert candidates.promising(1.0, 1) == []
    assert candidates.promising(10.0, 2) == [other]


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
            ranker.work(None)
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
