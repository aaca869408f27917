"""Rankings and searches as text: what is claimed, and of what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from countperf.tuning.points import Predicted, Refused
from countperf.tuning.ranker import Ranking, by_stage
from countperf.tuning.result import Plan, Trial, TuningResult
from countperf.tuning.trials import Candidates, SearchState, state_text
from tests.printing import object_of, text_of
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

WINNER = Trial(choice={"tile": 8}, predicted_s=1.2e-3, samples_s=(1e-3, 1.1e-3, 1.2e-3))
RESULT = TuningResult(
    space="toy",
    device="pocl-testchip",
    weights="mine/run",
    model="structural",
    sizes={"n": 64},
    winner=WINNER,
    within_noise=(),
    tried=(WINNER,),
    predicted=182,
    ranking_complete=True,
    stopped="confident",
    confidence=0.95,
    regret_bound=0.12,
    bounded=182,
    unbounded=0,
    spent_s=5.0,
    ranking_s=1.0,
)


def ranking_of(points: tuple[Predicted, ...], refusals: dict[str, Any] | None = None) -> Ranking:
    return Ranking(
        space="toy",
        sizes={},
        device="fake",
        weights="fake",
        model="linear",
        best=points,
        predicted=len(points),
        refusals=refusals or {},
        complete=True,
        seconds=0.0,
    )


def test_refusals_are_told_by_their_most_frequent_reasons() -> None:
    kinds = [("KeyError: x", 5), ("ValueError: y", 3), ("TypeError: z", 2), ("IndexError: w", 1)]
    refused = [
        Refused(choice={"tile": number}, stage="build", reason=reason)
        for reason, count in kinds
        for number in range(count)
    ]
    ranking = ranking_of((), by_stage(refused))

    assert text_of(ranking, kept="all.jsonl has").splitlines()[-4:] == [
        "refused (build): 5 of 11, such as tile=0: KeyError: x",
        "refused (build): 3 of 11, such as tile=0: ValueError: y",
        "refused (build): 2 of 11, such as tile=0: TypeError: z",
        "all.jsonl has every refused one with its reason",
    ]
    reasons = object_of(ranking)["refused"]["build"]["reasons"]
    assert [reason["count"] for reason in reasons] == [5, 3, 2, 1]


def test_predictions_come_with_their_intervals_where_there_are_any() -> None:
    with_one = replace(WINNER, interval_s=(0.8e-3, 2e-3), interval_level=0.9)

    said, without = (
        text_of(replace(RESULT, winner=winner)).splitlines()[0] for winner in (with_one, WINNER)
    )

    assert said == "1.00 ms (noise 10 %, predicted 1.20 ms, 800 µs to 2.00 ms at 90 %)"
    assert without == "1.00 ms (noise 10 %, predicted 1.20 ms)"
    printed = object_of(replace(RESULT, winner=with_one))["winner"]
    assert (printed["interval_s"], printed["interval_level"]) == ([0.8e-3, 2e-3], 0.9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "\nthe fastest of the space takes at most 12 % less than a median run of this one, at "
            "95 % confidence\n",
        ),
        (
            {"ranking_complete": False, "unbounded": 974},
            "\nthe fastest of the 182 variants that have a prediction takes at most 12 % less than "
            "a median run of this one, at 95 % confidence\nnothing is known of the 974 others that "
            "the space may have\n",
        ),
        (
            {"bounded": 1, "unbounded": 99, "regret_bound": None},
            "\ntoo little was measured to bound the fastest of toy\nnothing is known of the 99",
        ),
        ({"regret_bound": 1.0}, "\ntoo little was measured to bound the fastest of toy\n"),
    ],
)
def test_a_bound_of_the_regret_says_of_what_it_is(changes: dict[str, object], said: str) -> None:
    result = replace(RESULT, **changes)

    assert said in text_of(result)
    assert ("of the space takes" in text_of(result)) is (not changes)
    printed = object_of(result)
    fields = ("regret_bound", "bounded", "unbounded")
    assert [printed[name] for name in fields] == [getattr(result, name) for name in fields]


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
    left = [replace(STATE, seconds=seconds).left_s for seconds in (60.0, 15.0, None)]
    assert left == [40.0, 0.0, None]


def test_a_search_tells_its_state() -> None:
    states: list[SearchState] = []

    result = tune_space(QUESTION, scripted(), MANY, executor=Inline(), watch=states.append)

    assert [state.tried for state in states] == sorted({state.tried for state in states})
    assert states[0].best_s is None
    assert states[-1].tried == len(result.tried)
    assert states[-1].best == BEST
    assert states[-1].best_s == pytest.approx(BEST_S)
    chances = [state.chance for state in states if state.chance is not None]
    assert all(0 <= chance <= 1 for chance in chances)
    assert chances[-1] <= 0.05  # it stops at 95 % confidence
    gains = [state.expected_gain for state in states if state.expected_gain is not None]
    assert all(0 <= gain < 1 for gain in gains)


def test_the_expected_gain_is_a_fraction_of_the_best_time() -> None:
    # one variant is left whose time is known to be 0.8 of the best: it gains a fifth
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
