"""Random kernels of the other families, of any sizes: their work groups end in guards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from measurement_kernels.arguments import SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Program, Shape
from measurement_kernels.random_shapes import (
    arithmetic,
    channel_filter,
    elementwise,
    interaction,
    item_loop,
    matmul,
    small_operator,
    stencil,
    transpose,
)
from measurement_kernels.random_shapes.draws import Draw, random_entries

_NUMBER = 50
_REGULAR = 30
_DOUBLE = 12
_FAMILIES: tuple[Callable[[Draw], tuple[Program, Shape] | None], ...] = (
    arithmetic.drawn,
    channel_filter.drawn,
    elementwise.drawn,
    elementwise.drawn,
    interaction.drawn,
    item_loop.drawn,
    matmul.drawn,
    matmul.drawn,
    small_operator.drawn,
    stencil.drawn,
    stencil.drawn,
    transpose.drawn,
)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-guarded",
        "kernel of another random family, in groups that need not divide its sizes",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )


def drawn(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw a kernel without fetches; None where the choices do not fit together."""
    found = draw.pick(_FAMILIES)(draw)
    if found is None or found[1].fetches:
        return None
    program, shape = found
    if program.name == "permutation" and any(each.each > 1 for each in shape.divided):
        return None  # distinct rows of blocks, cut off anywhere, are too many cases to count
    sizes = tuple(_any_size(draw, size) for size in program.sizes)
    return replace(program, sizes=sizes), shape


def _any_size(draw: Draw, size: SizeParameter) -> SizeParameter:
    if size.fixed is not None:
        return size
    missing = draw.integer(0, size.multiple - 1)
    return replace(size, multiple=1, base=max(size.base - missing, 1))
