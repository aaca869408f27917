"""Stencils through a tile with its halo in local memory, and the same without it."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape

_PLANAR = {
    "row3": ((0, -1), (0, 0), (0, 1)),
    "column3": ((-1, 0), (0, 0), (1, 0)),
    "diagonal5": ((-1, -1), (-1, 1), (0, 0), (1, -1), (1, 1)),
    "box9": tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)),
}
_GROUPS = ((32, 8), (24, 8), (8, 24))
_LINEAR = {"line3": 1, "line5": 2, "line9": 4}
_LENGTHS = (128, 320)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for name, points in _PLANAR.items():
        for group in _GROUPS:
            yield _planar(name, points, group, tiled=True)
        yield _planar(name, points, _GROUPS[0], tiled=False)
    for name, radius in _LINEAR.items():
        for length in _LENGTHS:
            yield _linear(name, radius, length)


def _planar(
    name: str, points: tuple[tuple[int, ...], ...], group: tuple[int, int], *, tiled: bool
) -> CatalogEntry:
    columns, rows = group
    around = (Extent("n", offset=2), Extent("m", offset=2))
    reads = [f"u[i + {1 + row}, j + {1 + column}]" for row, column in points]
    program = Program(
        name="halo_tile",
        loops=(("i", "n"), ("j", "m")),
        formulas=(Formula(target="r[i, j]", terms=(" + ".join(reads),)),),
        sizes=(
            SizeParameter(name="n", multiple=rows, base=600),
            SizeParameter(name="m", multiple=columns, base=840),
        ),
        arguments=(
            ArrayArgument(name="u", shape=around),
            ArrayArgument(name="r", shape=(Extent("n"), Extent("m")), role="output"),
        ),
    )
    fetch = Fetch(array="u", sweep=("i_item", "j_item"), within=("i_group", "j_group"), axes=(1, 0))
    shape = Shape(
        divided=(
            Divided(loop="i", axis=1, items=rows),
            Divided(loop="j", axis=0, items=columns),
        ),
        fetches=(fetch,) if tiled else (),
    )
    return _entry(program, shape, name if tiled else f"{name}-direct")


def _linear(name: str, radius: int, length: int) -> CatalogEntry:
    reads = [f"u[i + {offset}]" for offset in range(2 * radius + 1)]
    program = Program(
        name="halo_line",
        loops=(("i", "n"),),
        formulas=(Formula(target="r[i]", terms=(" + ".join(reads),)),),
        sizes=(SizeParameter(name="n", multiple=length, base=500_000),),
        arguments=(
            ArrayArgument(name="u", shape=(Extent("n", offset=2 * radius),)),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
    )
    shape = Shape(
        divided=(Divided(loop="i", axis=0, items=length),),
        fetches=(Fetch(array="u", sweep=("i_item",), within=("i_group",), axes=(0,)),),
    )
    return _entry(program, shape, name)


def _entry(program: Program, shape: Shape, variant: str) -> CatalogEntry:
    return program_entry(
        program,
        shape,
        family="halo-tile",
        variant=variant,
        collection="extended",
        description="sum of neighbors",
        exponent_steps=(0, 1),
    )
