"""Places at which instructions are executed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from loopy.kernel.data import VectorizeTag

from countperf.counting.device_programs import LocalBarrier
from countperf.counting.domains import Domains
from countperf.counting.keys import NOWHERE, Case, Grid
from countperf.display import ShortRepr
from countperf.errors import CountingError, UnsupportedExpressionError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.factors import FactoredDomain
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.polyhedron import Polyhedron
from countperf.symbolic.quasipolynomial import QuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Place:
    """Place at which an instruction, or a part of it, is executed."""

    domains: Domains  # of the kernel
    within: frozenset[str]  # loop variables around it
    cases: tuple[Case, ...]  # conditions on them
    grid: Grid  # geometry of the launch
    # sequential loops around it, outermost first; barrier loops and unrolled ones too
    loops: tuple[str, ...]
    own_loops: frozenset[str]  # those of them that each item runs at its own pace
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any])  # shared by the places of a kernel

    @property
    def lanes(self) -> dict[str, int]:
        """Local axis of each loop variable that is a work-item index."""
        axes = self.domains.local_axes
        return {name: axes[name] for name in self.within if name in axes}


# --- Trip counts of loops, and the slots that a launch issues for an instruction


_OPERATIONS = 500_000
"""Limit of isl's operations, about a second; beyond it a trip count or slot count is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusable(ShortRepr):
    """A count, or why there is none."""

    count: PiecewiseQuasiPolynomial | None  # None if it is refused
    reason: str = ""  # why it is refused, or which statistics enter; empty if it is exact

    def __str__(self) -> str:
        return f"unknown ({self.reason})" if self.count is None else str(self.count)


def trips_of(domains: Domains, names: Collection[str], around: Collection[str]) -> Refusable:
    """Count the iterations of loops for given values of what is around them."""
    counted, factor = domains.trip_statistics(frozenset(names))
    reason = ""
    if counted != frozenset(names):
        given = sorted(name for name in set(names) - counted if name in domains.statistics)
        reason = f"the mean trip count of {', '.join(given)} is the caller's statistic"
        reason = reason if given else ""
    outside, _ = domains.trip_statistics(frozenset(around))
    if not counted:
        return Refusable(count=factor, reason=reason)
    what = f"kernel '{domains.kernel.name}': the trip count of {', '.join(sorted(counted))}"
    try:
        with isl_sets.limited_operations(_OPERATIONS, what):
            return Refusable(count=_trips(domains, counted, outside) * factor, reason=reason)
    except CountingError as error:
        return Refusable(count=None, reason=str(error))


def _trips(
    domains: Domains, names: frozenset[str], around: frozenset[str]
) -> PiecewiseQuasiPolynomial:
    assumptions = assumptions_of(domains.kernel)
    factored = domains.factored(names | around)
    if factored is not None:
        around = around & frozenset[str]().union(*(factored.component_of(n) for n in names))
    if not around:
        return domains.counter.count(domains.domain(names))
    joint = sets.under_assumptions(domains.domain(names | around), assumptions)
    for name in sorted(around):
        if sets.is_independent(joint, names | (around - {name}), name):
            around = around - {name}
            joint = sets.project_onto(joint, names | around)
    context = sets.as_parameters(sets.project_onto(joint, around), sorted(around)).params()
    return Counter(context).count(sets.as_parameters(joint, sorted(around)))


def slots_of(place: Place) -> Refusable:
    """Count the slots of an instruction: passes of a group through it, times the items of a group.

    Items that have nothing to do in a pass (partial groups, guarded fetches, loops that end
    earlier, conditions) have a slot all the same.
    """
    domains = place.domains
    counted, _ = domains.trip_statistics(place.within)
    if counted != place.within:
        given = ", ".join(sorted(place.within - counted))
        return Refusable(count=None, reason=f"data decides how often '{given}' runs in each item")
    what = f"kernel '{domains.kernel.name}': the slots in {', '.join(sorted(place.within))}"
    try:
        with isl_sets.limited_operations(_OPERATIONS, what):
            return _slots(place)
    except CountingError as error:
        return Refusable(count=None, reason=str(error))


def _slots(place: Place) -> Refusable:
    domains, lanes = place.domains, place.lanes
    starts: dict[str, QuasiPolynomial] = {}
    if lanes and place.own_loops & place.within:
        factored = domains.factored(place.within)
        for name in place.loops:
            if name not in place.own_loops or name not in place.within:
                continue
            if factored is None:
                if not _is_apart(place, name):
                    return Refusable(
                        count=None, reason=f"the bounds of '{name}' are no simple constraints"
                    )
                continue
            lower = _lane_dependent_start(place, factored, name)
            if isinstance(lower, str):
                return Refusable(count=None, reason=lower)
            if lower is not None:
                starts[name] = lower
    kept = place.within.difference(lanes)
    if not starts:
        return Refusable(count=domains.executions(kept, (), place.grid))
    functions = [
        QuasiPolynomial.name(name) - starts.get(name, QuasiPolynomial()) for name in sorted(kept)
    ]
    passes = domains.counter.count(sets.image(domains.domain(place.within), functions))
    used = {domains.group_axes.get(name) for name in kept}
    for axis, size in place.grid.groups.items():
        if axis not in used:
            passes = passes * size
    return Refusable(count=passes.scale(place.grid.group_size))


def _is_apart(place: Place, name: str) -> bool:
    """Return whether no work-item index bears on a loop."""
    whole = place.domains.domain(place.within)
    return all(sets.is_independent(whole, {name}, lane) for lane in place.lanes)


def _lane_dependent_start(
    place: Place, factored: FactoredDomain, name: str
) -> QuasiPolynomial | str | None:
    """Return the first value of a loop where it depends on the item, or why it is not known."""
    axes = (place.domains.local_axes, place.domains.group_axes)
    outside = set(place.loops[: place.loops.index(name)]).union(*axes) & place.within
    polyhedra = factored.onto(frozenset(outside | {name}))
    if polyhedra is None:
        return f"the bounds of '{name}' are no simple constraints"
    (polyhedron,) = (p for p in polyhedra if name in p.dimensions)
    if not set(polyhedron.dimensions) & place.lanes.keys():
        return None
    return _start(polyhedron, name, place)


def _start(polyhedron: Polyhedron, name: str, place: Place) -> QuasiPolynomial | str | None:
    names = (*polyhedron.parameters, *polyhedron.dimensions)
    column = 1 + names.index(name)
    both_ways = [*polyhedron.equalities, *(tuple(-c for c in r) for r in polyhedron.equalities)]
    rows = [row for row in (*polyhedron.inequalities, *both_ways) if row[column] > 0]
    dependent = [
        row
        for row in rows
        if any(c and n in place.lanes for n, c in zip(names, row[1:], strict=True))
    ]
    if not dependent:
        return None
    (row, *more) = rows
    if more or row[column] != 1:
        return f"the first value of '{name}' is the largest of several, or a quotient"
    return -QuasiPolynomial.affine(
        ((n, c) for n, c in zip(names, row[1:], strict=True) if n != name), row[0]
    )


# --- Numbers of barriers that work items pass


def barrier_passes(
    domains: Domains, barrier: LocalBarrier, launch_loops: frozenset[str], grid: Grid
) -> PiecewiseQuasiPolynomial:
    """Count the barriers that all work items of all launches together pass.

    Barriers are not guarded by work-item indices: within each group, the loops around the
    barrier that are no hardware axes decide how often all its items reach it.
    """
    loops = barrier.within | launch_loops
    for name in loops:
        if domains.kernel.inames[name].tags_of_type(VectorizeTag):
            raise UnsupportedExpressionError(
                f"kernel '{domains.kernel.name}': a barrier in the vectorized loop '{name}'; tag "
                "the loop 'unr'",
                kernel=domains.kernel.name,
                where=name,
            )
    dependent = _group_inames_that_decide(domains, loops) | _idle_group_inames(
        domains, barrier.neighbors, grid
    )
    points = domains.executions(loops | dependent, (), NOWHERE)
    used = {domains.group_axes[name] for name in dependent}
    if len(used) < len(dependent):
        raise UnsupportedExpressionError(
            f"kernel '{domains.kernel.name}': barriers in loops {', '.join(sorted(loops))} depend "
            f"on several inames of one group axis ({', '.join(sorted(dependent))})",
            kernel=domains.kernel.name,
            where=", ".join(sorted(loops)),
        )
    for axis, size in grid.groups.items():
        if axis not in used:
            points = points * size
    return points.scale(grid.group_size)


def _idle_group_inames(
    domains: Domains, instruction_ids: frozenset[str], grid: Grid
) -> frozenset[str]:
    """Return the group inames of instructions, if some groups execute none of them."""
    used = frozenset[str]().union(
        *(domains.kernel.id_to_insn[i].within_inames for i in instruction_ids)
    ) & frozenset(domains.group_axes)
    axes = {domains.group_axes[name] for name in used}
    if len(axes) < len(used) or not used:
        return frozenset()
    everything = PiecewiseQuasiPolynomial.product(grid.groups[axis] for axis in axes)
    working = domains.executions(used, (), NOWHERE)
    return frozenset() if working == everything else used


def _group_inames_that_decide(domains: Domains, loops: frozenset[str]) -> frozenset[str]:
    """Return the group inames on which the trip counts of loops depend."""
    counted, _ = domains.trip_statistics(loops)
    if not counted:
        return frozenset()
    whole = domains.joint_domain(counted)
    present = set(isl_sets.names_of(whole, parameters=False)) & set(domains.group_axes)
    factored = domains.factored(counted)
    if factored is not None:
        present = {n for n in present if factored.component_of(n) & counted}
    return frozenset(name for name in present if not sets.is_independent(whole, counted, name))
