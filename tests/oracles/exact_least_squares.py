"""Least squares by the normal equations in rational arithmetic: slow, and exactly right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSolution:
    """The minimiser, its standard errors and the residual deviation (square roots are rounded)."""

    coefficients: tuple[Fraction, ...]
    standard_errors: tuple[float, ...]
    residual_deviation: float


def exact_least_squares(
    rows: Sequence[Sequence[Fraction]], target: Sequence[Fraction]
) -> ExactSolution:
    """Solve a problem of full rank with more rows than columns."""
    count = len(rows[0])
    normal = [
        [sum(row[i] * row[j] for row in rows) for j in range(count)]
        + [Fraction(int(i == j)) for j in range(count)]
        for i in range(count)
    ]
    inverse = [row[count:] for row in _eliminated(normal)]
    moments = [sum(row[i] * y for row, y in zip(rows, target, strict=True)) for i in range(count)]
    solution = tuple(
        sum((inverse[i][j] * moments[j] for j in range(count)), Fraction(0)) for i in range(count)
    )
    residuals = [
        y - sum(a * b for a, b in zip(row, solution, strict=True))
        for row, y in zip(rows, target, strict=True)
    ]
    variance = sum((r * r for r in residuals), Fraction(0)) / (len(rows) - count)
    return ExactSolution(
        coefficients=solution,
        standard_errors=tuple(math.sqrt(variance * inverse[i][i]) for i in range(count)),
        residual_deviation=math.sqrt(variance),
    )


def _eliminated(matrix: Sequence[Sequence[Fraction | int]]) -> list[list[Fraction]]:
    """Reduce the left square block of a matrix to the identity (Gauss-Jordan)."""
    reduced = [[Fraction(entry) for entry in row] for row in matrix]
    for i in range(len(reduced)):
        pivot = next(j for j in range(i, len(reduced)) if reduced[j][i] != 0)
        reduced[i], reduced[pivot] = reduced[pivot], reduced[i]
        reduced[i] = [entry / reduced[i][i] for entry in reduced[i]]
        for j in range(len(reduced)):
            if j != i and (factor := reduced[j][i]) != 0:
                reduced[j] = [a - factor * b for a, b in zip(reduced[j], reduced[i], strict=True)]
    return reduced
