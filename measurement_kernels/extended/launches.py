"""Short launches: kernels of a few groups, beside which the launch itself shows.

All other classes run as long as many launches, so that nothing but the empty kernel would tell what
a launch costs, and what one of a few groups costs beside it. Sizes begin at two groups, on every
device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended.chains import chains_program
from measurement_kernels.groups import GroupShape
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Recurrence, Shape

_GROUPS = 2
_STEPS = (0, 3, 6, 9)
_STEPS_OF_CHAINS = (0, 1, 2, 4)
_MAPS = {"copy": "a[{0}]", "axpy": "0.75 * a[{0}] + b[{0}]", "root": "sqrt(a[{0}] + 2.0)"}
_SHAPES: tuple[tuple[str, GroupShape, str], ...] = (
    ("copy", (32, 1), "f32"),
    ("copy", (256, 1), "f32"),
    ("copy", (1024, 1), "f32"),
    ("copy", (16, 16), "f32"),
    ("axpy", (64, 1), "f64"),
    ("axpy", (512, 1), "f32"),
    ("axpy", (32, 8), "f32"),
    ("root", (128, 1), "f32"),
    ("root", (8, 32), "f64"),
)
_SUMMED = 64
_CHAINS = (("add", "{s} + {x}", 64), ("fma", "0.9375 * {s} + {x}", 256))


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for value, group, element_type in _SHAPES:
        yield _entry(*_map(value, group, element_type), value, f"{value} of an array", _STEPS)
    for items in (32, 256):
        yield _entry(*_sums(items), "sums", "sums of rows, one for each item", _STEPS)
    for kind, update, items in _CHAINS:
        for behind_barriers in (False, True):
            program, shape = chains_program(
                f"chains_{kind}",
                1,
                update,
                "f32",
                items=items,
                base=_GROUPS * items,
                step=32,
                behind_barriers=behind_barriers,
            )
            variant = f"{kind}-behind-barriers" if behind_barriers else kind
            yield _entry(program, shape, variant, f"a chain of {kind} per item", _STEPS_OF_CHAINS)


def _entry(
    program: Program, shape: Shape, variant: str, description: str, steps: tuple[int, ...]
) -> CatalogEntry:
    made = program_entry(
        program,
        shape,
        family="short-launches",
        variant=variant,
        collection="extended",
        description=f"{description}, in a few groups",
        exponent_steps=steps,
    )
    return replace(made, exponents=range(1))  # few groups, whatever the device


def _map(value: str, group: GroupShape, element_type: str) -> tuple[Program, Shape]:
    columns, rows = group
    loops = ("i",) if rows == 1 else ("i", "j")
    where = ", ".join(loops)
    extents = tuple(Extent(size) for size in "nm"[: len(loops)])
    lengths = (columns,) if rows == 1 else (rows, columns)
    program = Program(
        name=f"short_{value}",
        loops=tuple(zip(loops, "nm", strict=False)),
        formulas=(Formula(target=f"r[{where}]", terms=(_MAPS[value].format(where),)),),
        sizes=(
            SizeParameter(name="n", multiple=lengths[0], base=_GROUPS * lengths[0]),
            *(SizeParameter(name="m", multiple=each, fixed=each) for each in lengths[1:]),
        ),
        arguments=(
            ArrayArgument(name="a", shape=extents),
            *((ArrayArgument(name="b", shape=extents),) if value == "axpy" else ()),
            ArrayArgument(name="r", shape=extents, role="output"),
        ),
        element_type=element_type,
    )
    axes = (0,) if rows == 1 else (1, 0)
    return program, Shape(
        divided=tuple(
            Divided(loop=loop, axis=axis, items=length)
            for loop, axis, length in zip(loops, axes, lengths, strict=True)
        )
    )


def _sums(items: int) -> tuple[Program, Shape]:
    program = Program(
        name="short_sums",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Recurrence(target="r[i]", states=(("0.0", "s0 + a[k, i]"),), loop="k", result="s0"),
        ),
        sizes=(
            SizeParameter(name="n", multiple=items, base=_GROUPS * items),
            SizeParameter(name="m", fixed=_SUMMED),
        ),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("m"), Extent("n"))),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
    )
    return program, Shape(divided=(Divided(loop="i", axis=0, items=items),))
