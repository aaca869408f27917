"""Random windows: stencils, and filters over several channels."""

from __future__ import annotations

from math import prod

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.programs import Fetch, Formula, Program, Shape, along
from measurement_kernels.random_shapes.draws import LARGEST_GROUP, LOCAL_BYTES, Draw, shape_of

# --- stencils: points around each point of one to three arrays, in one to three dimensions

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
_SIZES = {"i": "n", "j": "m", "z": "p"}


def stencil(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a stencil; None if the choices do not fit together.

    With `blocked`, each item has 4 to 32 results.
    """
    dimensions = draw.pick((1, 2, 2, 2, 2, 3))
    loops, items = draw.loops_and_items(dimensions > 1)
    if blocked:
        each = draw.block(len(loops))
    else:
        each = tuple(draw.length((1, 1, 1, 2, 3, 4)) for _ in loops)
    radius = draw.pick((1, 1, 2, 2, 3, 4))
    arrays_read = "uvw"[: draw.pick((1, 1, 1, 2, 3))]
    fetched = {"": "", "u": "u", "all": arrays_read}[draw.pick(("",) * 2 + ("u", "u", "all"))]
    deep = dimensions == 3
    planes_as_groups = draw.chance(0.6)
    tile = prod(length * own + 2 * radius for length, own in zip(items, each, strict=True))
    tile *= 2 * radius + 1 if deep else 1
    if (
        4 * tile * len(fetched) > LOCAL_BYTES
        or (deep and radius > 2)
        or (fetched and deep and not planes_as_groups)
    ):
        return None
    multiples = {name: length * own for name, length, own in zip("nm", items, each, strict=False)}
    program = _stencil(draw, arrays_read, ("z", *loops) if deep else (*loops,), radius, multiples)
    if program is None:
        return None
    first_axis = 0 if dimensions == 1 else draw.pick((1, 1, 1, 0))
    groups = ("z",) if deep and planes_as_groups else ()
    shared = (0,) if dimensions == 1 else draw.pick(((1, 0), (1, 0), (0, 1)))
    sweep = tuple(f"{loop}_{part}" for loop in loops for part in ("each", "item"))
    within = (*(f"{loop}_group" for loop in loops), *groups)
    shape = Shape(
        along(loops, items, each, first_axis=first_axis),
        block=draw.pick(("for", "unr")) if max(each) > 1 else "for",
        groups=groups,
        fetches=tuple(
            Fetch(array, sweep, within, (None, *shared) if deep else shared) for array in fetched
        ),
    )
    return (program, shape) if items[0] <= LARGEST_GROUP else None


def _stencil(
    draw: Draw,
    arrays_read: str,
    space: tuple[str, ...],
    radius: int,
    multiples: dict[str, int],
) -> Program | None:
    outputs = draw.pick((1, 1, 1, 2))
    formulas = tuple(_points(draw, f"r{q}", arrays_read, space, radius) for q in range(outputs))
    text = " ".join(f.terms[0] for f in formulas)
    if any(text.count(f"{array}[") < 2 for array in arrays_read):
        return None
    loads = sum(text.count(f"{array}[") for array in "uvwx")
    planes = _PLANES if len(space) == 3 else 1
    sizes = draw.sizes(
        multiples, lambda s: s["n"] * s.get("m", 1) * planes * (loads + 2 * outputs) * _LOAD_S
    )
    if len(space) == 3:
        sizes = (*sizes, SizeParameter("p", fixed=_PLANES))
    around = ", ".join(f"{_SIZES[loop]} + {2 * radius}" for loop in space)
    inside = shape_of(", ".join(space), _SIZES)
    return Program(
        "stencil",
        tuple((loop, _SIZES[loop]) for loop in space),
        formulas,
        sizes,
        arrays(
            "".join(f"{array}[{around}], " for array in arrays_read)
            + (f"x[{inside}], " if "x[" in text else "")
            + ", ".join(f"output r{q}[{inside}]" for q in range(outputs))
        ),
    )


def _points(draw: Draw, target: str, arrays: str, space: tuple[str, ...], radius: int) -> Formula:
    points = set[tuple[str, tuple[int, ...]]]()
    wanted = draw.integer(3, 9 if len(space) == 1 else 12)
    star = draw.chance(0.5)
    for _ in range(40):
        offsets = [draw.integer(-radius, radius) for _ in space]
        if star and len(space) > 1:
            along_axis = draw.integer(0, len(space) - 1)
            offsets = [offset if axis == along_axis else 0 for axis, offset in enumerate(offsets)]
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
    return Formula(f"{target}[{', '.join(space)}]", (text,))


def _read(array: str, space: tuple[str, ...], offsets: tuple[int, ...], radius: int) -> str:
    indices = (
        f"{loop} + {radius + offset}" if radius + offset else loop
        for loop, offset in zip(space, offsets, strict=True)
    )
    return f"{array}[{', '.join(indices)}]"


# --- filters: windows of signals or images of several channels, summed with weights

_TERM_S = 0.4e-9
_MOST_UNROLLED = 128
_BLOCKS = (("ilp", "unr"), ("ilp", "ilp.seq", "for"))


def channel_filter(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a filter; None if the choices do not fit together.

    With `blocked`, each item has 4 to 32 results.
    """
    planar = draw.chance(0.65)
    loops, items = draw.loops_and_items(planar)
    each = draw.block(len(loops)) if blocked else tuple(draw.length((1, 1, 1, 2, 3)) for _ in loops)
    taps = tuple(draw.integer(1 + (not planar), 5 if planar else 12) for _ in loops)
    channels = draw.pick((1, 1, 1, 2, 3)) if blocked else draw.integer(2, 9)
    filters = draw.integer(1, 5)
    channels_last = draw.chance(0.5)
    fetched = draw.pick(("", "", "w", "u", "uw"))
    tile = channels * prod(
        length * own + window - 1 for length, own, window in zip(items, each, taps, strict=True)
    )
    if (
        ("u" in fetched and 4 * tile > LOCAL_BYTES)
        or prod(taps) < 2
        or (draw.regular and "w" in fetched and planar and taps[0] == 1)
        or (blocked and "w" in fetched and 1 in taps)
    ):
        return None
    offsets = ("y", "x")[2 - len(loops) :]
    over = ("c",) if channels > 1 else ()
    summed = (*over, *offsets) if draw.chance(0.5) else (*offsets, *over)
    multiples = {name: length * own for name, length, own in zip("nm", items, each, strict=False)}
    program = _filter(draw, multiples, taps, channels, filters, summed, last=channels_last)
    first_axis = draw.pick((1, 1, 0)) if planar else 0
    shared = (1, 0) if planar else (0,)
    without = tuple(None for _ in over)
    within = (*(f"{loop}_group" for loop in loops), "f")
    own_loops = tuple(f"{loop}_{part}" for loop in loops for part in ("each", "item"))
    fetches = {
        "u": Fetch(
            "u",
            (*over, *offsets, *own_loops),
            within,
            (*shared, *without) if channels_last else (*without, *shared),
        ),
        "w": Fetch("w", (*over, *offsets), within, (None, *shared, *without)),
    }
    block = draw.pick(_BLOCKS[draw.regular]) if max(each) > 1 else "for"
    if blocked:
        unrolled = offsets if draw.chance(0.5) else ()
        copies = prod(each) if block in ("ilp", "unr") else 1
        if copies * prod(taps if unrolled else (1,)) > _MOST_UNROLLED:
            return None
    else:
        unrolled = tuple(offset for offset in offsets if draw.chance(0.3))
    return program, Shape(
        along(loops, items, each, first_axis=first_axis),
        block=block,
        groups=("f",),
        unrolled=unrolled,
        priority=",".join(summed),
        fetches=tuple(fetches[array] for array in fetched),
    )


def _filter(
    draw: Draw,
    multiples: dict[str, int],
    taps: tuple[int, ...],
    channels: int,
    filters: int,
    summed: tuple[str, ...],
    *,
    last: bool,
) -> Program:
    loops, offsets = ("ij", "yx") if len(taps) == 2 else ("i", "x")
    over, layers = (["c"], [str(channels)]) if channels > 1 else ([], [])
    reads = [f"{loop} + {offset}" for loop, offset in zip(loops, offsets, strict=True)]
    padded = [f"{name} + {window - 1}" for name, window in zip("nm", taps, strict=False)]
    sizes = draw.sizes(
        multiples,
        lambda s: s["n"] * s.get("m", 1) * prod(taps) * channels * filters * _TERM_S,
    )
    read = [*reads, *over] if last else [*over, *reads]
    term = f"u[{', '.join(read)}] * w[{', '.join(('f', *over, *offsets))}]"
    result = draw.pick(("{0}", "{0}", "fmax({0}, 0.0)", "{0} + v[f]"))
    bias = f"v[{filters}], " if "v[" in result else ""
    inside = shape_of(", ".join(loops), _SIZES)
    return Program(
        "channel_filter",
        (
            ("f", filters),
            *zip(loops, "nm", strict=False),
            *((channel, channels) for channel in over),
            *zip(offsets, taps, strict=True),
        ),
        (Formula(f"r[f, {', '.join(loops)}]", (term,), result, summed),),
        sizes,
        arrays(
            f"u[{', '.join([*padded, *layers] if last else [*layers, *padded])}], "
            f"w[{', '.join([str(filters), *layers, *map(str, taps)])}], {bias}"
            f"output r[{filters}, {inside}]"
        ),
    )
