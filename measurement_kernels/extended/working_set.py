"""Every group reads the same array again and again; the size of the array decides from where."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Shape

_ITEMS = 64
_BYTES_PER_ROW = 4 * _ITEMS
_KIBIBYTES = (8, 32, 128, 512, 2048, 8192, 32768, 65536)
_ROWS_READ = 2**15


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for kibibytes in _KIBIBYTES:
        rows = kibibytes * 1024 // _BYTES_PER_ROW
        passes = max(1, _ROWS_READ // rows)
        large = rows > _ROWS_READ
        program = Program(
            name="working_set",
            loops=(("g", "n"), ("i", _ITEMS), ("p", "passes"), ("k", "rows")),
            formulas=(Formula(target="r[g, i]", terms=("a[k, i]",), summed=("p", "k")),),
            sizes=(
                SizeParameter(name="n", base=2 if large else 4),
                SizeParameter(name="passes", fixed=passes),
                SizeParameter(name="rows", fixed=rows),
            ),
            arguments=(
                ArrayArgument(name="a", shape=(Extent("rows"), _ITEMS)),
                ArrayArgument(name="r", shape=(Extent("n"), _ITEMS), role="output"),
            ),
        )
        shape = Shape(
            divided=(Divided(loop="i", axis=0, items=_ITEMS),),
            groups=("g",),
            priority="p,k",
        )
        yield program_entry(
            program,
            shape,
            family="working-set",
            variant=f"{kibibytes}-kib",
            collection="extended",
            description=f"{passes} passes of each group over {kibibytes} KiB",
            exponent_steps=(0,) if large else (0, 2),
        )
