"""Loopy kernels of a few lines."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np

LINE = "{ [i]: 0 <= i < n }"


def declared(text: str) -> list[Any]:
    """Declare arrays and scalars that are written as ``x,z:f4[n] at:i4[n+1] n:i4``."""
    arguments: list[Any] = []
    for part in text.split():
        names, _, rest = part.partition(":")
        kind, bracket, shape = rest.rstrip("]").partition("[")
        dtype = np.dtype(kind).type
        is_array = bool(bracket)
        arguments.append(
            lp.GlobalArg(names, dtype, shape=shape or ()) if is_array else lp.ValueArg(names, dtype)
        )
    return arguments


def make(domain: Any, body: Any, arguments: str, *more: Any, group: int = 0, **options: Any) -> Any:
    """Make a kernel; with a ``group``, loop ``i`` is split into groups of so many work items."""
    defaults: dict[str, Any] = {
        "assumptions": "n >= 1",
        "lang_version": (2018, 2),
        "silenced_warnings": ["v1_scheduler_fallback"],
    }
    unit = lp.make_kernel(domain, body, [*declared(arguments), *more], **{**defaults, **options})
    return split(unit, group) if group else unit


def split(unit: Any, group: int, loop: str = "i") -> Any:
    """Split a loop into groups of work items along axis 0."""
    return lp.split_iname(unit, loop, group, outer_tag="g.0", inner_tag="l.0")
