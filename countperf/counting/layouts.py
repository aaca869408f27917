"""Strides that Loopy leaves to the caller of a kernel: ``stride:auto``.

A kernel whose arrays have automatic strides takes them as arguments, and gets them from the arrays
that it is called with. Here such arrays are taken to be in C order, which Loopy's own default is;
what rests on that says so. ``loopy.tag_array_axes(t_unit, "x", "C,C")`` states it of two axes.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
from loopy.kernel.array import ArrayBase, FixedStrideArrayDimTag, SeparateArrayArrayDimTag
from pytools.tag import Tag


class AssumedOrder(Tag):
    """Marks an array whose automatic strides were replaced by those of C order."""


def with_strides(kernel: Any) -> Any:
    """Return a kernel whose arrays have no automatic strides left where the shape is known."""
    arguments = [_with_strides(argument) for argument in kernel.args]
    if all(new is old for new, old in zip(arguments, kernel.args, strict=True)):
        return kernel
    return kernel.copy(args=arguments)


def _with_strides(array: Any) -> Any:
    if not isinstance(array, ArrayBase) or not array.dim_tags or not _is_known(array.shape):
        return array
    shape: Any = array.shape
    strided = [isinstance(tag, FixedStrideArrayDimTag) for tag in array.dim_tags]
    open_axes = [
        axis
        for axis, tag in enumerate(array.dim_tags)
        if strided[axis] and getattr(tag, "stride", None) is lp.auto
    ]
    if not open_axes or len(open_axes) < sum(strided):
        return array
    tags = list(array.dim_tags)
    stride: Any = 1
    for axis in reversed(open_axes):
        tags[axis] = tags[axis].copy(stride=stride)
        stride = stride * shape[axis]
    return array.copy(dim_tags=tuple(tags)).tagged(AssumedOrder())


def _is_known(shape: Any) -> bool:
    return isinstance(shape, tuple) and not any(e is None or e is lp.auto for e in shape)


def assumed_order(array: Any) -> str:
    """Return what is assumed of the strides of an array, in words; empty if they are its own."""
    if not getattr(array, "tags_of_type", None) or not array.tags_of_type(AssumedOrder):
        return ""
    tags = ",".join(
        "sep" if isinstance(tag, SeparateArrayArrayDimTag) else "C" for tag in array.dim_tags
    )
    return (
        f"C order is assumed of '{array.name}', whose strides are automatic; loopy.tag_array_axes("
        f"t_unit, '{array.name}', '{tags}') states it"
    )
