"""Random products: matrix products and their relatives, and small operators on many elements."""

from __future__ import annotations

import re

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape, Step, along
from measurement_kernels.random_shapes.draws import LARGEST_GROUP, LOCAL_BYTES, Draw, shape_of

_TERM_S = 0.4e-9

# --- matrix products: every item sums over k a function of a row and a column of two matrices

_TERMS = ("{a} * {b}",) * 5 + (
    "({a} - {b}) * ({a} - {b})",
    "fabs({a} - {b})",
    "{a} * {b} * w[k]",
    "({a} + w[k]) * {b}",
)
_RESULTS = ("{{0}}",) * 3 + ("{c} * {{0}} + e[i, j]", "{{0}} + v[j]", "v[i] * {{0}}", "{c} * {{0}}")
_ITEMS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64)
_STEPS = (4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40)
_SIZES = {"i": "n", "j": "l", "k": "m"}


def matmul(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a matrix product or a relative; None if the choices do not fit together.

    With `blocked`, each item has 4 to 16 results.
    """
    items = draw.length(_ITEMS), draw.length(_ITEMS)
    if blocked:
        each = draw.block()
    else:
        each = draw.length((1, 1, 1, 2, 3, 4, 5)), draw.length((1, 1, 1, 2, 3, 4))
    step = draw.length(_STEPS)
    fetched = draw.pick(("", "", "a", "b", "ab", "ab", "ab"))
    row_axis = draw.pick((1, 1, 0))
    block = draw.pick(("ilp", "ilp.seq") if fetched else ("ilp", "ilp.seq", "for", "unr"))
    unrolled = draw.chance(0.3) and step * each[0] * each[1] <= (256 if blocked else 96)
    pieces = bool(fetched) or unrolled or draw.chance(0.3)
    tiles = {"a": items[0] * each[0] * step, "b": items[1] * each[1] * step}
    if (
        not 16 <= items[0] * items[1] <= LARGEST_GROUP
        or each[0] * each[1] > (16 if blocked else 9)
        or (draw.regular and any(tiles[array] == step for array in fetched))
        or 4 * sum(tiles[array] for array in fetched) > LOCAL_BYTES
    ):
        return None
    batched = draw.chance(0.15)
    sizes = draw.sizes(
        {"n": items[0] * each[0], "m": step, "l": items[1] * each[1]},
        lambda s: s["n"] * s["m"] * s["l"] * (6 if batched else 1) * _TERM_S,
        skew=1.5,
    )
    if batched:
        sizes = (*sizes, SizeParameter("p", fixed=6))
    program = _product(draw, sizes, batched=batched)
    groups = ("q",) if batched else ()
    axes = (*((None,) if batched else ()), *((0, 1) if draw.chance(0.25) else (1, 0)))
    within = ("i_group", "j_group", *groups, "k_step")
    return program, Shape(
        along("ij", items, each, first_axis=row_axis),
        block=block,
        groups=groups,
        steps=(Step("k", step, unrolled),) if pieces else (),
        fetches=tuple(
            Fetch(array, (f"{other}_each", f"{other}_item", "k_in"), within, axes)
            for array, other in (("a", "i"), ("b", "j"))
            if array in fetched
        ),
    )


def _product(draw: Draw, sizes: tuple[SizeParameter, ...], *, batched: bool) -> Program:
    layouts = {"a": draw.pick(("i, k", "i, k", "k, i")), "b": draw.pick(("k, j", "k, j", "j, k"))}
    first, batch = ("q, ", "p, ") if batched else ("", "")
    term = draw.pick(_TERMS).format(**{a: f"{a}[{first}{where}]" for a, where in layouts.items()})
    result = draw.pick(_RESULTS).format(c=draw.coefficient())
    matrices = [f"{a}[{batch}{shape_of(where, _SIZES)}]" for a, where in layouts.items()]
    extra = [
        f"{read[0]}[{shape_of(read[2:-1], _SIZES)}]"
        for read in ("w[k]", "v[i]", "v[j]", "e[i, j]")
        if read in term + result
    ]
    return Program(
        "product",
        (("i", "n"), ("j", "l"), ("k", "m"), *((("q", "p"),) if batched else ())),
        (Formula(f"c[{first}i, j]", (term,), result, ("k",)),),
        sizes,
        arrays(", ".join([*matrices, *extra, f"output c[{batch}n, l]"])),
    )


# --- small operators: the same small matrices applied to the nodes of many elements

_NODES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20, 24, 32)
_OPERATOR_ITEMS = (2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64)
_MOST_UNROLLED = 128
_OPERATOR_TERMS = ("{m} * {u}",) * 4 + (
    "{m} * ({u} - s[j])",
    "{m} * {u} * s[j]",
    "{m} * {u} * {u}",
)
_OPERATOR_RESULTS = (
    "{{0}}",
    "{{0}}",
    "{c} * {{0}}",
    "g[e] * {{0}}",
    "{{0}} + {own}",
    "{{0}} / (g[e] + 2.0)",
)


def small_operator(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw small operators on many elements; None if the choices do not fit together.

    With `blocked`, each item has 4 to 16 results.
    """
    rows = draw.length(_NODES)
    times = draw.pick((1, 1, 1, 2, 3))
    columns = draw.length(_NODES)
    operators = draw.pick((1, 1, 2, 3))
    items = draw.length(_OPERATOR_ITEMS)
    each = draw.length((4, 4, 5, 8, 8, 12, 16) if blocked else (1, 1, 2, 3, 4))
    fetched = draw.pick(("", "", "m", "u", "mu"))
    unrolled = draw.chance(0.4) and columns * each <= _MOST_UNROLLED
    tile = {"m": rows * columns, "u": items * each * columns}
    if (
        columns < 2
        or not 16 <= items * rows <= LARGEST_GROUP
        or 4 * sum(tile[array] for array in fetched) > LOCAL_BYTES
    ):
        return None
    program = _operator(draw, items * each, rows * times, columns, operators)
    axis = draw.integer(0, 1)
    groups = ("q",) if operators > 1 else ()
    within = ("e_group", "i_group", *groups)
    m_axes = (*((None,) if operators > 1 else ()), *draw.pick(((0, 1), (1, 0))))
    fetches = {
        "m": Fetch("m", ("i_each", "i_item", "j"), within, m_axes),
        "u": Fetch("u", ("e_each", "e_item", "j"), within, draw.pick(((0, 1), (1, 0)))),
    }
    return program, Shape(
        (Divided("e", axis, items, each), Divided("i", 1 - axis, rows)),
        block=draw.pick(("ilp", "ilp.seq", "for")) if each > 1 else "for",
        groups=groups,
        unrolled=("j",) if unrolled else (),
        fetches=tuple(fetches[array] for array in fetched),
    )


def _operator(draw: Draw, multiple: int, nodes: int, columns: int, operators: int) -> Program:
    first = "q, " if operators > 1 else ""
    reads = {
        "m": f"m[{first}{draw.pick(('i, j', 'j, i'))}]",
        "u": draw.pick(("u[e, j]", "u[j, e]")),
        "own": draw.pick(("v[e, i]", "v[i, e]")),
    }
    target = f"r[{first}{draw.pick(('e, i', 'i, e'))}]"
    term = draw.pick(_OPERATOR_TERMS).format(**reads)
    result = draw.pick(_OPERATOR_RESULTS).format(c=draw.coefficient(), **reads)
    used = sorted({*re.findall(r"([a-z])\[([^]]+)\]", f"{target} {term} {result}")})
    extents = {"q": operators, "e": "n", "i": nodes, "j": columns}
    return Program(
        "small_operator",
        (*((("q", operators),) if first else ()), ("e", "n"), ("i", nodes), ("j", columns)),
        (Formula(target, (term,), result, ("j",)),),
        draw.sizes({"n": multiple}, lambda s: s["n"] * nodes * columns * operators * _TERM_S),
        arrays(
            ", ".join(
                f"{'output ' if name == 'r' else ''}{name}[{shape_of(indices, extents)}]"
                for name, indices in used
            )
        ),
    )
