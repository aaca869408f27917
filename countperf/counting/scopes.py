"""Scopes in which instructions are executed, and the strides of accesses in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, Literal

from loopy.kernel.data import VectorizeTag

from countperf.counting.accesses import address_of, step_along
from countperf.counting.device_programs import LocalBarrier
from countperf.counting.domains import Domains
from countperf.counting.keys import NOWHERE, Case, Grid, MemoryAccess
from countperf.errors import CountingError, UnsupportedExpressionError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import Condition, Conjunction
from countperf.symbolic.cardinality import FactoredDomain, count_within
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ZERO, Atom, Floor, QuasiPolynomial
from countperf.text import ShortRepr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scope:
    """Loops and conditions under which an instruction, or a part of it, is executed."""

    domains: Domains  # of the kernel
    within: frozenset[str]  # loop variables around it
    cases: tuple[Case, ...]  # conditions on them
    grid: Grid  # geometry of the launch
    # sequential loops around it, outermost first; barrier loops and unrolled ones too
    loops: tuple[str, ...]
    own_loops: frozenset[str]  # those of them that each item runs at its own pace

    @property
    def lanes(self) -> dict[str, int]:
        """Local axis of each loop variable that is a work-item index."""
        axes = self.domains.local_axes
        return {name: axes[name] for name in self.within if name in axes}


Known = PiecewiseQuasiPolynomial | None  # a count; None where it is not known


def trips_of(domains: Domains, names: Collection[str], around: Collection[str]) -> Known:
    """Count the iterations of loops for given values of what is around them."""
    counted, factor = domains.trip_statistics(frozenset(names))
    outside, _ = domains.trip_statistics(frozenset(around))
    if not counted:
        return factor
    with suppress(CountingError), domains.limit(f"the trip count of {sorted(counted)}"):
        factored = domains.factor_domain(counted | outside)
        if factored is not None:
            outside &= frozenset[str]().union(*map(factored.component_of, counted))
        if not outside:
            return domains.counter.count(domains.domain(counted)) * factor
        assumptions = assumptions_of(domains.kernel)
        joint = sets.under_assumptions(domains.domain(counted | outside), assumptions)
        for name in sorted(outside):
            if sets.is_independent(joint, counted | (outside - {name}), name):
                outside -= {name}
                joint = sets.project_onto(joint, counted | outside)
        return count_within(joint, outside) * factor
    return None


def slots_of(scope: Scope) -> Known:
    """Count the slots of an instruction: passes of a group through it, times all its items."""
    domains = scope.domains
    counted, _ = domains.trip_statistics(scope.within)
    if counted != scope.within:
        return None  # data decides how often a loop runs in each item
    with suppress(CountingError), domains.limit(f"the slots in {sorted(scope.within)}"):
        return _count_slots(scope)
    return None


def _count_slots(scope: Scope) -> Known:
    domains, lanes = scope.domains, scope.lanes
    starts: dict[str, QuasiPolynomial] = {}
    if lanes and scope.own_loops & scope.within:
        factored = domains.factor_domain(scope.within)
        for name in scope.loops:
            if name not in scope.own_loops & scope.within:
                continue
            if factored is not None:
                lower = _find_lane_dependent_start(scope, factored, name)
            else:
                whole = domains.domain(scope.within)
                is_even = all(sets.is_independent(whole, {name}, lane) for lane in lanes)
                lower = ZERO if is_even else None
            if lower is None:
                return None
            starts[name] = lower
    kept = scope.within.difference(lanes)
    if not any(starts.values()):
        return domains.executions(kept, (), scope.grid)
    functions = [QuasiPolynomial.name(name) - starts.get(name, ZERO) for name in sorted(kept)]
    passes = domains.counter.count(sets.image(domains.domain(scope.within), functions))
    return domains.times_groups(passes, kept, scope.grid).scale(scope.grid.group_size)


def _find_lane_dependent_start(
    scope: Scope, factored: FactoredDomain, name: str
) -> QuasiPolynomial | None:
    """Return the first value of a loop where it depends on the item, else 0; None if not known."""
    axes = (scope.domains.local_axes, scope.domains.group_axes)
    outside = set(scope.loops[: scope.loops.index(name)]).union(*axes) & scope.within
    polyhedra = factored.onto(frozenset(outside | {name}))
    if polyhedra is None:
        return None
    (polyhedron,) = (p for p in polyhedra if name in p.dimensions)
    names = (*polyhedron.parameters, *polyhedron.dimensions)
    column = 1 + names.index(name)
    both_ways = [*polyhedron.equalities, *(tuple(-c for c in r) for r in polyhedron.equalities)]
    rows = [row for row in (*polyhedron.inequalities, *both_ways) if row[column] > 0]
    lanes = [1 + names.index(lane) for lane in scope.lanes if lane in names]
    if not any(row[lane] for row in rows for lane in lanes):
        return ZERO
    (row, *more) = rows
    if more or row[column] != 1:
        return None  # it is the largest of several, or a quotient
    others = ((n, c) for n, c in zip(names, row[1:], strict=True) if n != name)
    return -QuasiPolynomial.affine(others, row[0])


def barrier_passes(
    domains: Domains, barrier: LocalBarrier, launch_loops: frozenset[str], grid: Grid
) -> PiecewiseQuasiPolynomial:
    """Count the barriers that all work items of all launches together pass."""
    loops = barrier.within | launch_loops
    for name in loops:
        if domains.kernel.inames[name].tags_of_type(VectorizeTag):
            raise UnsupportedExpressionError(
                f"kernel '{domains.kernel.name}': a barrier in the vectorized loop '{name}'; tag "
                "the loop 'unr'"
            )
    dependent = _find_deciding_groups(domains, loops)
    around = (domains.kernel.id_to_insn[i].within_inames for i in barrier.neighbors)
    working = frozenset(domains.group_axes).intersection(frozenset[str]().union(*around))
    axes = {domains.group_axes[name] for name in working}
    if working and len(axes) == len(working):
        everything = PiecewiseQuasiPolynomial.product(grid.groups[axis] for axis in axes)
        if domains.executions(working, (), NOWHERE) != everything:  # some groups skip the loops
            dependent |= working
    points = domains.executions(loops | dependent, (), NOWHERE)
    if len({domains.group_axes[name] for name in dependent}) < len(dependent):
        raise UnsupportedExpressionError(
            f"kernel '{domains.kernel.name}': barriers in loops {', '.join(sorted(loops))} depend "
            f"on several inames of one group axis ({', '.join(sorted(dependent))})"
        )
    return domains.times_groups(points, dependent, grid).scale(grid.group_size)


def _find_deciding_groups(domains: Domains, loops: frozenset[str]) -> frozenset[str]:
    counted, _ = domains.trip_statistics(loops)
    if not counted:
        return frozenset()
    whole = domains.joint_domain(counted)
    present = set(isl_sets.names_of(whole, parameters=False)) & domains.group_axes.keys()
    factored = domains.factor_domain(counted)
    if factored is not None:
        present = {n for n in present if factored.component_of(n) & counted}
    return frozenset(name for name in present if not sets.is_independent(whole, counted, name))


AxisKind = Literal["local", "group", "loop", "barrier loop", "launch loop", "unrolled"]


@dataclass(frozen=True, slots=True)
class AxisStride(ShortRepr):
    """Change of an access's address along one axis of the launch or one loop."""

    kind: AxisKind  # "loop" is an item's own one; "unrolled" are copies of the instruction
    axis: int | None  # number of the local or group axis; None for loops
    iname: str | None  # the loop variable; None for an axis that the access does not use
    # change of the address from one value to the next, elements; None if uneven, or read from data
    stride: QuasiPolynomial | None

    def __str__(self) -> str:
        name = self.kind if self.axis is None else f"{self.kind} {self.axis}"
        value = "uneven" if self.stride is None else self.stride
        return f"{name}{f' {self.iname}' if self.iname else ''}: {value}"


def strides_of(
    scope: Scope, access: MemoryAccess, kinds: Mapping[str, AxisKind], *, of_most: bool = False
) -> tuple[AxisStride, ...]:
    """Return the strides along all axes of the launch and all loops around an access."""
    domains = scope.domains
    address = domains.address(access)
    if address is None:  # in private scalars too where data decides it
        address = address_of(access, domains.layout_of(access), domains.to_opaque)
    flat = None if address is None else address.with_values(domains.bind_loops(scope.within)).flat
    result: list[AxisStride] = []
    hardware: tuple[tuple[AxisKind, Mapping[int, Any], Mapping[str, int]], ...] = (
        ("local", scope.grid.items, domains.local_axes),
        ("group", scope.grid.groups, domains.group_axes),
    )
    for kind, extents, axes in hardware:
        names = {axes[name]: name for name in scope.within if name in axes}
        for axis in sorted(extents):
            is_lane = of_most and (kind, axis) == ("local", 0)
            stride = _find_stride(scope, flat, names.get(axis), of_most=is_lane)
            result.append(AxisStride(kind, axis, names.get(axis), stride))
    copies = scope.within.difference(scope.loops, domains.local_axes, domains.group_axes)
    for name in (*scope.loops, *sorted(copies)):
        if name in scope.within:
            stride = _find_stride(scope, flat, name)
            result.append(AxisStride(kinds[name], None, name, stride))
    return tuple(result)


def _find_stride(
    scope: Scope, flat: QuasiPolynomial | None, name: str | None, *, of_most: bool = False
) -> QuasiPolynomial | None:
    """Return the change of an address along a loop: the only one, or that of most lanes."""
    if flat is None:
        return None
    names, domains = flat.names(), scope.domains
    if any(name is None or name in domains.changing[n] for n in names & domains.changing.keys()):
        return None
    if name is None or name not in names:
        return ZERO
    bounds = domains.find_bounds(scope.within)
    stride = step_along(flat, name, bounds)
    counted, _ = domains.trip_statistics(scope.within)
    if stride is not None or not names <= counted | domains.sizes:
        return stride
    known = domains.with_known_quotients(counted, flat)
    steps = steps_along(known, name, bounds, domains.domain(counted))
    if len(steps) == 1 or (of_most and steps and steps[0].share > Fraction(1, 2)):
        return steps[0].change
    if of_most and are_neighbors(steps):
        return next((step.change for step in steps if step.change), None)
    return None


# --- Steps of an address between work items where they are uneven, as of ``a[i // 2]``

_MAXIMUM_COMBINATIONS = 64


@dataclass(frozen=True, slots=True)
class AddressStep:
    """A change of an address from one value of a loop variable to the next."""

    change: QuasiPolynomial  # in elements; free of loop variables
    share: Fraction  # of the values, in the long run
    where: Condition  # the values that make it, as alternatives; `ALWAYS` if all do


_Change = tuple[QuasiPolynomial, Conjunction, Fraction]


def steps_along(
    expression: QuasiPolynomial, name: str, bounds: isl_sets.Bounds, domain: isl_sets.IntegerSet
) -> tuple[AddressStep, ...]:
    """Return the changes of an expression from one value of a name to the next."""
    resolved = sets.resolve_floors(expression, bounds)
    shares: dict[QuasiPolynomial, tuple[Fraction, set[Conjunction]]] = {}
    for change, conditions, share in _changes(resolved, name):
        if any(other in bounds for other in change.names()):
            return ()
        is_affine = all(guard.is_affine for guard in conditions)
        if conditions and is_affine and sets.restrict(domain, nonnegative=conditions).is_empty():
            continue
        total, alternatives = shares.get(change, (Fraction(0), set()))
        shares[change] = total + share, alternatives | {conditions}
    everything = sum((share for share, _ in shares.values()), Fraction(0))
    steps = [
        AddressStep(change, share / everything, frozenset(alternatives))
        for change, (share, alternatives) in shares.items()
    ]
    return tuple(sorted(steps, key=lambda step: (-step.share, str(step.change))))


def are_neighbors(steps: tuple[AddressStep, ...]) -> bool:
    """Return whether each lane accesses the element of the lane before it, or one beside that."""
    return all(step.change.is_constant and abs(step.change.constant_term) <= 1 for step in steps)


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
            moved[floor] = QuasiPolynomial.name(floor) + change
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
            changes.append((ZERO, conditions, share))
            continue
        low, rest = divmod(int(change.constant_term), floor.denominator)
        stays = QuasiPolynomial.constant(low)
        if not rest:
            changes.append((stays, conditions, share))
            continue
        after = (floor.numerator + change).floor_divide(floor.denominator)
        jump = after - QuasiPolynomial.name(floor) - low
        part = Fraction(rest, floor.denominator)
        changes.append((stays, conditions | {jump, -jump}, share * (1 - part)))
        changes.append((stays + 1, conditions | {jump - 1, 1 - jump}, share * part))
    return changes
