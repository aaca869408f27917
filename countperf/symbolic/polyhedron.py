"""Polyhedra: integer rows of equalities and inequalities in parameters and dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from countperf.display import ShortRepr
from countperf.symbolic.quasipolynomial import QuasiPolynomial

Row: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Polyhedron(ShortRepr):
    """Integer points that satisfy affine equalities and inequalities."""

    # names of the columns: a row holds the constant, then a coefficient for each parameter, then
    # one for each dimension
    parameters: tuple[str, ...]
    dimensions: tuple[str, ...]
    # ``row . (1, parameters, dimensions) = 0`` or ``>= 0``
    equalities: tuple[Row, ...]
    inequalities: tuple[Row, ...]


def row_polynomial(row: Row, names: Sequence[str]) -> QuasiPolynomial:
    """Return a row as an affine expression in the names of its columns."""
    return QuasiPolynomial.affine(
        [(name, c) for name, c in zip(names, row[1:], strict=False) if c], row[0]
    )


def describe(polyhedron: Polyhedron) -> str:
    """Return the set in isl's notation, for messages."""
    names = polyhedron.parameters + polyhedron.dimensions
    rows = [f"{row_polynomial(r, names)} = 0" for r in polyhedron.equalities]
    rows += [f"{row_polynomial(r, names)} >= 0" for r in polyhedron.inequalities]
    head = f"[{', '.join(polyhedron.parameters)}] -> " if polyhedron.parameters else ""
    return f"{head}{{ [{', '.join(polyhedron.dimensions)}] : {' and '.join(rows)} }}"
