"""Entries of the catalogue made from programs and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from loopy import TranslationUnit

from measurement_kernels.arguments import ArrayArgument
from measurement_kernels.entry import INDEX_LIMIT, CatalogEntry, Collection, StatisticBySize
from measurement_kernels.groups import GroupShape, round_up
from measurement_kernels.programs import Program, Shape, build

_MOST_EXPONENTS = 8


def program_entry(
    program: Program,
    shape: Shape | GroupShape,
    family: str,
    variant: str,
    description: str,
    exponent_steps: tuple[int, ...],
    *,
    collection: Collection = "extended",
    builder: Callable[[], TranslationUnit] | None = None,
    statistics: Mapping[str, StatisticBySize] | None = None,
) -> CatalogEntry:
    """Return the entry of a program in a shape.

    Parameters
    ----------
    program : Program
        The program; the bases of its sizes are for a slow device.
    shape : Shape or (int, int)
        The shape; if `builder` is given, only the shape of the work group.
    family, variant, description, exponent_steps, collection
        As in `CatalogEntry`.
    builder : callable, optional
        By default `build` with the program and the shape.
    statistics : mapping, optional
        As in `CatalogEntry`.
    """
    return CatalogEntry(
        family=family,
        variant=variant,
        group_shape=shape.group_shape if isinstance(shape, Shape) else shape,
        element_type=program.element_type,
        collection=collection,
        description=description,
        exponents=range(_exponents(program, exponent_steps[-1])),
        exponent_steps=exponent_steps,
        sizes=program.sizes,
        arguments=program.arguments,
        check_parameters=_check_sizes(program),
        builder=builder or partial(build, program, shape),
        expected=program.expected,
        statistics=statistics or {},
    )


def _exponents(program: Program, last_step: int) -> int:
    """Count the exponents up to which every array can be indexed."""
    arrays = [each for each in program.arguments if isinstance(each, ArrayArgument)]
    for exponent in range(_MOST_EXPONENTS):
        sizes = {size.name: size.at(exponent + last_step) for size in program.sizes}
        if any(array.elements(sizes) >= INDEX_LIMIT for array in arrays):
            return exponent
    return _MOST_EXPONENTS


def _check_sizes(program: Program) -> dict[str, int]:
    """Return small sizes: two multiples along the first axis, three along the second, and so on."""
    sizes: dict[str, int] = {}
    for position, size in enumerate(program.sizes):
        wanted = max((2 + position) * size.multiple, 5 + position)
        rounded = round_up(wanted, size.multiple)
        sizes[size.name] = rounded if size.fixed is None else min(rounded, size.fixed)
    return sizes
