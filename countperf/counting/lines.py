"""Lines of memory that a sub-group touches in an access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from countperf.counting.expansion import SubGroup
from countperf.counting.keys import MemoryAccess
from countperf.counting.programs import KernelProgram
from countperf.counting.statements import Node, Statement
from countperf.errors import DataDependentControlFlowError
from countperf.symbolic.sub_groups import Membership, at_values


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCount:
    """What one sub-group instruction moves, a mean.

    Attributes
    ----------
    lines : Fraction
        Lines touched.
    bytes_moved : Fraction
        Bytes of the sectors touched.
    waste : Fraction
        Bytes moved over bytes that a full sub-group asks for.
    """

    lines: Fraction
    bytes_moved: Fraction
    waste: Fraction


def lines_of(
    program: KernelProgram,
    statement: Statement,
    node: Node,
    parameters: Mapping[str, int],
    *,
    sub_group_size: int,
    line_bytes: int,
    sector_bytes: int,
    declared: float | None,
) -> LineCount:
    """Count the lines that the sub-groups of the middle work group touch in an access."""
    access = node.key
    assert isinstance(access, MemoryAccess)
    size = access.bits // 8
    asked = sub_group_size * size
    address = program.address(access)
    if address is None:
        if declared is None:
            raise DataDependentControlFlowError(
                f"kernel '{program.kernel.name}', instruction '{statement.name}': the address of "
                f"'{access.array}' is read from data; pass the lines of {line_bytes} bytes that a "
                f"sub-group touches, lines={{{access.array!r}: {sub_group_size}}}",
                kernel=program.kernel.name,
                where=access.array,
            )
        lines = Fraction(declared).limit_denominator(10**6)
        moved = lines * sector_bytes
        return LineCount(lines=lines, bytes_moved=moved, waste=moved / asked)
    place = (statement.within, node.cases)
    is_partial = program.depends_on_lane(place)
    counts: list[tuple[int, int]] = []
    for number in range(program.sub_groups_per_group(sub_group_size)):
        sub_group = SubGroup(program, parameters, sub_group_size=sub_group_size, number=number)
        members = sub_group.members(place)
        if members.is_empty:
            continue
        loops = dict(zip(members.names, (low for low, _ in members.bounds), strict=True))
        first = number * sub_group_size
        items = range(first, min(first + sub_group_size, program.grid.group_size))
        lanes = [{**sub_group.values_of(statement, item), **loops} for item in items]
        if is_partial:
            counted, _ = program.domains.trip_statistics(statement.within)
            executed = program.domains.executed_set(counted, node.cases)
            fixed = {**sub_group.fixed, **loops}
            inside = Membership(at_values(executed, fixed))
            active = [
                lane for lane in lanes if inside.contains([lane[name] for name in inside.names])
            ]
            lanes = active or lanes
        places = [int(address.evaluate(lane)) * size for lane in lanes]
        counts.append((_touched(places, size, line_bytes), _touched(places, size, sector_bytes)))
    number = max(1, len(counts))
    lines = Fraction(sum(lines for lines, _ in counts), number)
    moved = Fraction(sum(sectors for _, sectors in counts) * sector_bytes, number)
    return LineCount(lines=lines, bytes_moved=moved, waste=moved / asked)


def _touched(places: list[int], size: int, unit: int) -> int:
    touched = {k for place in places for k in range(place // unit, (place + size - 1) // unit + 1)}
    return len(touched)
