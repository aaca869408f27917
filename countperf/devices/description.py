"""Description of a kernel for launches: its arguments, and the elements it addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
from loopy import AddressSpace
from loopy.kernel.array import FixedStrideArrayDimTag, VectorArrayDimTag
from loopy.symbolic import get_dependencies

from countperf.counting.automatic import (
    automatic_strides,
    offset_of,
    offset_parameters,
    with_arguments,
)
from countperf.counting.extents import AddressedElements
from countperf.devices.arrays import ArrayArgument, KernelArray, as_scalar, evaluate_integer
from countperf.errors import KernelBuildError
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.sets import contains_values

if TYPE_CHECKING:
    from countperf.counting.extents import AddressedElements


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
    entry = with_arguments(t_unit.default_entrypoint)
    limit = int(np.iinfo(entry.index_dtype.numpy_dtype).max)
    arrays: list[KernelArray] = []
    scalars: dict[str, np.dtype[Any]] = {}
    parts: set[str] = set()
    read = _read_variables(entry)
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
        array = _array(entry, t_unit.target, arg, limit, read)
        parts |= {part.name for part in array.parts.values()}
        arrays.append(array)
    return DeviceKernel(
        name=entry.name,
        arrays=tuple(arrays),
        scalars=scalars,
        offsets=offset_parameters(entry),
        temporaries=tuple(_temporaries(entry, t_unit.target, limit)),
        addressed=AddressedElements(t_unit),
        assumptions=assumptions_of(entry),
        prepare=prepare,
    )


def with_argument_types(t_unit: Any) -> Any:
    """Return a kernel with the types that Loopy infers for arguments without one, such as sizes.

    Arguments that ``"..."`` stands for have none until code is generated.
    """
    if all(arg.dtype is not None for arg in t_unit.default_entrypoint.args):
        return t_unit
    return lp.infer_unknown_types(t_unit, expect_completion=False)


def _read_variables(kernel: Any) -> frozenset[str]:
    variables: set[str] = set()
    for instruction in kernel.instructions:
        variables |= instruction.read_dependency_names()
    for rule in kernel.substitutions.values():
        variables |= get_dependencies(rule.expression)
    return frozenset(variables)


def _array(
    kernel: Any, target: Any, argument: Any, limit: int, read: frozenset[str]
) -> KernelArray:
    separation = getattr(argument, "_separation_info", None)
    separate: tuple[int, ...] = ()
    names = {(): argument.name}
    if separation:
        separate, names = tuple(sorted(separation.sep_axis_indices_set)), separation.subarray_names
    parts = {
        index: _part(
            kernel,
            target,
            kernel.arg_dict[name],
            limit,
            source=argument.name,
            fixed=dict(zip(separate, index, strict=True)),
        )
        for index, name in names.items()
    }
    return KernelArray(
        name=argument.name,
        parts=parts,
        separate=separate,
        extent=tuple(int(argument.shape[axis]) for axis in separate),
        is_read=argument.name in read,
    )


def _part(kernel: Any, target: Any, array: Any, limit: int, **more: Any) -> ArrayArgument:
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
    shape = array.shape if isinstance(array.shape, tuple) else (None,) * len(strides)
    return ArrayArgument(
        name=array.name,
        dtype=np.dtype(array.dtype.numpy_dtype),
        shape=shape,
        strides=tuple(strides),
        offset=offset_of(array),
        vector=1 if vector_axis is None else array.vector_size(target),
        vector_axis=vector_axis,
        automatic=automatic_strides(array),
        index_limit=limit,
        **more,
    )


def _temporaries(kernel: Any, target: Any, limit: int) -> list[tuple[ArrayArgument, Any]]:
    """Return the temporaries in global memory, those that share storage left out."""
    return [
        (_part(kernel, target, variable, limit), variable.nbytes)
        for variable in kernel.temporary_variables.values()
        if variable.address_space == AddressSpace.GLOBAL
        and variable.dtype is not None
        and not variable.base_storage
        and variable.initializer is None
    ]
