"""Several results of each item, and results that the items of a group compute together.

Values that live across barriers are stored for all items of a group, in one array per result. Lines
of these arrays share sets of a cache if the number of items is a multiple of a large power of two.
Results in loops of their own are a private array of each item, which a compiler may or may not keep
in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import loopy as lp
from loopy import TranslationUnit

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended.arithmetic import UPDATES, chains_program
from measurement_kernels.groups import GroupShape
from measurement_kernels.programs import Fetch, Formula, Program, Shape, Step, along, program_entry

_STEP = 8
_STATES = {
    "f32": {
        128: (16, 32, 64),
        192: (16, 32),
        256: (4, 8, 16, 24, 32, 64),
        384: (16, 32),
        512: (4, 8, 16, 24, 32),
        640: (16, 32),
        768: (16, 32),
        1024: (4, 8, 16, 24, 32),
    },
    "f64": {256: (8, 16, 32), 512: (8, 16), 640: (16,)},
}
"""Numbers of states per item, by items of a group."""

_SHARED_GROUPS = ((32, 4), (16, 16), (32, 8), (32, 12), (32, 16), (64, 8), (32, 24), (32, 32))
_LOOPED_GROUPS = ((8, 1), (16, 1), (16, 2), (32, 1), (16, 8), (64, 1), (32, 8))


def several_results() -> Iterator[CatalogEntry]:
    """List ``kept-results`` and ``results-in-loops``."""
    for element_type, numbers_of in _STATES.items():
        for items, numbers in numbers_of.items():
            for number in numbers:
                program, shape = chains_program(
                    "kept_states",
                    number,
                    UPDATES["fma"],
                    element_type,
                    items=items,
                    base=max(2**18 // number, 4 * items),
                    step=_STEP,
                    behind_barriers=True,
                )
                yield program_entry(program, shape, "kept-results", f"states-{number}", (0, 1))
    for group in _SHARED_GROUPS:
        for each in ((4, 4), (2, 4)):
            yield _products("kept-results", group, each, "ilp", fetched="xy")
    for group in _LOOPED_GROUPS:
        for each in ((1, 4), (2, 4), (4, 4)):
            for fetched in ("", "x"):
                yield _products("results-in-loops", group, each, "ilp.seq", fetched=fetched)


def _products(
    family: str, group: GroupShape, each: tuple[int, int], block: str, *, fetched: str
) -> CatalogEntry:
    """Return an entry whose items each sum for several rows and columns."""
    row, rows = group
    program = Program(
        "kept_sums",
        (("i", "n"), ("j", "l"), ("k", "m")),
        (Formula("r[i, j]", ("x[i, k] * y[k, j]",), summed=("k",)),),
        (
            SizeParameter("n", rows * each[0], base=192),
            SizeParameter("l", row * each[1], base=640),
            SizeParameter("m", _STEP, fixed=128),
        ),
        arrays("x[n, m], y[m, l], output r[n, l]"),
    )
    within = ("i_group", "j_group", "k_step")
    shape = Shape(
        along("ij", (rows, row), each),
        block=block,
        steps=(Step("k", _STEP),) if fetched else (),
        fetches=tuple(
            Fetch(array, (f"{other}_each", f"{other}_item", "k_in"), within, (1, 0))
            for array, other in (("x", "i"), ("y", "j"))
            if array in fetched
        ),
    )
    through = f"-{fetched}" if fetched else ""
    variant = f"sums-{each[0]}x{each[1]}{through}"
    return program_entry(program, shape, family, variant, (0, 1))


def group_reductions() -> Iterator[CatalogEntry]:
    """List ``group-reduction``: each item sums its part, then a tree in local memory follows."""
    for variant, term, array in (("row", "a[i, k]", "a[n, m]"), ("column", "a[k, i]", "a[m, n]")):
        for items in (32, 64, 128, 256):
            program = Program(
                "group_sum",
                (("i", "n"), ("k", "m")),
                (Formula("r[i]", (term,), summed=("k",)),),
                (SizeParameter("n", base=480), SizeParameter("m", items, base=900)),
                arrays(f"{array}, output r[n]"),
            )
            builder = partial(_build, program, items)
            yield program_entry(
                program, (items, 1), "group-reduction", variant, (0, 1), builder=builder
            )


@cache
def _build(program: Program, items: int) -> TranslationUnit:
    unit = lp.tag_inames(program.unit(), {"i": "g.0"})
    unit = lp.split_iname(unit, "k", items, outer_iname="k_each", inner_iname="k_item")
    unit = lp.split_reduction_outward(unit, "k_item")
    # Loopy warns that every item writes the group's sum
    kernel = unit.default_entrypoint.copy(silenced_warnings=frozenset({"write_race(insn)"}))
    return lp.tag_inames(unit.with_kernel(kernel), {"k_item": "l.0"})
