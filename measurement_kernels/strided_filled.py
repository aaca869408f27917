"""Classes 6 and 7, access with stride 2 or 3 that uses every cell in the end.

``out[i] = sum(a[0, i+j] + ... + a[s-1, i+j] for j in range(256))`` with a of s by n + 255, column
major, s = 2 or 3; one work item per element of out. Each row of a is one access with stride s
across lanes. ``prefetched`` first fetches the columns that a group needs into local memory, with
the same strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import LINEAR_GROUPS, GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

TERMS = 256
"""Pairs or triples that each work item sums."""

_VARIANTS: Mapping[str, str] = {
    "direct": "straight from global memory",
    "prefetched": "from local memory",
}


def _sizes(group_shape: GroupShape) -> tuple[SizeParameter, ...]:
    return (SizeParameter(name="n", multiple=group_shape[0]),)


def _arguments(stride: int) -> tuple[ArrayArgument, ...]:
    return (
        ArrayArgument(name="a", shape=(stride, Extent("n", offset=TERMS - 1)), order="F"),
        ArrayArgument(name="out", shape=(Extent("n"),), role="output"),
    )


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of both classes."""
    for stride, what in {2: "pairs", 3: "triples"}.items():
        for variant, where in _VARIANTS.items():
            for group_shape in LINEAR_GROUPS:
                yield CatalogEntry(
                    family=f"stride{stride}-filled",
                    variant=variant,
                    group_shape=group_shape,
                    description=f"sums of {TERMS} {what} of neighbors, {where}",
                    exponents=range(8, 21),
                    exponent_steps=(0, 3, 6, 9),
                    sizes=_sizes(group_shape),
                    arguments=_arguments(stride),
                    check_parameters={"n": 2 * group_shape[0]},
                    builder=partial(_build, stride, variant, group_shape),
                    expected=_expected,
                )


@cache
def _build(stride: int, variant: str, group_shape: GroupShape) -> TranslationUnit:
    from measurement_kernels.units import make_unit, map_to_items, prefetch

    term = " + ".join(f"a[{row}, i + j]" for row in range(stride))
    unit = make_unit(
        f"stride{stride}_filled_{variant}",
        domain=f"{{ [i, j]: 0 <= i < n and 0 <= j < {TERMS} }}",
        instructions=f"out[i] = sum(j, {term})",
        sizes=_sizes(group_shape),
        arguments=_arguments(stride),
        element_type="f32",
    )
    unit = map_to_items(unit, {"i": 0}, group_shape)
    if variant == "direct":
        return unit
    return prefetch(
        unit,
        "a",
        sweep=["i_inner", "j"],
        within=["i_outer"],
        axes={"a_row": None, "a_column": 0},
        group_shape=group_shape,
    )


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    n = parameters["n"]
    ends = np.zeros(n + TERMS)
    np.cumsum(arguments["a"].sum(axis=0, dtype="float64"), out=ends[1:])
    return {"out": ends[TERMS:] - ends[:n]}
