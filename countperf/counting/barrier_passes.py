"""Numbers of barriers that work items pass."""

from __future__ import annotations

from loopy.kernel.data import VectorizeTag

from countperf.counting.domains import Domains
from countperf.counting.grid import NOWHERE, Grid
from countperf.counting.schedule import LocalBarrier
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial


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
    is_known = working == everything and not working.approximations
    return frozenset() if is_known else used


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
