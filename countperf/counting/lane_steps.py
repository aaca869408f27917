"""Steps of an address between work items where they are uneven.

An address has floors where subscripts divide: ``a[i // 2]``, ``a[(i + 3) % n]``. Its *steps* are
the changes from each lane to the next, each with the lanes that make it and their share in the long
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import Condition, Conjunction
from countperf.symbolic.quasipolynomial import Atom, Floor, QuasiPolynomial

_MAXIMUM_COMBINATIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of an address from one value of a loop variable to the next."""

    change: QuasiPolynomial  # in elements; free of loop variables
    share: Fraction  # of the values, in the long run
    where: Condition  # the values that make it, as alternatives; `ALWAYS` if all do


_Change = tuple[QuasiPolynomial, Conjunction, Fraction]


def steps_along(
    expression: QuasiPolynomial, name: str, bounds: isl_sets.Bounds, domain: isl_sets.IntegerSet
) -> tuple[Step, ...]:
    """Return the changes of an expression from one value of a name to the next."""
    resolved = sets.resolve_floors(expression, bounds)
    found: dict[QuasiPolynomial, tuple[Fraction, set[Conjunction]]] = {}
    for change, conditions, share in _changes(resolved, name):
        if any(other in bounds for other in change.names()):
            return ()
        if conditions and _is_nowhere(domain, conditions):
            continue
        total, alternatives = found.get(change, (Fraction(0), set()))
        found[change] = total + share, alternatives | {conditions}
    everything = sum((share for share, _ in found.values()), Fraction(0))
    steps = [
        Step(change=change, share=share / everything, where=frozenset(alternatives))
        for change, (share, alternatives) in found.items()
    ]
    return tuple(sorted(steps, key=lambda step: (-step.share, str(step.change))))


def main_step(steps: tuple[Step, ...]) -> QuasiPolynomial | None:
    """Return the change that stands for all: the only one, or that of most lanes.

    None if there is none; neighbors that stay or go on by one element count as going on.
    """
    if not steps:
        return None
    if len(steps) == 1 or steps[0].share > Fraction(1, 2):
        return steps[0].change
    if are_neighbors(steps):
        return next(step.change for step in steps if step.change)
    return None


def are_neighbors(steps: tuple[Step, ...]) -> bool:
    """Return whether each lane accesses the element of the lane before it, or one beside that."""
    return all(step.change.is_constant and abs(step.change.constant_term) <= 1 for step in steps)


def _is_nowhere(domain: isl_sets.IntegerSet, conditions: Conjunction) -> bool:
    if not all(each.is_affine for each in conditions):
        return False
    return bool(sets.restrict(domain, nonnegative=conditions).is_empty())


def _changes(expression: QuasiPolynomial, name: str) -> list[_Change]:
    """Return the possible changes of an expression with the conditions on them; none if unknown."""
    floors = [floor for floor in expression.floors() if name in floor.names()]
    options = [_changes_of_floor(floor, name) for floor in floors]
    if prod(map(len, options)) > _MAXIMUM_COMBINATIONS:
        return []
    following = QuasiPolynomial.name(name) + 1
    found: list[_Change] = []
    for combination in product(*options):
        moved: dict[Atom, QuasiPolynomial] = {name: following}
        for floor, (change, _, _) in zip(floors, combination, strict=True):
            moved[floor] = QuasiPolynomial.atom(floor) + change
        conditions = frozenset[QuasiPolynomial]().union(*(c for _, c, _ in combination))
        share = prod((part for _, _, part in combination), start=Fraction(1))
        found.append((expression.map_atoms(moved.get) - expression, conditions, share))
    return found


def _changes_of_floor(floor: Floor, name: str) -> list[_Change]:
    found: list[_Change] = []
    for change, conditions, share in _changes(floor.numerator, name):
        if not change.is_constant:
            return []
        if not floor.denominator:  # by a size parameter: all but one lane in so many
            found.append((QuasiPolynomial(), conditions, share))
            continue
        low, rest = divmod(int(change.constant_term), floor.denominator)
        stays = QuasiPolynomial.constant(low)
        if not rest:
            found.append((stays, conditions, share))
            continue
        after = (floor.numerator + change).floor_divide(floor.denominator)
        jump = after - QuasiPolynomial.atom(floor) - low
        part = Fraction(rest, floor.denominator)
        found.append((stays, conditions | {jump, -jump}, share * (1 - part)))
        found.append((stays + 1, conditions | {jump - 1, 1 - jump}, share * part))
    return found
