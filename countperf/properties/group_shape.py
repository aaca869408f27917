"""The shape of work groups as counts: work items, and rows of them, of all groups of a kernel.

Names of properties of the structure view carry it (``site.free.flat.16x4...``: rows of 16 items
along local axis 0, four of them), so that stored counts say it, too. ``items`` are the work items
of all groups, and ``rows`` their rows: ``items/groups`` are the items of a group, ``items/rows``
the length of a row, ``rows/groups`` the rows of a group. They are no work of their own: only models
that name them see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from countperf.errors import CountingError
from countperf.execution.keys import GroupBytesKey, GroupSegmentsKey, KernelBytesKey
from countperf.properties.site_names import SITE_ROOT, parse_execution

GROUP_SHAPE = ("items", "rows")
"""Names of properties that say how large work groups are."""


def says_group_shape(names: Iterable[str]) -> bool:
    """Return whether counts of these names say how large the work groups are, all alike."""
    known = set(names)
    return "groups" not in known or known.issuperset(GROUP_SHAPE) or len(_shapes_of(known)) == 1


def group_shape(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return work items and rows of all groups; nothing where no group is launched."""
    if "groups" not in counts:
        return {}
    shapes = _shapes_of(counts)
    if not shapes:
        raise CountingError(
            "these counts do not say how many items work groups have: count the kernel in the"
            " structure view, or give items and rows themselves"
        )
    if len(shapes) > 1:
        listed = ", ".join(f"{row}x{rows}" for row, rows in sorted(shapes))
        raise CountingError(
            f"work groups of several shapes are launched ({listed}), and the counts do not say how"
            " many of each: the kernel has no items and rows for a model"
        )
    ((row, rows),) = shapes
    return {"items": counts["groups"] * (row * rows), "rows": counts["groups"] * rows}


def _shapes_of(names: Iterable[str]) -> set[tuple[int, int]]:
    """Return row length and number of rows of the groups."""
    keys = (parse_execution(name) for name in names if name.startswith(f"{SITE_ROOT}."))
    return {
        key.site.shape
        for key in keys
        if key is not None
        and not isinstance(key, GroupBytesKey | GroupSegmentsKey | KernelBytesKey)
    }
