"""Loans: features without a weight, charged at the cost of features like them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from countperf.errors import UnmeasuredPropertyError
from countperf.models.library import load_weights
from countperf.models.loans import Lenders
from countperf.properties.vector import PropertyVector
from tests.models.builders import make_weights

WEIGHTS = make_weights(
    {"launches": 1e-6, "gmem.load.32.uniform": 2e-9, "flop.add.f32": 4e-9, "flop.mul.f32": 5e-9}
)
FITS = (
    *("pocl-epyc-zen3", "pocl-epyc-zen4", "pocl-epyc-zen5", "pocl-xeon-model167"),
    *("intel-epyc-zen3", "intel-epyc-zen4", "intel-epyc-zen5", "intel-xeon-model167"),
)


def test_another_type_lends_and_the_interval_says_so() -> None:
    known = WEIGHTS.predict({"launches": 1, "flop.add.f32": 1000})
    prediction = WEIGHTS.predict({"launches": 1, "flop.add.f64": 1000})

    assert prediction.time_s == pytest.approx(1e-6 + 1000 * 4e-9)
    assert prediction.breakdown == known.breakdown
    assert prediction.missing == ()
    (caveat,) = prediction.caveats
    assert caveat.name == "loans"
    assert "flop.add.f64 at the cost of flop.add.f32" in caveat.message
    assert known.interval_s is not None
    assert prediction.interval_s is not None
    # a loan from another width is off by up to 4: 1 us + 4 us may be 1 + 1 us or 1 + 16 us
    assert prediction.interval_s[0] == pytest.approx(known.interval_s[0] * 2 / 5)
    assert prediction.interval_s[1] == pytest.approx(known.interval_s[1] * 17 / 5)


def test_the_dearest_of_those_alike_lends() -> None:
    prediction = WEIGHTS.predict({"launches": 1, "flop.fma.f32": 10})

    assert prediction.breakdown["flop.mul.f32"] == pytest.approx(5e-8)


def test_nothing_is_lent_between_operations_of_different_kinds() -> None:
    with pytest.raises(UnmeasuredPropertyError, match=r"flop\.div\.f32"):
        WEIGHTS.predict({"launches": 1, "flop.div.f32": 1})
    with pytest.raises(UnmeasuredPropertyError, match=r"lmem\.load\.32"):
        WEIGHTS.predict({"launches": 1, "lmem.load.32": 1})


def test_there_is_no_loan_where_the_property_is_zero() -> None:
    kernel = PropertyVector.from_mapping(
        {"launches": 1, "flop.add.f64": "[n] -> { n - 1 : n > 1 }"}, kernel="k"
    )

    assert WEIGHTS.predict(kernel, n=1).caveats == ()
    assert [v.name for v in WEIGHTS.predict(kernel, n=2).caveats] == ["loans"]


def test_all_ways_to_predict_agree() -> None:
    kernel = PropertyVector.from_mapping(
        {"launches": 1, "flop.fma.f64": "[n] -> { n : n > 0 }"}, kernel="k"
    )
    sizes = np.array([1, 10])

    times = WEIGHTS.predict(kernel, n=sizes).time_s
    assert times == pytest.approx([1e-6 + 5e-9, 1e-6 + 5e-8])
    cost = WEIGHTS.compile(kernel)
    assert [cost(n=1), cost(n=10)] == pytest.approx(list(np.asarray(times)))
    explained = WEIGHTS.explain(kernel, n=10)
    assert {p.name: p.part_s for p in explained.parts}["flop.mul.f32"] == pytest.approx(5e-8)
    coverage = WEIGHTS.coverage(kernel, n=1000)
    assert coverage.time_s == pytest.approx(1e-6 + 5e-6)
    (row,) = [row for row in coverage.features if row.name == "flop.mul.f32"]
    assert (row.status, row.substituted) == ("substituted", ("flop.fma.f64",))
    assert "flop.fma.f64 as flop.mul.f32" in coverage.verdict.message


@pytest.mark.parametrize(
    ("name", "lender"),
    [
        ("issue.vector.special.f32.atan", "issue.vector.special.f32.log"),
        ("issue.scalar.special.f64.asinh", "issue.scalar.special.f64.log"),
        ("issue.vector.special.f64.hank1_01", "issue.vector.pow.f64"),
        ("issue.vector.special.f64.bessel_jn", "issue.vector.pow.f64"),
        ("issue.scalar.chain.i64.arithmetic", "issue.scalar.chain.i32.arithmetic"),
        ("issue.vector.arithmetic.f16", "issue.vector.arithmetic.f32"),
    ],
)
def test_named_similar_features_lend(name: str, lender: str) -> None:
    weights = load_weights("pocl-epyc-zen5", model="structural")

    (loan,) = weights.loans({name: 1})

    assert loan.lender == lender


def test_errors_of_loans_are_those_stated() -> None:
    """Each measured feature of eight fits in turn, as if it had not been measured."""
    inside: list[bool] = []
    for slug in FITS:
        weights = load_weights(slug, model="uncorrected")
        values = {(each.term, each.feature): each.value_s for each in weights.weights}
        for (term, feature), value in values.items():
            rest = {key: other for key, other in values.items() if key != (term, feature)}
            lenders = Lenders(rest, weights.definition.term_features)
            for loan in lenders.loans({feature: 1}):
                lent = rest[term, loan.lender] * float(loan.units)
                if value > 0 and lent > 0:
                    inside.append(abs(math.log(value / lent)) <= math.log(loan.off_by))
    assert len(inside) > 500
    assert sum(inside) / len(inside) >= 0.9
