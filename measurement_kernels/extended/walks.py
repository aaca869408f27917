"""Accesses that step from row to row: how far they go, how far rows lie apart, and who goes.

Whether a cache still keeps a line when an access comes back to it depends on how many lines lie
between, and how far apart: rows of 1024 or 2048 elements of 4 bytes share a few sets of a cache,
rows of 960 or 1040 do not. Loads and stores cost differently, and what the items of a group do side
by side differs from what each does in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Shape

Direction = Literal["load", "store"]

_DIRECTIONS: tuple[Direction, ...] = ("load", "store")
_OF_LANES = ((16, 1000), (16, 1024), (64, 1040), (64, 2048), (256, 1000), (256, 1024), (256, 1536))
_OF_LOOPS = ((16, 1024), (64, 960), (64, 2048), (512, 960), (512, 1024), (512, 1536), (2048, 1024))
_ELEMENTS = 1 << 20
_ITEMS = 64


def entries() -> Iterator[CatalogEntry]:
    """List both families."""
    for direction in _DIRECTIONS:
        for items, columns in _OF_LANES:
            yield _lanes(direction, items, columns)
        for rows, columns in _OF_LOOPS:
            yield _loop(direction, rows, columns)


def _lanes(direction: Direction, items: int, columns: int) -> CatalogEntry:
    """Make a permutation whose items read, or write, one row each; groups follow along rows."""
    n, m, p = Extent("n"), Extent("m"), Extent("p")
    far, near = "q, i, j", "q, j, i"
    read, write = (far, near) if direction == "load" else (near, far)
    shapes = {far: (p, n, m), near: (p, m, n)}
    program = Program(
        name=f"{direction}_rows",
        loops=(("q", "p"), ("i", "n"), ("j", "m")),
        formulas=(Formula(target=f"r[{write}]", terms=(f"a[{read}]",)),),
        sizes=(
            SizeParameter(name="p", base=max(1, _ELEMENTS // (items * columns))),
            SizeParameter(name="n", multiple=items, fixed=items),
            SizeParameter(name="m", fixed=columns),
        ),
        arguments=(
            ArrayArgument(name="a", shape=shapes[read]),
            ArrayArgument(name="r", shape=shapes[write], role="output"),
        ),
    )
    return program_entry(
        program,
        Shape(divided=(Divided(loop="i", axis=0, items=items),), groups=("j", "q")),
        family="walks-of-lanes",
        variant=f"{direction}-of-{columns}",
        collection="extended",
        description=f"{direction}s of neighbors in {items} rows of {columns} elements",
        exponent_steps=(0, 2),
    )


def _loop(direction: Direction, rows: int, columns: int) -> CatalogEntry:
    """Make items that go down a column each, of some rows that lie side by side."""
    n, m, p = Extent("n"), Extent("m"), Extent("p")
    is_load = direction == "load"
    formula = (
        Formula(target="r[q, i]", terms=("a[q, k, i]",), summed=("k",))
        if is_load
        else Formula(target="r[q, k, i]", terms=("a[q, i] * c[k]",))
    )
    columns_of, matrices = (p, m), (p, n, m)
    program = Program(
        name=f"{direction}_columns",
        loops=(("q", "p"), ("i", "m"), ("k", "n")),
        formulas=(formula,),
        sizes=(
            SizeParameter(name="p", base=max(1, _ELEMENTS // (rows * columns))),
            SizeParameter(name="n", fixed=rows),
            SizeParameter(name="m", multiple=_ITEMS, fixed=columns),
        ),
        arguments=(
            ArrayArgument(name="a", shape=matrices if is_load else columns_of),
            *(() if is_load else (ArrayArgument(name="c", shape=(n,)),)),
            ArrayArgument(name="r", shape=columns_of if is_load else matrices, role="output"),
        ),
    )
    return program_entry(
        program,
        Shape(divided=(Divided(loop="i", axis=0, items=_ITEMS),), groups=("q",)),
        family="walks-in-loops",
        variant=f"{direction}-{rows}-of-{columns}",
        collection="extended",
        description=f"{direction}s along columns of {rows} rows of {columns} elements",
        exponent_steps=(0, 2),
    )
