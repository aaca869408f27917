from __future__ import annotations

import itertools

import islpy as isl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from countperf.errors import CountingError
from countperf.symbolic import sets
from countperf.symbolic.cardinality import Counter, from_isl_text, guards_of, to_isl_text
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from tests.oracles import enumeration
from tests.symbolic.typical_sets import SETS


def _values(text: str, assumptions: str | None) -> list[dict[str, int]]:
    integer_set = isl.Set(text)
    names = sets.names_of(integer_set, parameters=True)
    grid = [
        dict(zip(names, v, strict=True)) for v in itertools.product(range(14), repeat=len(names))
    ]
    if assumptions is None:
        return grid
    (guards,) = guards_of(sets.parameter_set(assumptions))
    return [
        values
        for values in grid
        if all(g.evaluate(values) >= 0 for g in guards[0])
        and all(g.evaluate(values) == 0 for g in guards[1])
    ]


@pytest.mark.parametrize(
    ("text", "assumptions"), [row[1:] for row in SETS], ids=[row[0] for row in SETS]
)
def test_counts_equal_enumeration(text: str, assumptions: str | None) -> None:
    counter = Counter(sets.parameter_set(assumptions) if assumptions else None)
    count = counter.count(isl.Set(text))
    for values in _values(text, assumptions):
        assert count.evaluate(values) == enumeration.weighted_sum(text, values), values


def test_a_tiling_that_divides_leaves_no_floor() -> None:
    counter = Counter(sets.parameter_set("[n] -> { : n mod 16 = 0 and n >= 16 }"))
    square = "[n] -> { [a,b,c,d] : 0 <= b, d < 16 and 0 <= a, c and 16a + b < n and 16c + d < n }"
    assert str(counter.count(isl.Set(square))) == "n^2"


def test_an_unbounded_set_is_refused_by_name() -> None:
    with pytest.raises(CountingError, match="unbounded"):
        Counter().count(isl.Set("[n] -> { [i, j] : 0 <= i < n and j >= i }"))


def test_a_weight_is_summed_over_the_points() -> None:
    text = "[n] -> { [i, j] : 0 <= i < n and 0 <= j <= i }"
    i, j = QuasiPolynomial.name("i"), QuasiPolynomial.name("j")
    total = Counter().count(isl.Set(text), i * i + j * 3)
    for n in range(10):
        expected = enumeration.weighted_sum(text, {"n": n}, lambda a, b: a * a + 3 * b)
        assert total.evaluate({"n": n}) == expected


def test_a_weight_with_floors_is_summed_over_the_points() -> None:
    text = "[n] -> { [i] : 0 <= i < n }"
    weight = (QuasiPolynomial.name("i") * 5 + 2).floor_divide(7)
    total = Counter().count(isl.Set(text), weight * weight)
    for n in range(40):
        expected = sum(((5 * i + 2) // 7) ** 2 for i in range(n))
        assert total.evaluate({"n": n}) == expected


@st.composite
def _random_sets(draw: st.DrawFn) -> tuple[str, int]:
    depth = draw(st.integers(1, 3))
    names = ["i", "j", "k"][:depth]
    rows: list[str] = []
    for position, name in enumerate(names):
        outer = ["n", *names[:position]]
        upper = draw(st.sampled_from(outer))
        scale = draw(st.integers(1, 3))
        offset = draw(st.integers(-2, 2))
        rows.append(f"0 <= {name} and {scale}*{name} <= {upper} + {offset}")
    if draw(st.booleans()):
        modulus = draw(st.integers(2, 4))
        left, right = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        a = draw(st.integers(1, 3))
        rows.append(f"({a}*{left} + {right}) mod {modulus} = {draw(st.integers(0, 1))}")
    return f"[n] -> {{ [{', '.join(names)}] : {' and '.join(rows)} }}", draw(st.integers(0, 11))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_random_sets())
def test_random_nests_equal_enumeration(case: tuple[str, int]) -> None:
    text, n = case
    count = Counter().count(isl.Set(text))
    assert count.evaluate({"n": n}) == enumeration.weighted_sum(text, {"n": n})


def test_minimum_is_pointwise_where_it_cannot_be_decided() -> None:
    counter = Counter(sets.parameter_set("[n, m] -> { : n >= 1 and m >= 1 }"))
    left = counter.count(isl.Set("[n, m] -> { [i, j] : 0 <= i < n and 0 <= j < n }"))
    right = counter.count(isl.Set("[n, m] -> { [i, j] : 0 <= i < n and 3 <= j < m }"))
    smaller = counter.minimum(left, right)
    for n, m in itertools.product(range(1, 9), repeat=2):
        values = {"n": n, "m": m}
        assert smaller.evaluate(values) == min(left.evaluate(values), right.evaluate(values))


def test_minimum_is_decided_where_assumptions_allow() -> None:
    counter = Counter(sets.parameter_set("[n] -> { : n >= 1 }"))
    square = PiecewiseQuasiPolynomial.from_value(QuasiPolynomial.name("n") ** 2)
    assert counter.minimum(square, square.scale(2)) == square


@pytest.mark.parametrize(
    ("polynomial", "provable"),
    [
        ("n^2 - 3*n + 3", True),  # never below 3/4
        ("n^2 - 3*n + 2", True),  # zero at 1 and 2, positive beyond
        ("n^2 - 5*n + 5", False),  # -1 at 2
        ("n*m - n - m", False),  # -1 at n = m = 1
        ("n - floor(n/2)", True),
    ],
)
def test_signs_are_proved_or_left_open(polynomial: str, provable: bool) -> None:
    from countperf.symbolic.piecewise import parse_polynomial

    counter = Counter(sets.parameter_set("[n, m] -> { : n >= 1 and m >= 1 }"))
    assert counter.is_nonnegative(parse_polynomial(polynomial)) is provable


@pytest.mark.parametrize(
    "text",
    [
        "[n] -> { n^2 : n > 0 }",
        "[n, m] -> { (1/2 * n + 1/2 * n^2) : n > m; 3 : n <= m }",
        "[n] -> { floor((n + 1)/3) : n >= 2 }",
        "[n] -> { n : exists e : n = 3e }",
    ],
)
def test_isl_text_is_read_and_written(text: str) -> None:
    count = from_isl_text(text)
    written = to_isl_text(count)
    assert written is not None
    again = from_isl_text(written)
    for n, m in itertools.product(range(-3, 7), repeat=2):
        assert again.evaluate({"n": n, "m": m}) == count.evaluate({"n": n, "m": m})
    assert PiecewiseQuasiPolynomial.from_document(count.to_document()) == count


@pytest.mark.parametrize("text", ["n^2", "[n] -> { [i] -> i }", "[n] -> { "])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(CountingError, match=r"isl's notation|dimensions"):
        from_isl_text(text)
