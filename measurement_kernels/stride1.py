"""Class 5, stride-1 access to global memory, one work item per element.

``copy`` loads and stores one element, ``add-four`` adds four arrays into a fifth, ``store-index``
stores the element's index, as a number of the element type, and loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import (
    ELEMENT_TYPES,
    ArrayArgument,
    Extent,
    SizeParameter,
    Sizes,
)
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import LINEAR_GROUPS, GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_INPUTS: Mapping[str, str] = {"copy": "a", "add-four": "abcd", "store-index": ""}
_DESCRIPTIONS: Mapping[str, str] = {
    "copy": "copy of a vector",
    "add-four": "sum of four vectors",
    "store-index": "vector of the indices, no loads",
}


def _sizes(group_shape: GroupShape) -> tuple[SizeParameter, ...]:
    return (SizeParameter(name="n", multiple=group_shape[0]),)


def _arguments(variant: str) -> tuple[ArrayArgument, ...]:
    shape = (Extent("n"),)
    return (
        *(ArrayArgument(name=name, shape=shape) for name in _INPUTS[variant]),
        ArrayArgument(name="out", shape=shape, role="output"),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of this class."""
    for variant, description in _DESCRIPTIONS.items():
        for group_shape in LINEAR_GROUPS:
            for element_type in ELEMENT_TYPES:
                yield CatalogEntry(
                    family="stride1",
                    variant=variant,
                    group_shape=group_shape,
                    element_type=element_type,
                    description=description,
                    exponents=range(10, 23),
                    exponent_steps=tuple(range(9)),
                    sizes=_sizes(group_shape),
                    arguments=_arguments(variant),
                    check_parameters={"n": 3 * group_shape[0]},
                    builder=partial(_build, variant, group_shape, element_type),
                    expected=partial(_expected, variant),
                )


@cache
def _build(variant: str, group_shape: GroupShape, element_type: str) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items

    if variant == "store-index":
        # assigned directly, Loopy would compute the index itself in floating point
        instructions = "<int32> index = i {id=index}\nout[i] = index {dep=index}"
    else:
        instructions = "out[i] = " + " + ".join(f"{name}[i]" for name in _INPUTS[variant])
    unit = make_unit(
        "stride1_" + variant.replace("-", "_"),
        domain="{ [i]: 0 <= i < n }",
        instructions=instructions,
        sizes=_sizes(group_shape),
        arguments=_arguments(variant),
        element_type=element_type,
    )
    return map_to_items(unit, {"i": 0}, group_shape)


def _expected(
    variant: str, arguments: Mapping[str, Any], parameters: Sizes
) -> dict[str, NDArray[Any]]:
    import numpy as np

    if variant == "store-index":
        return {"out": np.arange(parameters["n"])}
    out = arguments["a"].astype("float64")
    for name in _INPUTS[variant][1:]:
        out += arguments[name]
    return {"out": out}
