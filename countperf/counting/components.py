"""Parts of a loop domain that share no constraints, conditions or terms of an address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from countperf.counting.keys import Case, Grid
from countperf.counting.scopes import Scope
from countperf.errors import CountingError
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.elimination import Polyhedron
from countperf.symbolic.isl_sets import IntegerSet, to_isl
from countperf.symbolic.point_arrays import (
    Points,
    points_of_set,
    split_off_full,
    values_at,
)
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import rows_of

Enumeration = Callable[[int], tuple[Points, int]]
"""Lists the points of a part of a loop domain, if there are not more than a limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A part of a loop domain that shares no constraint with the others, at given parameters."""

    names: frozenset[str]  # its loop variables
    listed: Enumeration  # lists its points
    count: Callable[[], int]  # returns the number of its points
    polyhedron: Polyhedron | None = None  # itself, where it is one


FactoredPiece = tuple[list[Factor], list[Case]]
"""Factors of a part of a loop domain, and the conditions that remain there."""

_SPLIT_FROM = 2**18
"""Points from which the full work groups are split off, so as not to list them one by one."""

MAXIMUM_POINTS = 2**24
MAXIMUM_ENTRIES = 2**25
"""Points of one part, and addresses, that are listed at most."""


@dataclass(slots=True, eq=False)
class Component:
    """Loop variables that belong together."""

    names: frozenset[str]
    factors: list[Factor]
    summands: list[QuasiPolynomial]
    cases: list[Case]

    def points(self) -> tuple[Points, int]:
        """List the points of all factors together."""
        points: Points = {}
        number = 1
        for factor in self.factors:
            more, more_number = factor.listed(MAXIMUM_POINTS)
            if number * more_number > MAXIMUM_POINTS:
                raise CountingError(
                    f"more than {MAXIMUM_POINTS} points of the loops "
                    f"{', '.join(sorted(self.names))} would have to be listed; choose smaller "
                    "parameters"
                )
            points = {name: np.repeat(column, more_number) for name, column in points.items()}
            points |= {name: np.tile(column, number) for name, column in more.items()}
            number *= more_number
        return points, number

    def count(self) -> int:
        """Return the number of points of all factors together."""
        return prod(factor.count() for factor in self.factors)

    def executed(self, points: Points, number: int) -> NDArray[np.bool_]:
        """Tell at which points all conditions hold."""
        result = np.ones(number, bool)
        for case in self.cases:
            holding = np.zeros(number, bool)
            for guards in case.alternatives:
                inside = np.ones(number, bool)
                for guard in guards:
                    inside &= values_at(guard, points, number) >= 0
                holding |= inside
            result &= holding if case.holds else ~holding
        return result


def bound_case(case: Case, bound: Mapping[str, QuasiPolynomial]) -> Case:
    """Return a condition with the values of parameters put in."""
    return Case(
        alternatives=frozenset(
            frozenset(guard.substitute(bound) for guard in guards) for guards in case.alternatives
        ),
        holds=case.holds,
    )


def list_touched_addresses(
    scope: Scope, address: QuasiPolynomial, parameters: Mapping[str, int]
) -> NDArray[np.int64]:
    """List the distinct addresses of an access, elements; as for `lane_patterns`."""
    bound = {name: QuasiPolynomial.constant(value) for name, value in parameters.items()}
    numeric = address.substitute(bound)
    cases = [bound_case(case, bound) for case in scope.cases]
    summands = [QuasiPolynomial({m: c}) for m, c in numeric.terms.items() if m]
    parts = [
        _count_touched_in_piece(components_of(piece, summands), int(numeric.constant_term))
        for piece in pieces_of(scope, cases, parameters)
    ]
    return np.unique(np.concatenate(parts))


def _count_touched_in_piece(components: Iterable[Component], base: int) -> NDArray[np.int64]:
    result = np.array([base], np.int64)
    for component in components:
        points, number = component.points()
        kept = component.executed(points, number)
        moved = np.zeros(number, np.int64)
        for summand in component.summands:
            moved += values_at(summand, points, number)
        steps = np.unique(moved[kept])
        if len(result) * len(steps) > MAXIMUM_ENTRIES:
            raise CountingError(
                f"more than {MAXIMUM_ENTRIES} addresses would have to be listed; choose smaller "
                "parameters"
            )
        result = np.unique(result[:, np.newaxis] + steps)
    return result


def components_of(piece: FactoredPiece, summands: Sequence[QuasiPolynomial]) -> Iterator[Component]:
    """Yield the components of a part of a loop domain: factors that a term or a condition joins."""
    factors, cases = piece
    joints: list[tuple[set[str], QuasiPolynomial | None, Case | None]] = [
        (s.names(), s, None) for s in summands
    ]
    for case in cases:
        joints.append((set(case.names), None, case))
    groups = [Component(factor.names, [factor], [], []) for factor in factors]
    for names, summand, case in joints:
        touched = [g for g in groups if g.names & names] or groups[:1]
        joined = Component(
            frozenset[str]().union(*(g.names for g in touched)),
            [f for g in touched for f in g.factors],
            [s for g in touched for s in g.summands] + ([] if summand is None else [summand]),
            [c for g in touched for c in g.cases] + ([] if case is None else [case]),
        )
        groups = [g for g in groups if all(g is not t for t in touched)] + [joined]
    yield from groups


def pieces_of(
    scope: Scope, cases: Sequence[Case], parameters: Mapping[str, int]
) -> Iterator[FactoredPiece]:
    """Yield disjoint parts of the loop domain of a place, each a product of few points.

    Where a part is large, the work groups in which all items are there are split off: their number
    and the items of one of them say as much as all their items.
    """
    factors = _factors(scope, parameters)
    remaining = list(cases)
    alternatives: list[list[list[Factor]]] = []
    for factor in factors:
        if factor.polyhedron is None or factor.count() <= _SPLIT_FROM:
            alternatives.append([[factor]])
            continue
        absorbed = [case for case in remaining if _is_convex(case, factor.names)]
        remaining = [case for case in remaining if case not in absorbed]
        polyhedron = _restrict_polyhedron(factor.polyhedron, absorbed)
        alternatives.append(_split_full_groups(polyhedron, scope, parameters))
    for choice in product(*alternatives):
        yield [factor for part in choice for factor in part], remaining


def _is_convex(case: Case, names: frozenset[str]) -> bool:
    """Return whether a condition is a conjunction of affine ones on some loop variables."""
    if not case.holds or len(case.alternatives) != 1:
        return False
    (guards,) = case.alternatives
    return all(g.is_linear and g.names() <= names for g in guards)


def _restrict_polyhedron(polyhedron: Polyhedron, cases: Sequence[Case]) -> Polyhedron:
    names = (*polyhedron.parameters, *polyhedron.dimensions)
    guards = [guard for case in cases for alternative in case.alternatives for guard in alternative]
    rows = rows_of(guards, names)
    return replace(polyhedron, inequalities=(*polyhedron.inequalities, *rows))


def _split_full_groups(
    polyhedron: Polyhedron, scope: Scope, parameters: Mapping[str, int]
) -> list[list[Factor]]:
    """Split a polyhedron into full work groups times the items of one, and the rest."""
    names = frozenset(polyhedron.dimensions)
    outer = names & set(scope.domains.group_axes)
    halves = split_off_full(polyhedron, parameters, outer) if outer and outer < names else None
    if halves is None:
        return [[_factor_of_polyhedron(polyhedron, parameters)]]
    full, items, rest = halves
    return [
        [_factor_of_set(full, outer), _factor_of_set(items, names - outer)],
        [_factor_of_set(rest, names)],
    ]


def _factor_of_set(integer_set: IntegerSet, names: frozenset[str]) -> Factor:
    """Return a set without parameters as a factor."""
    return Factor(
        names,
        lambda limit: points_of_set(integer_set, {}, limit),
        lambda: int(Counter(None).count(integer_set).evaluate({})),
    )


def _factor_of_polyhedron(polyhedron: Polyhedron, parameters: Mapping[str, int]) -> Factor:
    return Factor(
        frozenset(polyhedron.dimensions),
        partial(points_of_set, to_isl(polyhedron), parameters),
        lambda: points_of_set(to_isl(polyhedron), parameters, MAXIMUM_POINTS)[1],
        polyhedron,
    )


def _factors(scope: Scope, parameters: Mapping[str, int]) -> list[Factor]:
    """Return the independent parts of the loop domain; the first one is without loops."""
    result = [Factor(frozenset(), _no_loops, lambda: 1)]
    if not scope.within:
        return result
    factored = scope.domains.factored(scope.within)
    polyhedra = None if factored is None else factored.onto(scope.within)

    def count(names: frozenset[str]) -> int:
        grid = Grid(groups={}, items={})
        return int(scope.domains.executions(names, (), grid).evaluate(parameters))

    if polyhedra is None:
        whole = scope.domains.domain(scope.within)
        listed = partial(points_of_set, whole, parameters)
        return [*result, Factor(scope.within, listed, lambda: count(scope.within))]
    for polyhedron in polyhedra:
        names = frozenset(polyhedron.dimensions)
        listed = partial(points_of_set, to_isl(polyhedron), parameters)
        result.append(Factor(names, listed, partial(count, names), polyhedron))
    return result


def _no_loops(_: int) -> tuple[Points, int]:
    return {}, 1
