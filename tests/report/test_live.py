"""A search under way is told in a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from countperf.report.tuning import state_text
from countperf.tuning.candidates import Candidates
from countperf.tuning.points import Predicted
from countperf.tuning.ranker import Ranking
from countperf.tuning.result import Plan, Trial
from countperf.tuning.trials import SearchState
from tests.tuning.test_search import (
    BEST,
    BEST_S,
    LARGE,
    MANY,
    QUESTION,
    Inline,
    scripted,
    tune_space,
)

STATE = SearchState(
    space="toy",
    device="pocl-testchip",
    best_s=1.5e-3,
    best={"tile": 8},
    tried=4,
    failed=1,
    predicted=180,
    expected_gain=0.034,
    chance=0.6,
    spent_s=20.0,
    seconds=60.0,
)
TEXT = (
    "toy: best 1.50 ms (tile=8); 4 of 180 ran; next: 3.4 % faster on average, 60 % chance that one"
    " left is faster; 40 s left"
)


def test_a_state_is_one_line() -> None:
    assert state_text(STATE) == TEXT
    begun = replace(STATE, best_s=None, tried=0, failed=0, expected_gain=None, chance=None)
    assert state_text(begun) == "toy: 180 variants predicted, none ran yet; 40 s left"


@pytest.mark.parametrize(("seconds", "left_s"), [(60.0, 40.0), (15.0, 0.0), (None, None)])
def test_time_that_is_left(seconds: float | None, left_s: float | None) -> None:
    assert replace(STATE, seconds=seconds).left_s == left_s


def test_a_search_tells_its_state() -> None:
    states: list[SearchState] = []

    found = tune_space(QUESTION, scripted(), MANY, executor=Inline(), watch=states.append)

    assert [state.tried for state in states] == sorted({state.tried for state in states})
    assert states[0].best_s is None
    assert states[-1].tried == len(found.tried)
    assert states[-1].best == BEST
    assert states[-1].best_s == pytest.approx(BEST_S)
    chances = [state.chance for state in states if state.chance is not None]
    assert all(0 <= chance <= 1 for chance in chances)
    assert chances[-1] <= 0.05  # it stops at 95 % confidence
    gains = [state.expected_gain for state in states if state.expected_gain is not None]
    assert all(0 <= gain < 1 for gain in gains)


def test_the_expected_gain_is_a_fraction_of_the_best_time() -> None:
    """One variant is left whose time is known to be 0.8 of the best: it gains a fifth."""
    known = Candidates(LARGE, Plan(prior_scatter=0.5))
    points = tuple(
        Predicted(choice=choice, time_s=time_s)
        for choice, time_s in zip(LARGE.choices(), [1e-3] * 8 + [0.8e-3], strict=False)
    )
    known.look(ranking_of(points))
    for point in points[:-1]:
        known.learn(Trial(choice=point.choice, predicted_s=1e-3, samples_s=(1e-3, 1e-3)))
    gain = known.expected_gain
    assert gain is not None
    assert gain == pytest.approx(0.2, abs=0.06)  # a little more, for it may also be slower


def ranking_of(points: tuple[Predicted, ...]) -> Ranking:
    return Ranking(
        space="double",
        sizes={},
        device="fake",
        best=points,
        predicted=len(points),
        refusals={},
        complete=True,
        seconds=0.0,
    )
