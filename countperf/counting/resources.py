"""Resources that a launch of a kernel needs: the shape of its work groups, local memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from loopy import AddressSpace

from countperf.counting.schedule import prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResources:
    """Resources of a launch."""

    # work items per group along the local axes; None along an axis where it depends on sizes
    group_shape: tuple[int | None, ...]
    local_memory_bytes: int | None  # of a group, as declared, byte; None if it depends on sizes

    @property
    def group_items(self) -> int | None:
        """Work items per group; None where a size decides."""
        items = 1
        for extent in self.group_shape:
            if extent is None:
                return None
            items *= extent
        return items


def scheduled(t_unit: Any) -> tuple[Any, LaunchResources]:
    """Preprocess and schedule a translation unit, once for counting and resources."""
    kernel, callables = prepared(t_unit)
    _, group = kernel.get_grid_size_upper_bounds_as_exprs(callables)
    resources = LaunchResources(
        group_shape=tuple(int(e) if isinstance(e, int) else None for e in group),
        local_memory_bytes=_local_memory(kernel),
    )
    return t_unit.copy(callables_table=callables).with_kernel(kernel), resources


def _local_memory(kernel: Any) -> int | None:
    """Return the bytes of local arrays that have memory of their own; None where sizes decide."""
    total = 0
    for variable in kernel.temporary_variables.values():
        if variable.address_space == AddressSpace.LOCAL and variable.base_storage is None:
            if not all(isinstance(extent, int) for extent in variable.shape):
                return None
            total += math.prod(variable.shape) * variable.dtype.itemsize
    return total
