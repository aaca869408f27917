"""Random interactions: sums over points of functions of distances, as in N-body and kernel methods.

Each item makes what acts on one point, or on a few. What an iteration computes once, it stores.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Divided, Fetch, Program, Recurrence, Shape, Step
from measurement_kernels.random_shapes.draws import LOCAL_BYTES, Draw, random_entries

_NUMBER = 50
_REGULAR = 30
_DOUBLE = 12

_FUNCTIONS = {
    # of a squared distance, with seconds per pair, about
    "rsqrt({r})": 1.0e-9,
    "sqrt({r})": 1.0e-9,
    "{c} / {r}": 1.0e-9,
    "exp(-{r})": 3.0e-9,
    "{c} / ({r} * sqrt({r}))": 1.5e-9,
    "{r}**0.75": 20.0e-9,
    "fmax({c} - {r}, 0.0)": 0.6e-9,
    "{r} * {r}": 0.6e-9,
    "{c} + {r}": 0.6e-9,
}
_CONDITIONS = ("", "", "i != k")
_LAYOUTS = ("separate", "separate", "points last", "points first")
_TILES = (8, 12, 16, 24, 32, 48, 64, 100, 128, 256)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-interaction",
        "random sums over pairs of points",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )


def drawn(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together."""
    items = draw.linear_group()
    axes = draw.pick((1, 2, 3, 3))
    layout = draw.pick(_LAYOUTS)
    is_fetched = draw.chance(0.5)
    each = 1 if is_fetched else draw.length((1, 1, 1, 2, 3))
    tile = items if is_fetched and draw.chance(0.4) else draw.length(_TILES)
    unrolled = draw.chance(0.25) and tile * each * axes <= 48
    if is_fetched and 4 * tile * (axes + 1) > LOCAL_BYTES:
        return None
    reads = {
        point: [_read(layout, array, axis, point) for axis in range(axes)]
        for point, array in (("i", "x"), ("k", "y"))
    }
    function = draw.pick(tuple(_FUNCTIONS))
    condition = draw.pick(_CONDITIONS)
    is_weighted = draw.chance(0.4)
    parts = [
        (f"d{axis}", f"{own} - {other}")
        for axis, (own, other) in enumerate(zip(reads["i"], reads["k"], strict=True))
    ]
    square = " + ".join(f"d{axis} * d{axis}" for axis in range(axes))
    parts.append(("r", f"{square} + {draw.coefficient()}"))
    value = function.format(r="r", c=draw.coefficient())
    if is_weighted:
        value = f"q[k] * {value}"
    if condition:
        value = f"({value} if {condition} else 0.0)"
    if is_force := draw.chance(0.35):
        parts.append(("w", value))
        updates = [f"s{axis} + w * d{axis}" for axis in range(axes)]
    else:
        updates = [f"s0 + {value}"]
    targets = " + ".join(
        f"{draw.coefficient()} * s{number}" if number else "s0" for number in range(len(updates))
    )
    pair_s = _FUNCTIONS[function] + 0.2e-9 * axes * (2 if is_force else 1)
    sizes = draw.sizes({"n": items * each, "m": tile}, lambda s: s["n"] * s["m"] * pair_s, skew=1.0)
    program = Program(
        name="interaction",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Recurrence(
                target="f[i]",
                states=tuple(("0.0", update) for update in updates),
                loop="k",
                result=targets,
                parts=tuple(parts),
            ),
        ),
        sizes=sizes,
        arguments=(
            *_points(layout, "x", "n", axes),
            *_points(layout, "y", "m", axes),
            *((ArrayArgument(name="q", shape=(Extent("m"),)),) if is_weighted else ()),
            ArrayArgument(name="f", shape=(Extent("n"),), role="output"),
        ),
    )
    shape = Shape(
        divided=(Divided(loop="i", axis=0, items=items, each=each),),
        block=draw.pick(("for", "unr")),
        steps=(Step(loop="k", length=tile, unrolled=unrolled),) if is_fetched or unrolled else (),
        fetches=tuple(
            Fetch(array=array, sweep=("k_in",), within=("i_group", "k_step"), axes=positions)
            for array, positions in _fetched(layout, axes, is_weighted=is_weighted)
        )
        if is_fetched
        else (),
    )
    return program, shape


def _read(layout: str, array: str, axis: int, point: str) -> str:
    match layout:
        case "separate":
            return f"{array}{axis}[{point}]"
        case "points last":
            return f"{array}[{axis}, {point}]"
        case _:
            return f"{array}[{point}, {axis}]"


def _points(layout: str, array: str, length: str, axes: int) -> tuple[ArrayArgument, ...]:
    match layout:
        case "separate":
            return tuple(
                ArrayArgument(name=f"{array}{axis}", shape=(Extent(length),))
                for axis in range(axes)
            )
        case "points last":
            return (ArrayArgument(name=array, shape=(axes, Extent(length))),)
        case _:
            return (ArrayArgument(name=array, shape=(Extent(length), axes)),)


def _fetched(
    layout: str, axes: int, *, is_weighted: bool
) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    found: list[tuple[str, tuple[int | None, ...]]]
    match layout:
        case "separate":
            found = [(f"y{axis}", (0,)) for axis in range(axes)]
        case "points last":
            found = [("y", (None, 0))]
        case _:
            found = [("y", (0, None))]
    return (*found, *([("q", (0,))] if is_weighted else []))
