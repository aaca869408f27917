"""Copies and transposes by tiles that end within lines: groups share lines of memory.

Along the first axis of groups the next one goes on with a line, while a cache still has it; along
the second one all groups of the first come between, and with them as many lines as there are rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import GroupShape
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Shape

_TILES: tuple[tuple[GroupShape, GroupShape], ...] = (
    ((4, 4), (1, 1)),
    ((4, 4), (1, 2)),
    ((4, 4), (2, 1)),
    ((4, 4), (2, 2)),
    ((4, 4), (2, 4)),
    ((4, 4), (4, 4)),
    ((8, 4), (1, 1)),
    ((8, 8), (1, 1)),
    ((8, 8), (2, 2)),
    ((16, 2), (1, 1)),
    ((16, 4), (1, 2)),
    ((16, 16), (1, 1)),
    ((32, 4), (1, 1)),
    ((32, 8), (2, 1)),
)
"""Items along the rows and the columns of ``x``, and how many rows and columns each of them has."""


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for kind in ("copied", "loaded-apart", "stored-apart"):
        for items, each in _TILES:
            for base in (2048, 1952):
                yield _entry(kind, items, each, base)


def _entry(kind: str, items: GroupShape, each: GroupShape, base: int) -> CatalogEntry:
    target = "r[i, j]" if kind == "copied" else "r[j, i]"
    rows, columns = Extent("n"), Extent("m")
    program = Program(
        name="shared_lines",
        loops=(("i", "n"), ("j", "m")),
        formulas=(Formula(target=target, terms=("1.5 * x[i, j]",)),),
        sizes=(
            SizeParameter(name="n", multiple=items[0] * each[0], base=base),
            SizeParameter(name="m", multiple=items[1] * each[1], base=base),
        ),
        arguments=(
            ArrayArgument(name="x", shape=(rows, columns)),
            ArrayArgument(
                name="r",
                shape=(rows, columns) if kind == "copied" else (columns, rows),
                role="output",
            ),
        ),
        element_type="f32",
    )
    first = 1 if kind == "stored-apart" else 0
    shape = Shape(
        divided=(
            Divided(loop="i", axis=first, items=items[0], each=each[0]),
            Divided(loop="j", axis=1 - first, items=items[1], each=each[1]),
        ),
        block="unr",
    )
    return program_entry(
        program,
        shape,
        family="shared-lines",
        variant=f"{kind}-{each[0]}x{each[1]}-{base}",
        collection="extended",
        description=f"a matrix copied or transposed by tiles, pitch of {base} elements",
        exponent_steps=(0, 1),
    )
