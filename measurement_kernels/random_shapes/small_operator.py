"""Random small operators: the same small matrices applied to the nodes of many elements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape
from measurement_kernels.random_shapes.draws import (
    LARGEST_GROUP,
    LOCAL_BYTES,
    Draw,
    blocked_entries,
    random_entries,
)

_NUMBER = 40
_REGULAR = 30
_DOUBLE = 10
_BLOCKED = (10, 30)
"""Irregular and regular ones."""
_TERM_S = 0.4e-9
_NODES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20, 24, 32)
_ITEMS = (2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64)
_MOST_UNROLLED = 128

_TERMS = ("{m} * {u}",) * 4 + ("{m} * ({u} - s[j])", "{m} * {u} * s[j]", "{m} * {u} * {u}")
_RESULTS = (
    "{{0}}",
    "{{0}}",
    "{c} * {{0}}",
    "g[e] * {{0}}",
    "{{0}} + {own}",
    "{{0}} / (g[e] + 2.0)",
)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-small-operator",
        "random small matrices applied to many elements, of random shape",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )
    yield from blocked_entries(
        "operator", "small matrices applied to many elements", *_BLOCKED, drawn
    )


def drawn(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together.

    With `blocked`, each item has 4 to 16 results.
    """
    rows = draw.length(_NODES)
    times = draw.pick((1, 1, 1, 2, 3))
    columns = draw.length(_NODES)
    operators = draw.pick((1, 1, 2, 3))
    items = draw.length(_ITEMS)
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
    nodes = rows * times
    first = "q, " if operators > 1 else ""
    reads = {
        "m": f"m[{first}{draw.pick(('i, j', 'j, i'))}]",
        "u": draw.pick(("u[e, j]", "u[j, e]")),
        "own": draw.pick(("v[e, i]", "v[i, e]")),
    }
    target = f"r[{first}{draw.pick(('e, i', 'i, e'))}]"
    formula = Formula(
        target=target,
        terms=(draw.pick(_TERMS).format(**reads),),
        result=draw.pick(_RESULTS).format(c=draw.coefficient(), **reads),
        summed=("j",),
    )
    text = f"{target} {formula.terms[0]} {formula.result}"
    extents = {"q": operators, "e": Extent("n"), "i": nodes, "j": columns}
    program = Program(
        name="small_operator",
        loops=(*((("q", operators),) if first else ()), ("e", "n"), ("i", nodes), ("j", columns)),
        formulas=(formula,),
        sizes=draw.sizes(
            {"n": items * each}, lambda s: s["n"] * nodes * columns * operators * _TERM_S
        ),
        arguments=tuple(
            ArrayArgument(
                name=name,
                shape=tuple(extents[axis] for axis in indices.split(", ")),
                role="output" if name == "r" else "input",
            )
            for name, indices in _accesses(text)
        ),
    )
    axis = draw.integer(0, 1)
    groups = ("q",) if first else ()
    within = ("e_group", "i_group", *groups)
    fetches = {
        "m": Fetch(
            array="m",
            sweep=("i_each", "i_item", "j"),
            within=within,
            axes=(*((None,) if first else ()), *draw.pick(((0, 1), (1, 0)))),
        ),
        "u": Fetch(
            array="u",
            sweep=("e_each", "e_item", "j"),
            within=within,
            axes=draw.pick(((0, 1), (1, 0))),
        ),
    }
    shape = Shape(
        divided=(
            Divided(loop="e", axis=axis, items=items, each=each),
            Divided(loop="i", axis=1 - axis, items=rows),
        ),
        block=draw.pick(("ilp", "ilp.seq", "for")) if each > 1 else "for",
        groups=groups,
        unrolled=("j",) if unrolled else (),
        fetches=tuple(fetches[array] for array in fetched),
    )
    return program, shape


def _accesses(text: str) -> list[tuple[str, str]]:
    """List the arrays of a formula with their indices, by name."""
    return sorted({(match[1], match[2]) for match in re.finditer(r"([a-z])\[([^]]+)\]", text)})
