"""Random permutations: transposes, reversals, axes moved, arrays interleaved."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape
from measurement_kernels.random_shapes.draws import (
    LOCAL_BYTES,
    Draw,
    blocked_entries,
    random_entries,
)

_NUMBER = 30
_REGULAR = 40
_DOUBLE = 8
_BLOCKED = (10, 30)
"""Irregular and regular ones."""
_ELEMENT_S = 1.5e-9
_LAYERS = 5

_VALUES = ("{a}", "{a}", "{a}", "{c} * {a}", "{a} + b[{here}]", "{a} - {c} * b[{here}]")
_READS = {2: ("j, i", "j, i", "j, n - 1 - i", "m - 1 - j, i"), 3: ("j, q, i", "q, j, i", "j, i, q")}
_WRITES = {2: ("i, j",), 3: ("q, i, j", "i, q, j", "i, j, q")}


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-transpose",
        "random permutation of axes, of random shape",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )
    yield from blocked_entries("transpose", "random permutation of axes", *_BLOCKED, drawn)


def drawn(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together.

    With `blocked`, each item has 4 to 32 results.
    """
    dimensions = draw.pick((2, 2, 3))
    items = draw.planar_group()
    each = draw.block() if blocked else (draw.length((1, 1, 2, 4)), draw.length((1, 1, 2, 3)))
    tiled = draw.chance(0.5)
    read, write = draw.pick(_READS[dimensions]), draw.pick(_WRITES[dimensions])
    tile = items[0] * each[0], items[1] * each[1]
    if tiled and (4 * tile[0] * tile[1] > LOCAL_BYTES or min(tile) == 1 or "-" in read):
        return None
    layers = _LAYERS if dimensions == 3 else 1
    sizes = draw.sizes(
        {"n": tile[0], "m": tile[1]},
        lambda s: s["n"] * s["m"] * layers * _ELEMENT_S,
        skew=1.5,
    )
    if dimensions == 3:
        sizes = (*sizes, SizeParameter(name="p", fixed=_LAYERS))
    value = draw.pick(_VALUES).format(a=f"a[{read}]", c=draw.coefficient(), here=write)
    written = _shape(write)
    program = Program(
        name="permutation",
        loops=(("i", "n"), ("j", "m"), *((("q", "p"),) if dimensions == 3 else ())),
        formulas=(Formula(target=f"r[{write}]", terms=(value,)),),
        sizes=sizes,
        arguments=(
            ArrayArgument(name="a", shape=_shape(read)),
            *((ArrayArgument(name="b", shape=written),) if "b[" in value else ()),
            ArrayArgument(name="r", shape=written, role="output"),
        ),
    )
    first_axis = draw.integer(0, 1)
    groups = ("q",) if dimensions == 3 else ()
    axes = {"i": 0, "j": 1, "q": None}
    fetch = Fetch(
        array="a",
        sweep=("i_each", "i_item", "j_each", "j_item"),
        within=("i_group", "j_group", *groups),
        axes=tuple(axes[index[-1]] for index in read.split(",")),
    )
    shape = Shape(
        divided=(
            Divided(loop="i", axis=first_axis, items=items[0], each=each[0]),
            Divided(loop="j", axis=1 - first_axis, items=items[1], each=each[1]),
        ),
        block=draw.pick(("for", "unr")) if max(each) > 1 else "for",
        groups=groups,
        fetches=(fetch,) if tiled else (),
    )
    return program, shape


def _shape(indices: str) -> tuple[Extent, ...]:
    names = {"i": "n", "j": "m", "q": "p"}
    return tuple(Extent(names[index[-1]]) for index in indices.split(","))
