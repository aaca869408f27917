"""Counts of thousands of pieces."""

from __future__ import annotations

import numpy as np

from countperf.symbolic.compiled import CompiledCounts
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial


def test_a_count_of_thousands_of_pieces_is_compiled() -> None:
    n = QuasiPolynomial.name("n")
    whole = PiecewiseQuasiPolynomial.sum(
        PiecewiseQuasiPolynomial.from_value(n + k).restrict_to((n - k,)) for k in range(5000)
    )
    compiled = CompiledCounts(["n"], [(whole, True)])
    assert compiled.at({"n": 4}) == [sum(4 + k for k in range(5))]
    (found,) = compiled.at_arrays({"n": np.array([2, 6000])})
    assert list(found) == [2 + 3 + 4, 6000 * 5000 + sum(range(5000))]
