"""Instructions of a kernel's sub-groups at given sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from countperf.counting.analysis import KernelAnalysis
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.programs import KernelProgram
from countperf.counting.transactions import bank_conflicts

BANKS = 32
BANK_WIDTH_BYTES = 4
"""Of local memory, as passes are counted: those of every NVIDIA GPU since Fermi but Kepler's."""

_NAMES = ("launched", "arithmetic", "load", "store", "local", "passes", "barrier")


def sub_group_work(
    programs: tuple[KernelProgram, ...],
    analysis: KernelAnalysis,
    parameters: Mapping[str, Any],
    *,
    sub_group_size: int,
) -> dict[str, int]:
    """Count what all sub-groups of a kernel execute."""
    values = analysis.sizes.checked(parameters)
    found: dict[str, int] = dict.fromkeys(_NAMES, 0)
    for program in programs:
        groups = int(program.launches.evaluate(values))
        for extent in program.grid.groups.values():
            groups *= int(extent.evaluate(values))
        per_group = program.sub_groups_per_group(sub_group_size)
        found["launched"] += groups * per_group
        waits = int(program.barriers.evaluate(values))
        found["barrier"] += waits // program.grid.group_size * per_group
        for key, number in program.instruction_totals(sub_group_size).items():
            match key:
                case Operation(type_name=type_name) if type_name.startswith("f"):
                    name = "arithmetic"
                case MemoryAccess(address_space="global", direction=direction):
                    name = direction
                case MemoryAccess(address_space="local"):
                    name = "local"
                case _:
                    continue
            found[name] += round(number.evaluate(values))
    for access in analysis.accesses:
        if access.access.address_space == "local":
            conflicts = bank_conflicts(
                access,
                values,
                banks=BANKS,
                bank_width_bytes=BANK_WIDTH_BYTES,
                sub_group_size=sub_group_size,
            )
            found["passes"] += sum(degree * number for degree, number in conflicts.distribution)
    return found


def distinct_bytes(analysis: KernelAnalysis, parameters: Mapping[str, Any]) -> dict[str, int]:
    """Return the distinct bytes of global memory that a kernel loads, and those that it stores."""
    found = {"load": 0, "store": 0}
    for footprint in analysis.footprints:
        if footprint.address_space == "global" and footprint.direction in found:
            cells = footprint.cells_at(parameters)
            found[footprint.direction] += cells * footprint.element_bytes
    return found
