"""The structure of a kernel that decides how a device runs it, beyond its counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from countperf.counting.access_analysis import AccessAnalysis, AccessAnalyzer
from countperf.counting.access_classes import FOOTPRINT_OPERATIONS, accessed_cells
from countperf.counting.accesses import Address, Layout
from countperf.counting.components import touched_addresses
from countperf.counting.domains import Domains
from countperf.counting.places import Refusable
from countperf.counting.preparation import PreparedKernel
from countperf.counting.resources import ArrayStorage, storage_of
from countperf.counting.selection import instruction_counter
from countperf.counting.sizes import SizeParameters, require_sizes
from countperf.counting.structure import ProgramAnalysis, analyzed_program
from countperf.counting.transactions import transactions
from countperf.display import ShortRepr
from countperf.errors import CountingError
from countperf.symbolic import isl_sets
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

__all__ = ["AccessAnalysis", "KernelAnalysis", "analyze_kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint(ShortRepr):
    """The cells of an array that a kernel accesses."""

    # name of the array; ``global`` or ``local`` (then of one group's copy)
    array: str
    address_space: str
    direction: str  # which accesses are meant; ``any`` is their union
    element_bytes: int  # size of an element
    accesses: PiecewiseQuasiPolynomial  # executions of all of them, by all work items
    cells: Refusable  # distinct elements
    members: tuple[AccessAnalysis, ...] = field(repr=False, compare=False)

    @property
    def size_bytes(self) -> Refusable:
        """Distinct bytes."""
        if self.cells.count is None:
            return self.cells
        return Refusable(count=self.cells.count.scale(self.element_bytes), reason=self.cells.reason)

    def cells_at(self, parameters: Mapping[str, Any]) -> int:
        """Return the distinct elements at parameters; where no formula is known, by enumeration."""
        values = self.members[0].checked(parameters)
        if self.cells.count is not None:
            return int(self.cells.count.evaluate(values))
        touched = [
            touched_addresses(access.place, _direct(access), values) for access in self.members
        ]
        return len(np.unique(np.concatenate(touched)))

    def accesses_per_cell(self, parameters: Mapping[str, Any]) -> Fraction:
        """Return the ratio of accesses to footprint at parameters; zero if nothing is accessed."""
        values = self.members[0].checked(parameters)
        return Fraction(self.accesses.evaluate(values)) / (self.cells_at(values) or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAnalysis(ShortRepr):
    """Structure of a kernel, as `analyze_kernel` returns it.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    is_estimate : str
        Names for which the caller gave statistics; empty if everything is exact.
    sizes : SizeParameters
        Its size parameters and what it assumes of them.
    programs : tuple of ProgramAnalysis
        Device programs in order of launch.
    accesses : tuple of AccessAnalysis
        All accesses to global and local memory, in order of the schedule.
    footprints : tuple of Footprint
        By array and direction.
    storage : tuple of ArrayStorage
        Private and local arrays.
    """

    kernel: str
    is_estimate: str
    sizes: SizeParameters
    programs: tuple[ProgramAnalysis, ...]
    accesses: tuple[AccessAnalysis, ...]
    footprints: tuple[Footprint, ...]
    storage: tuple[ArrayStorage, ...]

    def transactions(
        self, parameters: Mapping[str, Any], *, line_bytes: int, sub_group_size: int
    ) -> dict[str, int]:
        """Return the transactions of all loads from and stores to global memory.

        Parameters
        ----------
        parameters : mapping from str to int
            Values of all size parameters.
        line_bytes, sub_group_size : int
            See `countperf.counting.transactions.transactions`.

        Returns
        -------
        dict
            ``{"load": number, "store": number}``.

        Raises
        ------
        CountingError, ParameterError
            As for `countperf.counting.transactions.transactions`, for any of the accesses.
        """
        result = {"load": 0, "store": 0}
        for access in self.accesses:
            if access.access.address_space == "global":
                moved = transactions(
                    access, parameters, line_bytes=line_bytes, sub_group_size=sub_group_size
                )
                result[access.access.direction] += moved.transactions
        return result

    def __str__(self) -> str:
        return (
            f"structure of {self.kernel}: {len(self.programs)} device programs, "
            f"{len(self.accesses)} accesses, {len(self.storage)} private and local arrays"
        )


def analyze_kernel(t_unit: Any, *, statistics: Mapping[str, Any] | None = None) -> KernelAnalysis:
    """Analyze the structure of a Loopy kernel.

    Parameters
    ----------
    t_unit : loopy.TranslationUnit
        With one entry point; preprocessed and scheduled here unless that is done already.
    statistics : mapping from str to number, optional
        What data decides, as for `countperf.count_kernel`.

    Returns
    -------
    KernelAnalysis
        Symbolic in the size parameters.

    Raises
    ------
    CountingError
        The kernel cannot be counted.
    """
    return analyzed(PreparedKernel(t_unit, statistics=statistics))


def analyzed(prepared: PreparedKernel) -> KernelAnalysis:
    """Analyze the structure of a prepared kernel."""
    with prepared.counting():
        analysis = _analyzed(prepared)
    require_sizes(prepared.kernel.name, prepared.domains.sizes, dict(_totals(analysis)))
    return analysis


def analyzed_accesses(prepared: PreparedKernel) -> list[AccessAnalysis]:
    """Analyze the accesses of a prepared kernel alone."""
    analyzer = _analyzer(prepared)
    return [
        access
        for launch in prepared.launches()
        for outline in launch.regions
        for access in analyzer.accesses(launch.program, outline, launch.grid)
    ]


def _analyzer(prepared: PreparedKernel) -> AccessAnalyzer:
    return AccessAnalyzer(prepared, instruction_counter(prepared.domains))


def _totals(analysis: KernelAnalysis) -> Iterator[tuple[str, PiecewiseQuasiPolynomial]]:
    """Yield the counts of an analysis in which no loop variable can stand, by name."""
    for program in analysis.programs:
        yield f"the launches of {program.name}", program.launches
        for axis, groups in enumerate(program.groups):
            yield f"the groups of {program.name} along axis {axis}", groups
        for region in program.regions:
            for instruction in region.instructions:
                yield f"the executions of {instruction.id}", instruction.executions
    for access in analysis.accesses:
        yield access.label, access.executions


def _analyzed(prepared: PreparedKernel) -> KernelAnalysis:
    kernel, domains = prepared.kernel, prepared.domains
    analyzer = _analyzer(prepared)
    accesses: list[AccessAnalysis] = []
    programs: list[ProgramAnalysis] = []
    for launch in prepared.launches():
        for outline in launch.regions:
            accesses += analyzer.accesses(launch.program, outline, launch.grid)
        programs.append(analyzed_program(analyzer, launch))
    return KernelAnalysis(
        kernel=kernel.name,
        is_estimate=", ".join(sorted(prepared.statistics)),
        sizes=analyzer.sizes,
        programs=tuple(programs),
        accesses=tuple(accesses),
        footprints=footprints_of(accesses, domains),
        storage=storage_of(kernel, domains),
    )


# --- Cells of an array that a kernel accesses, each counted once


def _direct(access: AccessAnalysis) -> QuasiPolynomial:
    if access.address is None or access.is_estimate:
        why = access.is_estimate or "data, from which its address is read,"
        raise CountingError(
            f"{access.label}: {why} decides what is accessed, so that no footprint is known",
            where=access.label,
        )
    return access.address


def footprints_of(accesses: Sequence[AccessAnalysis], domains: Domains) -> tuple[Footprint, ...]:
    """Find the footprints of all arrays, by array and direction."""
    result: list[Footprint] = []
    for array in dict.fromkeys(access.access.array for access in accesses):
        own = [access for access in accesses if access.access.array == array]
        directions = list(dict.fromkeys(access.access.direction for access in own))
        for direction in (*directions, *(["any"] if len(directions) > 1 else [])):
            members = tuple(a for a in own if direction in ("any", a.access.direction))
            total = ZERO_COUNT
            for access in members:
                total += access.executions
            result.append(
                Footprint(
                    array=array,
                    address_space=own[0].access.address_space,
                    direction=direction,
                    element_bytes=members[0].access.bits // 8,
                    accesses=total,
                    cells=_cells(members, domains.layout_of(members[0].access), domains),
                    members=members,
                )
            )
    return tuple(result)


def _cells(members: Sequence[AccessAnalysis], layout: Layout, domains: Domains) -> Refusable:
    first = members[0]
    what = f"kernel '{first.sizes.kernel}': the footprint of array '{first.access.array}'"
    if any(access.access.component_of != first.access.component_of for access in members):
        return Refusable(count=None, reason="its vectors are accessed whole and by components")
    indirect = [access.text for access in members if access.index is None]
    if indirect:
        return Refusable(count=None, reason=f"the address of {indirect[0]} is read from data")
    estimates = [access.is_estimate for access in members if access.is_estimate]
    if estimates:
        return Refusable(count=None, reason=f"{estimates[0]} decides what is accessed")
    places = dict.fromkeys((a.index, a.place.within, a.place.cases) for a in members)
    try:
        with isl_sets.limited_operations(FOOTPRINT_OPERATIONS, what):
            cells = accessed_cells(
                ((i, w, c) for i, w, c in places if i is not None),
                domains,
                _injective_index(layout, what),
            )
            return Refusable(count=domains.counter.count(cells))
    except CountingError as error:
        return Refusable(count=None, reason=str(error))


def _injective_index(layout: Layout, what: str) -> Callable[[Address], tuple[QuasiPolynomial, ...]]:
    """Return what tells the cells of an array apart: subscripts, or the offset itself."""

    def functions(address: Address) -> tuple[QuasiPolynomial, ...]:
        if layout.is_numeric and layout.compact_order() is None:
            return (address.flat,)
        if address.is_flattened:
            if len(layout.strides) > 1:
                raise CountingError(f"{what}: it has flattened and other subscripts", where=what)
            return address.index
        return tuple(
            part for part, stride in zip(address.index, layout.strides, strict=True) if stride
        )

    return functions
