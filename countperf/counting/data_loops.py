"""Loops whose values data decides, such as those over the nonzeros of a matrix row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loopy.kernel.data import ConcurrentTag
from loopy.schedule import EnterLoop

from countperf.counting.statistics import Statistics
from countperf.errors import CountingError, DataDependentControlFlowError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.cardinality import count_within
from countperf.symbolic.kernel_sets import assumptions_of, domains_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

_OPERATIONS = 500_000
"""Of isl: beyond, a trip count counts as unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoop:
    """A loop whose values data decides."""

    iname: str  # its loop variable
    reads: tuple[str, ...]  # variables in its bounds that are no size parameters
    # its trip count where the sizes alone decide it, as of a loop from ``s`` to ``s + 4``
    trips: PiecewiseQuasiPolynomial | None


def entered_loops(kernel: Any) -> Iterator[str]:
    """Yield the loops of a schedule, outer ones before those inside them."""
    for item in kernel.linearization:
        if isinstance(item, EnterLoop):
            yield item.iname


def data_loops(
    kernel: Any,
    sizes: Collection[str],
    joint_domain: Callable[[frozenset[str]], isl_sets.IntegerSet],
) -> dict[str, DataLoop]:
    """Return the loops around instructions whose values depend on more than sizes."""
    inames = kernel.all_inames()
    parameters = {
        n for domain in domains_of(kernel) for n in isl_sets.names_of(domain, parameters=True)
    }
    if parameters <= inames | set(sizes):
        return {}
    used = frozenset[str]().union(*(i.within_inames for i in kernel.instructions))
    order = {name: number for number, name in enumerate(entered_loops(kernel))}
    loops: dict[str, DataLoop] = {}
    for name in sorted(used):
        whole = joint_domain(frozenset([name]))
        reads = _read_by(sets.project_onto(whole, [name]), sizes)
        if reads:
            around = _around(kernel, name, isl_sets.names_of(whole, parameters=False), order)
            trips = _trips(kernel, name, around, whole, sizes)
            loops[name] = DataLoop(iname=name, reads=reads, trips=trips)
    return loops


def _read_by(line: isl_sets.IntegerSet, sizes: Collection[str]) -> tuple[str, ...]:
    """Return the parameters beside sizes on which the values in a set depend."""
    unknown = [name for name in isl_sets.names_of(line, parameters=True) if name not in sizes]
    if not unknown or sets.without_parameters(line, unknown) is not None:
        return ()
    reads = [name for name in unknown if sets.without_parameters(line, [name]) is None]
    return tuple(reads or unknown)


def _around(
    kernel: Any, name: str, names: Collection[str], order: Mapping[str, int]
) -> frozenset[str]:
    """Return which of some loops are entered before another one."""
    if kernel.iname_tags_of_type(name, ConcurrentTag):
        return frozenset()
    return frozenset(
        other
        for other in names
        if other != name
        and (
            kernel.iname_tags_of_type(other, ConcurrentTag)
            or order.get(other, -1) < order.get(name, -1)
        )
    )


def _trips(
    kernel: Any,
    name: str,
    around: frozenset[str],
    whole: isl_sets.IntegerSet,
    sizes: Collection[str],
) -> PiecewiseQuasiPolynomial | None:
    """Count the iterations of a loop for given values of those around it, if sizes decide them."""
    joint = sets.under_assumptions(
        sets.project_onto(whole, around | {name}), assumptions_of(kernel)
    )
    what = f"kernel '{kernel.name}': the trip count of {name}"
    try:
        with isl_sets.limited_operations(_OPERATIONS, what):
            trips = count_within(joint, around)
    except CountingError:
        return None
    return trips if trips.names() <= set(sizes) else None


def check_trip_counts(
    loops: Mapping[str, DataLoop],
    statistics: Statistics,
    inames: Collection[str],
    bounds_of: Callable[[str], tuple[int | None, int | None]],
) -> None:
    """Refuse trip counts of loops that sizes decide, and those that bounds rule out."""
    instructions = statistics.kernel.id_to_insn
    for name, given in statistics.numbers.items():
        if name not in inames:
            continue
        loop = loops.get(name)
        if loop is None:
            if name in instructions:
                continue  # a probability
            takers = (
                ", ".join(n for n, data_loop in loops.items() if data_loop.trips is None) or "none"
            )
            raise statistics.error(
                f"the statistic for '{name}' is of a loop that data does not bear on (of those "
                f"that depend on data: {takers}); leave it out",
            )
        if loop.trips is not None:
            raise statistics.error(
                f"the statistic for '{name}' is of a loop that runs {loop.trips} times whatever "
                "the data; leave it out",
            )
        low, high = bounds_of(name)
        if low is not None and high is not None and given > high - low + 1:
            raise statistics.error(
                f"the mean trip count of '{name}' is {float(given):g}, but its bounds let it run "
                f"{high - low + 1} times at most",
            )


def refuse_loops_beside(
    kernel: Any,
    loops: Mapping[str, DataLoop],
    joint_domain: Callable[[frozenset[str]], isl_sets.IntegerSet],
) -> None:
    """Refuse instructions that run only where a loop over data that is not around them does."""
    if not loops:
        return
    for within in {i.within_inames for i in kernel.instructions}:
        names = isl_sets.names_of(joint_domain(within), parameters=False) if within else ()
        for name in sorted(set(names).difference(within).intersection(loops)):
            raise DataDependentControlFlowError(
                f"kernel '{kernel.name}': an instruction in the loops "
                f"{', '.join(sorted(within))} shares a domain with '{name}', which is not around "
                "it: it runs only where that loop does, which data decides; write a domain of its "
                f"own for '{name}'"
            )
