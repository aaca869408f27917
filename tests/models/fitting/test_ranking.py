"""Figures of rankings: by hand, against SciPy, and what holds of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from countperf.models.fitting.fit_model import fit
from countperf.models.metrics import (
    RankedSet,
    RankedVariant,
    RankingEvaluation,
    evaluate_ranking,
)
from tests.models.fitting.builders import KERNELS, TRUE_WEIGHTS, MadeUpKernel, measure


def ranked(measured: Sequence[float], predicted: Sequence[float | None]) -> RankedSet:
    return RankedSet(
        family="variants-toy",
        parameters={"n": 1},
        variants=tuple(
            RankedVariant(variant=str(k), measured_s=m, predicted_s=p)
            for k, (m, p) in enumerate(zip(measured, predicted, strict=True))
        ),
    )


@pytest.mark.parametrize(
    ("measured", "predicted", "tau", "regrets"),
    [
        # right: 1-3, 1-4, 2-3, 2-4; wrong: 1-2, 3-4
        ([1.0, 2, 3, 4], [2.0, 1, 5, 3], (4 - 2) / 6, [2, 1, 1, 1]),
        # what has no prediction ranks last; right: 2-5, 3-5; wrong: 1-2, 1-3, 2-3; equal: 1-5
        ([1.0, 2, 3, 5], [None, 7.0, 6.0, None], (2 - 3) / 30**0.5, [3, 2, 2, 1]),
        # a model that tells nothing apart gains nothing
        ([1.0, 2, 3], [1.0, 1, 1], 0.0, [3, 2, 1]),
        # a set without an order has no tau
        ([1.0, 1.0], [1.0, 2.0], None, [1, 1]),
    ],
)
def test_by_hand(
    measured: list[float], predicted: list[float | None], tau: float | None, regrets: list[float]
) -> None:
    ranking = ranked(measured, predicted)

    assert ranking.kendall_tau == (None if tau is None else pytest.approx(tau))
    assert [ranking.regret(top + 1) for top in range(len(measured))] == regrets


_TIMES = st.lists(st.integers(1, 9).map(float), min_size=2, max_size=12)


@given(st.data())
def test_it_is_scipys_tau(data: st.DataObject) -> None:
    measured = data.draw(_TIMES)
    size = len(measured)
    predicted = data.draw(st.lists(st.integers(1, 9).map(float), min_size=size, max_size=size))

    tau = ranked(measured, predicted).kendall_tau

    wanted = cast("float", kendalltau(measured, predicted)[0])
    if np.isnan(wanted):  # all measured, or all predicted, are equal
        assert tau in (None, 0.0)
    else:
        assert tau == pytest.approx(wanted)


@given(st.lists(st.integers(1, 10**6).map(float), min_size=2, max_size=20, unique=True))
def test_right_and_wrong_order(measured: list[float]) -> None:
    right = ranked(measured, [7 * time**2 for time in measured])
    wrong = ranked(measured, [1 / time for time in measured])

    assert right.kendall_tau == pytest.approx(1)
    assert wrong.kendall_tau == pytest.approx(-1)
    assert right.regret() == 1.0
    assert wrong.regret() == max(measured) / min(measured)


@given(st.data())
def test_more_measured_never_lose_more_and_units_do_not_matter(data: st.DataObject) -> None:
    measured = data.draw(_TIMES)
    size = len(measured)
    guess = st.none() | st.integers(1, 9).map(float)
    predicted = data.draw(st.lists(guess, min_size=size, max_size=size))

    ranking = ranked(measured, predicted)
    scaled = ranked(
        [time * 1024 for time in measured],
        [None if time is None else time / 1024 for time in predicted],
    )

    regrets = [ranking.regret(top) for top in range(1, size + 1)]
    assert regrets == sorted(regrets, reverse=True)
    assert regrets[-1] == 1.0
    assert regrets == [scaled.regret(top) for top in range(1, size + 1)]
    assert ranking.kendall_tau == scaled.kendall_tau


def test_means_over_sets() -> None:
    sets = (ranked([1.0, 2.0], [1.0, 2.0]), ranked([1.0, 4.0], [2.0, 1.0]), ranked([1.0], [1.0]))
    evaluation = RankingEvaluation(device="d", model="linear", sets=sets)

    assert evaluation.kendall_tau == 0.0
    assert evaluation.regret() == pytest.approx(4 ** (1 / 3))
    assert evaluation.regret(3) == 1.0
    assert RankingEvaluation(device="d", model="linear").regret() is None


def _variant(name: str, loads: int, **more: str) -> MadeUpKernel:
    counts = {"gmem.load.32.stride1": f"[n] -> {{ {loads}n }}", **more}
    sizes = (2**14, 2**18)
    return MadeUpKernel(
        name=name, family="variants-toy", purpose="variant", counts=counts, sizes=sizes
    )


def test_variants_are_ranked_by_size_and_take_no_part_in_the_fit() -> None:
    variants = (
        _variant("slow", 9),
        _variant("fast", 1),
        _variant("uncounted", 5),
        _variant("unknown", 3, **{"flop.div.f32": "[n] -> { n }"}),
    )
    costs = {**TRUE_WEIGHTS, "flop.div.f32": 1e-11}
    measured = measure((*KERNELS, *variants), weights=costs, uncounted=["uncounted"])
    weights = fit(measured).weights

    evaluation = evaluate_ranking(
        weights, [line.model_copy(update={"variant": line.kernel}) for line in measured]
    )

    assert weights == fit(measure()).weights
    assert [(s.family, s.parameters["n"]) for s in evaluation.sets] == [
        ("variants-toy", n) for n in (2**14, 2**18)
    ]
    for ranking in evaluation.sets:
        assert [(v.variant, v.predicted_s is None, v.complete) for v in ranking.variants] == [
            ("slow", False, True),
            ("fast", False, True),
            ("uncounted", True, True),
            ("unknown", False, False),
        ]
    # the one that is not counted is third of four
    assert evaluation.kendall_tau == pytest.approx((5 - 1) / 6)
