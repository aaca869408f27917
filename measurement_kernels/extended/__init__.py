"""Classes beyond the paper's nine, which separate effects that the paper's kernels combine."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended import (
    arithmetic,
    groups,
    memory,
    of_others,
    results,
    through_data,
)

_FAMILIES = (
    arithmetic.chains,
    results.several_results,
    groups.short_launches,
    memory.halo_tiles,
    groups.group_shapes,
    memory.item_loops,
    memory.working_sets,
    memory.shared_lines,
    memory.strided_access,
    memory.local_access,
    memory.mixed,
    memory.rows,
    through_data.entries,
    arithmetic.precision,
    arithmetic.integers,
    results.group_reductions,
    arithmetic.function_maps,
    groups.guards,
    of_others.entries,
)


def entries() -> Iterator[CatalogEntry]:
    """List the kernels."""
    for family in _FAMILIES:
        yield from family()
