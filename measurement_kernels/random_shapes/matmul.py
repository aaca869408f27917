"""Random products: every item sums over k what two matrices have for its row and column."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape, Step
from measurement_kernels.random_shapes.draws import (
    LARGEST_GROUP,
    LOCAL_BYTES,
    Draw,
    blocked_entries,
    random_entries,
)

_NUMBER = 90
_REGULAR = 60
_DOUBLE = 14
_BLOCKED = (14, 36)
"""Irregular and regular ones."""
_TERM_S = 0.4e-9

_TERMS = ("{a} * {b}",) * 5 + (
    "({a} - {b}) * ({a} - {b})",
    "fabs({a} - {b})",
    "{a} * {b} * w[k]",
    "({a} + w[k]) * {b}",
)
_RESULTS = ("{{0}}",) * 3 + ("{c} * {{0}} + e[i, j]", "{{0}} + v[j]", "v[i] * {{0}}", "{c} * {{0}}")
_ITEMS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64)
_STEPS = (4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-matmul",
        "matrix product or a relative, of random shape",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )
    yield from blocked_entries("matmul", "matrix product or a relative", *_BLOCKED, drawn)


def drawn(draw: Draw, *, blocked: bool = False) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together.

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
        {
            "n": items[0] * each[0],
            "m": step,
            "l": items[1] * each[1],
        },
        lambda s: s["n"] * s["m"] * s["l"] * (6 if batched else 1) * _TERM_S,
        skew=1.5,
    )
    if batched:
        sizes = (*sizes, SizeParameter(name="p", fixed=6))
    layouts = {"a": draw.pick(("ik", "ik", "ki")), "b": draw.pick(("kj", "kj", "jk"))}
    formula = _formula(draw, layouts, batched=batched)
    program = Program(
        name="product",
        loops=(("i", "n"), ("j", "l"), ("k", "m"), *((("q", "p"),) if batched else ())),
        formulas=(formula,),
        sizes=sizes,
        arguments=_arguments(layouts, formula, batched=batched),
    )
    groups = ("q",) if batched else ()
    swapped = draw.chance(0.25)
    fetches = tuple(
        Fetch(
            array=array,
            sweep=(f"{other}_each", f"{other}_item", "k_in"),
            within=("i_group", "j_group", *groups, "k_step"),
            axes=(*((None,) if batched else ()), *((0, 1) if swapped else (1, 0))),
        )
        for array, other in (("a", "i"), ("b", "j"))
        if array in fetched
    )
    shape = Shape(
        divided=(
            Divided(loop="i", axis=row_axis, items=items[0], each=each[0]),
            Divided(loop="j", axis=1 - row_axis, items=items[1], each=each[1]),
        ),
        block=block,
        groups=groups,
        steps=(Step(loop="k", length=step, unrolled=unrolled),) if pieces else (),
        fetches=fetches,
    )
    return program, shape


def _formula(draw: Draw, layouts: dict[str, str], *, batched: bool) -> Formula:
    first = "q, " if batched else ""
    reads = {array: f"{array}[{first}{', '.join(layouts[array])}]" for array in ("a", "b")}
    return Formula(
        target=f"c[{first}i, j]",
        terms=(draw.pick(_TERMS).format(**reads),),
        result=draw.pick(_RESULTS).format(c=draw.coefficient()),
        summed=("k",),
    )


def _arguments(
    layouts: dict[str, str], formula: Formula, *, batched: bool
) -> tuple[ArrayArgument, ...]:
    extents = {"i": Extent("n"), "j": Extent("l"), "k": Extent("m")}
    first = (Extent("p"),) if batched else ()
    made = [
        ArrayArgument(name=array, shape=(*first, *(extents[axis] for axis in layout)))
        for array, layout in layouts.items()
    ]
    extra = {"w[k]": ("w", "k"), "v[i]": ("v", "i"), "v[j]": ("v", "j"), "e[i, j]": ("e", "ij")}
    for read, (name, axes) in extra.items():
        if read in formula.terms[0] + formula.result:
            made.append(ArrayArgument(name=name, shape=tuple(extents[axis] for axis in axes)))
    target = ArrayArgument(name="c", shape=(*first, extents["i"], extents["j"]), role="output")
    return (*made, target)
