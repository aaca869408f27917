"""Several results of each item: kept over barriers, side by side or in loops of their own.

What waits at barriers is kept for all items of a group, an array for each result, whose lines share
sets of a cache where the number of items is a multiple of a large power of two. Results in loops of
their own are an array of each item, which a compiler holds in registers or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended.chains import chains_program
from measurement_kernels.groups import GroupShape
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import (
    Divided,
    Fetch,
    Formula,
    Program,
    Shape,
    Step,
)

_STEP = 8
_ROUNDS = 128
_CHAINS = {
    128: (16, 32, 64),
    192: (16, 32),
    256: (4, 8, 16, 24, 32, 64),
    384: (16, 32),
    512: (4, 8, 16, 24, 32),
    640: (16, 32),
    768: (16, 32),
    1024: (4, 8, 16, 24, 32),
}
_DOUBLE_CHAINS = {256: (8, 16, 32), 512: (8, 16), 640: (16,)}
_SHARED_GROUPS: tuple[GroupShape, ...] = (
    (32, 4),
    (16, 16),
    (32, 8),
    (32, 12),
    (32, 16),
    (64, 8),
    (32, 24),
    (32, 32),
)
_SHARED_BLOCKS = ((4, 4), (2, 4))
_LOOPED_GROUPS: tuple[GroupShape, ...] = (
    (8, 1),
    (16, 1),
    (16, 2),
    (32, 1),
    (16, 8),
    (64, 1),
    (32, 8),
)
_LOOPED_BLOCKS = ((1, 4), (2, 4), (4, 4))


def entries() -> Iterator[CatalogEntry]:
    """List both families."""
    for element_type, chains in (("f32", _CHAINS), ("f64", _DOUBLE_CHAINS)):
        for items, numbers in chains.items():
            for number in numbers:
                yield _of_chains(items, number, element_type)
    for group in _SHARED_GROUPS:
        for each in _SHARED_BLOCKS:
            yield _of_products(group, each, "ilp", fetched="xy")
    for group in _LOOPED_GROUPS:
        for each in _LOOPED_BLOCKS:
            for fetched in ("", "x"):
                yield _of_products(group, each, "ilp.seq", fetched=fetched)


def _of_chains(items: int, number: int, element_type: str) -> CatalogEntry:
    """Make an entry whose items update some states by a table that goes through local memory."""
    program, shape = chains_program(
        "kept_states",
        number,
        "0.9375 * {s} + {x}",
        element_type,
        items=items,
        base=max(2**18 // number, 4 * items),
        step=_STEP,
        behind_barriers=True,
    )
    return program_entry(
        program,
        shape,
        family="kept-results",
        variant=f"states-{number}",
        collection="extended",
        description=f"{number} states of each item, kept over barriers",
        exponent_steps=(0, 1),
    )


def _of_products(
    group: GroupShape, each: tuple[int, int], block: str, *, fetched: str
) -> CatalogEntry:
    """Make an entry whose items each sum for several rows and columns."""
    row, rows = group
    program = Program(
        name="kept_sums",
        loops=(("i", "n"), ("j", "l"), ("k", "m")),
        formulas=(Formula(target="r[i, j]", terms=("x[i, k] * y[k, j]",), summed=("k",)),),
        sizes=(
            SizeParameter(name="n", multiple=rows * each[0], base=192),
            SizeParameter(name="l", multiple=row * each[1], base=640),
            SizeParameter(name="m", multiple=_STEP, fixed=_ROUNDS),
        ),
        arguments=(
            ArrayArgument(name="x", shape=(Extent("n"), Extent("m"))),
            ArrayArgument(name="y", shape=(Extent("m"), Extent("l"))),
            ArrayArgument(name="r", shape=(Extent("n"), Extent("l")), role="output"),
        ),
        element_type="f32",
    )
    shape = Shape(
        divided=(
            Divided(loop="i", axis=1, items=rows, each=each[0]),
            Divided(loop="j", axis=0, items=row, each=each[1]),
        ),
        block=block,
        steps=(Step(loop="k", length=_STEP),) if fetched else (),
        fetches=tuple(
            Fetch(
                array=array,
                sweep=(f"{other}_each", f"{other}_item", "k_in"),
                within=("i_group", "j_group", "k_step"),
                axes=(1, 0),
            )
            for array, other in (("x", "i"), ("y", "j"))
            if array in fetched
        ),
    )
    family = "kept-results" if block == "ilp" else "results-in-loops"
    through = f"-{fetched}" if fetched else ""
    return program_entry(
        program,
        shape,
        family=family,
        variant=f"sums-{each[0]}x{each[1]}{through}",
        collection="extended",
        description=f"{each[0] * each[1]} sums of each item",
        exponent_steps=(0, 1),
    )
