from __future__ import annotations

import json

from countperf.fitting.judging import RankedSet, RankedVariant, RankingEvaluation
from tests.printing import object_of, text_of


def _set(n: int, *predicted: float | None) -> RankedSet:
    variants = tuple(
        RankedVariant(variant=str(k), measured_s=k * 1e-3, predicted_s=p, complete=p != 0.5)
        for k, p in enumerate(predicted, start=1)
    )
    return RankedSet(family="variants-matmul", parameters={"n": n}, variants=variants)


EVALUATION = RankingEvaluation(
    device="pocl-testchip", model="linear", sets=(_set(64, 1.0, 2.0, None), _set(128, 0.5, 0.25))
)


def test_a_line_for_each_set_and_one_for_all() -> None:
    lines = text_of(EVALUATION).splitlines()

    assert [line.split()[-3:] for line in lines[2:5]] == [
        ["1.00", "1.00", "1.00"],
        ["2.00", "1.00", "1.00"],
        ["1.41", "1.00", "1.00"],
    ]


def test_as_an_object() -> None:
    content = json.loads(json.dumps(object_of(EVALUATION)))

    assert content["sets"][1] == {
        "family": "variants-matmul",
        "parameters": {"n": 128},
        "variants": 2,
        "refused": 0,
        "incomplete": 1,
        "fastest_s": 1e-3,
        "slowest_s": 2e-3,
        "kendall_tau": -1.0,
        "regret": {"1": 2.0, "3": 1.0, "5": 1.0},
    }
    assert content["mean"]["kendall_tau"] == 0.0
