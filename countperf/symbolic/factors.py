"""Loop domains as products of independent polyhedra.

Most domains of kernels are products: tiles of one axis share no constraint with those of another.
Taken apart once, a domain is projected and counted factor by factor, and equal factors, up to
names, are counted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from countperf.symbolic import sets
from countperf.symbolic.elimination import Polyhedron, Row


@dataclass(frozen=True, slots=True)
class CanonicalForm:
    """A polyhedron without names, as a key, and the parameters that its columns stand for.

    Attributes
    ----------
    key : tuple
        Equal for polyhedra that differ only in names and in the order of rows and columns (not
        always found: then it is counted again).
    parameters : tuple of str
        Names of the parameters that occur, in the order of the key's columns.
    """

    key: tuple[Any, ...]
    parameters: tuple[str, ...]


def canonical_form(polyhedron: Polyhedron, context: sets.Context) -> CanonicalForm | None:
    """Return a polyhedron's form up to names; None if the context couples its parameters to others.

    Parameters
    ----------
    polyhedron : Polyhedron
        In the quotients of the context's parameters.
    context : Context
        What is known of the parameters is part of the key.
    """
    rows = (*polyhedron.equalities, *polyhedron.inequalities)
    first = 1 + len(polyhedron.parameters)

    def column(k: int) -> tuple[int, ...]:
        return tuple(sorted(row[k] for row in rows))

    used = [k for k in range(1, first) if any(row[k] for row in rows)]
    used.sort(key=column)
    names = tuple(polyhedron.parameters[k - 1] for k in used)
    known = context.known_of(names)
    if known is None:
        return None
    dimensions = sorted(range(first, first + len(polyhedron.dimensions)), key=column)

    def ordered(row: Row) -> Row:
        return (row[0], *(row[k] for k in used), *(row[k] for k in dimensions))

    key = (
        len(used),
        tuple(sorted(map(ordered, polyhedron.equalities))),
        tuple(sorted(map(ordered, polyhedron.inequalities))),
        known,
    )
    return CanonicalForm(key, names)


class FactoredDomain:
    """A basic set without existentials, taken apart into components of its dimensions.

    Parameters
    ----------
    polyhedron : Polyhedron
        The set.
    """

    def __init__(self, polyhedron: Polyhedron) -> None:
        self.polyhedron = polyhedron
        first = 1 + len(polyhedron.parameters)
        rows = (*polyhedron.equalities, *polyhedron.inequalities)
        groups: list[set[int]] = [{k} for k in range(first, first + len(polyhedron.dimensions))]
        for row in rows:
            touched = {k for k in range(first, len(row)) if row[k]}
            joined = [g for g in groups if g & touched]
            if len(joined) > 1:
                groups = [g for g in groups if g not in joined] + [set[int]().union(*joined)]
        self._factors = [self._part(sorted(group), first) for group in groups]
        self._parameter_rows = self._part([], first)
        self._projections: dict[tuple[int, frozenset[str]], Polyhedron | None] = {}

    @staticmethod
    def of(integer_set: sets.IntegerSet) -> FactoredDomain | None:
        """Take a set apart; None if it is no basic set or has existentials."""
        polyhedron = sets.as_polyhedron(integer_set)
        return None if polyhedron is None else FactoredDomain(polyhedron)

    def _part(self, columns: list[int], first: int) -> Polyhedron:
        def selected(rows: tuple[Row, ...]) -> tuple[Row, ...]:
            return tuple(
                row[:first] + tuple(row[k] for k in columns)
                for row in rows
                if (any(row[k] for k in columns) if columns else not any(row[first:]))
            )

        return Polyhedron(
            self.polyhedron.parameters,
            tuple(self.polyhedron.dimensions[k - first] for k in columns),
            selected(self.polyhedron.equalities),
            selected(self.polyhedron.inequalities),
        )

    def component_of(self, name: str) -> frozenset[str]:
        """Return the dimensions that share constraints with one, directly or not."""
        return next(frozenset(f.dimensions) for f in self._factors if name in f.dimensions)

    def onto(self, names: frozenset[str]) -> tuple[Polyhedron, ...] | None:
        """Project onto some dimensions.

        Returns
        -------
        tuple of Polyhedron or None
            Factors of the projection; None if one of them is not a single polyhedron.
        """
        result: list[Polyhedron] = [self._parameter_rows]
        for number, factor in enumerate(self._factors):
            kept = names & frozenset(factor.dimensions)
            key = (number, kept)
            if key not in self._projections:
                self._projections[key] = (
                    factor
                    if len(kept) == len(factor.dimensions)
                    else sets.projected_polyhedron(factor, kept)
                )
            projected = self._projections[key]
            if projected is None:
                return None
            result.append(projected)
        return tuple(f for f in result if f.dimensions or f.equalities or f.inequalities)
