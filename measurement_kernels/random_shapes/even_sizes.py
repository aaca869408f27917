"""Random kernels of the other families at sizes that are powers of two, as people choose them.

Rows and planes then lie apart by powers of two, so that what a group goes through shares a few sets
of each cache, and the same places of pages. Of the other families hardly a kernel has such sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import log2

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Program, Shape
from measurement_kernels.random_shapes import (
    channel_filter,
    elementwise,
    item_loop,
    matmul,
    stencil,
    transpose,
)
from measurement_kernels.random_shapes.draws import Draw, blocked_entries, random_entries

_REGULAR = 64
_DOUBLE = 24
_BLOCKED = 44
_FAMILIES: tuple[Callable[[Draw], tuple[Program, Shape] | None], ...] = (
    channel_filter.drawn,
    elementwise.drawn,
    item_loop.drawn,
    item_loop.drawn,
    matmul.drawn,
    matmul.drawn,
    matmul.drawn,
    stencil.drawn,
    stencil.drawn,
    stencil.drawn,
    stencil.drawn,
    transpose.drawn,
    transpose.drawn,
)
_BLOCKED_FAMILIES = (
    channel_filter.drawn,
    matmul.drawn,
    stencil.drawn,
    stencil.drawn,
    transpose.drawn,
)


def entries() -> Iterator[CatalogEntry]:
    """List the families."""
    description = "kernel of another random family, at sizes that are powers of two"
    yield from random_entries("random-even-sizes", description, 0, _REGULAR, drawn, double=_DOUBLE)
    yield from blocked_entries("even-sizes", description, 0, _BLOCKED, drawn)


def drawn(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together.

    With `blocked`, each item has 4 to 32 results.
    """
    draw.regular = True
    found = (
        draw.pick(_BLOCKED_FAMILIES)(draw, blocked=True) if blocked else draw.pick(_FAMILIES)(draw)
    )
    if found is None or len(found[0].sizes) == 1:
        return None
    program, shape = found
    sizes = {size.name: _even(size) for size in program.sizes}
    layers = next((size for size in sizes.values() if size.fixed is not None), None)
    if layers is not None and draw.chance(0.5):  # deeper, and less wide
        sizes[layers.name] = replace(layers, fixed=4 * (layers.fixed or 1))
        for name in ("n", "m"):
            least = sizes[name].multiple
            sizes[name] = replace(sizes[name], base=max(least, sizes[name].base // 2))
    rows = (each.shape[-1] for each in program.arguments if isinstance(each, ArrayArgument))
    wider = next((row for row in rows if isinstance(row, Extent) and row.offset), None)
    if wider and not shape.fetches and draw.chance(0.7):  # rows with their halo, not without
        name, halo = wider.parameter, wider.offset
        sizes[name] = SizeParameter(name=name, fixed=max(4 * halo, sizes[name].base) - halo)
    return replace(program, sizes=tuple(sizes.values())), shape


def _even(size: SizeParameter) -> SizeParameter:
    if size.fixed is not None:
        return replace(size, fixed=_nearest(size.fixed))
    return replace(size, base=max(size.multiple, _nearest(size.base)))


def _nearest(number: int) -> int:
    return 1 << max(0, round(log2(number)))
