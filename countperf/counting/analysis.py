"""The structure of a kernel that decides how a device runs it, beyond its counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from countperf.counting.access_analysis import AccessAnalysis, analyze_accesses
from countperf.counting.access_classes import FOOTPRINT_OPERATIONS, accessed_cells
from countperf.counting.accesses import Address, Layout
from countperf.counting.components import touched_addresses
from countperf.counting.preparation import PreparedKernel
from countperf.counting.program_analysis import ProgramAnalysis, analyze_program
from countperf.counting.scopes import Known
from countperf.counting.size_parameters import SizeParameters, require_sizes
from countperf.display import ShortRepr
from countperf.errors import CountingError
from countperf.sizes import checks_keywords
from countperf.symbolic import isl_sets
from countperf.symbolic.quasipolynomial import QuasiPolynomial


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
    """

    kernel: str
    is_estimate: str
    sizes: SizeParameters
    programs: tuple[ProgramAnalysis, ...]
    accesses: tuple[AccessAnalysis, ...]

    def __str__(self) -> str:
        return (
            f"structure of {self.kernel}: {len(self.programs)} device programs, "
            f"{len(self.accesses)} accesses"
        )


@checks_keywords
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
    prepared = PreparedKernel(t_unit, statistics=statistics)
    with prepared.counting():
        tally = prepared.tally("source")
        accesses = analyze_accesses(prepared)
        programs = tuple(analyze_program(prepared, tally, one) for one in prepared.launches())
    counts = {access.label: access.executions for access in accesses}
    for program in programs:
        counts[f"the launches of {program.name}"] = program.launches
        counts |= {f"the executions of {i.id}": i.executions for i in program.instructions}
    require_sizes(prepared.kernel.name, prepared.domains.sizes, counts)
    return KernelAnalysis(
        kernel=prepared.kernel.name,
        is_estimate=", ".join(sorted(prepared.statistics.numbers)),
        sizes=prepared.sizes,
        programs=programs,
        accesses=accesses,
    )


# --- Cells of an array that a kernel accesses, each counted once


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint(ShortRepr):
    """The cells of an array that a kernel loads, or stores."""

    array: str
    direction: str
    element_bytes: int  # size of an element
    cells: Known  # distinct elements; of a local array those of one group's copy
    members: tuple[AccessAnalysis, ...] = field(repr=False, compare=False)

    def cells_at(self, parameters: Mapping[str, Any]) -> int:
        """Return the distinct elements at parameters; where no formula is known, by enumeration."""
        values = self.members[0].checked(parameters)
        if self.cells is not None:
            return int(self.cells.evaluate(values))
        touched = [
            touched_addresses(access.scope, _direct(access), values) for access in self.members
        ]
        return len(np.unique(np.concatenate(touched)))


def _direct(access: AccessAnalysis) -> QuasiPolynomial:
    if access.address is None or access.is_estimate:
        why = access.is_estimate or "data, from which its address is read,"
        raise CountingError(
            f"{access.label}: {why} decides what is accessed, so that no footprint is known"
        )
    return access.address


def footprints_of(
    accesses: Iterable[AccessAnalysis], address_space: str = "global"
) -> tuple[Footprint, ...]:
    """Find what is loaded of each array, and what is stored."""
    members: dict[tuple[str, str], list[AccessAnalysis]] = {}
    for access in accesses:
        if access.access.address_space == address_space:
            members.setdefault((access.access.array, access.access.direction), []).append(access)
    return tuple(
        Footprint(
            array=array,
            direction=direction,
            element_bytes=some[0].access.bits // 8,
            cells=_cells(some),
            members=tuple(some),
        )
        for (array, direction), some in members.items()
    )


def _cells(members: Sequence[AccessAnalysis]) -> Known:
    first = members[0]
    domains = first.scope.domains
    layout = domains.layout_of(first.access)
    what = f"kernel '{first.sizes.kernel}': the footprint of array '{first.access.array}'"
    is_mixed = any(access.access.component_of != first.access.component_of for access in members)
    if is_mixed or any(access.index is None or access.is_estimate for access in members):
        return None
    scopes = dict.fromkeys((a.index, a.scope.within, a.scope.cases) for a in members)
    with suppress(CountingError), isl_sets.limited_operations(FOOTPRINT_OPERATIONS, what):
        cells = accessed_cells(
            ((i, w, c) for i, w, c in scopes if i is not None),
            domains,
            _injective_index(layout, what),
        )
        return domains.counter.count(cells)
    return None


def _injective_index(layout: Layout, what: str) -> Callable[[Address], tuple[QuasiPolynomial, ...]]:
    """Return what tells the cells of an array apart: subscripts, or the offset itself."""

    def functions(address: Address) -> tuple[QuasiPolynomial, ...]:
        if layout.is_numeric and layout.compact_order() is None:
            return (address.flat,)
        if address.is_flattened:
            if len(layout.strides) > 1:
                raise CountingError(f"{what}: it has flattened and other subscripts")
            return address.index
        return tuple(
            part for part, stride in zip(address.index, layout.strides, strict=True) if stride
        )

    return functions


def distinct_bytes(
    footprints: Iterable[Footprint], parameters: Mapping[str, Any]
) -> dict[str, int]:
    """Return the distinct bytes that a kernel loads, and those that it stores."""
    sizes = {"load": 0, "store": 0}
    for footprint in footprints:
        sizes[footprint.direction] += footprint.cells_at(parameters) * footprint.element_bytes
    return sizes
