from __future__ import annotations

from fractions import Fraction

import pytest

from countperf.errors import CountingError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial, parse_polynomial


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-3", "n", "-n^2 + 3*m - 2", "(1/2)*m^2*n - (3/4)*n*m + 7", "n*n^2 - n^3 + m^0"),
        *("2*n - (1/3)", "n^2 - 16*floor((n + 3)/16) + 1", "-(n + 1)*m"),
    ],
)
def test_what_is_read_has_the_value_that_is_written(text: str) -> None:
    polynomial = parse_polynomial(text)
    source = text.replace("^", "**").replace("floor((n + 3)/16)", "((n + 3)//16)")
    for n, m in ((Fraction(5), Fraction(-7)), (Fraction(0), Fraction(3))):
        expected = eval(
            source.replace("(1/", "(F(1)/").replace("(3/", "(F(3)/"),
            {"F": Fraction, "n": n, "m": m},
        )
        assert polynomial.evaluate({"n": int(n), "m": int(m)}) == expected
    assert parse_polynomial(str(polynomial)) == polynomial


@pytest.mark.parametrize(
    "text", ["", "n +", "n m", "2n", "n^-1", "(1/0)*n", "n + __import__('os')", "1.5"]
)
def test_what_is_no_polynomial_is_refused(text: str) -> None:
    with pytest.raises(CountingError):
        parse_polynomial(text)


@pytest.mark.parametrize(
    "text",
    [
        *("n + " * 5000 + "?", "n^2*m + " * 5000 + "2n", "floor((" * 5000, "9" * 10_000),
        *("floor((n + m" * 2000 + ")/2)" * 1999 + "?", "-" * 50_000 + "n"),
    ],
    ids=lambda text: text[:16],
)
def test_long_texts_that_are_none_are_refused_at_once(text: str) -> None:
    with pytest.raises(CountingError, match="no quasi-polynomial"):
        parse_polynomial(text)


def test_floors_within_floors_are_read() -> None:
    text, value = "n", 1000
    for divisor in (2, 3, 5, 7):
        text, value = f"floor(({text} + n)/{divisor})", (value + 1000) // divisor
    assert parse_polynomial(text).evaluate({"n": 1000}) == value


def test_guards_that_follow_from_others_are_left_out() -> None:
    n, m = QuasiPolynomial.name("n"), QuasiPolynomial.name("m")
    count = PiecewiseQuasiPolynomial.from_value(n).restrict_to([n - 10, m - 3])
    (term,) = count.restrict_to([n - 20, n - 15]).terms
    assert term.nonnegative == {n - 20, m - 3}
    assert count.restrict_to([n - 4]) == count
    apart = count + count.restrict_to([n - 5]).scale(-1)
    assert not apart
