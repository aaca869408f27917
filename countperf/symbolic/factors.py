"""Loop domains as products of independent polyhedra.

Most domains of kernels are products: tiles of one axis share no constraint with those of another.
Taken apart once, a domain is projected and counted factor by factor.
"""

from __future__ import annotations

from functools import cached_property
from itertools import compress

from pytools import memoize_method

from countperf.symbolic import isl_sets
from countperf.symbolic.context import Context
from countperf.symbolic.polyhedron import Polyhedron, Row


class FactoredDomain:
    """A basic set without existentials, taken apart into components of its dimensions."""

    def __init__(self, polyhedron: Polyhedron, context: Context | None = None) -> None:
        self.polyhedron = polyhedron
        self._context = context
        first = 1 + len(polyhedron.parameters)
        columns = range(first, first + len(polyhedron.dimensions))
        groups = {k: [k] for k in columns}
        groups[0] = []  # of rows in parameters alone
        involved: list[tuple[int, int, Row]] = []  # kind, one of the dimensions in it, row
        for kind, rows in enumerate((polyhedron.equalities, polyhedron.inequalities)):
            for row in rows:
                one, *others = [*compress(columns, row[first:])] or [0]
                involved.append((kind, one, row))
                for k in others:
                    if groups[k] is not groups[one]:
                        groups[one] += groups[k]
                        for joined in groups[k]:
                            groups[joined] = groups[one]
        members: dict[int, tuple[list[Row], list[Row]]] = {id(g): ([], []) for g in groups.values()}
        for kind, one, row in involved:
            members[id(groups[one])][kind].append(row)
        self._factors: list[tuple[frozenset[str], Polyhedron]] = []
        for group in {id(g): g for g in groups.values()}.values():
            kept = sorted(group)
            equalities, inequalities = members[id(group)]
            names = tuple([polyhedron.dimensions[k - first] for k in kept])
            part = Polyhedron(
                polyhedron.parameters,
                names,
                tuple([row[:first] + tuple([row[k] for k in kept]) for row in equalities]),
                tuple([row[:first] + tuple([row[k] for k in kept]) for row in inequalities]),
            )
            self._factors.append((frozenset(names), part))
        self._numbers = {name: n for n, (names, _) in enumerate(self._factors) for name in names}

    @staticmethod
    def of(
        integer_set: isl_sets.IntegerSet, context: Context | None = None
    ) -> FactoredDomain | None:
        """Take a set apart; None if it is no basic set or has existentials."""
        polyhedron = isl_sets.as_polyhedron(integer_set)
        return None if polyhedron is None else FactoredDomain(polyhedron, context)

    def component_of(self, name: str) -> frozenset[str]:
        """Return the dimensions that share constraints with one, directly or not."""
        return self._factors[self._numbers[name]][0]

    def onto(self, names: frozenset[str]) -> tuple[Polyhedron, ...] | None:
        """Project onto some dimensions."""
        result: list[Polyhedron] = []
        touched = {self._numbers[name] for name in names if name in self._numbers}
        for number in sorted(touched | self._restricting):
            projected = self._projected(number, names)
            if projected is None:
                return None
            if projected.dimensions or projected.equalities or projected.inequalities:
                result.append(projected)
        return tuple(result)

    def _projected(self, number: int, names: frozenset[str]) -> Polyhedron | None:
        dimensions, factor = self._factors[number]
        kept = names & dimensions
        if len(kept) == len(dimensions):
            return factor
        return self._projection(number, kept)

    @memoize_method
    def _projection(self, number: int, kept: frozenset[str]) -> Polyhedron | None:
        return isl_sets.projected_polyhedron(self._factors[number][1], kept)

    @cached_property
    def _restricting(self) -> frozenset[int]:
        """The factors that say something of the parameters too, or may do so."""
        is_silent: dict[tuple[tuple[Row, ...], ...], bool] = {}
        result: list[int] = []
        for number, (_, factor) in enumerate(self._factors):
            key = (factor.equalities, factor.inequalities)
            if key not in is_silent:
                is_silent[key] = self._is_implied(self._projected(number, frozenset()))
            if not is_silent[key]:
                result.append(number)
        return frozenset(result)

    def _is_implied(self, shadow: Polyhedron | None) -> bool:
        """Return whether a projection onto the parameters is known to be everything."""
        if shadow is None or shadow.equalities:
            return False
        context = self._context
        return not shadow.inequalities or (
            context is not None and context.implies(context.rescale(shadow))
        )
