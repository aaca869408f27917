"""Random maps: elements from the same elements of other arrays, and permutations of axes."""

from __future__ import annotations

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.programs import Fetch, Formula, Program, Shape, along
from measurement_kernels.random_shapes.draws import LOCAL_BYTES, Draw, shape_of

# --- each element of one or two arrays from the same elements of up to five others

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


def elementwise(draw: Draw) -> tuple[Program, Shape]:
    """Draw a map."""
    planar = draw.chance(0.5)
    loops, items = draw.loops_and_items(planar)
    each = tuple(draw.length((1, 1, 1, 2, 3, 4)) for _ in loops)
    names = "abdef"[: draw.integer(1, 5)]
    where, whole = ", ".join(loops), "n, m" if planar else "n"
    reads = dict[str, str]()
    inputs = dict[str, str]()
    for name in names:
        if planar and draw.chance(0.2):
            axis = draw.integer(0, 1)
            reads[name], inputs[name] = f"{name}[{loops[axis]}]", f"{name}[{'nm'[axis]}]"
        else:
            order = "column-major " if planar and draw.chance(0.15) else ""
            reads[name], inputs[name] = f"{name}[{where}]", f"{order}{name}[{whole}]"
    outputs = draw.pick((1, 1, 1, 2))
    formulas = tuple(
        Formula(f"r{q}[{where}]", (_expression(draw, reads, names),)) for q in range(outputs)
    )
    text = " ".join(formula.terms[0] for formula in formulas)
    used = [array for name, array in inputs.items() if f"{name}[" in text]
    moved = 4 * (len(used) + outputs)
    operations = sum(text.count(symbol) for symbol in "+-*/(") + 20 * text.count("exp")
    sizes = draw.sizes(
        {name: length * own for name, length, own in zip("nm", items, each, strict=False)},
        lambda s: s["n"] * s.get("m", 1) * (moved * _BYTE_S + operations * _OPERATION_S),
        skew=2.0,
    )
    first_axis = draw.pick((1, 1, 1, 0)) if planar else 0
    program = Program(
        "map",
        tuple(zip(loops, "nm", strict=False)),
        formulas,
        sizes,
        arrays(", ".join([*used, *(f"output r{q}[{whole}]" for q in range(outputs))])),
    )
    return program, Shape(
        along(loops, items, each, first_axis=first_axis),
        block=draw.pick(("for", "unr")) if max(each) > 1 else "for",
    )


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


# --- permutations: transposes, reversals, axes moved, arrays interleaved

_ELEMENT_S = 1.5e-9
_LAYERS = 5
_VALUES = ("{a}", "{a}", "{a}", "{c} * {a}", "{a} + b[{here}]", "{a} - {c} * b[{here}]")
_READS = {2: ("j, i", "j, i", "j, n - 1 - i", "m - 1 - j, i"), 3: ("j, q, i", "q, j, i", "j, i, q")}
_WRITES = {2: ("i, j",), 3: ("q, i, j", "i, q, j", "i, j, q")}
_SIZES = {"i": "n", "j": "m", "q": "p"}


def permutation(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a permutation of axes; None if the choices do not fit together.

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
    layered = dimensions == 3
    sizes = draw.sizes(
        {"n": tile[0], "m": tile[1]},
        lambda s: s["n"] * s["m"] * (_LAYERS if layered else 1) * _ELEMENT_S,
        skew=1.5,
    )
    if layered:
        sizes = (*sizes, SizeParameter("p", fixed=_LAYERS))
    value = draw.pick(_VALUES).format(a=f"a[{read}]", c=draw.coefficient(), here=write)
    written = shape_of(write, _SIZES)
    other = f"b[{written}], " if "b[" in value else ""
    program = Program(
        "permutation",
        (("i", "n"), ("j", "m"), *((("q", "p"),) if layered else ())),
        (Formula(f"r[{write}]", (value,)),),
        sizes,
        arrays(f"a[{shape_of(read, _SIZES)}], {other}output r[{written}]"),
    )
    first_axis = draw.integer(0, 1)
    groups = ("q",) if layered else ()
    axes = {"i": 0, "j": 1, "q": None}
    fetch = Fetch(
        "a",
        ("i_each", "i_item", "j_each", "j_item"),
        ("i_group", "j_group", *groups),
        tuple(axes[index[-1]] for index in read.split(",")),
    )
    return program, Shape(
        along("ij", items, each, first_axis=first_axis),
        block=draw.pick(("for", "unr")) if max(each) > 1 else "for",
        groups=groups,
        fetches=(fetch,) if tiled else (),
    )
