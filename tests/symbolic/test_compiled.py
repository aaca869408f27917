"""Counts evaluated one by one, by the function compiled from them, and at arrays: all the same."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from countperf.errors import ParameterError
from countperf.symbolic.compiled import CompiledCounts, CountSource
from countperf.symbolic.isl_sets import from_isl_text
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

COUNTS = {
    "[n, m] -> { n^2 * m : n > 3; n + 1 : n <= 3 }": lambda n, m: n * n * m if n > 3 else n + 1,
    "[n, m] -> { 16 * floor((n + 15)/16) + 2 * m }": lambda n, m: 16 * ((n + 15) // 16) + 2 * m,
    "[n, m] -> { (1/2) * n + (1/2) * n^2 : m > 0 }": lambda n, m: n * (n + 1) // 2 if m > 0 else 0,
}


def test_all_ways_agree() -> None:
    counts = CompiledCounts(["n", "m"], [(from_isl_text(text), True) for text in COUNTS])
    sizes = [(1, 0), (3, 7), (4, 1), (17, 2), (2**40, 3)]
    expected = [[right(n, m) for right in COUNTS.values()] for n, m in sizes]

    assert [counts.at({"n": n, "m": m}) for n, m in sizes] == expected
    source = CountSource(counts.parameters, counts.counts, arrays=False)
    compiled = source.define_function(source.numbers())
    assert [compiled(n, m) for n, m in sizes] == expected
    n, m = (np.array(each[:-1]) for each in zip(*sizes, strict=True))
    assert np.array(counts.at_arrays({"n": n, "m": m})).T.tolist() == expected[:-1]


def test_what_is_no_integer_is_refused_or_a_fraction() -> None:
    half = from_isl_text("[n] -> { (1/2) * n }")

    assert CompiledCounts(["n"], [(half, False)]).at({"n": 3}) == [Fraction(3, 2)]
    (whole,) = CompiledCounts(["n"], [(half, False)]).at({"n": 4})
    assert whole == 2
    assert isinstance(whole, int)
    with pytest.raises(ParameterError, match="no integer"):
        CompiledCounts(["n"], [(half, True)]).at({"n": 3})


def test_a_count_of_thousands_of_pieces_is_compiled() -> None:
    n = QuasiPolynomial.name("n")
    whole = PiecewiseQuasiPolynomial.sum(
        PiecewiseQuasiPolynomial.from_value(n + k).restrict_to((n - k,)) for k in range(5000)
    )
    compiled = CompiledCounts(["n"], [(whole, True)])
    assert compiled.at({"n": 4}) == [sum(4 + k for k in range(5))]
    (found,) = compiled.at_arrays({"n": np.array([2, 6000])})
    assert list(found) == [2 + 3 + 4, 6000 * 5000 + sum(range(5000))]
