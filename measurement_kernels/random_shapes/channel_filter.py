"""Random filters: windows of signals or images of several channels, summed with weights."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from measurement_kernels.arguments import ArrayArgument, Extent
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape
from measurement_kernels.random_shapes.draws import (
    LOCAL_BYTES,
    Draw,
    blocked_entries,
    random_entries,
)

_NUMBER = 30
_REGULAR = 50
_DOUBLE = 10
_BLOCKED = (14, 36)
"""Irregular and regular ones."""
_TERM_S = 0.4e-9
_MOST_UNROLLED = 128
_BLOCKS = (("ilp", "unr"), ("ilp", "ilp.seq", "for"))


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-channel-filter",
        "random filter over several channels, of random shape",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )
    yield from blocked_entries("filter", "filter of random windows", *_BLOCKED, drawn)


def drawn(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together.

    With `blocked`, each item has 4 to 32 results.
    """
    planar = draw.chance(0.65)
    loops = ("i", "j") if planar else ("i",)
    items = draw.planar_group() if planar else (draw.linear_group(),)
    if blocked:
        each = draw.block(len(loops))
    else:
        lengths = (1, 1, 1, 2, 3)
        each = tuple(draw.length(lengths) for _ in loops)
    taps = tuple(draw.integer(1 + (not planar), 5 if planar else 12) for _ in loops)
    channels = draw.pick((1, 1, 1, 2, 3)) if blocked else draw.integer(2, 9)
    filters = draw.integer(1, 5)
    channels_last = draw.chance(0.5)
    fetched = draw.pick(("", "", "w", "u", "uw"))
    tile = channels
    for length, own, window in zip(items, each, taps, strict=True):
        tile *= length * own + window - 1
    if "u" in fetched and 4 * tile > LOCAL_BYTES:
        return None
    number = 1
    for window in taps:
        number *= window
    if number < 2 or (draw.regular and "w" in fetched and planar and taps[0] == 1):
        return None
    if blocked and "w" in fetched and 1 in taps:
        return None
    offsets = ("y", "x")[2 - len(loops) :]
    reads = [f"{loop} + {offset}" for loop, offset in zip(loops, offsets, strict=True)]
    over, layers = (("c",), (channels,)) if channels > 1 else ((), ())
    where = [*reads, *over] if channels_last else [*over, *reads]
    steps = dict(zip(offsets, taps, strict=True))
    summed = (*over, *offsets) if draw.chance(0.5) else (*offsets, *over)
    names = dict(zip(loops, "nm", strict=False))
    sizes = draw.sizes(
        {names[loop]: length * own for loop, length, own in zip(loops, items, each, strict=True)},
        lambda s: s["n"] * s.get("m", 1) * number * channels * filters * _TERM_S,
    )
    padded = [
        Extent(names[loop], offset=window - 1) for loop, window in zip(loops, taps, strict=True)
    ]
    inside = [Extent(names[loop]) for loop in loops]
    program = Program(
        name="channel_filter",
        loops=(
            ("f", filters),
            *((loop, names[loop]) for loop in loops),
            *((channel, channels) for channel in over),
            *steps.items(),
        ),
        formulas=(
            Formula(
                target=f"r[f, {', '.join(loops)}]",
                terms=(f"u[{', '.join(where)}] * w[{', '.join(('f', *over, *offsets))}]",),
                result=draw.pick(("{0}", "{0}", "fmax({0}, 0.0)", "{0} + v[f]")),
                summed=summed,
            ),
        ),
        sizes=sizes,
        arguments=(
            ArrayArgument(
                name="u", shape=(*padded, *layers) if channels_last else (*layers, *padded)
            ),
            ArrayArgument(name="w", shape=(filters, *layers, *taps)),
            ArrayArgument(name="v", shape=(filters,)),
            ArrayArgument(name="r", shape=(filters, *inside), role="output"),
        ),
    )
    if "v[" not in str(program.formulas[0]):
        kept = tuple(each for each in program.arguments if each.name != "v")
        program = Program(
            name=program.name,
            loops=program.loops,
            formulas=program.formulas,
            sizes=program.sizes,
            arguments=kept,
        )
    first_axis = draw.pick((1, 1, 0)) if planar else 0
    axes = (first_axis, 1 - first_axis)[: len(loops)]
    groups = tuple(f"{loop}_group" for loop in loops)
    shared = (1, 0) if planar else (0,)
    without = tuple(None for _ in over)
    fetch_w = Fetch(
        array="w",
        sweep=(*over, *offsets),
        within=(*groups, "f"),
        axes=(None, *shared, *without),
    )
    fetch_u = Fetch(
        array="u",
        sweep=(*over, *offsets, *(f"{loop}_{part}" for loop in loops for part in ("each", "item"))),
        within=(*groups, "f"),
        axes=(*shared, *without) if channels_last else (*without, *shared),
    )
    block = draw.pick(_BLOCKS[draw.regular]) if max(each) > 1 else "for"
    if blocked:
        unrolled = offsets if draw.chance(0.5) else ()
        copies = prod(each) if block in ("ilp", "unr") else 1
        if copies * prod(taps if unrolled else (1,)) > _MOST_UNROLLED:
            return None
    else:
        unrolled = tuple(offset for offset in offsets if draw.chance(0.3))
    shape = Shape(
        divided=tuple(
            Divided(loop=loop, axis=axis, items=length, each=own)
            for loop, axis, length, own in zip(loops, axes, items, each, strict=True)
        ),
        block=block,
        groups=("f",),
        unrolled=unrolled,
        priority=",".join(summed),
        fetches=(*((fetch_u,) if "u" in fetched else ()), *((fetch_w,) if "w" in fetched else ())),
    )
    return program, shape
