"""Random loops of single items: sums and recurrences, chains of arithmetic, interactions."""

from __future__ import annotations

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.programs import (
    Divided,
    Fetch,
    Formula,
    Program,
    Recurrence,
    Shape,
    Step,
    along,
)
from measurement_kernels.random_shapes.draws import LOCAL_BYTES, Draw, shape_of

_SIZES = {"i": "n", "j": "l", "k": "m"}


def _sum_of_states(number: int) -> str:
    return " + ".join(f"s{q}" for q in range(number))


# --- each item computes one element of a line or a plane from all that it reads along k

_TERM_S = 0.5e-9
_TERMS = (
    "{a}",
    "{a} * {t}",
    "{a} * {t}",
    "{a} * {a}",
    "fabs({a} - {t})",
    "{a} * {b}",
    "({a} - {b}) * {t}",
    "{c} * {a} + {t} * {t}",
)
_STATE_UPDATES = (
    "{s} * {t} + {a}",
    "{s} * {a} + {t}",
    "fmax({s}, {a} * {t})",
    "fmin({s}, {a} - {t})",
    "0.5 * {s} + {a} * {t}",
    "{a} - 0.75 * {s}",
)


def item_loop(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw sums or recurrences of items; None if the choices do not fit together."""
    planar = draw.chance(0.25)
    loops, items = draw.loops_and_items(planar)
    each = draw.length((1, 1, 1, 2, 3))
    step = draw.length((3, 4, 6, 8, 12, 16, 20, 32))
    recurrent = draw.chance(0.35)
    fetched = "t" if not planar and draw.chance(0.45) else ""
    width = items[0] * each
    if not planar and draw.chance(0.2) and 4 * width * (step + 1) <= LOCAL_BYTES:
        fetched = "a"
    unrolled = draw.chance(0.3) and step * each <= 48
    if fetched and each > 1 and recurrent:
        return None  # the states of all iterations would live across the barriers
    order = draw.pick((("i", "k"), ("k", "i")))
    index = dict.fromkeys("ab", ", ".join((*loops[1:], *order)))
    if draw.chance(0.4):  # the second array is transposed
        index["b"] = ", ".join((*loops[1:], *reversed(order)))
    reads = {array: f"{array}[{where}]" for array, where in index.items()} | {"t": "t[k]"}
    chains = draw.pick((1, 1, 2, 2, 3, 4))
    formula = _sums_or_states(draw, f"r[{', '.join(loops)}]", reads, chains, recurrent=recurrent)
    text = " ".join(formula.terms) if isinstance(formula, Formula) else str(formula.states)
    used = [array for array in "abt" if f"{array}[" in text]
    if (fetched and fetched not in used) or not ({"a", "b"} & {*used}):
        return None
    multiples = {"n": width, "m": step} | ({"l": items[1]} if planar else {})
    program = Program(
        "item_loop",
        tuple((loop, _SIZES[loop]) for loop in (*loops, "k")),
        (formula,),
        draw.sizes(multiples, lambda s: s["n"] * s["m"] * s.get("l", 1) * chains * _TERM_S),
        arrays(
            "".join(f"{a}[{shape_of(index[a], _SIZES)}], " for a in used if a != "t")
            + ("t[m], " if "t" in used else "")
            + f"output r[{shape_of(', '.join(loops), _SIZES)}]"
        ),
    )
    first_axis = draw.pick((0, 0, 1)) if planar else 0
    fetch = Fetch(
        fetched,
        ("k_in",) if fetched == "t" else ("k_in", "i_each", "i_item"),
        (*(f"{loop}_group" for loop in loops), "k_step"),
        (0,) if fetched == "t" else (None, 0),
    )
    block = "for"
    if each > 1:
        block = "ilp" if fetched else draw.pick(("for", "unr"))
    return program, Shape(
        along(loops, items, (each, 1), first_axis=first_axis),
        block=block,
        steps=(Step("k", step, unrolled),) if fetched or unrolled else (),
        fetches=(fetch,) if fetched else (),
    )


def _sums_or_states(
    draw: Draw, target: str, reads: dict[str, str], chains: int, *, recurrent: bool
) -> Formula | Recurrence:
    if recurrent:
        updates = [draw.pick(_STATE_UPDATES).format(s=f"s{q}", **reads) for q in range(chains)]
        states = tuple((draw.coefficient(), update) for update in updates)
        return Recurrence(target, states, "k", _sum_of_states(chains))
    terms = tuple(draw.pick(_TERMS).format(c=draw.coefficient(), **reads) for _ in range(chains))
    result = "".join(
        draw.pick((" + ", " - ")) * bool(q) + f"{draw.coefficient()} * {{{q}}}"
        for q in range(chains)
    )
    return Formula(target, terms, result, ("k",))


# --- chains of arithmetic, one or several per item, that a loop along k continues

_UPDATES = {
    # seconds per update, about; states stay between -2 and 6 for inputs of at most 1/2
    "{s} * {x} + {c}": 1.0e-9,
    "0.5 * {s} + {x}": 1.0e-9,
    "{s} + {x}": 0.8e-9,
    "{s} - {x} * {x}": 1.0e-9,
    "0.5 * ({s} + {x}) * ({s} - {x}) - 0.25": 1.5e-9,
    "{x} - 0.75 * {s}": 1.0e-9,
    "rsqrt({s} * {s} + {c})": 2.0e-9,
    "sqrt({s} * {s} + {c}) - 1.0": 2.0e-9,
    "{c} / ({s} * {s} + 1.5)": 2.0e-9,
    "exp(-{s} * {s}) + {x}": 6.0e-9,
    "fmax({x} - {s}, 0.25 * {s})": 1.0e-9,
}
_INTEGER_UPDATES = {
    # seconds per update, about; states stay below 2**24, which f32 holds exactly;
    # b is drawn from _POWERS, d from _DIVISORS
    "({s} * 5 + k) % {b}": 0.8e-9,
    "({s} + 7 * k) % {d}": 1.5e-9,
    "{s} // {d} + 1000": 1.5e-9,
    "{s} // {b} + 3 * k": 0.8e-9,
    "({s} // {d} + 13 * {s}) % {b}": 2.0e-9,
    "({s} * 3 + i) % {b}": 0.8e-9,
    "{s} // 2 + i % {b}": 1.0e-9,
    "({s} + k) % {d} + {s} // {b}": 2.5e-9,
}
_POWERS = (8, 64, 256, 1024, 4096)
_DIVISORS = (3, 7, 10, 100, 509, 1021)


def arithmetic(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw chains of arithmetic; None if the choices do not fit together."""
    planar = draw.chance(0.3)
    loops, items = draw.loops_and_items(planar)
    table = draw.pick(("", "", "global", *(("local",) * 3 if not planar else ())))
    step = draw.length((4, 6, 8, 16, 24, 32, 64))
    number = draw.pick((1, 1, 2, 2, 3, 4, 5, 6))
    kinds = draw.some(tuple(_UPDATES), draw.pick((1, 1, 2, 3)))
    own = f"a[{', '.join(loops)}]"
    other = "t[k]" if table else own
    if table and not any("{x}" in kind for kind in kinds):
        return None
    chosen = [kinds[q % len(kinds)] for q in range(number)]
    states = tuple(
        (
            f"{draw.coefficient()} * {own}",
            kind.format(s=f"s{q}", x=other, c=str(draw.integer(2, 12) / 16)),
        )
        for q, kind in enumerate(chosen)
    )
    terms = draw.integer(1, 5) * 48
    unrolled = draw.chance(0.3) and step * number <= 48
    work_s = terms * sum(_UPDATES[kind] for kind in chosen) * (0.4 if table == "local" else 0.8)
    sizes = _chain_sizes(draw, items, work_s, step, terms)
    if not any(other in update for _, update in states):
        table = ""
    first_axis = draw.pick((1, 0)) if planar else 0
    within = (*(f"{loop}_group" for loop in loops), "k_step")
    inputs = f"a[{shape_of(', '.join(loops), _SIZES)}], {'t[m], ' if table else ''}"
    return _chains("chains", loops, states, sizes, inputs), Shape(
        along(loops, items, first_axis=first_axis),
        steps=(Step("k", step, unrolled),) if unrolled or table == "local" else (),
        fetches=(Fetch("t", ("k_in",), within, (0,)),) if table == "local" else (),
    )


def integer(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw chains of integer arithmetic; None if the choices do not fit together."""
    planar = draw.chance(0.4)
    loops, items = draw.loops_and_items(planar)
    number = draw.pick((1, 1, 2, 2, 3, 4))
    step = draw.length((2, 4, 6, 8, 16))
    unrolled = draw.chance(0.35) and step * number <= 32
    kinds = draw.some(tuple(_INTEGER_UPDATES), draw.pick((1, 1, 2, 3)))
    chosen = [kinds[q % len(kinds)] for q in range(number)]
    terms = -(-draw.integer(1, 4) * 24 // step) * step
    states = tuple(
        (
            f"(i + {17 * q}) % 1021",
            kind.format(s=f"s{q}", b=draw.pick(_POWERS), d=draw.pick(_DIVISORS)),
        )
        for q, kind in enumerate(chosen)
    )
    work_s = terms * sum(_INTEGER_UPDATES[kind] for kind in chosen)
    sizes = _chain_sizes(draw, items, work_s, step, terms)
    return _chains("integers", loops, states, sizes, state_type="int32"), Shape(
        along(loops, items, first_axis=draw.pick((1, 0)) if planar else 0),
        steps=(Step("k", step, unrolled),) if unrolled else (),
    )


def _chain_sizes(
    draw: Draw, items: tuple[int, ...], work_s: float, step: int, terms: int
) -> tuple[SizeParameter, ...]:
    return (
        *draw.sizes(
            dict(zip("nl", items, strict=False)), lambda s: s["n"] * s.get("l", 1) * work_s
        ),
        SizeParameter("m", step, fixed=-(-terms // step) * step),
    )


def _chains(
    name: str,
    loops: str,
    states: tuple[tuple[str, str], ...],
    sizes: tuple[SizeParameter, ...],
    inputs: str = "",
    *,
    state_type: str = "",
) -> Program:
    """Return a program whose items sum the final states of their chains, in array r."""
    where = ", ".join(loops)
    return Program(
        name,
        tuple((loop, _SIZES[loop]) for loop in (*loops, "k")),
        (
            Recurrence(
                f"r[{where}]", states, "k", _sum_of_states(len(states)), state_type=state_type
            ),
        ),
        sizes,
        arrays(f"{inputs}output r[{shape_of(where, _SIZES)}]"),
    )


# --- interactions: sums over points of functions of distances, as in N-body and kernel methods
#
# Each item computes the action on one point, or on a few. An iteration stores what it uses twice.

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


def interaction(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw sums over pairs of points; None if the choices do not fit together."""
    items = draw.linear_group()
    axes = draw.pick((1, 2, 3, 3))
    layout = draw.pick(_LAYOUTS)
    is_fetched = draw.chance(0.5)
    each = 1 if is_fetched else draw.length((1, 1, 1, 2, 3))
    tile = items if is_fetched and draw.chance(0.4) else draw.length(_TILES)
    unrolled = draw.chance(0.25) and tile * each * axes <= 48
    if is_fetched and 4 * tile * (axes + 1) > LOCAL_BYTES:
        return None
    recurrence, pair_s = _pairs(draw, layout, axes)
    weighted = "q[k]" in str(recurrence)
    program = Program(
        "interaction",
        (("i", "n"), ("k", "m")),
        (recurrence,),
        draw.sizes({"n": items * each, "m": tile}, lambda s: s["n"] * s["m"] * pair_s),
        arrays(
            ", ".join(array for array, _ in _points(layout, "x", "n", axes))
            + ", "
            + ", ".join(array for array, _ in _points(layout, "y", "m", axes))
            + (", q[m]" if weighted else "")
            + ", output f[n]"
        ),
    )
    fetched = [*_points(layout, "y", "m", axes), *([("q[m]", (0,))] if weighted else [])]
    return program, Shape(
        (Divided("i", 0, items, each),),
        block=draw.pick(("for", "unr")),
        steps=(Step("k", tile, unrolled),) if is_fetched or unrolled else (),
        fetches=tuple(
            Fetch(array.partition("[")[0], ("k_in",), ("i_group", "k_step"), positions)
            for array, positions in fetched
        )
        if is_fetched
        else (),
    )


def _pairs(draw: Draw, layout: str, axes: int) -> tuple[Recurrence, float]:
    """Draw the sum of a point over all others, with seconds per pair."""
    function = draw.pick(tuple(_FUNCTIONS))
    condition = draw.pick(_CONDITIONS)
    is_weighted = draw.chance(0.4)
    parts = [
        (f"d{axis}", f"{_read(layout, 'x', axis, 'i')} - {_read(layout, 'y', axis, 'k')}")
        for axis in range(axes)
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
    result = " + ".join(
        f"{draw.coefficient()} * s{number}" if number else "s0" for number in range(len(updates))
    )
    states = tuple(("0.0", update) for update in updates)
    pair_s = _FUNCTIONS[function] + 0.2e-9 * axes * (2 if is_force else 1)
    return Recurrence("f[i]", states, "k", result, parts=tuple(parts)), pair_s


def _read(layout: str, array: str, axis: int, point: str) -> str:
    match layout:
        case "separate":
            return f"{array}{axis}[{point}]"
        case "points last":
            return f"{array}[{axis}, {point}]"
        case _:
            return f"{array}[{point}, {axis}]"


def _points(
    layout: str, array: str, length: str, axes: int
) -> list[tuple[str, tuple[int | None, ...]]]:
    """Return the arrays of points with their shapes, and the local axes of a fetch."""
    match layout:
        case "separate":
            return [(f"{array}{axis}[{length}]", (0,)) for axis in range(axes)]
        case "points last":
            return [(f"{array}[{axes}, {length}]", (None, 0))]
        case _:
            return [(f"{array}[{length}, {axes}]", (0, None))]
