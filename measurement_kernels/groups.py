"""Shapes of work groups, and sizes that are multiples of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast, get_args

from countperf.errors import ParameterError

GroupShape: TypeAlias = tuple[int, int]
"""Work items per group along local axes 0 and 1."""

SizeClass: TypeAlias = Literal["small", "medium", "large"]
"""One of the paper's three sets of shapes; a device uses one of them."""

_LINEAR_SHAPES: Mapping[SizeClass, tuple[GroupShape, ...]] = {
    "small": ((192, 1), (224, 1), (256, 1)),
    "medium": ((128, 1), (256, 1), (384, 1)),
    "large": ((256, 1), (384, 1), (512, 1)),
}
_PLANAR_SHAPES: Mapping[SizeClass, tuple[GroupShape, ...]] = {
    "small": ((16, 12), (16, 14), (16, 16)),
    "medium": ((16, 12), (16, 16), (32, 16)),
    "large": ((16, 16), (24, 16), (32, 16)),
}


def _union(shapes: Mapping[SizeClass, tuple[GroupShape, ...]]) -> tuple[GroupShape, ...]:
    return tuple(sorted({shape for group in shapes.values() for shape in group}))


LINEAR_GROUPS = _union(_LINEAR_SHAPES)
"""All one-dimensional shapes, smallest first."""

PLANAR_GROUPS = _union(_PLANAR_SHAPES)
"""All two-dimensional shapes, smallest first."""


def group_shapes(size_class: str) -> tuple[GroupShape, ...]:
    """List the shapes of one of the paper's sets, one-dimensional ones first."""
    if size_class not in get_args(SizeClass):
        known = ", ".join(get_args(SizeClass))
        raise ParameterError(
            f"no set of work-group shapes is called {size_class!r}; there are {known}",
            parameter="size_class",
        )
    name = cast(SizeClass, size_class)
    return _LINEAR_SHAPES[name] + _PLANAR_SHAPES[name]


def round_up(size: int, multiple: int) -> int:
    """Find the smallest multiple of ``multiple`` that is at least ``size``."""
    return -(-size // multiple) * multiple


def label(group_shape: GroupShape) -> str:
    """Write a shape as names do: ``16x12``."""
    return f"{group_shape[0]}x{group_shape[1]}"
