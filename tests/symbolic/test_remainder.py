"""What the elimination refuses: barvinok's hook, upper bounds, messages."""

from __future__ import annotations

from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
import pytest

from countperf.errors import CountingError, UncountableSetError
from countperf.properties.count_properties import count_kernel
from countperf.properties.vector import PropertyVector
from countperf.symbolic import isl_sets, remainder
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ONE, QuasiPolynomial
from tests.oracles import enumeration

EASY = "[n] -> { [i, j, k] : 0 <= i, j, k < n and j <= i }"
HARD = "[n] -> { [i, j, k] : i >= 0 and j >= 0 and k >= 0 and 31i + 52j + 73k <= n }"
MIXED = HARD.replace("i >= 0", "i >= 1").replace(
    " }", "; [i, j, k] : i = -1 and 0 <= j < n and k = 2 }"
)


class _Summation:
    """Stands in for barvinok: enumerates nothing, answers with a number, and notes the question."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, QuasiPolynomial]] = []

    def __call__(self, integer_set: Any, weight: QuasiPolynomial) -> Any:
        self.asked.append((integer_set, weight))
        return isl.PwQPolynomial("[n] -> { n^2 + 7 * floor(n/2) : n >= 0 }")


def test_what_the_elimination_counts_is_not_passed_on() -> None:
    summation = _Summation()
    count = Counter(summation=summation).count(isl.Set(EASY))
    assert count.evaluate({"n": 5}) == enumeration.weighted_sum(EASY, {"n": 5})
    assert not summation.asked


def test_only_the_part_that_is_refused_is_passed_on() -> None:
    summation = _Summation()
    count = Counter(summation=summation).count(isl.Set(MIXED))
    ((asked, weight),) = summation.asked
    assert weight == ONE
    assert isl.Set.from_basic_set(asked).is_equal(isl.Set(HARD.replace("i >= 0", "i >= 1")))
    assert count.evaluate({"n": 9}) == 9 + 81 + 7 * 4
    assert not count.approximations


def test_factors_that_are_refused_are_passed_on() -> None:
    summation = _Summation()
    polyhedron = isl_sets.as_polyhedron(isl.Set(HARD))
    assert polyhedron is not None
    counter = Counter(summation=summation)
    for _ in range(2):
        assert counter.count_product([polyhedron]).evaluate({"n": 4}) == 16 + 14
    assert len(summation.asked) == 1


def test_without_barvinok_the_error_names_the_set_and_the_mend() -> None:
    with pytest.raises(UncountableSetError, match=r"islpy-barvinok.*approximate=True") as caught:
        Counter(summation=None).count(isl.Set(HARD))
    assert caught.value.where is not None
    assert isl.Set(caught.value.where).is_equal(isl.Set(HARD))
    assert isinstance(caught.value, CountingError)


def test_barvinok_is_used_where_islpy_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithCard:
        def card(self) -> None:
            """Stand in for barvinok's method."""

    monkeypatch.setattr(remainder.isl, "Set", WithCard)
    assert remainder.installed_barvinok() is remainder.sum_by_barvinok
    monkeypatch.setattr(remainder.isl, "Set", object)
    assert remainder.installed_barvinok() is None


def test_a_sum_that_gets_too_large_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countperf.symbolic.elimination._MAXIMUM_TERMS", 3)
    with pytest.raises(UncountableSetError, match="more than 3 terms"):
        Counter(summation=None).count(isl.Set(EASY))


def test_splitting_into_parts_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countperf.symbolic.isl_sets._SPLITTING_OPERATIONS", 3)
    text = "[n] -> { [i] : 0 <= i < n and i mod 3 <= 1; [i] : 2 <= i < 2n and i mod 5 <= 2 }"
    with pytest.raises(UncountableSetError, match="splitting"):
        Counter(summation=None).count(isl.Set(text))
    bound = Counter(summation=None, approximate=True).count(isl.Set(text))
    assert bound.approximations
    assert bound.evaluate({"n": 8}) == 16  # from 0 to 15


def test_an_outer_limit_of_operations_holds_inside() -> None:
    with (
        pytest.raises(UncountableSetError, match="outer"),
        isl_sets.limited_operations(1, "outer"),
        isl_sets.limited_operations(10**9, "inner"),
    ):
        isl.Set(EASY).intersect(isl.Set(HARD)).is_empty()


def test_a_limit_that_is_reached_while_reading_a_number_is_told_as_such() -> None:
    for number in range(1, 30):
        with pytest.raises(UncountableSetError), isl_sets.limited_operations(number, "reading"):
            _ = [isl.Val("3/2") for _ in range(30)]
    with pytest.raises(isl.Error), isl_sets.limited_operations(10**6, "reading"):
        isl.Val("no number")


# {{{ upper bounds


def test_an_upper_bound_is_given_on_request_and_marked() -> None:
    bound = Counter(summation=None, approximate=True).count(isl.Set(HARD))
    (reason,) = bound.approximations
    assert "31i" in reason
    assert "bounding box" in reason
    for n in (-3, 0, 30, 60, 140, 200):
        assert bound.evaluate({"n": n}) >= enumeration.weighted_sum(HARD, {"n": n})
    assert bound.evaluate({"n": -1}) == 0
    assert bound.evaluate({"n": 140}) == 5 * 3 * 2


def test_what_can_be_counted_stays_exact_where_bounds_are_allowed() -> None:
    exact, allowed = Counter(), Counter(approximate=True)
    count = allowed.count(isl.Set(EASY))
    assert count == exact.count(isl.Set(EASY))
    assert not count.approximations


def test_whatever_is_computed_from_a_bound_is_marked() -> None:
    counter = Counter(summation=None, approximate=True)
    bound = counter.count(isl.Set(HARD))
    other = counter.count(isl.Set(EASY))
    n = QuasiPolynomial.name("n")
    computed: list[PiecewiseQuasiPolynomial] = [
        bound + other,
        other + bound,
        bound * other,
        bound.scale(3),
        bound.restricted([n - 100]),
        bound.substitute({"n": n * 2}),
        counter.simplified(bound),
        counter.minimum(bound, other),
    ]
    assert all(each.approximations == bound.approximations for each in computed)


def test_an_unbounded_set_has_no_upper_bound() -> None:
    with pytest.raises(CountingError, match="unbounded"):
        Counter(approximate=True).count(isl.Set("[n] -> { [i] : i >= n }"))


def test_a_weight_has_no_upper_bound() -> None:
    with pytest.raises(UncountableSetError):
        Counter(summation=None, approximate=True).count(
            isl.Set(HARD), QuasiPolynomial.name("i") - 3
        )


def _kernel(domain: str, body: str, arrays: list[Any]) -> Any:
    return lp.make_kernel(
        domain,
        body,
        [*arrays, lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        silenced_warnings=["write_race*"],
    )


def test_counts_of_a_kernel_that_rest_on_a_bound_are_marked() -> None:
    kernel = _kernel(
        HARD[7:],
        "y[i, j, k] = 2.5*x[i]",
        [
            lp.GlobalArg("x", np.float32, shape="n + 1"),
            lp.GlobalArg("y", np.float32, shape=("n + 1",) * 3),
        ],
    )
    with pytest.raises(CountingError, match="approximate=True"):
        count_kernel(kernel)
    vector = count_kernel(kernel, approximate=True)
    with pytest.raises(CountingError, match="approximate=True"):
        count_kernel(kernel)  # the bound is not remembered as the count
    product = vector["flop.mul.f32"]
    assert not product.exact
    assert "31i" in product.reason
    assert vector["launches"].exact
    assert not vector.is_exact
    assert vector.evaluate(n=140)["flop.mul.f32"] == 30
    assert PropertyVector.from_document(vector.to_document())["flop.mul.f32"] == product


def test_a_footprint_that_cannot_be_found_leaves_the_class_of_the_access_alone() -> None:
    kernel = _kernel(
        "{ [i] : 0 <= i < n }",
        "y[i] = x[2*i] + x[map[i]]",
        [
            lp.GlobalArg("x", np.float32, shape="2*n"),
            lp.GlobalArg("y", np.float32, shape="n"),
            lp.GlobalArg("map", np.int32, shape="n"),
        ],
    )
    kernel = lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.0")
    with pytest.raises(CountingError, match="no footprint"):
        count_kernel(kernel)
    vector = count_kernel(kernel, approximate=True)
    assert not vector["gmem.load.32.1of2"].exact
    assert "data decides which elements x[map[" in vector["gmem.load.32.1of2"].reason
    assert vector["flop.add.f32"].exact
    assert vector.evaluate(n=10)["gmem.load.32.1of2"] == 10


# }}}
