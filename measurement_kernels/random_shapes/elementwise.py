"""Random maps: each element of one or two arrays from the same elements of up to five others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from measurement_kernels.arguments import ArrayArgument, Extent
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Divided, Formula, Program, Shape
from measurement_kernels.random_shapes.draws import Draw, random_entries

_NUMBER = 45
_REGULAR = 25
_DOUBLE = 10
_BYTE_S = 0.06e-9
_OPERATION_S = 0.05e-9

_PAIRS = (
    "{x} + {y}",
    "{x} - {c} * {y}",
    "{x} * {y}",
    "{x} / ({y} * {y} + {c})",
    "fmax({x}, {y})",
    "fmin({x}, {c} * {y})",
    "{x} * {x} + {y}",
)
_ALONE = ("{c} * {x}", "{x} * {x}", "fabs({x})", "sqrt({x} * {x} + {c})", "rsqrt({x} * {x} + {c})")
_SLOW = ("exp({x})",)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-elementwise",
        "random map of arrays, of random shape",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )


def drawn(draw: Draw) -> tuple[Program, Shape]:
    """Draw a kernel."""
    planar = draw.chance(0.5)
    loops = ("i", "j") if planar else ("i",)
    items = draw.planar_group() if planar else (draw.linear_group(),)
    each = tuple(draw.length((1, 1, 1, 2, 3, 4)) for _ in loops)
    names = "abdef"[: draw.integer(1, 5)]
    reads = dict[str, str]()
    arguments = list[ArrayArgument]()
    for name in names:
        if planar and draw.chance(0.2):
            axis = draw.integer(0, 1)
            reads[name] = f"{name}[{loops[axis]}]"
            shape = (Extent("nm"[axis]),)
        else:
            reads[name] = f"{name}[{', '.join(loops)}]"
            shape = tuple(Extent("nm"[axis]) for axis in range(len(loops)))
        order: Literal["C", "F"] = "F" if len(shape) > 1 and draw.chance(0.15) else "C"
        arguments.append(ArrayArgument(name=name, shape=shape, order=order))
    outputs = draw.pick((1, 1, 1, 2))
    formulas = tuple(
        Formula(target=f"r{q}[{', '.join(loops)}]", terms=(_expression(draw, reads, names),))
        for q in range(outputs)
    )
    text = " ".join(formula.terms[0] for formula in formulas)
    arguments = [each for each in arguments if f"{each.name}[" in text]
    whole = tuple(Extent("nm"[axis]) for axis in range(len(loops)))
    moved = 4 * (len(arguments) + outputs)
    operations = sum(text.count(symbol) for symbol in "+-*/(") + 20 * text.count("exp")
    sizes = draw.sizes(
        {name: length * own for name, length, own in zip("nm", items, each, strict=False)},
        lambda s: s["n"] * s.get("m", 1) * (moved * _BYTE_S + operations * _OPERATION_S),
        skew=2.0,
    )
    first_axis = draw.pick((1, 1, 1, 0)) if planar else 0
    program = Program(
        name="map",
        loops=tuple((loop, name) for loop, name in zip(loops, "nm", strict=False)),
        formulas=formulas,
        sizes=sizes,
        arguments=(
            *arguments,
            *(ArrayArgument(name=f"r{q}", shape=whole, role="output") for q in range(outputs)),
        ),
    )
    shape = Shape(
        divided=tuple(
            Divided(loop=loop, axis=axis, items=length, each=own)
            for loop, axis, length, own in zip(
                loops, (first_axis, 1 - first_axis), items, each, strict=False
            )
        ),
        block=draw.pick(("for", "unr")) if max(each) > 1 else "for",
    )
    return program, shape


def _expression(draw: Draw, reads: dict[str, str], names: str) -> str:
    """Combine each array at least once, in random order."""
    text = reads[names[0]]
    for name in (*names[1:], *(draw.pick(names) for _ in range(draw.integer(0, 3)))):
        if draw.chance(0.3):
            alone = draw.pick(_ALONE if draw.chance(0.8) else _SLOW)
            text = alone.format(
                x=f"({text})" if "exp" not in alone else f"fmin({text}, 1.5)", c=draw.coefficient()
            )
        text = draw.pick(_PAIRS).format(x=f"({text})", y=reads[name], c=draw.coefficient())
    return text
