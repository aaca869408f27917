"""Scopes in which instructions are executed: loops, conditions on them, the grid of the launch."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from loopy.kernel.data import VectorizeTag

from countperf.counting.device_programs import LocalBarrier
from countperf.counting.domains import Domains
from countperf.counting.keys import NOWHERE, Case, Grid
from countperf.errors import CountingError, UnsupportedExpressionError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.cardinality import FactoredDomain, count_within
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Scope:
    """Loops and conditions under which an instruction, or a part of it, is executed."""

    domains: Domains  # of the kernel
    within: frozenset[str]  # loop variables around it
    cases: tuple[Case, ...]  # conditions on them
    grid: Grid  # geometry of the launch
    # sequential loops around it, outermost first; barrier loops and unrolled ones too
    loops: tuple[str, ...]
    own_loops: frozenset[str]  # those of them that each item runs at its own pace
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any])  # shared by the scopes of a kernel

    @property
    def lanes(self) -> dict[str, int]:
        """Local axis of each loop variable that is a work-item index."""
        axes = self.domains.local_axes
        return {name: axes[name] for name in self.within if name in axes}


# --- Trip counts of loops, and the slots that a launch issues for an instruction


_OPERATIONS = 500_000
"""Limit of isl's operations, about a second; beyond it a trip count or slot count is refused."""


Known = PiecewiseQuasiPolynomial | None
"""A count; None where it is not known."""


def trips_of(domains: Domains, names: Collection[str], around: Collection[str]) -> Known:
    """Count the iterations of loops for given values of what is around them."""
    counted, factor = domains.trip_statistics(frozenset(names))
    outside, _ = domains.trip_statistics(frozenset(around))
    if not counted:
        return factor
    with _limited(domains, f"the trip count of {', '.join(sorted(counted))}"):
        return _trips(domains, counted, outside) * factor
    return None


@contextmanager
def _limited(domains: Domains, what: str) -> Generator[None]:
    """Leave a block, which goes on behind it, where isl refuses a count or takes too long."""
    what = f"kernel '{domains.kernel.name}': {what}"
    with suppress(CountingError), isl_sets.limited_operations(_OPERATIONS, what):
        yield


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
    return count_within(joint, around)


def slots_of(scope: Scope) -> Known:
    """Count the slots of an instruction: passes of a group through it, times the items of a group.

    Items that have nothing to do in a pass (partial groups, guarded fetches, loops that end
    earlier, conditions) have a slot all the same.
    """
    domains = scope.domains
    counted, _ = domains.trip_statistics(scope.within)
    if counted != scope.within:
        return None  # data decides how often a loop runs in each item
    with _limited(domains, f"the slots in {', '.join(sorted(scope.within))}"):
        return _slots(scope)
    return None


def _slots(scope: Scope) -> Known:
    domains, lanes = scope.domains, scope.lanes
    starts: dict[str, QuasiPolynomial] = {}
    if lanes and scope.own_loops & scope.within:
        factored = domains.factored(scope.within)
        for name in scope.loops:
            if name not in scope.own_loops or name not in scope.within:
                continue
            if factored is None:
                if not _is_apart(scope, name):
                    return None
                continue
            lower = _lane_dependent_start(scope, factored, name)
            if lower is None:
                return None
            if lower:
                starts[name] = lower
    kept = scope.within.difference(lanes)
    if not starts:
        return domains.executions(kept, (), scope.grid)
    functions = [
        QuasiPolynomial.name(name) - starts.get(name, QuasiPolynomial()) for name in sorted(kept)
    ]
    passes = domains.counter.count(sets.image(domains.domain(scope.within), functions))
    used = {domains.group_axes.get(name) for name in kept}
    for axis, size in scope.grid.groups.items():
        if axis not in used:
            passes = passes * size
    return passes.scale(scope.grid.group_size)


def _is_apart(scope: Scope, name: str) -> bool:
    """Return whether no work-item index bears on a loop."""
    whole = scope.domains.domain(scope.within)
    return all(sets.is_independent(whole, {name}, lane) for lane in scope.lanes)


def _lane_dependent_start(
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
        return QuasiPolynomial()
    (row, *more) = rows
    if more or row[column] != 1:
        return None  # it is the largest of several, or a quotient
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
                "the loop 'unr'"
            )
    dependent = _group_inames_that_decide(domains, loops) | _idle_group_inames(
        domains, barrier.neighbors, grid
    )
    points = domains.executions(loops | dependent, (), NOWHERE)
    used = {domains.group_axes[name] for name in dependent}
    if len(used) < len(dependent):
        raise UnsupportedExpressionError(
            f"kernel '{domains.kernel.name}': barriers in loops {', '.join(sorted(loops))} depend "
            f"on several inames of one group axis ({', '.join(sorted(dependent))})"
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
