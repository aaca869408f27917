"""Parts of a loop domain that share no constraints, conditions or terms of an address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from countperf.counting.keys import Case
from countperf.counting.places import Place
from countperf.errors import CountingError
from countperf.symbolic.points import (
    Points,
    points_of_polyhedron,
    points_of_set,
    values_at,
)
from countperf.symbolic.quasipolynomial import QuasiPolynomial

Enumeration = Callable[[int], tuple[Points, int]]
"""Lists the points of a part of a loop domain, if there are not more than a limit."""

MAXIMUM_POINTS = 2**24
MAXIMUM_ENTRIES = 2**25
"""Points of one part, and addresses, that are listed at most."""

__all__ = ["MAXIMUM_ENTRIES", "Component", "bound_case", "components_of", "touched_addresses"]


@dataclass(slots=True, eq=False)
class Component:
    """Loop variables that belong together."""

    names: frozenset[str]
    factors: list[Enumeration]
    summands: list[QuasiPolynomial]
    cases: list[Case]

    def points(self) -> tuple[Points, int]:
        """List the points of all factors together."""
        points: Points = {}
        number = 1
        for factor in self.factors:
            more, more_number = factor(MAXIMUM_POINTS)
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


def touched_addresses(
    place: Place, address: QuasiPolynomial, parameters: Mapping[str, int]
) -> NDArray[np.int64]:
    """List the distinct addresses of an access, elements; as for `lane_patterns`."""
    bound = {name: QuasiPolynomial.constant(value) for name, value in parameters.items()}
    numeric = address.substitute(bound)
    cases = [bound_case(case, bound) for case in place.cases]
    summands = [QuasiPolynomial({m: c}) for m, c in numeric.terms.items() if m]
    result = np.array([int(numeric.constant_term)], np.int64)
    for component in components_of(place, summands, cases, parameters):
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


def components_of(
    place: Place,
    summands: Sequence[QuasiPolynomial],
    cases: Sequence[Case],
    parameters: Mapping[str, int],
) -> Iterator[Component]:
    """Yield the components of a place, those of the parts that a term or a condition joins.

    Parameters
    ----------
    place : Place
        Where something is executed.
    summands : sequence of QuasiPolynomial
        Terms of an address, one monomial each, parameters put in.
    cases : sequence of Case
        Conditions, parameters put in.
    parameters : mapping from str to int
        Values of all parameters.
    """
    factors = _factors(place, parameters)
    joints: list[tuple[set[str], QuasiPolynomial | None, Case | None]] = [
        (s.names(), s, None) for s in summands
    ]
    for case in cases:
        names = {n for guards in case.alternatives for guard in guards for n in guard.names()}
        joints.append((names, None, case))
    groups = [Component(names, [factor], [], []) for names, factor in factors]
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


def _factors(
    place: Place, parameters: Mapping[str, int]
) -> list[tuple[frozenset[str], Enumeration]]:
    """Return the independent parts of the loop domain; the first one is without loops."""
    result: list[tuple[frozenset[str], Enumeration]] = [(frozenset(), _no_loops)]
    if not place.within:
        return result
    factored = place.domains.factored(place.within)
    polyhedra = None if factored is None else factored.onto(place.within)
    if polyhedra is None:
        whole = place.domains.domain(place.within)
        return [*result, (place.within, partial(points_of_set, whole, parameters))]
    for polyhedron in polyhedra:
        names = frozenset(polyhedron.dimensions)
        result.append((names, partial(points_of_polyhedron, polyhedron, parameters)))
    return result


def _no_loops(_: int) -> tuple[Points, int]:
    return {}, 1
