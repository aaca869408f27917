from __future__ import annotations

import itertools

import islpy as isl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.errors import CountingError
from countperf.symbolic import isl_sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.isl_sets import from_isl_text, guards_of, to_isl_text
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial, parse_polynomial
from tests.oracles import enumeration


def test_a_tiling_that_divides_leaves_no_floor() -> None:
    counter = Counter(isl.Set("[n] -> { : n mod 16 = 0 and n >= 16 }"))
    square = "[n] -> { [a,b,c,d] : 0 <= b, d < 16 and 0 <= a, c and 16a + b < n and 16c + d < n }"
    assert str(counter.count(isl.Set(square))) == "n^2"


def test_an_unbounded_set_is_refused_by_name() -> None:
    with pytest.raises(CountingError, match="unbounded"):
        Counter().count(isl.Set("[n] -> { [i, j] : 0 <= i < n and j >= i }"))


@pytest.mark.parametrize(
    ("text", "weight", "value"),
    [
        ("[n, m] -> { [i, j] : 0 <= i < n and 0 <= j <= i }", "i^2 + 3*j", "i*i + 3*j"),
        ("[n, m] -> { [i, j] : 0 <= i < n and j = 0 }", "i*floor((5*i + 2)/7)", "i*((5*i + 2)//7)"),
        # with parameters
        ("[n, m] -> { [i, j] : 0 <= i < n and j = 0 }", "m*i + floor(n/3)", "m*i + n//3"),
    ],
)
def test_a_weight_is_summed_over_the_points(text: str, weight: str, value: str) -> None:
    total = Counter().count(isl.Set(text), parse_polynomial(weight))
    for n, m in itertools.product(range(-1, 22), (-1, 0, 5)):
        points = enumeration.points(text, {"n": n, "m": m})
        expected = sum(eval(value, {"i": i, "j": j, "n": n, "m": m}) for i, j in points)
        assert total.evaluate({"n": n, "m": m}) == expected


def test_minimum_is_pointwise_where_it_cannot_be_decided() -> None:
    counter = Counter(isl.Set("[n, m] -> { : n >= 1 and m >= 1 }"))
    left = counter.count(isl.Set("[n, m] -> { [i, j] : 0 <= i < n and 0 <= j < n }"))
    right = counter.count(isl.Set("[n, m] -> { [i, j] : 0 <= i < n and 3 <= j < m }"))
    smaller = counter.minimum(left, right)
    for n, m in itertools.product(range(1, 9), repeat=2):
        values = {"n": n, "m": m}
        assert smaller.evaluate(values) == min(left.evaluate(values), right.evaluate(values))
    assert counter.minimum(left, left.scale(2)) == left


_POSITIVE = "[n, m] -> { : n >= 1 and m >= 1 }"
_SIXTEENTHS = "[n, m] -> { : n mod 16 = 0 and n >= 1 and m >= 1 }"
_COUPLED = "[n, m] -> { : (n + m) mod 4 = 0 and n >= 1 and m >= 1 }"


@pytest.mark.parametrize(
    ("assumptions", "guard", "proved", "left_open"),
    [
        # never below 3/4; zero at 1 and 2, positive beyond; -1 at 2, at n = m = 1, and at 2
        (_POSITIVE, "", "n^2 - 3*n + 3; n^2 - 3*n + 2; n - floor(n/2)", "n^2 - 5*n + 5"),
        (_POSITIVE, "", "", "n*m - n - m; n - 1 - 2*floor(n/2)"),
        # negative at 17 to 31 only
        (_SIXTEENTHS, "", "n - 16; n^2*m - 16*n*m; n^2 - 48*n + 512", "n - 17; 16*n - n^2"),
        (_SIXTEENTHS, "n - 17", "n - 32", "n - 33"),
        ("[n, m] -> { : n >= 16 and m >= 0 }", "", "n*m - 16*m", "n*m - 17*m"),
        ("[n, m] -> { : n >= 1 and m >= -3 }", "", "m^2", "n*m"),
        ("[n] -> { : n mod 5 = 3 and n >= -4 }", "", "n + 2", "n + 1"),
        (_COUPLED, "", "n + m - 2; n*m - n", "n + m - 4"),  # true: 2 at n = m = 1 is impossible
        ("[n] -> { : n >= 0 }", "4 - n", "", "3 - n"),
    ],
)
def test_signs_are_proved_or_left_open(
    assumptions: str, guard: str, proved: str, left_open: str
) -> None:
    counter, stated = Counter(isl.Set(assumptions)), frozenset[QuasiPolynomial]()
    if guard:
        stated = frozenset([parse_polynomial(guard)])
    for texts, provable in ((proved, True), (left_open, False)):
        for text in filter(None, texts.split("; ")):
            assert counter.is_nonnegative(parse_polynomial(text), stated) is provable, text


@given(
    assumptions=st.sampled_from(
        [
            _SIXTEENTHS,
            _COUPLED,
            "[n, m] -> { : n mod 3 = 1 and m mod 4 = 3 and n >= -5 and m >= -2 }",
            "[n, m] -> { : n mod 2 = 0 and n >= 2m and m >= 1 and n + m >= 7 }",
            "[n, m] -> { : n mod 6 = 5 and 0 <= n <= 20 and m = 3 }",
        ]
    ),
    terms=st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 2)), st.integers(-20, 20), max_size=4
    ),
    bound=st.none() | st.integers(-3, 20),
)
@settings(max_examples=150, deadline=None)
def test_what_is_proved_holds(
    assumptions: str, terms: dict[tuple[int, int], int], bound: int | None
) -> None:
    n, m = QuasiPolynomial.name("n"), QuasiPolynomial.name("m")
    polynomial = sum((n**a * m**b * c for (a, b), c in terms.items()), QuasiPolynomial())
    guards = frozenset[QuasiPolynomial]() if bound is None else frozenset([n - bound])
    possible = isl.Set(assumptions)
    if Counter(possible).is_nonnegative(polynomial, guards):
        (stated,) = guards_of(possible)
        for values in ({"n": x, "m": y} for x in range(-6, 60) for y in range(-3, 20)):
            if all(g.evaluate(values) >= 0 for g in stated[0] | guards) and not any(
                g.evaluate(values) for g in stated[1]
            ):
                assert polynomial.evaluate(values) >= 0


@pytest.mark.parametrize(
    "text",
    [
        "[n] -> { : n >= 3 }",
        "[n, m] -> { : n mod 16 = 0 and m mod 5 = 3 and n >= 1 and n + m >= 7 }",
        "[n, m] -> { : (n + 7) mod 4 = 0 and (3 - m) mod 6 = 0 and m >= n }",
        "[n, m] -> { : exists e, f : n = 4e and m = 3f + 1 and e >= 2 }",
        "[n, m] -> { : (n + m) mod 4 = 0 }",
        "[n, m] -> { : (2n) mod 6 = 4 and m = 3n }",
        "[n, m] -> { : n = 3 and m mod 2 = 1 }",
        "[n, m] -> { : m = 5*floor(n/3) }",
        "[n, m] -> { : n mod 4 = 0 and 2*floor(n/3) <= m <= 3*floor(n/3) }",
    ],
)
def test_assumptions_as_guards_hold_where_the_assumptions_do(text: str) -> None:
    assumptions = isl.BasicSet(text)
    names = isl_sets.names_of(assumptions, parameters=True)
    ((nonnegative, zero),) = Counter(assumptions).assumption_guards()
    for values in itertools.product(range(-9, 26), repeat=len(names)):
        point = assumptions
        for position, value in enumerate(values):
            point = point.fix_val(isl.dim_type.param, position, isl.Val(value))
        at = dict(zip(names, values, strict=True))
        broken = any(g.evaluate(at) < 0 for g in nonnegative) or any(g.evaluate(at) for g in zero)
        assert broken is point.is_empty(), at


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[n] -> { n^2 : n > 0 }", "n**2 if n > 0 else 0"),
        ("[n, m] -> { (1/2 * n + 1/2 * n^2) : n > m; 3 : n <= m }", "(n + n**2)/2 if n > m else 3"),
        ("[n] -> { floor((n + 1)/3) : n >= 2 }", "(n + 1)//3 if n >= 2 else 0"),
        ("[n] -> { floor((2*floor(n/2) + 1)/3) }", "(2*(n//2) + 1)//3"),
        ("[n] -> { n : exists e : n = 3e }", "0 if n % 3 else n"),
    ],
)
def test_isl_text_is_read_and_written(text: str, value: str) -> None:
    count = from_isl_text(text)
    written = to_isl_text(count)
    assert written is not None
    again = from_isl_text(written)
    for n, m in itertools.product(range(-3, 7), repeat=2):
        at = {"n": n, "m": m}
        assert again.evaluate(at) == count.evaluate(at) == eval(value, at)
    assert PiecewiseQuasiPolynomial.from_document(count.to_document()) == count


@pytest.mark.parametrize("text", ["n^2", "[n] -> { [i] -> i }", "[n] -> { "])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(CountingError, match=r"isl's notation|dimensions"):
        from_isl_text(text)
