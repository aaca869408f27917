"""Rankings and searches as text: what is claimed, and of what."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from countperf.steps import listening
from countperf.tuning.ranker import Predicted, Ranking, Refused, count_refusals
from countperf.tuning.result import Budget, Trial, TuningResult
from tests.printing import object_of, text_of
from tests.tuning.test_search import QUESTION, Inline, scripted, tune_space

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
    ranking = ranking_of((), count_refusals(refused))

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


def test_a_search_tells_its_state() -> None:
    states: list[tuple[str, int]] = []

    with listening(lambda work, done, _: states.append((work, done))):
        result = tune_space(QUESTION, scripted(), Budget(seconds=100), executor=Inline())

    ran = [done for _, done in states]
    assert ran == sorted({*ran})
    assert states[0][0].startswith("searching double; ")
    assert (ran[0], ran[-1]) == (0, len(result.tried))
    assert states[-1][0].startswith("searching double: best 1.69 ms (group=128 each=4 fetch=no);")
    chances = [int(found) for work, _ in states for found in re.findall(r"(\d+) % chance", work)]
    assert len(chances) == len(states) - 1
    assert chances[-1] <= 5  # it stops at 95 % confidence
    assert re.fullmatch(r".* s left; variants that ran", states[-1][0])
