"""The structure of a kernel that decides how a device runs it, and counts that follow at sizes.

These have no formula: ``transactions.32x128.load`` are the lines of 128 bytes that sub-groups of 32
work items touch in all loads from global memory; ``subgroups.32.launched`` and the like what these
execute; ``distinct.load`` the distinct bytes of global memory that are accessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.counting.access_analysis import (
    AccessAnalysis,
    analyze_accesses,
    bank_conflicts,
    count_lines,
    list_touched_addresses,
    transactions,
)
from countperf.counting.access_classes import unite_accessed_cells
from countperf.counting.accesses import Address
from countperf.counting.preparation import PreparedKernel
from countperf.counting.program_analysis import ProgramAnalysis, analyze_program
from countperf.counting.programs import KernelProgram, kernel_programs, sub_group_work
from countperf.counting.scopes import Known
from countperf.counting.size_parameters import SizeParameters, require_sizes
from countperf.counting.vector import DISTINCT, SUB_GROUPS, PropertyVector
from countperf.errors import CountingError
from countperf.sizes import checks_keywords
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.text import Column, FieldsAlone, Printed, Result, ShortRepr, plain


@dataclass(frozen=True, slots=True)
class KernelAnalysis(ShortRepr, Result):
    """Structure of a kernel, as `analyze_kernel` returns it."""

    kernel: str  # name of the kernel
    is_estimate: str  # names for which the caller gave statistics; empty if everything is exact
    sizes: SizeParameters  # size parameters and what the kernel assumes of them
    programs: tuple[ProgramAnalysis, ...]  # device programs in order of launch
    # all accesses to global and local memory, in order of the schedule
    accesses: tuple[AccessAnalysis, ...]

    def __str__(self) -> str:
        return (
            f"structure of {self.kernel}: {len(self.programs)} device programs, "
            f"{len(self.accesses)} accesses"
        )

    def lay_out(self, parameters: Mapping[str, Any] | None = None) -> Printed:
        """Give the structure of a kernel, with values where parameters are given."""
        values = None if parameters is None else self.sizes.check_values(parameters)
        facts = {"kernel": self.kernel, "assumptions": self.sizes.assumptions}
        facts |= {"parameters": values, "is_estimate": self.is_estimate}
        head = [f"kernel {self.kernel}, assumes {self.sizes.assumptions}"]
        head += [f"estimate: statistics of {self.is_estimate} enter"] if self.is_estimate else []
        number = "count" if values is None else "value"
        columns = {"kind": Column(), "name": Column(), number: Column("times", right=True)}
        columns |= {"detail": Column()}
        rows = [
            {"kind": kind, "name": name, **_count(count, values), "detail": detail}
            for kind, name, count, detail in _parts(self, values)
        ]
        return Printed(head=head, rows=rows, columns=columns, facts=facts, name="rows")


@checks_keywords
def analyze_kernel(t_unit: Any, *, statistics: Mapping[str, Any] | None = None) -> KernelAnalysis:
    """Analyze the structure of a Loopy kernel.

    Statistics say what data decides, as for `countperf.count_kernel`; what cannot be counted raises
    `CountingError`.
    """
    prepared = PreparedKernel(t_unit, statistics=statistics)
    with prepared.count_with_advice():
        tally = prepared.tally("source")
        accesses = analyze_accesses(prepared)
        programs = tuple(analyze_program(prepared, tally, one) for one in prepared.launches())
    counts = {access.label: access.executions for access in accesses}
    for program in programs:
        counts[f"the launches of {program.name}"] = program.launches
        counts |= {f"the executions of {i.id}": i.executions for i in program.instructions}
    require_sizes(prepared.kernel.name, prepared.domains.sizes, counts)
    is_estimate = ", ".join(sorted(prepared.statistics.numbers))
    return KernelAnalysis(prepared.kernel.name, is_estimate, prepared.sizes, programs, accesses)


@dataclass(frozen=True, slots=True)
class Footprint(ShortRepr):
    """The cells of an array that a kernel loads, or stores."""

    array: str
    direction: str
    cells: Known  # distinct elements
    members: tuple[AccessAnalysis, ...] = field(repr=False, compare=False)

    def cells_at(self, parameters: Mapping[str, Any]) -> int:
        """Return the distinct elements at parameters; where no formula is known, by enumeration."""
        values = self.members[0].sizes.check_values(parameters)
        if self.cells is not None:
            return int(self.cells.evaluate(values))
        touched: list[NDArray[np.int64]] = []
        for access in self.members:
            if access.address is None or access.is_estimate:
                why = access.is_estimate or "data, from which its address is read,"
                said = f"{why} decides what is accessed, so that no footprint is known"
                raise CountingError(f"{access.label}: {said}")
            touched.append(list_touched_addresses(access.scope, access.address, values))
        return len(np.unique(np.concatenate(touched)))


def footprints_of(accesses: Iterable[AccessAnalysis]) -> tuple[Footprint, ...]:
    """Find what is loaded of each array in global memory, and what is stored."""
    members: defaultdict[tuple[str, str], list[AccessAnalysis]] = defaultdict(list)
    for access in accesses:
        if access.access.address_space == "global":
            members[access.access.array, access.access.direction].append(access)
    return tuple(Footprint(*key, _count_cells(some), tuple(some)) for key, some in members.items())


def _count_cells(members: Sequence[AccessAnalysis]) -> Known:
    first, domains = members[0], members[0].scope.domains
    layout = domains.layout_of(first.access)
    what = f"the footprint of array '{first.access.array}'"
    is_mixed = any(access.access.component_of != first.access.component_of for access in members)
    if is_mixed or any(access.index is None or access.is_estimate for access in members):
        return None
    scopes = dict.fromkeys((a.index, a.scope.within, a.scope.cases) for a in members)

    def tell_apart(address: Address) -> tuple[QuasiPolynomial, ...]:
        """Return what tells the cells of an array apart: subscripts, or the offset itself."""
        if layout.is_numeric and layout.compact_order() is None:
            return (address.flat,)
        if address.is_flattened:
            if len(layout.strides) > 1:
                raise CountingError(f"{what}: it has flattened and other subscripts")
            return address.index
        subscripts = zip(address.index, layout.strides, strict=True)
        return tuple(part for part, stride in subscripts if stride)

    with suppress(CountingError), domains.limit(what):
        accessed = ((tell_apart(i), w, c) for i, w, c in scopes if i is not None)
        return domains.counter.count(unite_accessed_cells(accessed, domains))
    return None


def distinct_bytes(
    footprints: Iterable[Footprint], parameters: Mapping[str, Any]
) -> dict[str, int]:
    """Return the distinct bytes that a kernel loads, and those that it stores."""
    sizes = {"load": 0, "store": 0}
    for footprint in footprints:
        element_bytes = footprint.members[0].access.bits // 8
        sizes[footprint.direction] += footprint.cells_at(parameters) * element_bytes
    return sizes


def _count(count: Known, values: Mapping[str, int] | None) -> dict[str, Any]:
    if values is None or count is None or not count.names() <= values.keys():
        return {"count": _text(count)}
    return {"count": str(count), "value": plain(count.evaluate(values))}


def _text(count: Known) -> str:
    return "unknown" if count is None else str(count)


def _parts(
    of: KernelAnalysis, values: Mapping[str, int] | None
) -> Iterator[tuple[str, str, Known, str]]:
    for program in of.programs:
        groups = ", ".join(map(str, program.groups))
        shape = "x".join(map(str, program.shape)) or "1"
        yield "program", program.name, program.launches, f"groups {groups}; work items {shape}"
        for region in program.regions:
            around = ", ".join(region.barrier_loops)
            yield "region", str(region.index), region.passes, f"in {around}" if around else ""
            for loop in region.loops:
                yield "loop", loop.iname, loop.iterations, f"entered {_text(loop.entries)}"
            for instruction in region.instructions:
                yield "instruction", instruction.id, instruction.executions, ""
            for taken in region.chains:
                steps = ", ".join(f"{times} {kind}" for kind, times in taken.operations)
                detail = f"{steps or 'no operation'} in {', '.join(taken.loops)}"
                detail += f"; {taken.side_by_side} side by side"
                yield "chain", ", ".join(taken.variables), taken.steps, detail
    for access in of.accesses:
        strides = "; ".join(map(str, access.strides))
        moved = "" if values is None else f"; {_describe_traffic(access, values)}"
        yield "access", access.text, access.executions, strides + moved


def _describe_traffic(access: AccessAnalysis, values: Mapping[str, int]) -> str:
    """Say what sub-groups of 32 move of memory, or their passes over banks of local memory."""
    try:
        if access.access.address_space == "local":
            conflicts = bank_conflicts(access, values, sub_group_size=32)
            return f"{conflicts.total} passes of {conflicts.instructions} over 32 banks"
        moved = transactions(access, values, line_bytes=32, sub_group_size=32)
    except CountingError as error:
        return f"transactions unknown ({error})"
    return f"{moved.total} transactions of 32 bytes"


@dataclass(frozen=True, kw_only=True, eq=False)
class TransactionCounts(FieldsAlone):
    """A function from sizes to the transactions of a kernel; picklable."""

    kernel: Any
    # which are counted: ``transactions.<work items of a sub-group>x<bytes of a line>``,
    # ``subgroups.<work items of a sub-group>``, ``distinct``
    roots: tuple[str, ...]
    statistics: Mapping[str, Any]  # what data decides, as for `countperf.count_kernel`

    @cached_property
    def _prepared(self) -> PreparedKernel:
        return PreparedKernel(self.kernel, statistics=self.statistics)

    @cached_property
    def _programs(self) -> tuple[KernelProgram, ...]:
        return kernel_programs(self._prepared)

    @cached_property
    def _accesses(self) -> tuple[AccessAnalysis, ...]:
        with self._prepared.count_with_advice():
            return analyze_accesses(self._prepared)

    @cached_property
    def _footprints(self) -> tuple[Footprint, ...]:
        return footprints_of(self._accesses)

    def __call__(self, parameters: Mapping[str, int]) -> dict[str, int]:
        """Count the transactions at sizes."""
        counts: dict[str, int] = {}
        for root in self.roots:
            kind, _, numbers = root.partition(".")
            if kind == DISTINCT:
                found = distinct_bytes(self._footprints, parameters)
            elif kind == SUB_GROUPS:
                found = sub_group_work(self._programs, parameters, sub_group_size=int(numbers))
            else:
                items, line = map(int, numbers.split("x"))
                sizes = {"line_bytes": line, "sub_group_size": items}
                found = count_lines(self._accesses, parameters, **sizes)
            counts |= {f"{root}.{name}": number for name, number in found.items()}
        return counts


def with_transactions(
    vector: PropertyVector,
    kernel: Any,
    roots: Iterable[str],
    statistics: Mapping[str, Any] | None = None,
) -> PropertyVector:
    """Return the vector of a kernel with its transactions, as far as it has none."""
    wanted = tuple(root for root in roots if not vector.knows(root))
    if not wanted:
        return vector
    counts = TransactionCounts(kernel=kernel, roots=wanted, statistics=dict(statistics or {}))
    return vector.with_counts_at(counts, *wanted)
