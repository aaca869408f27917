"""Streaming kernels in work groups of many shapes, one element per item."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import GroupShape
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Shape

_LINEAR = (8, 16, 32, 64, 100, 320, 1024)
_PLANAR = ((4, 64), (24, 8), (48, 4), (64, 4), (8, 8), (2, 128))
_VALUES = {"copy": "x[{0}]", "axpy": "0.75 * x[{0}] + y[{0}]"}


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for variant in _VALUES:
        for length in _LINEAR[:: 1 if variant == "copy" else 2]:
            yield _entry(variant, (length, 1))
        for group in _PLANAR[:: 1 if variant == "copy" else 2]:
            yield _entry(variant, group)


def _entry(variant: str, group: GroupShape) -> CatalogEntry:
    columns, rows = group
    loops = ("i",) if rows == 1 else ("i", "j")
    where = ", ".join(loops)
    extents = tuple(Extent(name) for name in "nm"[: len(loops)])
    lengths = (columns,) if rows == 1 else (rows, columns)
    bases = (600_000,) if rows == 1 else (600, 1000)
    program = Program(
        name=f"groups_{variant}",
        loops=tuple(zip(loops, "nm", strict=False)),
        formulas=(Formula(target=f"r[{where}]", terms=(_VALUES[variant].format(where),)),),
        sizes=tuple(
            SizeParameter(name=name, multiple=length, base=base)
            for name, length, base in zip("nm", lengths, bases, strict=False)
        ),
        arguments=(
            ArrayArgument(name="x", shape=extents),
            *((ArrayArgument(name="y", shape=extents),) if variant == "axpy" else ()),
            ArrayArgument(name="r", shape=extents, role="output"),
        ),
    )
    axes = (0,) if rows == 1 else (1, 0)
    return program_entry(
        program,
        Shape(
            divided=tuple(
                Divided(loop=loop, axis=axis, items=length)
                for loop, axis, length in zip(loops, axes, lengths, strict=True)
            )
        ),
        family="group-shapes",
        variant=f"{variant}-{len(loops)}d-{columns * rows}",
        collection="extended",
        description=f"{variant} of an array",
        exponent_steps=(0, 2) if rows == 1 else (0, 1),
    )
