"""Loopy kernels in few words: loops and arguments as text, loops split and tagged by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import loopy as lp
import numpy as np
from pyopencl import cltypes

_SPACES = {
    "local": lp.AddressSpace.LOCAL,
    "private": lp.AddressSpace.PRIVATE,
    "global": lp.AddressSpace.GLOBAL,
    "-": lp.auto,
}
_SILENCED = ["v1_scheduler_fallback", "vectorize_failed", "read_no_write*", "write_race*"]


def domain_of(loops: str) -> str:
    """Return the domain of loops such as ``i<n, first<=j<last``; one in isl's notation as it is."""
    if "{" in loops:
        return loops
    parts = [part if "<=" in part else f"0<={part}" for part in loops.replace(" ", "").split(",")]
    names = [part.split("<=")[1].split("<")[0] for part in parts]
    return f"{{ [{', '.join(names)}] : {' and '.join(parts)} }}"


def arguments_of(text: str, **options: Any) -> list[Any]:
    """Read arguments such as ``a,b f32 n,m; v float4 n; t f32 16 local; n i32``.

    Those with a shape are arrays. Behind a shape, ``-`` if it is unknown, stand an address space or
    ``-`` for any, which makes a temporary, tags of the axes such as ``sep,C``, or ``auto`` for an
    automatic offset.
    """
    arguments: list[Any] = []
    for part in filter(None, map(str.strip, text.split(";"))):
        names, kind, shape, more = (*part.split(), "", "")[:4]
        vector = getattr(cltypes, kind, None)
        dtype = vector or np.dtype(f"{kind[0]}{int(kind[1:]) // 8}")
        axes: Any = None if shape == "-" else shape.strip("()") or ()
        if not shape:
            arguments.append(lp.ValueArg(names, dtype))
        elif more in _SPACES:
            arguments += [
                lp.TemporaryVariable(name, dtype, shape=axes, address_space=_SPACES[more])
                for name in names.split(",")
            ]
        else:
            own: dict[str, Any] = (
                {"offset": lp.auto} if more == "auto" else {"dim_tags": more} if more else {}
            )
            arguments.append(lp.GlobalArg(names, dtype, shape=axes, **options, **own))
    return arguments


def made(
    loops: str | Sequence[str],
    body: Any,
    arguments: str,
    *more: Any,
    split: str = "",
    tags: Any = None,
    assumptions: str | None = None,
    arrays: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Make a kernel whose bounds of loops are at least 1, if nothing else is assumed.

    Loops of `split` are split as by `in_groups`; `more` are further arguments, `arrays` options of
    arrays.
    """
    read = arguments_of(arguments, **(arrays or {}))
    domains = [domain_of(part) for part in ([loops] if isinstance(loops, str) else loops)]
    if assumptions is None:
        values: list[Any] = [argument for argument in read if isinstance(argument, lp.ValueArg)]
        sizes = [value for value in values if value.dtype.numpy_dtype.kind == "i"]
        bounds = set(re.findall(r"\w+", " ".join(domains)))
        names = [name for size in sizes for name in size.name.split(",") if name in bounds]
        assumptions = " and ".join(f"{name} >= 1" for name in names)
    options.setdefault("silenced_warnings", _SILENCED)
    unit: Any = lp.make_kernel(
        domains, body, [*read, *more], assumptions=assumptions, lang_version=(2018, 2), **options
    )
    unit = in_groups(unit, split)
    return lp.tag_inames(unit, tags) if tags else unit


def in_groups(unit: Any, split: str) -> Any:
    """Split loops, such as ``i:16 j:8:1 k:4:,unr``, over groups and items of an axis.

    The axis is 0 if none is given; two tags take its place.
    """
    for part in split.split():
        name, width, to = (*part.split(":"), "0")[:3]
        outer, inner = to.split(",") if "," in to else (f"g.{to}", f"l.{to}")
        unit = lp.split_iname(
            unit, name, int(width), outer_tag=outer or None, inner_tag=inner or None
        )
    return unit
