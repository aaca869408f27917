"""Arguments that Loopy adds for automatic offsets and strides, 0 and C order by default."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.kernel.array import ArrayBase, SeparateArrayArrayDimTag
from loopy.preprocess import make_args_for_offsets_and_strides, make_arrays_for_sep_arrays
from loopy.symbolic import get_dependencies
from pymbolic import parse
from pymbolic.primitives import Variable
from pytools.tag import Tag

from countperf.symbolic.affine import NotAffineError
from countperf.symbolic.quasipolynomial import ONE, ZERO, QuasiPolynomial


def offset_of(array: Any) -> Any:
    """Return the offset of an array as an expression; an automatic one without argument is 0."""
    offset = getattr(array, "offset", None)
    if offset is None or isinstance(offset, type):
        return 0
    return parse(offset) if isinstance(offset, str) else offset


def offset_parameters(kernel: Any) -> frozenset[str]:
    """Return the arguments of a kernel that occur in offsets of arrays and nowhere else."""
    arrays = [arg for arg in kernel.args if isinstance(arg, ArrayBase)]
    names = _names(offset_of(array) for array in arrays)
    if not names:
        return frozenset()
    names &= {arg.name for arg in kernel.args if not isinstance(arg, ArrayBase)}
    variables = [*arrays, *kernel.temporary_variables.values()]
    used = set(kernel.all_params())
    for instruction in kernel.instructions:
        used |= instruction.dependency_names()
    used |= _names(rule.expression for rule in kernel.substitutions.values())
    for variable in variables:
        used |= _names(variable.shape if isinstance(variable.shape, tuple) else ())
        used |= _names(getattr(tag, "stride", None) for tag in variable.dim_tags or ())
    return frozenset(names - used)


def _names(expressions: Iterable[Any]) -> set[str]:
    known = (e for e in expressions if e is not None and not isinstance(e, type))
    return set[str]().union(*map(get_dependencies, known))


def with_arguments(kernel: Any) -> Any:
    """Return a kernel with the arguments that Loopy adds for split arrays, offsets and strides."""
    if kernel.state >= lp.KernelState.PREPROCESSED:
        return kernel
    return make_args_for_offsets_and_strides(make_arrays_for_sep_arrays(kernel))


def automatic_strides(array: Any) -> dict[str, int]:
    """Return the arguments that Loopy added for strides of an array: name, and axis."""
    strides = [getattr(tag, "stride", None) for tag in array.dim_tags or ()]
    return {
        stride.name: axis
        for axis, stride in enumerate(strides)
        if isinstance(stride, Variable)
        and re.fullmatch(rf"{re.escape(array.name)}_stride{axis}(?:_\d+)?", stride.name)
    }


def default_values(
    kernel: Any, to_polynomial: Callable[[Any], QuasiPolynomial]
) -> Mapping[str, QuasiPolynomial]:
    """Return what arguments are unless the caller says otherwise, in terms of the others."""
    defaults = dict.fromkeys(sorted(offset_parameters(kernel)), ZERO)
    for array in kernel.args:
        if not isinstance(array, ArrayBase):
            continue
        names = automatic_strides(array)
        if not names or not isinstance(array.shape, tuple) or len(names) < len(array.shape):
            continue
        step = ONE
        strides: dict[str, QuasiPolynomial] = {}
        with suppress(NotAffineError):
            for name, axis in sorted(names.items(), key=lambda item: -item[1]):
                strides[name] = step
                if axis:
                    step = step * to_polynomial(array.shape[axis])
            defaults |= strides
    return defaults


@dataclass(frozen=True)
class AssumedOrder(Tag):
    """Marks an array whose automatic strides were replaced by those of C order."""

    module: str = __name__  # for the keys of Loopy's cache on disk, which keeps it pickled


def with_strides(kernel: Any) -> Any:
    """Return a kernel whose arrays have no automatic strides left where the shape is known."""
    arguments = [_set_strides(argument) for argument in kernel.args]
    if all(new is old for new, old in zip(arguments, kernel.args, strict=True)):
        return kernel
    return kernel.copy(args=arguments)


def _set_strides(array: Any) -> Any:
    if not isinstance(array, ArrayBase) or not array.dim_tags or not isinstance(array.shape, tuple):
        return array
    shape: Any = array.shape
    if any(extent is None or extent is lp.auto for extent in shape):
        return array
    strided = [n for n, tag in enumerate(array.dim_tags) if hasattr(tag, "stride")]
    open_axes = [axis for axis in strided if array.dim_tags[axis].stride is lp.auto]
    if not open_axes or len(open_axes) < len(strided):
        return array
    tags = list(array.dim_tags)
    stride: Any = 1
    for axis in reversed(open_axes):
        tags[axis] = tags[axis].copy(stride=stride)
        stride = stride * shape[axis]
    return array.copy(dim_tags=tuple(tags)).tagged(AssumedOrder())


def describe_assumed_order(array: Any) -> str:
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
