"""Kernels of any sizes, whose work groups end in guards: ``if (i < n)`` around an item's work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import GroupShape
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Shape

_N, _M = Extent("n"), Extent("m")
_TERMS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What each item does, at ``i`` or at ``i, j``."""

    value: str
    arrays: tuple[tuple[str, tuple[Extent, ...]], ...] = (("x", (_N, _M)),)
    target: str = "r[i, j]"
    result: tuple[Extent, ...] = (_N, _M)
    summed: bool = False
    base: tuple[int, ...] = (701, 901)


def _powers(value: str, number: int) -> str:
    """Return a polynomial by Horner's rule."""
    text = value
    for _ in range(number):
        text = f"(0.5 + {text} * {value})"
    return text


_WIDE = Extent("m", factor=2)
_WORK = {
    "copy": _Work(value="x[i, j]"),
    "sum": _Work(value="x[i, j] + 0.5 * y[i, j]", arrays=(("x", (_N, _M)), ("y", (_N, _M)))),
    "stencil": _Work(
        value="x[i+1, j+1] + 0.25 * (x[i, j+1] + x[i+2, j+1] + x[i+1, j] + x[i+1, j+2])",
        arrays=(("x", (Extent("n", offset=2), Extent("m", offset=2))),),
    ),
    "polynomial": _Work(value=_powers("x[i, j]", 12), base=(501, 701)),
    "quotient": _Work(value="x[i, j] / (x[i, j] * x[i, j] + 1.5)"),
    "apart": _Work(value="x[i, 2*j]", arrays=(("x", (_N, _WIDE)),)),
    "scattered": _Work(value="x[i, j]", target="r[i, 2*j]", result=(_N, _WIDE)),
    "transposed": _Work(value="x[j, i]", arrays=(("x", (_M, _N)),)),
    "row": _Work(
        value="x[i, k] * y[k, j]",
        arrays=(("x", (_N, Extent("p"))), ("y", (Extent("p"), _M))),
        summed=True,
        base=(181, 291),
    ),
}
_SHAPES: dict[str, tuple[GroupShape, ...]] = {
    "copy": ((32, 8), (16, 16), (128, 1), (64, 4), (8, 16), (24, 6), (256, 1)),
    "sum": ((32, 8), (48, 4), (192, 1)),
    "stencil": ((32, 8), (16, 16), (128, 1), (64, 2), (8, 32), (40, 5)),
    "polynomial": ((32, 4), (16, 8), (256, 1)),
    "quotient": ((32, 8), (16, 12), (64, 1)),
    "apart": ((32, 8), (96, 1)),
    "scattered": ((32, 8), (128, 1)),
    "transposed": ((16, 16), (32, 4)),
    "row": ((32, 8), (16, 16), (64, 1)),
}
_DOUBLE = {"copy": ((32, 8), (128, 1)), "stencil": ((16, 16), (64, 4)), "polynomial": ((32, 8),)}


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for element_type, shapes in (("f32", _SHAPES), ("f64", _DOUBLE)):
        for variant, groups in shapes.items():
            for group in groups:
                yield _entry(variant, group, element_type)


def _entry(variant: str, group: GroupShape, element_type: str) -> CatalogEntry:
    work = _WORK[variant]
    columns, rows = group
    inner: tuple[tuple[str, str], ...] = (("k", "p"),) if work.summed else ()
    fixed = (SizeParameter(name="p", fixed=_TERMS),) if work.summed else ()
    program = Program(
        name=f"guarded_{variant}",
        loops=(("i", "n"), ("j", "m"), *inner),
        formulas=(
            Formula(
                target=work.target,
                terms=(work.value,),
                summed=("k",) if work.summed else (),
            ),
        ),
        sizes=(
            *(
                SizeParameter(name=name, base=base)
                for name, base in zip("nm", work.base, strict=True)
            ),
            *fixed,
        ),
        arguments=(
            *(ArrayArgument(name=name, shape=shape) for name, shape in work.arrays),
            ArrayArgument(
                name="r",
                shape=work.result,
                role="updated" if variant == "scattered" else "output",
            ),
        ),
        element_type=element_type,
    )
    return program_entry(
        program,
        Shape(
            divided=(
                Divided(loop="j", axis=0, items=columns),
                *((Divided(loop="i", axis=1, items=rows),) if rows > 1 else ()),
            ),
            groups=("i",) if rows == 1 else (),
        ),
        family="guards",
        variant=variant,
        collection="extended",
        description=f"{variant}, in groups that need not divide the sizes",
        exponent_steps=(0, 1),
    )
