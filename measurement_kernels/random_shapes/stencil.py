"""Random stencils: points around each point of one to three arrays, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape
from measurement_kernels.random_shapes.draws import (
    LARGEST_GROUP,
    LOCAL_BYTES,
    Draw,
    blocked_entries,
    random_entries,
)

_NUMBER = 80
_REGULAR = 60
_DOUBLE = 14
_BLOCKED = (14, 36)
"""Irregular and regular ones."""
_LOAD_S = 0.2e-9
_PLANES = 12

_POINTWISE = (
    "{sum}",
    "{sum}",
    "{sum} + {c} * {own} * {own}",
    "{own} * ({sum})",
    "{sum} - {c} / ({own} * {own} + 1.5)",
    "x[{here}] * ({sum})",
    "{sum} - x[{here}] * {own}",
    "fmax({sum}, {own})",
)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-stencil",
        "stencil of random points and shape",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )
    yield from blocked_entries("stencil", "stencil of random points", *_BLOCKED, drawn)


def drawn(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together.

    With `blocked`, each item has 4 to 32 results.
    """
    dimensions = draw.pick((1, 2, 2, 2, 2, 3))
    loops = ("i",) if dimensions == 1 else ("i", "j")
    items = (draw.linear_group(),) if dimensions == 1 else draw.planar_group()
    if blocked:
        each = draw.block(len(loops))
    else:
        each = tuple(draw.length((1, 1, 1, 2, 3, 4)) for _ in loops)
    radius = draw.pick((1, 1, 2, 2, 3, 4))
    number = draw.pick((1, 1, 1, 2, 3))
    tiled = draw.pick(("",) * 2 + ("u", "u", "all"))
    planes_as_groups = draw.chance(0.6)
    tile = 1
    for length, own in zip(items, each, strict=True):
        tile *= length * own + 2 * radius
    tile *= 2 * radius + 1 if dimensions == 3 else 1
    arrays = "uvw"[:number]
    fetched = {"": "", "u": "u", "all": arrays}[tiled]
    if (
        4 * tile * len(fetched) > LOCAL_BYTES
        or (dimensions == 3 and radius > 2)
        or (fetched and dimensions == 3 and not planes_as_groups)
    ):
        return None
    space = ("z", *loops) if dimensions == 3 else loops
    outputs = draw.pick((1, 1, 1, 2))
    formulas = tuple(_formula(draw, f"r{q}", arrays, space, radius) for q in range(outputs))
    text = " ".join(f.terms[0] for f in formulas)
    if any(text.count(f"{array}[") < 2 for array in arrays):
        return None
    loads = sum(text.count(f"{array}[") for array in "uvwx")
    multiples = {name: length * own for name, length, own in zip("nm", items, each, strict=False)}
    planes = _PLANES if dimensions == 3 else 1
    sizes = draw.sizes(
        multiples,
        lambda s: s["n"] * s.get("m", 1) * planes * (loads + 2 * outputs) * _LOAD_S,
    )
    if dimensions == 3:
        sizes = (*sizes, SizeParameter(name="p", fixed=_PLANES))
    names = {"i": "n", "j": "m", "z": "p"}
    around = tuple(Extent(names[loop], offset=2 * radius) for loop in space)
    inside = tuple(Extent(names[loop]) for loop in space)
    program = Program(
        name="stencil",
        loops=tuple((loop, names[loop]) for loop in space),
        formulas=formulas,
        sizes=sizes,
        arguments=(
            *(ArrayArgument(name=array, shape=around) for array in arrays),
            *((ArrayArgument(name="x", shape=inside),) if "x[" in text else ()),
            *(ArrayArgument(name=f"r{q}", shape=inside, role="output") for q in range(outputs)),
        ),
    )
    first_axis = 0 if dimensions == 1 else draw.pick((1, 1, 1, 0))
    axes = (first_axis, 1 - first_axis)
    groups = ("z",) if dimensions == 3 and planes_as_groups else ()
    shared = (0,) if dimensions == 1 else draw.pick(((1, 0), (1, 0), (0, 1)))
    shape = Shape(
        divided=tuple(
            Divided(loop=loop, axis=axis, items=length, each=own)
            for loop, axis, length, own in zip(loops, axes, items, each, strict=False)
        ),
        block=draw.pick(("for", "unr")) if max(each) > 1 else "for",
        groups=groups,
        fetches=tuple(
            Fetch(
                array=array,
                sweep=tuple(f"{loop}_{part}" for loop in loops for part in ("each", "item")),
                within=(*(f"{loop}_group" for loop in loops), *groups),
                axes=((None, *shared) if dimensions == 3 else shared),
            )
            for array in fetched
        ),
    )
    return (program, shape) if items[0] <= LARGEST_GROUP else None


def _formula(draw: Draw, target: str, arrays: str, space: tuple[str, ...], radius: int) -> Formula:
    points = set[tuple[str, tuple[int, ...]]]()
    wanted = draw.integer(3, 9 if len(space) == 1 else 12)
    star = draw.chance(0.5)
    for _ in range(40):
        offsets = [draw.integer(-radius, radius) for _ in space]
        if star and len(space) > 1:
            kept = draw.integer(0, len(space) - 1)
            offsets = [offset if axis == kept else 0 for axis, offset in enumerate(offsets)]
        if len(points) < wanted:
            points.add((draw.pick(arrays), tuple(offsets)))
    terms = [
        f"{draw.coefficient()} * {_read(array, space, offsets, radius)}"
        if draw.chance(0.6)
        else _read(array, space, offsets, radius)
        for array, offsets in sorted(points)
    ]
    joined = terms[0] + "".join(draw.pick((" + ", " + ", " - ")) + term for term in terms[1:])
    own = _read(draw.pick(arrays), space, (0,) * len(space), radius)
    text = draw.pick(_POINTWISE).format(
        sum=joined, own=own, c=draw.coefficient(), here=", ".join(space)
    )
    return Formula(target=f"{target}[{', '.join(space)}]", terms=(text,))


def _read(array: str, space: tuple[str, ...], offsets: tuple[int, ...], radius: int) -> str:
    indices = (
        f"{loop} + {radius + offset}" if radius + offset else loop
        for loop, offset in zip(space, offsets, strict=True)
    )
    return f"{array}[{', '.join(indices)}]"
