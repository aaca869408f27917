"""Accesses that step from row to row: how far they go, how far rows lie apart, and who goes.

Rows that items go along, each its own, lie apart by what people choose, powers of two among it, and
by what they do not.

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


_OF_ROWS = (256, 384, 500, 512, 1000, 1024, 1040, 1536, 2048, 4096)
_ROW_ITEMS = (32, 100, 128, 256)


def entries() -> Iterator[CatalogEntry]:
    """List all families."""
    for direction in _DIRECTIONS:
        for items, columns in _OF_LANES:
            yield _lanes(direction, items, columns)
        for rows, columns in _OF_LOOPS:
            yield _loop(direction, rows, columns)
    for place, columns in enumerate(_OF_ROWS):
        for turn, of in enumerate(("one", "two")):
            items = _ROW_ITEMS[(place + turn) % len(_ROW_ITEMS)]
            yield _rows(items, columns, of, "f64" if (place + turn) % 3 == 2 else "f32")


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


def _rows(items: int, columns: int, of: str, element_type: str) -> CatalogEntry:
    """Make items that go along a row each, of one matrix or two, with a vector beside it."""
    n, m = Extent("n"), Extent("m")
    matrices = ("a",) if of == "one" else ("a", "b")
    program = Program(
        name=f"along_rows_of_{of}",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Formula(
                target="r[i]",
                terms=tuple(f"{matrix}[i, k] * c[k]" for matrix in matrices),
                result=" + 0.75 * ".join(f"{{{place}}}" for place in range(len(matrices))),
                summed=("k",),
            ),
        ),
        sizes=(
            SizeParameter(
                name="n", multiple=items, base=max(1, _ELEMENTS // (8 * columns * items))
            ),
            SizeParameter(name="m", fixed=columns),
        ),
        arguments=(
            *(ArrayArgument(name=matrix, shape=(n, m)) for matrix in matrices),
            ArrayArgument(name="c", shape=(m,)),
            ArrayArgument(name="r", shape=(n,), role="output"),
        ),
        element_type=element_type,
    )
    return program_entry(
        program,
        Shape(divided=(Divided(loop="i", axis=0, items=items),)),
        family="rows-in-loops",
        variant=f"{of}-of-{columns}",
        collection="extended",
        description=f"sums along rows of {columns} elements of {of} array(s), by each item",
        exponent_steps=(0, 2, 4),
    )
