"""Work groups of many shapes, groups with guards, and launches of few groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended.arithmetic import UPDATES, chains_program
from measurement_kernels.groups import GroupShape
from measurement_kernels.programs import (
    Divided,
    Formula,
    Program,
    Recurrence,
    Shape,
    along,
    program_entry,
)


def _map(
    name: str,
    value: str,
    names: str,
    group: GroupShape,
    base: tuple[int, ...],
    element_type: str = "f32",
    *,
    one_across: bool = False,
) -> tuple[Program, Shape]:
    """Return a map of arrays of one or two dimensions, one element per item."""
    columns, rows = group
    sizes = [SizeParameter("n", columns if rows == 1 else rows, base=base[0])]
    if rows > 1:
        sizes.append(
            SizeParameter("m", columns, base=base[1], fixed=columns if one_across else None)
        )
    loops, extents, items = ("i", "n", (columns,)) if rows == 1 else ("ij", "n, m", (rows, columns))
    where = ", ".join(loops)
    program = Program(
        name,
        tuple(zip(loops, "nm", strict=False)),
        (Formula(f"r[{where}]", (value.format(where),)),),
        tuple(sizes),
        arrays("".join(f"{array}[{extents}], " for array in names) + f"output r[{extents}]"),
        element_type,
    )
    return program, Shape(along(loops, items))


# --- streaming kernels in work groups of many shapes


def group_shapes() -> Iterator[CatalogEntry]:
    """List the family."""
    linear = [(length, 1) for length in (8, 16, 32, 64, 100, 320, 1024)]
    planar = [(4, 64), (24, 8), (48, 4), (64, 4), (8, 8), (2, 128)]
    for variant, names, value, every in (
        ("copy", "x", "x[{0}]", 1),
        ("axpy", "xy", "0.75 * x[{0}] + y[{0}]", 2),
    ):
        for group in (*linear[::every], *planar[::every]):
            columns, rows = group
            base, steps = ((600_000,), (0, 2)) if rows == 1 else ((600, 1000), (0, 1))
            program, shape = _map(f"groups_{variant}", value, names, group, base)
            name = f"{variant}-{len(base)}d-{columns * rows}"
            yield program_entry(program, shape, "group-shapes", name, steps)


# --- short launches
#
# Kernels of all other classes run much longer than a launch takes, so that only the empty kernel
# would determine the cost of a launch, and none that of a few groups. Sizes begin at two groups, on
# every device.

_GROUPS = 2
_MAPS = {
    "copy": ("a", "a[{0}]"),
    "axpy": ("ab", "0.75 * a[{0}] + b[{0}]"),
    "root": ("a", "sqrt(a[{0}] + 2.0)"),
}
_SHORT_MAPS = (
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


def short_launches() -> Iterator[CatalogEntry]:
    """List the family."""
    for kind, group, element_type in _SHORT_MAPS:
        names, value = _MAPS[kind]
        base = (_GROUPS * (group[0] if group[1] == 1 else group[1]), 1)
        name = f"short_{kind}"
        program, shape = _map(name, value, names, group, base, element_type, one_across=True)
        yield _short(program, shape, kind)
    for items in (32, 256):
        program = Program(
            "short_sums",
            (("i", "n"), ("k", "m")),
            (Recurrence("r[i]", (("0.0", "s0 + a[k, i]"),), "k", "s0"),),
            (SizeParameter("n", items, base=_GROUPS * items), SizeParameter("m", fixed=64)),
            arrays("a[m, n], output r[n]"),
        )
        shape = Shape(along("i", (items,)))
        yield _short(program, shape, "sums")
    for kind, items in (("add", 64), ("fma", 256)):
        for behind_barriers in (False, True):
            program, shape = chains_program(
                f"chains_{kind}",
                1,
                UPDATES[kind],
                "f32",
                items=items,
                base=_GROUPS * items,
                step=32,
                behind_barriers=behind_barriers,
            )
            variant = f"{kind}-behind-barriers" if behind_barriers else kind
            yield _short(program, shape, variant, (0, 1, 2, 4))


def _short(
    program: Program, shape: Shape, variant: str, steps: tuple[int, ...] = (0, 3, 6, 9)
) -> CatalogEntry:
    made = program_entry(program, shape, "short-launches", variant, steps)
    return replace(made, exponents=range(1))  # few groups on every device


# --- kernels of any sizes, whose groups have guards: ``if (i < n)`` around an item's work


@dataclass(frozen=True, slots=True)
class _Work:
    """Work of an item at ``i, j``, arrays, base sizes, and group shapes in f32 and in f64."""

    value: str
    groups: tuple[GroupShape, ...]
    double: tuple[GroupShape, ...] = ()
    arguments: str = "x[n, m], output r[n, m]"
    target: str = "r[i, j]"
    base: tuple[int, int] = (701, 901)
    terms: int = 0


def _polynomial(value: str, degree: int) -> str:
    """Return a polynomial by Horner's rule."""
    return reduce(lambda text, _: f"(0.5 + {text} * {value})", range(degree), value)


_WORK = {
    "copy": _Work(
        "x[i, j]",
        ((32, 8), (16, 16), (128, 1), (64, 4), (8, 16), (24, 6), (256, 1)),
        ((32, 8), (128, 1)),
    ),
    "sum": _Work(
        "x[i, j] + 0.5 * y[i, j]",
        ((32, 8), (48, 4), (192, 1)),
        arguments="x[n, m], y[n, m], output r[n, m]",
    ),
    "stencil": _Work(
        "x[i+1, j+1] + 0.25 * (x[i, j+1] + x[i+2, j+1] + x[i+1, j] + x[i+1, j+2])",
        ((32, 8), (16, 16), (128, 1), (64, 2), (8, 32), (40, 5)),
        ((16, 16), (64, 4)),
        arguments="x[n + 2, m + 2], output r[n, m]",
    ),
    "polynomial": _Work(
        _polynomial("x[i, j]", 12), ((32, 4), (16, 8), (256, 1)), ((32, 8),), base=(501, 701)
    ),
    "quotient": _Work("x[i, j] / (x[i, j] * x[i, j] + 1.5)", ((32, 8), (16, 12), (64, 1))),
    "apart": _Work("x[i, 2*j]", ((32, 8), (96, 1)), arguments="x[n, 2*m], output r[n, m]"),
    "scattered": _Work(
        "x[i, j]", ((32, 8), (128, 1)), arguments="x[n, m], updated r[n, 2*m]", target="r[i, 2*j]"
    ),
    "transposed": _Work("x[j, i]", ((16, 16), (32, 4)), arguments="x[m, n], output r[n, m]"),
    "row": _Work(
        "x[i, k] * y[k, j]",
        ((32, 8), (16, 16), (64, 1)),
        arguments="x[n, p], y[p, m], output r[n, m]",
        base=(181, 291),
        terms=48,
    ),
}


def guards() -> Iterator[CatalogEntry]:
    """List the family."""
    for variant, work in _WORK.items():
        for group in work.groups:
            yield _guarded(variant, group, "f32")
    for variant, work in _WORK.items():
        for group in work.double:
            yield _guarded(variant, group, "f64")


def _guarded(variant: str, group: GroupShape, element_type: str) -> CatalogEntry:
    work = _WORK[variant]
    columns, rows = group
    program = Program(
        f"guarded_{variant}",
        (("i", "n"), ("j", "m"), *((("k", "p"),) if work.terms else ())),
        (Formula(work.target, (work.value,), summed=("k",) if work.terms else ()),),
        (
            *(SizeParameter(name, base=base) for name, base in zip("nm", work.base, strict=True)),
            *((SizeParameter("p", fixed=work.terms),) if work.terms else ()),
        ),
        arrays(work.arguments),
        element_type,
    )
    shape = Shape((Divided("j", 0, columns), Divided("i", 1, rows)))
    if rows == 1:
        shape = Shape(along("j", (columns,)), groups=("i",))
    return program_entry(program, shape, "guards", variant, (0, 1))
