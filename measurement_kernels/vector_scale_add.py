"""Class 3, z = a·x + b·y on every element, every other, or every third.

One work item per value computed; n counts those. The vectors are first columns of row-major
matrices with as many columns as the stride (of vectors that are s·n long, Loopy's executor cannot
tell n, and warns). The other columns are neither read nor written, so z comes in with values that
have to survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import (
    Argument,
    ArrayArgument,
    Extent,
    ScalarArgument,
    SizeParameter,
    Sizes,
)
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import LINEAR_GROUPS, GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_STRIDES = (1, 2, 3)


def _sizes(group_shape: GroupShape) -> tuple[SizeParameter, ...]:
    return (SizeParameter(name="n", multiple=group_shape[0]),)


def _arguments(stride: int) -> tuple[Argument, ...]:
    shape = (Extent("n"), stride)
    return (
        ArrayArgument(name="x", shape=shape),
        ArrayArgument(name="y", shape=shape),
        ArrayArgument(name="z", shape=shape, role="output" if stride == 1 else "updated"),
        ScalarArgument(name="a", value=0.75),
        ScalarArgument(name="b", value=-1.375),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of this class."""
    for stride in _STRIDES:
        for group_shape in LINEAR_GROUPS:
            yield CatalogEntry(
                family="vector-scale-add",
                variant=f"stride{stride}",
                group_shape=group_shape,
                description=f"weighted sum of two vectors, stride {stride}",
                exponents=range(12, 24),
                exponent_steps=(0, 2, 4, 6),
                sizes=_sizes(group_shape),
                arguments=_arguments(stride),
                check_parameters={"n": 3 * group_shape[0]},
                builder=partial(_build, stride, group_shape),
                expected=_expected,
            )


@cache
def _build(stride: int, group_shape: GroupShape) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items

    unit = make_unit(
        "vector_scale_add",
        domain="{ [i]: 0 <= i < n }",
        instructions="z[i, 0] = a*x[i, 0] + b*y[i, 0]",
        sizes=_sizes(group_shape),
        arguments=_arguments(stride),
        element_type="f32",
    )
    return map_to_items(unit, {"i": 0}, group_shape)


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    x, y = (arguments[name][:, 0].astype("float64") for name in "xy")
    value = float(arguments["a"]) * x + float(arguments["b"]) * y
    if "z" not in arguments:
        return {"z": value.reshape(parameters["n"], 1)}
    z = arguments["z"].astype("float64")
    z[:, 0] = value
    return {"z": z}
