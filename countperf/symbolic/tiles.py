"""Polyhedra with fewer dimensions: tiled loops fused, dimensions projected out."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
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


def fuse_tiles(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron:
    """Undo tilings: replace (o, t) with 0 <= t < d by i = d o + t where only i matters."""
    while True:
        fused = _fuse_one_tile(polyhedron, kept)
        if fused is None:
            return polyhedron
        polyhedron = fused


def _fuse_one_tile(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron | None:
    first = 1 + len(polyhedron.parameters)
    rows = polyhedron.inequalities
    for column in range(first, first + len(polyhedron.dimensions)):
        if polyhedron.dimensions[column - first] in kept:
            continue
        alone = [r for r in rows if r[column] and not any(r[1:column]) and not any(r[column + 1 :])]
        if len(alone) != 2 or {r[column] for r in alone} != {1, -1}:
            continue
        if next(r for r in alone if r[column] == 1)[0]:
            continue
        width = next(r for r in alone if r[column] == -1)[0] + 1
        joint = [r for r in (*rows, *polyhedron.equalities) if r[column] and r not in alone]
        outer = {
            k
            for r in joint
            for k in range(first, len(r))
            if k != column and r[k] == width * r[column]
        }
        for k in outer:
            if polyhedron.dimensions[k - first] in kept:
                continue
            aligned = _aligned(polyhedron, column, k, width, kept)
            if aligned is None:
                continue
            if any(abs(r[k]) > 1 for r in aligned.inequalities if r[k] and not r[column]):
                continue
            return _fused(aligned, column, k, width)
    return None


def _aligned(
    polyhedron: Polyhedron, tile: int, outer: int, width: int, kept: AbstractSet[str]
) -> Polyhedron | None:
    """Shear other dimensions so that rows know the tile's columns by their sum only, else None.

    With e = e' + q o, a row's coefficient of o grows by q times that of e.
    """
    first = 1 + len(polyhedron.parameters)

    def is_alone(row: Row) -> bool:
        return not any(row[1:tile]) and not any(row[tile + 1 :])

    def gap(row: Row) -> int:
        return width * row[tile] - row[outer]

    def has_gaps(candidate: Polyhedron) -> bool:
        return any(map(gap, candidate.equalities)) or any(
            row[tile] and gap(row) and not is_alone(row) for row in candidate.inequalities
        )

    for column in range(first, first + len(polyhedron.dimensions)):
        if not has_gaps(polyhedron):
            return polyhedron
        if column in (tile, outer) or polyhedron.dimensions[column - first] in kept:
            continue
        rows = (*polyhedron.equalities, *polyhedron.inequalities)
        quotients = {divmod(gap(row), row[column]) for row in rows if row[column]}
        if len(quotients) != 1:
            continue
        ((quotient, remainder),) = quotients
        if not quotient or remainder:
            continue

        def sheared(row: Row, column: int = column, quotient: int = quotient) -> Row:
            value = row[outer] + quotient * row[column]
            return (*row[:outer], value, *row[outer + 1 :])

        polyhedron = Polyhedron(
            polyhedron.parameters,
            polyhedron.dimensions,
            tuple(map(sheared, polyhedron.equalities)),
            tuple(map(sheared, polyhedron.inequalities)),
        )
    return None if has_gaps(polyhedron) else polyhedron


def _fused(polyhedron: Polyhedron, tile: int, outer: int, width: int) -> Polyhedron:
    position = tile - 1 - len(polyhedron.parameters)

    def rewritten(row: Row) -> Row:
        values = list(row)
        if row[tile]:
            values[outer] = row[tile]
        elif row[outer]:
            values = [c * width for c in row]
            values[outer] = row[outer]
            values[0] += width - 1 if row[outer] < 0 else 0
        del values[tile]
        return tuple(values)

    return Polyhedron(
        polyhedron.parameters,
        polyhedron.dimensions[:position] + polyhedron.dimensions[position + 1 :],
        tuple(rewritten(row) for row in polyhedron.equalities),
        tuple(
            rewritten(row)
            for row in polyhedron.inequalities
            if not (row[tile] and not any(row[1:tile]) and not any(row[tile + 1 :]))
        ),
    )


def without_determined(polyhedron: Polyhedron, kept: AbstractSet[str]) -> Polyhedron:
    """Drop dimensions that have exactly one value at each point of the others.

    Such a dimension x has two rows only, ``d x <= e`` and ``e <= d x + d - 1``: it is the floor of
    e/d, such as the number of the tile that a point lies in.
    """
    first = 1 + len(polyhedron.parameters)
    if any(any(row[first:]) for row in polyhedron.equalities):
        return polyhedron
    columns = first + len(polyhedron.dimensions)
    for column in reversed(range(first, columns)):
        rows = [row for row in polyhedron.inequalities if row[column]]
        if polyhedron.dimensions[column - first] in kept or len(rows) != 2:
            continue
        total = [a + b for a, b in zip(*rows, strict=True)]
        if any(total[1:]) or total[0] != abs(rows[0][column]) - 1:
            continue
        position = column - first
        polyhedron = Polyhedron(
            polyhedron.parameters,
            polyhedron.dimensions[:position] + polyhedron.dimensions[position + 1 :],
            tuple(row[:column] + row[column + 1 :] for row in polyhedron.equalities),
            tuple(
                row[:column] + row[column + 1 :]
                for row in polyhedron.inequalities
                if not row[column]
            ),
        )
    return polyhedron
