"""Memory traffic of sub-groups: lines, sectors, passes over the banks of local memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from countperf.counting.access_analysis import PROBABILITY, AccessAnalysis
from countperf.counting.keys import MemoryAccess
from countperf.counting.programs import KernelProgram
from countperf.counting.statements import Node, Statement
from countperf.counting.transactions import bank_conflicts, transactions
from countperf.errors import CountingError, DataDependentControlFlowError


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShape:
    """Lines, sectors and banks of a device's memory."""

    # a line of global memory, and what of it moves together
    line_bytes: int
    sector_bytes: int
    # banks of local memory and the width of one; 0 banks: none
    banks: int = 0
    bank_bytes: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCost:
    """Mean cost of one memory instruction of a sub-group over all its executions."""

    lines: Fraction  # lines of global memory that it touches; 0 for local memory
    bytes_moved: Fraction  # bytes of the sectors that it touches; 0 for local memory
    # bytes moved over those that a full sub-group asks for, or the passes over the banks
    excess: Fraction


def access_cost(
    program: KernelProgram,
    statement: Statement,
    node: Node,
    parameters: Mapping[str, int],
    *,
    sub_group_size: int,
    shape: MemoryShape,
    declared: float | None = None,
) -> AccessCost:
    """Find what one access of a statement costs."""
    key = node.key
    assert isinstance(key, MemoryAccess)
    asked = sub_group_size * key.bits // 8
    access = _analysis(program, statement, node)
    if access.is_estimate == PROBABILITY:  # those sub-groups that execute it do with all items
        access = replace(access, is_estimate="")
    if key.address_space == "local":
        passes = Fraction(1)
        if shape.banks and access.address is not None and not access.is_estimate:
            conflicts = bank_conflicts(
                access,
                parameters,
                banks=shape.banks,
                bank_width_bytes=shape.bank_bytes,
                sub_group_size=sub_group_size,
            )
            fewest = -(-key.bits // (8 * shape.bank_bytes))  # wide elements take several words
            passes = max(passes, conflicts.mean / fewest)
        return AccessCost(lines=Fraction(0), bytes_moved=Fraction(0), excess=passes)
    if access.address is None or access.is_estimate:
        subscript = access.text.removeprefix(f"{access.access.direction} ")
        stated = program.domains.statistics.pattern_of(key.array, subscript)
        if declared is None and stated is not None:
            return _stated_cost(stated[0], asked, sub_group_size, shape)
        if declared is not None:
            lines = Fraction(declared).limit_denominator(10**6)
            moved = lines * shape.sector_bytes
            return AccessCost(lines=lines, bytes_moved=moved, excess=moved / asked)
        why = access.is_estimate or "its address"
        raise DataDependentControlFlowError(
            f"{access.label}: {why} is data, so that the lines of {shape.line_bytes} bytes that a "
            f"sub-group touches are not known; pass its class, "
            f"statistics={{{key.array!r}: 'indirect'}} if each work item touches a line of its own",
            kernel=program.kernel.name,
            where=key.array,
            statistics={key.array: "indirect"},
        )
    lines, sectors = (
        transactions(access, parameters, line_bytes=size, sub_group_size=sub_group_size)
        for size in (shape.line_bytes, shape.sector_bytes)
    )
    moved = sectors.bytes_per_instruction
    return AccessCost(
        lines=lines.lines_per_instruction, bytes_moved=moved, excess=Fraction(moved, asked)
    )


def _stated_cost(name: str, asked: int, sub_group_size: int, shape: MemoryShape) -> AccessCost:
    """Return what an access of a stated class costs; ``2of4`` uses half of what it touches."""
    if name == "uniform":
        lines, moved = Fraction(1), Fraction(shape.sector_bytes)
    elif name == "indirect" or name.endswith("ofn"):
        sharing = 1 if name == "indirect" else int(name[0])  # accesses that use a line of an item
        lines = Fraction(sub_group_size, sharing)
        moved = lines * shape.sector_bytes
    else:
        used, parts = (1, 1) if name == "stride1" else map(int, name.split("of"))
        moved = Fraction(asked * parts, used)
        lines = Fraction(-(-moved // shape.line_bytes))
    return AccessCost(lines=lines, bytes_moved=moved, excess=moved / asked)


def _analysis(program: KernelProgram, statement: Statement, node: Node) -> AccessAnalysis:
    """Return the analysis of an access, of several equal ones that of the same conditions."""
    analyses = [
        access
        for access in program.accesses
        if access.instruction == statement.name and access.access == node.key
    ]
    same = [access for access in analyses if access.place.cases == node.cases]
    if not analyses:
        raise CountingError(
            f"kernel '{program.kernel.name}', instruction '{statement.name}': accesses in vectors"
            " have no lines; leave the tag 'vec' out of the kernel's axes and arrays",
            kernel=program.kernel.name,
            where=statement.name,
        )
    return (same or analyses)[0]
