"""Shapes of work groups, and sizes that are multiples of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

GroupShape: TypeAlias = tuple[int, int]
"""Work items per group along local axes 0 and 1."""

SizeClass: TypeAlias = Literal["small", "medium", "large"]
"""One of the paper's three sets of shapes; a device uses one of them."""

GROUP_SHAPES: Mapping[SizeClass, tuple[GroupShape, ...]] = {
    "small": ((192, 1), (224, 1), (256, 1), (16, 12), (16, 14), (16, 16)),
    "medium": ((128, 1), (256, 1), (384, 1), (16, 12), (16, 16), (32, 16)),
    "large": ((256, 1), (384, 1), (512, 1), (16, 16), (24, 16), (32, 16)),
}
_EACH = sorted({shape for shapes in GROUP_SHAPES.values() for shape in shapes})

LINEAR_GROUPS = tuple(shape for shape in _EACH if shape[1] == 1)
"""All one-dimensional shapes, smallest first."""

PLANAR_GROUPS = tuple(shape for shape in _EACH if shape[1] > 1)
"""All two-dimensional shapes, smallest first."""


def round_up(size: int, multiple: int) -> int:
    """Find the smallest multiple of ``multiple`` that is at least ``size``."""
    return -(-size // multiple) * multiple


def label(group_shape: GroupShape) -> str:
    """Write a shape as names do: ``16x12``."""
    return f"{group_shape[0]}x{group_shape[1]}"
