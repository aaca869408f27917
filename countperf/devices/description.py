"""Description of a kernel for launches: its arguments, and the elements it addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import loopy as lp
import numpy as np
from loopy import AddressSpace
from loopy.kernel.array import FixedStrideArrayDimTag, VectorArrayDimTag
from loopy.preprocess import make_args_for_offsets_and_strides, make_arrays_for_sep_arrays
from loopy.symbolic import get_dependencies
from numpy.typing import NDArray
from pymbolic import evaluate
from pymbolic.mapper.evaluator import UnknownVariableError

from countperf.counting import accesses
from countperf.counting.extents import AddressedElements, IndexRange
from countperf.errors import KernelBuildError
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.sets import contains_values


def components_of(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the components of a vector type, padding left out; of others none."""
    fields: Any = dtype.fields or {}
    names = [name for name in reversed(dtype.names or ()) if not name.startswith("padding")]
    components = {int(fields[name][1]): name for name in names}  # several names for a place: first
    return tuple(components[place] for place in sorted(components))


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
        wanted = f"a number of type {dtype}"
        if dtype.names:
            wanted = f"{len(components_of(dtype))} numbers, or one"
        raise KernelBuildError(f"{what} is {value!r}; pass {wanted}") from error


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

    @property
    def _strides_bytes(self) -> tuple[int, ...]:
        return tuple(stride * self.dtype.itemsize for stride in self.strides)

    def view(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the array whose elements lie in a buffer of `count` elements."""
        if not prod(self.shape):
            return np.empty(self.shape, self.dtype)
        begin = self.offset * self.dtype.itemsize
        return np.ndarray(self.shape, self.dtype, flat.data, begin, self._strides_bytes)

    def contents(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return what the buffer holds when the array is in it, zero where no element lies."""
        is_dense = self.offset == 0 and self.count == array.size
        if is_dense and array.strides == self._strides_bytes:
            return array
        flat = np.zeros(self.count, self.dtype)
        if array.size:
            view = self.view(flat)
            view[...] = array
            if view.tobytes() != array.tobytes():
                raise KernelBuildError(
                    f"argument {self.name!r} of shape {self.shape} has strides {self.strides}, with"
                    " which different elements lie in the same place; pass strides that are at"
                    " least as long as what they step over"
                )
        return flat


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
        """Return the shape: as declared, of the array given, or as far as the kernel goes."""
        declared = [e if e is None else evaluate_integer(e, parameters) for e in self.shape]
        for axis, extent in enumerate(declared):
            if extent is not None and extent < 0:
                raise KernelBuildError(
                    f"argument {self.name!r}: its extent {self.shape[axis]} along axis {axis} is"
                    f" {extent}; pass larger sizes"
                )
        others = given
        if None in declared and (given is None or len(given) != len(declared)):
            unit = np.eye(len(declared), dtype=int).tolist()
            ranges = None if addressed is None else self._ranges(addressed, unit, parameters)
            if ranges is None:
                raise KernelBuildError(
                    f"argument {self.name!r} has no declared shape, and data decides how far the"
                    " kernel goes in it; pass an array for it in make_arguments, or declare its"
                    f' shape: lp.GlobalArg({self.name!r}, np.{self.dtype.name}, shape="n")'
                )
            others = [max(0, index.high + 1) for index in ranges] or [0] * len(declared)
        return tuple(
            (others or ())[axis] if extent is None else extent
            for axis, extent in enumerate(declared)
        )

    def _ranges(
        self,
        addressed: AddressedElements,
        weights: Sequence[Sequence[int]],
        parameters: Mapping[str, Any],
        offset: int = 0,
    ) -> tuple[IndexRange, ...] | None:
        """Return the ranges of sums of subscripts, weighted by axis."""
        sizes = {n: int(v) for n, v in parameters.items() if isinstance(v, int | np.integer)}
        padded = [list(row) for row in weights]
        for row in padded:
            for axis in sorted(self.fixed):
                row.insert(axis, 0)
        source = self.source or self.name
        return addressed.ranges(source, padded, sizes, fixed=self.fixed, offset=offset)

    def choose_strides(
        self, shape: Sequence[int], parameters: Mapping[str, Any], given: NDArray[Any] | None = None
    ) -> dict[str, int]:
        """Choose strides that `parameters` lacks; a dense array keeps its own order of axes."""
        axes = {axis: name for name, axis in self.automatic.items() if name not in parameters}
        if given is not None and len(axes) == len(self.strides) and given.shape == tuple(shape):
            order = np.argsort(given.strides, kind="stable")
            if given.transpose(order[::-1]).flags.c_contiguous:
                return {name: given.strides[axis] // given.itemsize for axis, name in axes.items()}
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
        reach = [(extent - 1) * step for extent, step in zip(extents, strides, strict=True)]
        low = high = offset
        if 0 in extents:
            high = offset - 1
        else:
            low = offset + sum(min(step, 0) for step in reach)
            high = offset + sum(max(step, 0) for step in reach)
        if low < 0:
            raise KernelBuildError(
                f"argument {self.name!r} of shape {extents} with strides {strides} and offset"
                f" {offset} begins {-low} elements before its buffer; declare an offset that is"
                f" {-low} more at these sizes, as in offset=pymbolic.parse('n - 1')"
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
        ranges = None
        if addressed is not None:
            ranges = self._ranges(addressed, [strides], parameters, offset)
        for indices in ranges or ():
            if indices.is_exact and (indices.low < 0 or indices.high >= count):
                wrong = indices.low if indices.low < 0 else indices.high
                raise KernelBuildError(
                    f"{indices.access} addresses element {wrong} of {self.name!r}, whose buffer has"
                    f" {count} elements; declare a shape of {self.source or self.name!r} that holds"
                    " what the kernel addresses"
                )
        return placement


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


Prepare = Callable[[Mapping[str, Any]], Callable[[], list[Any]]]
"""From all arguments of a kernel by name to what enqueues it and returns events of its launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKernel:
    """A kernel built for a device."""

    name: str  # of the kernel in the translation unit
    arrays: tuple[KernelArray, ...]  # its array arguments
    scalars: Mapping[str, np.dtype[Any]]  # names and types of its other arguments
    offsets: frozenset[str]  # those of them that only say where arrays begin
    # its temporary arrays in global memory, and the bytes that Loopy allocates for each
    temporaries: tuple[tuple[ArrayArgument, Any], ...] = field(repr=False)
    addressed: AddressedElements = field(repr=False)  # which elements it addresses
    assumptions: Any = field(repr=False)  # sizes for which Loopy generated the code
    prepare: Prepare | None = field(repr=False)  # None if it is only described
    # sizes and digests of index arrays with which no access leaves its array
    checked_indices: set[tuple[Any, ...]] = field(default_factory=set[tuple[Any, ...]], repr=False)

    @property
    def arguments(self) -> Mapping[str, ArrayArgument]:
        """The arguments of the generated code that are buffers, by name."""
        return {part.name: part for array in self.arrays for part in array.parts.values()}

    @property
    def optional(self) -> frozenset[str]:
        """Scalars that need not be given: offsets, and strides that Loopy leaves to the caller."""
        strides = (name for part in self.arguments.values() for name in part.automatic)
        return self.offsets.union(strides)

    @property
    def integers(self) -> tuple[str, ...]:
        """The integer arguments."""
        return tuple(name for name, dtype in self.scalars.items() if dtype.kind in "iu")

    def numbers(self, parameters: Mapping[str, int]) -> dict[str, Any]:
        """Return scalar arguments at given sizes: 1 where there is no value, offsets 0."""
        values: dict[str, Any] = dict.fromkeys(self.scalars.keys() - self.optional, 1)
        values |= dict.fromkeys(self.offsets, 0)
        values |= {name: parameters[name] for name in self.scalars if name in parameters}
        for part in self.arguments.values():
            if part.automatic:
                values |= part.choose_strides(part.extents(values), values)
        return {name: as_scalar(dtype, values[name], name) for name, dtype in self.scalars.items()}

    def launch(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Enqueue the kernel once, with bound arguments; return the events of its launches."""
        assert self.prepare is not None
        return self.prepare(arguments)()

    def check_sizes(self, values: Mapping[str, Any]) -> None:
        """Compare sizes with what the kernel assumes, and temporaries with what is addressed."""
        if self.addressed.copied_bounds:
            name = self.addressed.copied_bounds[0]
            raise KernelBuildError(
                f"kernel {self.name!r}: Loopy generates wrong code for the loops that {name!r}"
                " bounds, since it keeps copies of it; do not tag the loops around them with ilp"
            )
        sizes = {name: int(values[name]) for name in self.integers}
        if not contains_values(self.assumptions, sizes):
            shown = ", ".join(f"{name}={value}" for name, value in sizes.items())
            raise KernelBuildError(
                f"kernel {self.name!r} assumes {self.assumptions}, which does not hold at {shown}:"
                " its code may write outside of its arrays then; pass other sizes"
            )
        for argument, size in self.temporaries:
            allocated = evaluate_integer(size, values)
            needed = argument.placement(values, self.addressed).size_bytes
            if needed > allocated:
                raise KernelBuildError(
                    f"temporary array {argument.name!r} takes {needed} byte, and Loopy allocates"
                    f" {allocated}"
                )


def check_offsets(t_unit: Any) -> None:
    """Refuse offsets that are texts of expressions, which Loopy takes for names."""
    entry = t_unit.default_entrypoint
    for arg in entry.args:
        offset = getattr(arg, "offset", None)
        if isinstance(offset, str) and not offset.isidentifier():
            raise KernelBuildError(
                f"kernel {entry.name!r}: the offset {offset!r} of argument {arg.name!r} is a text,"
                " which Loopy takes for the name of an argument; declare"
                f" offset=pymbolic.parse({offset!r})"
            )


def describe_kernel(t_unit: Any, prepare: Prepare | None = None) -> DeviceKernel:
    """Describe a kernel of Loopy's, which can be launched if it is said how."""
    t_unit = with_argument_types(t_unit)
    entry = t_unit.default_entrypoint
    if entry.state < lp.KernelState.PREPROCESSED:
        entry = make_args_for_offsets_and_strides(make_arrays_for_sep_arrays(entry))
    limit = int(np.iinfo(entry.index_dtype.numpy_dtype).max)
    arrays: list[KernelArray] = []
    scalars: dict[str, np.dtype[Any]] = {}
    parts: set[str] = set()
    read: frozenset[str] = frozenset().union(
        *(instruction.read_dependency_names() for instruction in entry.instructions),
        *(get_dependencies(rule.expression) for rule in entry.substitutions.values()),
    )
    for arg in entry.args:
        if arg.name in parts:
            continue
        if arg.dtype is None:
            raise KernelBuildError(
                f"kernel {entry.name!r}: the type of argument {arg.name!r} is not known; give it:"
                f' kernel = lp.add_dtypes(kernel, {{"{arg.name}": np.float32}})'
            )
        if not hasattr(arg, "dim_tags"):
            scalars[arg.name] = np.dtype(arg.dtype.numpy_dtype)
            continue
        array = _describe_array(entry, t_unit.target, arg, limit, read)
        parts |= {part.name for part in array.parts.values()}
        arrays.append(array)
    return DeviceKernel(
        name=entry.name,
        arrays=tuple(arrays),
        scalars=scalars,
        offsets=accesses.offset_parameters(entry),
        temporaries=tuple(  # those that share storage left out
            (_describe_part(entry, t_unit.target, variable, limit), variable.nbytes)
            for variable in entry.temporary_variables.values()
            if variable.address_space == AddressSpace.GLOBAL
            and variable.dtype is not None
            and not variable.base_storage
            and variable.initializer is None
        ),
        addressed=AddressedElements(t_unit),
        assumptions=assumptions_of(entry),
        prepare=prepare,
    )


def with_argument_types(t_unit: Any) -> Any:
    """Return a kernel with the types that Loopy infers for arguments without one, such as sizes."""
    if all(arg.dtype is not None for arg in t_unit.default_entrypoint.args):
        return t_unit
    return lp.infer_unknown_types(t_unit, expect_completion=False)


def _describe_array(
    kernel: Any, target: Any, argument: Any, limit: int, read: frozenset[str]
) -> KernelArray:
    separation = getattr(argument, "_separation_info", None)
    separate: tuple[int, ...] = ()
    names = {(): argument.name}
    if separation:
        separate, names = tuple(sorted(separation.sep_axis_indices_set)), separation.subarray_names
    parts: dict[tuple[int, ...], ArrayArgument] = {}
    for index, name in names.items():
        more = {"source": argument.name, "fixed": dict(zip(separate, index, strict=True))}
        parts[index] = _describe_part(kernel, target, kernel.arg_dict[name], limit, **more)
    return KernelArray(
        name=argument.name,
        parts=parts,
        separate=separate,
        extent=tuple(int(argument.shape[axis]) for axis in separate),
        is_read=argument.name in read,
    )


def _describe_part(kernel: Any, target: Any, array: Any, limit: int, **more: Any) -> ArrayArgument:
    tags: Any = array.dim_tags
    if tags is None:
        tags = (FixedStrideArrayDimTag(1),)  # a subscript of what has no axes is the address
    strides: list[Any] = []
    vector_axis: int | None = None
    for axis, tag in enumerate(tags):
        if isinstance(tag, VectorArrayDimTag):
            vector_axis = axis
            strides.append(1)
        elif isinstance(tag, FixedStrideArrayDimTag) and not tag.target_axis:
            strides.append(tag.stride)
        else:
            raise KernelBuildError(
                f"kernel {kernel.name!r}: axis {axis} of {array.name!r} is tagged {tag}, which has"
                " no place in a buffer; use a global array"
            )
    return ArrayArgument(
        name=array.name,
        dtype=np.dtype(array.dtype.numpy_dtype),
        shape=array.shape if isinstance(array.shape, tuple) else (None,) * len(strides),
        strides=tuple(strides),
        offset=accesses.offset_of(array),
        vector=1 if vector_axis is None else array.vector_size(target),
        vector_axis=vector_axis,
        automatic=accesses.automatic_strides(array),
        index_limit=limit,
        **more,
    )
