"""Strides of memory accesses along every axis of the launch and every loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, Literal

from countperf.counting.accesses import Address, step_along
from countperf.counting.domains import Domains
from countperf.counting.scopes import Scope
from countperf.display import ShortRepr
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import Condition, Conjunction
from countperf.symbolic.quasipolynomial import Atom, Floor, QuasiPolynomial

AxisKind = Literal["local", "group", "loop", "barrier loop", "launch loop", "unrolled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisStride(ShortRepr):
    """Change of an access's address along one axis of the launch or one loop."""

    # what runs along it: work items of a group, groups, iterations of an item's own loop, of a loop
    # that contains barriers, of a host loop around the launch, or copies of the instruction
    # (``unr``, ``ilp``)
    kind: AxisKind
    axis: int | None  # number of the local or group axis; None for loops
    # the loop variable; None for an axis of the launch that the access does not use (all items
    # along it access the same element)
    iname: str | None
    # signed change of the address from one value to the next, elements; None where it is not the
    # same everywhere, or where the address is read from data
    stride: QuasiPolynomial | None

    def __str__(self) -> str:
        name = self.kind if self.axis is None else f"{self.kind} {self.axis}"
        value = "uneven" if self.stride is None else self.stride
        return f"{name}{f' {self.iname}' if self.iname else ''}: {value}"


def strides_of(
    scope: Scope,
    address: Address | None,
    kinds: Mapping[str, AxisKind],
    changing: Mapping[str, frozenset[str]],
    *,
    of_most: bool = False,
) -> tuple[AxisStride, ...]:
    """Return the strides along all axes of the launch and all loops around an access."""
    domains = scope.domains
    if address is not None:
        address = address.with_values(domains.determined(scope.within))
    result: list[AxisStride] = []
    hardware: tuple[tuple[AxisKind, Mapping[int, Any], Mapping[str, int]], ...] = (
        ("local", scope.grid.items, domains.local_axes),
        ("group", scope.grid.groups, domains.group_axes),
    )
    for kind, extents, axes in hardware:
        names = {axes[name]: name for name in scope.within if name in axes}
        for axis in sorted(extents):
            is_lane = of_most and (kind, axis) == ("local", 0)
            stride = _stride(scope, address, names.get(axis), changing, of_most=is_lane)
            result.append(AxisStride(kind=kind, axis=axis, iname=names.get(axis), stride=stride))
    copies = sorted(
        name
        for name in scope.within
        if name not in scope.loops
        and name not in domains.local_axes
        and name not in domains.group_axes
    )
    for name in (*scope.loops, *copies):
        if name not in scope.within:
            continue
        stride = _stride(scope, address, name, changing)
        result.append(AxisStride(kind=kinds[name], axis=None, iname=name, stride=stride))
    return tuple(result)


def _stride(
    scope: Scope,
    address: Address | None,
    name: str | None,
    changing: Mapping[str, frozenset[str]],
    *,
    of_most: bool = False,
) -> QuasiPolynomial | None:
    if address is None:
        return None
    flat = address.flat
    data = flat.names() & changing.keys()
    if any(name is None or name in changing[scalar] for scalar in data):
        return None
    if name is None or name not in flat.names():
        return QuasiPolynomial()
    bounds = _bounds(scope.domains, scope)
    stride = step_along(flat, name, bounds)
    if stride is None:
        stride = _main_stride(scope, flat, name, bounds, of_most=of_most)
    return stride


def _main_stride(
    scope: Scope, flat: QuasiPolynomial, name: str, bounds: isl_sets.Bounds, *, of_most: bool
) -> QuasiPolynomial | None:
    counted, _ = scope.domains.trip_statistics(scope.within)
    if not flat.names() <= counted | scope.domains.sizes:
        return None
    known = scope.domains.with_known_quotients(counted, flat)
    steps = steps_along(known, name, bounds, scope.domains.domain(counted))
    return main_step(steps) if of_most or len(steps) == 1 else None


def _bounds(domains: Domains, scope: Scope) -> isl_sets.Bounds:
    key = ("bounds", scope.within)
    bounds = scope.memo.get(key)
    if bounds is None:
        counted, _ = domains.trip_statistics(scope.within)
        known = sets.constant_bounds(domains.domain(counted)) if counted else {}
        bounds = {**dict.fromkeys(sorted(scope.within), (None, None)), **known}
        scope.memo[key] = bounds
    return bounds


# --- Steps of an address between work items where they are uneven
# An address has floors where subscripts divide: ``a[i // 2]``, ``a[(i + 3) % n]``. Its *steps* are
# the changes from each lane to the next, each with the lanes that make it and their share in the
# long run.


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
    shares: dict[QuasiPolynomial, tuple[Fraction, set[Conjunction]]] = {}
    for change, conditions, share in _changes(resolved, name):
        if any(other in bounds for other in change.names()):
            return ()
        if conditions and _is_nowhere(domain, conditions):
            continue
        total, alternatives = shares.get(change, (Fraction(0), set()))
        shares[change] = total + share, alternatives | {conditions}
    everything = sum((share for share, _ in shares.values()), Fraction(0))
    steps = [
        Step(change=change, share=share / everything, where=frozenset(alternatives))
        for change, (share, alternatives) in shares.items()
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
    if not all(guard.is_affine for guard in conditions):
        return False
    return bool(sets.restrict(domain, nonnegative=conditions).is_empty())


def _changes(expression: QuasiPolynomial, name: str) -> list[_Change]:
    """Return the possible changes of an expression with the conditions on them; none if unknown."""
    floors = [floor for floor in expression.floors() if name in floor.names()]
    options = [_changes_of_floor(floor, name) for floor in floors]
    if prod(map(len, options)) > _MAXIMUM_COMBINATIONS:
        return []
    following = QuasiPolynomial.name(name) + 1
    changes: list[_Change] = []
    for combination in product(*options):
        moved: dict[Atom, QuasiPolynomial] = {name: following}
        for floor, (change, _, _) in zip(floors, combination, strict=True):
            moved[floor] = QuasiPolynomial.atom(floor) + change
        conditions = frozenset[QuasiPolynomial]().union(*(c for _, c, _ in combination))
        share = prod((part for _, _, part in combination), start=Fraction(1))
        changes.append((expression.map_atoms(moved.get) - expression, conditions, share))
    return changes


def _changes_of_floor(floor: Floor, name: str) -> list[_Change]:
    changes: list[_Change] = []
    for change, conditions, share in _changes(floor.numerator, name):
        if not change.is_constant:
            return []
        if not floor.denominator:  # by a size parameter: all but one lane in so many
            changes.append((QuasiPolynomial(), conditions, share))
            continue
        low, rest = divmod(int(change.constant_term), floor.denominator)
        stays = QuasiPolynomial.constant(low)
        if not rest:
            changes.append((stays, conditions, share))
            continue
        after = (floor.numerator + change).floor_divide(floor.denominator)
        jump = after - QuasiPolynomial.atom(floor) - low
        part = Fraction(rest, floor.denominator)
        changes.append((stays, conditions | {jump, -jump}, share * (1 - part)))
        changes.append((stays + 1, conditions | {jump - 1, 1 - jump}, share * part))
    return changes
