from __future__ import annotations

import json

from accuracy_tables import ranking_markdown
from countperf.fitting.ranking import RankedSet, RankedVariant, RankingEvaluation
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
    assert text_of(EVALUATION).splitlines() == [
        "ranking of variants: linear model on pocl-testchip",
        "  set              parameters  variants  refused  fastest  slowest  ties    tau"
        "  pairs right  top 1  top 3  top 5",
        "  variants-matmul  n = 64             3        1  1.00 ms  3.00 ms   0 %   1.00"
        "        100 %   1.00   1.00   1.00",
        "  variants-matmul  n = 128            2        0  1.00 ms  2.00 ms   0 %  -1.00"
        "          0 %   2.00   1.00   1.00",
        "  all                                 5        1                           0.00"
        "         50 %   1.41   1.00   1.00",
        "  tau: Kendall's, with noise as ties; top k: time of the best of the k predicted to be"
        " fastest over the fastest; refused ones rank last; of all sets: means, of times geometric",
        "  1 predictions leave out what has no weight",
    ]


def test_as_an_object() -> None:
    content = json.loads(json.dumps(object_of(EVALUATION)))

    assert content["sets"][1] == {
        "family": "variants-matmul",
        "parameters": {"n": 128},
        "variants": 2,
        "refused": 0,
        "incomplete": 1,
        "pairs": 1,
        "tied_pairs": 0,
        "fastest_s": 1e-3,
        "slowest_s": 2e-3,
        "kendall_tau": -1.0,
        "pairwise_accuracy": 0.0,
        "regret": {"1": 2.0, "3": 1.0, "5": 1.0},
    }
    assert content["mean"]["kendall_tau"] == 0.0


def test_of_uncorrected_models_a_table_has_the_means_alone() -> None:
    uncorrected = EVALUATION.model_copy(update={"model": "uncorrected"})

    assert ranking_markdown([uncorrected]).splitlines()[2:] == [
        "| pocl-testchip, uncorrected | **all** | 5 | 0.00 | 50 % | 1.41 | 1.00 |",
    ]


def test_a_table_tells_sets_of_one_family_apart() -> None:
    assert ranking_markdown([EVALUATION]).splitlines()[2:] == [
        "| pocl-testchip, linear | matmul, n = 64 | 3 | 1.00 | 100 % | 1.00 | 1.00 |",
        "| pocl-testchip, linear | matmul, n = 128 | 2 | -1.00 | 0 % | 2.00 | 1.00 |",
        "| pocl-testchip, linear | **all** | 5 | 0.00 | 50 % | 1.41 | 1.00 |",
    ]
