"""Class 9, the kernel that does nothing, in as many groups as an n by m matrix would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import SizeParameter, Sizes
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import PLANAR_GROUPS, GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray


def _sizes(group_shape: GroupShape) -> tuple[SizeParameter, ...]:
    columns, rows = group_shape
    return (
        SizeParameter(name="n", multiple=rows),
        SizeParameter(name="m", multiple=columns),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of this class."""
    for group_shape in PLANAR_GROUPS:
        columns, rows = group_shape
        yield CatalogEntry(
            family="empty",
            group_shape=group_shape,
            description="nothing but the launch",
            exponents=range(4, 11),
            exponent_steps=tuple(range(6)),
            sizes=_sizes(group_shape),
            check_parameters={"n": 2 * rows, "m": 3 * columns},
            builder=partial(_build, group_shape),
            expected=_expected,
        )


@cache
def _build(group_shape: GroupShape) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items

    unit = make_unit(
        "empty",
        domain="{ [i, j]: 0 <= i < n and 0 <= j < m }",
        instructions="... nop {inames=i:j}",
        sizes=_sizes(group_shape),
        arguments=(),
        element_type="f32",
    )
    return map_to_items(unit, {"i": 1, "j": 0}, group_shape)


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del arguments, parameters
    return {}
