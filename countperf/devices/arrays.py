"""Array arguments of kernels: where their elements lie in the buffers of a launch.

An array of Loopy's may begin at an offset, have gaps between its rows or run backwards, have an
axis of vectors, or be split into an argument for each place along an axis. At given sizes, a
`Placement` says how large a buffer is, and which of its elements the array's are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pymbolic import evaluate
from pymbolic.mapper.evaluator import UnknownVariableError

from countperf.errors import KernelBuildError

if TYPE_CHECKING:
    from countperf.counting.extents import AddressedElements, IndexRange


def components_of(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the components of a vector type, padding left out; of others none."""
    components: dict[int, str] = {}
    fields: Any = dtype.fields or {}
    for name in dtype.names or ():
        component = int(fields[name][1])
        if not name.startswith("padding"):
            components.setdefault(component, name)
    return tuple(components[component] for component in sorted(components))


def as_scalar(dtype: np.dtype[Any], value: Any, what: str = "scalar argument") -> Any:
    """Return a number as a NumPy scalar of the type that a kernel declares."""
    try:
        if dtype.names and getattr(value, "dtype", None) != dtype:
            names = components_of(dtype)
            result = np.zeros((), dtype)
            for name, number in zip(names, np.broadcast_to(value, len(names)), strict=True):
                result[name] = number
            return result[()]
        number = np.asarray(value)
        if number.shape != ():
            raise KernelBuildError(f"{what} is an array of shape {number.shape}; pass one number")
        if dtype.names:
            return number[()]
        if dtype.kind in "iu" and int(number) != number:
            raise KernelBuildError(f"{what} is {value!r}; pass an integer")
        return dtype.type(int(number) if dtype.kind in "iu" else number[()])
    except OverflowError as error:
        limits = np.iinfo(dtype)
        raise KernelBuildError(
            f"{what} is {value}, and its type {dtype} goes from {limits.min} to {limits.max};"
            " declare the argument as np.int64"
        ) from error
    except (TypeError, ValueError) as error:
        raise KernelBuildError(f"{what} is {value!r}; pass a number of type {dtype}") from error


def without_vectors(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of vectors with an axis for their components; others as they are."""
    names = components_of(array.dtype)
    return np.stack([array[name] for name in names], axis=-1) if names else array


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Places of the elements of an array in a buffer, at given sizes."""

    name: str  # of the argument
    dtype: np.dtype[Any]  # type of an element
    shape: tuple[int, ...]  # of the array
    strides: tuple[int, ...]
    offset: int  # element of the buffer that the array's first one is
    count: int  # elements of the buffer

    @property
    def size_bytes(self) -> int:
        """Size of the buffer."""
        return self.count * self.dtype.itemsize

    def view(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the array whose elements lie in a buffer of `count` elements."""
        if not prod(self.shape):
            return np.empty(self.shape, self.dtype)
        size = self.dtype.itemsize
        strides = tuple(stride * size for stride in self.strides)
        return np.ndarray(
            self.shape, self.dtype, flat.data, offset=self.offset * size, strides=strides
        )

    def contents(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return what the buffer holds when the array is in it, zero where no element lies."""
        if self._is_laid_out_as(array):
            return array
        flat = np.zeros(self.count, self.dtype)
        if array.size:
            view = self.view(flat)
            view[...] = array
            if self._may_overlap and not np.array_equal(view, array):
                raise KernelBuildError(
                    f"argument {self.name!r} of shape {self.shape} has strides {self.strides}, with"
                    " which different elements lie in the same place; pass strides that are at"
                    " least as long as what they step over"
                )
        return flat

    def _is_laid_out_as(self, array: NDArray[Any]) -> bool:
        """Return whether an array fills the buffer, in the order of its memory."""
        size = self.dtype.itemsize
        return (
            self.offset == 0
            and self.count == array.size == prod(self.shape)
            and all(
                have == want * size
                for have, want, extent in zip(array.strides, self.strides, self.shape, strict=True)
                if extent > 1
            )
        )

    @property
    def _may_overlap(self) -> bool:
        span = 1
        for stride, extent in sorted(zip(map(abs, self.strides), self.shape, strict=True)):
            if extent > 1:
                if stride < span:
                    return True
                span += (extent - 1) * stride
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayArgument:
    """An array argument of generated code, its sizes still symbolic."""

    name: str  # of the argument
    dtype: np.dtype[Any]  # type of its elements
    shape: tuple[Any, ...]  # expressions of pymbolic in the parameters
    strides: tuple[Any, ...]  # expressions, elements
    offset: Any = 0  # where it begins in its buffer, elements
    vector: int = 1  # elements of its vectors, which code addresses as a whole
    vector_axis: int | None = None  # the axis of vectors
    # arguments that are strides and left to the caller: the axis of each
    automatic: Mapping[str, int] = field(default_factory=dict[str, int])
    index_limit: int = 2**63 - 1  # largest index that the generated code can compute
    source: str = ""  # the array of the kernel that it is a part of
    # which part: axes of that array that are split, and the place along each
    fixed: Mapping[int, int] = field(default_factory=dict[int, int])

    def extents(
        self,
        parameters: Mapping[str, Any],
        addressed: AddressedElements | None = None,
        given: Sequence[int] | None = None,
    ) -> tuple[int, ...]:
        """Return the shape at given sizes."""
        extents = [
            None if extent is None else evaluate_integer(extent, parameters)
            for extent in self.shape
        ]
        for axis, extent in enumerate(extents):
            if extent is not None and extent < 0:
                raise KernelBuildError(
                    f"argument {self.name!r}: its extent {self.shape[axis]} along axis {axis} is"
                    f" {extent}; pass larger sizes"
                )
        if None not in extents:
            return tuple(extent for extent in extents if extent is not None)
        if given is not None and len(given) == len(extents):
            known = zip(extents, given, strict=True)
            return tuple(other if extent is None else extent for extent, other in known)
        unit = np.eye(len(extents), dtype=int).tolist()
        ranges = None if addressed is None else self._ranges(addressed, unit, parameters)
        if ranges is None:
            raise KernelBuildError(
                f"argument {self.name!r} has no declared shape, and data decides how far the kernel"
                " goes in it; pass an array for it in make_arguments, or declare its shape:"
                f' lp.GlobalArg({self.name!r}, np.{self.dtype.name}, shape="n")'
            )
        highs = [addresses.high for addresses in ranges] or [-1] * len(extents)
        return tuple(
            max(0, high + 1) if extent is None else extent
            for extent, high in zip(extents, highs, strict=True)
        )

    def _ranges(
        self,
        addressed: AddressedElements,
        weights: Sequence[Sequence[int]],
        parameters: Mapping[str, Any],
        offset: int = 0,
    ) -> tuple[IndexRange, ...] | None:
        """Return the ranges of sums of subscripts, weighted by axis."""
        sizes = {
            name: int(value)
            for name, value in parameters.items()
            if isinstance(value, int | np.integer)
        }
        padded = [list(row) for row in weights]
        for row in padded:
            for axis in sorted(self.fixed):
                row.insert(axis, 0)
        return addressed.ranges(
            self.source or self.name, padded, sizes, fixed=self.fixed, offset=offset
        )

    def choose_strides(self, shape: Sequence[int], parameters: Mapping[str, Any]) -> dict[str, int]:
        """Choose the strides that are left to the caller, and that `parameters` lacks."""
        axes = {axis: name for name, axis in self.automatic.items() if name not in parameters}
        span = self.vector
        for axis, stride in enumerate(self.strides):
            if axis not in axes and axis != self.vector_axis:
                span = max(span, abs(evaluate_integer(stride, parameters)) * shape[axis])
        chosen: dict[str, int] = {}
        for axis in sorted(axes, reverse=True):
            chosen[axes[axis]] = span
            span *= max(1, shape[axis])
        return chosen

    def placement(
        self,
        parameters: Mapping[str, Any],
        addressed: AddressedElements | None = None,
        shape: Sequence[int] | None = None,
    ) -> Placement:
        """Return where the elements lie at given sizes."""
        extents = tuple(self.extents(parameters, addressed) if shape is None else shape)
        strides = tuple(evaluate_integer(stride, parameters) for stride in self.strides)
        offset = evaluate_integer(self.offset, parameters) * self.vector
        for axis, stride in enumerate(strides):
            if axis != self.vector_axis and stride % self.vector:
                raise KernelBuildError(
                    f"argument {self.name!r} has vectors of {self.vector} elements, and a stride of"
                    f" {stride} along axis {axis}; pass a multiple of {self.vector}"
                )
        low, high = offset, offset - 1
        if 0 not in extents:
            reach = [(extent - 1) * step for extent, step in zip(extents, strides, strict=True)]
            low = offset + sum(step for step in reach if step < 0)
            high = offset + sum(step for step in reach if step > 0)
        if low < 0:
            raise KernelBuildError(
                f"argument {self.name!r} of shape {extents} with strides {strides} and offset"
                f" {offset} begins {-low} elements before its buffer; declare"
                f" offset=pymbolic.parse({self._least_offset(extents, strides)!r}) for it"
            )
        count = -(-(high + 1) // self.vector) * self.vector
        if (count - 1) // self.vector > self.index_limit:
            raise KernelBuildError(
                f"argument {self.name!r} takes {count} elements, and the kernel computes indices"
                f" up to {self.index_limit}; pass smaller sizes, or make it with"
                " index_dtype=np.int64"
            )
        placement = Placement(
            name=self.name,
            dtype=self.dtype,
            shape=extents,
            strides=strides,
            offset=offset,
            count=count,
        )
        if addressed is not None:
            self._check_addressed(placement, addressed, parameters)
        return placement

    def _least_offset(self, extents: Sequence[int], strides: Sequence[int]) -> str:
        terms: list[str] = []
        for extent, stride, declared in zip(extents, strides, self.shape, strict=True):
            if stride < 0:
                factor = f"{-stride}*" if stride != -1 else ""
                terms.append(f"{factor}({extent if declared is None else declared} - 1)")
        return " + ".join(terms) or "0"

    def _check_addressed(
        self, placement: Placement, addressed: AddressedElements, parameters: Mapping[str, Any]
    ) -> None:
        ranges = self._ranges(addressed, [placement.strides], parameters, placement.offset)
        for indices in ranges or ():
            if indices.is_exact and (indices.low < 0 or indices.high >= placement.count):
                wrong = indices.low if indices.low < 0 else indices.high
                raise KernelBuildError(
                    f"{indices.access} addresses element {wrong} of {self.name!r}, whose buffer has"
                    f" {placement.count} elements; declare a shape of"
                    f" {self.source or self.name!r} that holds what the kernel addresses"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelArray:
    """An array argument as the kernel is written, in one buffer or in several."""

    name: str  # of the array
    # arguments of the generated code, by place along the axes that are split
    parts: Mapping[tuple[int, ...], ArrayArgument]
    separate: tuple[int, ...] = ()  # the axes that are split
    extent: tuple[int, ...] = ()  # extents of these axes
    is_read: bool = True  # whether the kernel reads it

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element."""
        return next(iter(self.parts.values())).dtype

    def whole(self, part: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the array, given that of a part of it."""
        whole = list(part)
        for axis, extent in zip(self.separate, self.extent, strict=True):
            whole.insert(axis, extent)
        return tuple(whole)

    def without_separate(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a part, given that of the array."""
        return tuple(extent for axis, extent in enumerate(shape) if axis not in self.separate)

    def split(self, array: NDArray[Any]) -> Iterator[tuple[ArrayArgument, NDArray[Any]]]:
        """Yield the arguments and the part of an array that each holds."""
        for part, argument in self.parts.items():
            index: list[Any] = [slice(None)] * array.ndim
            for axis, where in zip(self.separate, part, strict=True):
                index[axis] = where
            yield argument, array[(*index, ...)]


def evaluate_integer(expression: Any, parameters: Mapping[str, Any]) -> int:
    """Evaluate an expression of pymbolic in integers that do not wrap, whatever their types."""
    values = {n: int(v) if isinstance(v, np.integer) else v for n, v in parameters.items()}
    try:
        return int(evaluate(expression, values))
    except UnknownVariableError as error:
        raise KernelBuildError(
            f"no value for {error.args[0]}, on which {expression} depends"
        ) from error
