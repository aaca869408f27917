"""Random kernels of the other families with other sizes: any sizes, and powers of two."""

from __future__ import annotations

from dataclasses import replace
from math import log2

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.programs import Program, Shape
from measurement_kernels.random_shapes.draws import Draw, DrawKernel
from measurement_kernels.random_shapes.loops import arithmetic, interaction, item_loop
from measurement_kernels.random_shapes.maps import elementwise, permutation
from measurement_kernels.random_shapes.products import matmul, small_operator
from measurement_kernels.random_shapes.windows import channel_filter, stencil

# --- kernels of any sizes, so that groups have guards

_GUARDED: tuple[DrawKernel, ...] = (
    arithmetic,
    channel_filter,
    elementwise,
    elementwise,
    interaction,
    item_loop,
    matmul,
    matmul,
    small_operator,
    stencil,
    stencil,
    permutation,
)


def guarded(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw a kernel of any sizes without fetches; None if the choices do not fit together."""
    found = draw.pick(_GUARDED)(draw)
    if found is None or found[1].fetches:
        return None
    program, shape = found
    if program.name == "permutation" and any(each.each > 1 for each in shape.divided):
        return None  # different rows of a block, with a guard each, are too many cases to count
    sizes = tuple(_any_size(draw, size) for size in program.sizes)
    return replace(program, sizes=sizes), shape


def _any_size(draw: Draw, size: SizeParameter) -> SizeParameter:
    if size.fixed is not None:
        return size
    missing = draw.integer(0, size.multiple - 1)
    return replace(size, multiple=1, base=max(size.base - missing, 1))


# --- kernels at sizes that are powers of two, as people choose them
#
# Rows and planes then have pitches that are powers of two, so that the accesses of a group share a
# few sets of each cache. Few kernels of the other families have such sizes.

_EVEN: tuple[DrawKernel, ...] = (
    channel_filter,
    elementwise,
    item_loop,
    item_loop,
    *(matmul,) * 3,
    *(stencil,) * 4,
    permutation,
    permutation,
)
_BLOCKED_EVEN = (channel_filter, matmul, stencil, stencil, permutation)


def even_sizes(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a kernel at powers of two; None if the choices do not fit together.

    With `blocked`, each item has 4 to 32 results.
    """
    draw.regular = True
    found = draw.pick(_BLOCKED_EVEN)(draw, blocked=True) if blocked else draw.pick(_EVEN)(draw)
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
        sizes[name] = SizeParameter(name, fixed=max(4 * halo, sizes[name].base) - halo)
    return replace(program, sizes=tuple(sizes.values())), shape


def _even(size: SizeParameter) -> SizeParameter:
    if size.fixed is not None:
        return replace(size, fixed=_nearest(size.fixed))
    return replace(size, base=max(size.multiple, _nearest(size.base)))


def _nearest(number: int) -> int:
    return 1 << max(0, round(log2(number)))
