"""Arguments of a launch, made from the inputs of a kernel and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from loopy import AddressSpace
from numpy.typing import NDArray
from pymbolic import evaluate

from countperf.counting.index_arrays import (
    IndexLimits,
    index_limits,
    ranges_of,
    shapes_of_temporaries,
    size_arguments,
)
from countperf.devices.arrays import KernelArray, Placement, as_scalar, components_of
from countperf.devices.description import DeviceKernel
from countperf.errors import CountingError, KernelBuildError, option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countperf.devices.device import Device, Session


try:
    import resource
except ImportError:  # not POSIX
    resource = None

_GPU_PRIVATE_BYTES = 2**19
_STACK_SHARE = 7 / 8  # of which arrays are; the driver needs some itself
_STACK_BYTES = 2**20  # of threads of Windows
_UNLIMITED_STACK_BYTES = 2**21  # of threads of glibc, where the limit is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """Values of a kernel's scalars, and where its arrays lie, at given sizes."""

    scalars: Mapping[str, Any]  # all scalar arguments, by name
    shapes: Mapping[str, tuple[int, ...]]  # shape of each array of the kernel
    placements: Mapping[str, Placement]  # of each buffer, by argument


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundArguments:
    """Arguments of a launch."""

    kernel: DeviceKernel
    session: Session
    arguments: dict[str, Any]  # for `DeviceKernel.launch`: device memory and NumPy scalars, by name
    bindings: Bindings  # where arrays lie in that memory

    def read(self, name: str) -> NDArray[Any]:
        """Copy an array of the kernel from the device, in its own shape."""
        (array,) = (array for array in self.kernel.arrays if array.name == name)
        views: dict[tuple[int, ...], NDArray[Any]] = {}
        for index, part in array.parts.items():
            placement = self.bindings.placements[part.name]
            memory = self.arguments[part.name]
            flat = self.session.download(memory, part.dtype, placement.count)
            views[index] = placement.view(flat)
        if not array.separate:
            return views[()]
        whole = np.empty(self.bindings.shapes[name], array.dtype)
        for index, (_, part) in zip(array.parts, array.split(whole), strict=True):
            part[...] = views[index]
        return whole


def resolve_arguments(
    kernel: DeviceKernel, parameters: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
) -> Bindings:
    """Find the values of all scalars, and where arrays lie, at given sizes."""
    arrays = {array.name: array for array in kernel.arrays}
    given: dict[str, NDArray[Any]] = {}
    numbers = {name: value for name, value in parameters.items() if name in kernel.scalars}
    for name, value in (inputs or {}).items():
        if name in arrays:
            given[name] = np.asarray(value)
        elif name in kernel.scalars:
            numbers[name] = value
        else:
            listed = ", ".join([*arrays, *kernel.scalars])
            raise KernelBuildError(
                f"kernel {kernel.name!r} has no argument {name!r} (it has: {listed})"
            )
    values = _scalars(kernel, numbers)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in arrays.items():
        shapes[name] = _shape(kernel, array, values, given.get(name))
        if name in given:
            _check_array(array, given[name], shapes[name])
        _add_strides(kernel, array, values, shapes[name], given.get(name))
    kernel.check_sizes(values)
    placements: dict[str, Placement] = {}
    for name, array in arrays.items():
        part_shape = array.without_separate(shapes[name])
        for part in array.parts.values():
            placements[part.name] = part.placement(values, kernel.addressed, part_shape)
    return Bindings(scalars=values, shapes=shapes, placements=placements)


def _scalars(kernel: DeviceKernel, numbers: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, dtype in kernel.scalars.items():
        if name in numbers:
            values[name] = as_scalar(dtype, numbers[name], f"kernel {kernel.name!r}: {name}")
        elif name in kernel.offsets:
            values[name] = dtype.type(0)
    missing = sorted(set(kernel.scalars) - set(values) - kernel.optional)
    if missing:
        raise KernelBuildError(
            f"kernel {kernel.name!r}: no value for argument {', '.join(missing)}; pass"
            f" {missing[0]}=... with the sizes, or in what make_arguments returns"
        )
    return values


def _shape(
    kernel: DeviceKernel, array: KernelArray, values: Mapping[str, Any], given: NDArray[Any] | None
) -> tuple[int, ...]:
    parts = list(array.parts.values())
    if given is not None and given.ndim == len(array.whole(parts[0].shape)):
        own = array.without_separate(given.shape)
        return array.whole(parts[0].extents(values, kernel.addressed, own))
    # parts of an array without a declared shape may go differently far
    shape = [part.extents(values, kernel.addressed) for part in parts]
    return array.whole([max(extents) for extents in zip(*shape, strict=True)])


def _check_array(array: KernelArray, given: NDArray[Any], shape: tuple[int, ...]) -> None:
    if given.dtype == array.dtype and given.shape == shape:
        return
    raise KernelBuildError(
        f"argument {array.name!r} wants {array.dtype} of shape {shape}, not {given.dtype} of shape"
        f" {given.shape}"
    )


def _add_strides(
    kernel: DeviceKernel,
    array: KernelArray,
    values: dict[str, Any],
    shape: tuple[int, ...],
    given: NDArray[Any] | None,
) -> None:
    own = array.without_separate(shape)
    parts = [(part, None) for part in array.parts.values()]
    if given is not None and given.size:
        parts = list(array.split(given))
    for part, content in parts:
        if part.automatic:
            for name, stride in part.chosen_strides(own, values, content).items():
                values[name] = as_scalar(kernel.scalars[name], stride, f"stride {name}")


def check_accesses(kernel: DeviceKernel, bindings: Bindings, inputs: Mapping[str, Any]) -> None:
    """Refuse a launch in which a subscript that data decide may leave its array."""
    source = kernel.addressed.kernel
    if source is None:
        return
    sizes = {name: int(bindings.scalars[name]) for name in kernel.integers}
    shapes = {**shapes_of_temporaries(source, sizes), **bindings.shapes}
    contents = {
        array.name: np.asarray(inputs.get(array.name, np.zeros(1, array.dtype)))
        for array in kernel.arrays
    }
    ranges = ranges_of(contents)
    key = (*sizes.items(), *ranges.items())
    if key in kernel.checked_indices:
        return
    outside = kernel.addressed.describe_outside(sizes, shapes, ranges)
    if outside:
        raise KernelBuildError(f"kernel {kernel.name!r}: {outside}")
    kernel.checked_indices.add(key)


def check_private_arrays(kernel: DeviceKernel, device: Device, bindings: Bindings) -> None:
    """Refuse private arrays that are larger than what a device has for a work group of them.

    Processors have the arrays of all work items of a group on the stack of a thread: what exceeds
    it ends the process. GPUs address 512 KiB for each work item.
    """
    source = kernel.addressed.kernel
    if source is None:
        return
    sizes = {name: int(bindings.scalars[name]) for name in kernel.integers}
    shapes = shapes_of_temporaries(source, sizes)
    held = sum(
        prod(shapes.get(name, ())) * variable.dtype.itemsize
        for name, variable in source.temporary_variables.items()
        if variable.address_space == AddressSpace.PRIVATE and shapes.get(name)
    )
    room, whose = _GPU_PRIVATE_BYTES, "a work item"
    if held and device.identity.device_type == "cpu":
        _, group = source.get_grid_size_upper_bounds_as_exprs(
            kernel.addressed.t_unit.callables_table
        )
        held *= prod(int(evaluate(extent, sizes)) for extent in group)
        room, whose = int(_STACK_SHARE * _stack_bytes()), "all work items of a group"
    if held > room:
        raise KernelBuildError(
            f"kernel {kernel.name!r}: the private arrays of {whose} take {held} byte, and"
            f" {device.label} has {room} for them; nothing was launched: make the arrays shorter,"
            " the groups smaller, or keep the arrays in global memory"
        )


def _stack_bytes() -> int:
    """Return the size of the stack of a new thread, byte."""
    if resource is None:
        return _STACK_BYTES
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _UNLIMITED_STACK_BYTES if soft == resource.RLIM_INFINITY else soft


def bind_arguments(
    session: Session,
    kernel: DeviceKernel,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, Any] | None = None,
    *,
    unchecked: bool = False,
) -> BoundArguments:
    """Put a kernel's inputs into device memory, and allocate what it gets no inputs for.

    Unchecked are subscripts that data decide.
    """
    bindings = resolve_arguments(kernel, parameters, inputs)
    check_private_arrays(kernel, session.device, bindings)
    if not unchecked:
        check_accesses(kernel, bindings, inputs or {})
    arguments: dict[str, Any] = dict(bindings.scalars)
    for array in kernel.arrays:
        given = None if inputs is None else inputs.get(array.name)
        if given is None:
            for part in array.parts.values():
                size = bindings.placements[part.name].size_bytes
                arguments[part.name] = session.allocate(size)
            continue
        whole = np.asarray(given)
        for part, content in array.split(whole) if array.separate else [(array.parts[()], whole)]:
            placement = bindings.placements[part.name]
            arguments[part.name] = session.upload(placement.contents(content))
    return BoundArguments(kernel=kernel, session=session, arguments=arguments, bindings=bindings)


# --- Default inputs of a kernel, made from its arguments
#
# Numbers are positive, so that roots, logarithms and divisions are of ordinary values; integer
# arrays whose elements are subscripts, or bound loops, hold what keeps every access inside of its
# array.

_LOWEST, _HIGHEST = 0.5, 1.5
"""Of floating-point numbers: around 1, so that long products neither vanish nor overflow."""

_LARGEST_INTEGER = 3


def default_inputs(
    kernel: DeviceKernel,
    rng: np.random.Generator,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    statistics: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make inputs for a kernel, from the types and shapes that it declares."""
    known, scalars, shapes, indices = _found(kernel, rng, parameters, given or {}, statistics or {})
    inputs: dict[str, Any] = {**scalars, **known}
    for array in kernel.arrays:
        if not array.is_read or array.name in known:
            continue
        shape = shapes[array.name]
        if array.name in indices:
            values = indices[array.name].values(rng, shape)
            inputs[array.name] = np.asarray(values).astype(array.dtype)
        else:
            inputs[array.name] = _numbers(rng, array.dtype, shape)
    return inputs


def made_up_indices(
    kernel: DeviceKernel,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any],
    statistics: Mapping[str, Any],
) -> str:
    """Say which index arrays `default_inputs` makes up, and how; nothing if there are none.

    Parameters and errors are those of `default_inputs`.
    """
    *_, indices = _found(kernel, np.random.default_rng(0), parameters, given, statistics)
    return "; ".join(f"{name}: {index.text}" for name, index in indices.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """Elements of an index array: random from `low` to `high`, or rising evenly."""

    low: int
    high: int
    rises: bool
    text: str

    def values(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        if self.rises:
            return np.linspace(self.low, self.high, int(np.prod(shape))).reshape(shape)
        return rng.integers(self.low, self.high + 1, shape)


def _found(
    kernel: DeviceKernel,
    rng: np.random.Generator,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any],
    statistics: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, tuple[int, ...]], dict[str, _Index]]:
    """Return inputs that are known, scalars, shapes of arrays, and what index arrays get."""
    known = {name: value for name, value in given.items() if name not in parameters}
    scalars = {
        name: _numbers(rng, dtype, ())[()]
        for name, dtype in kernel.scalars.items()
        if name not in {*parameters, *known, *kernel.optional, *_sizes(kernel)}
    }
    bindings = resolve_arguments(kernel, {**parameters, **scalars}, known)
    limits = _limits(kernel, bindings.scalars, bindings.shapes, known)
    waiting = {str(name): value for name, value in statistics.items() if value != "indirect"}
    indices: dict[str, _Index] = {}
    for array in kernel.arrays:
        if not array.is_read or array.name in known or array.name not in limits:
            continue
        limit = limits[array.name]
        high = min(limit.high, int(np.iinfo(array.dtype).max))
        text = f"random, {limit.low} to {high}"
        rows = int(np.prod(bindings.shapes[array.name])) - 1
        if limit.rows and rows > 0:
            stated = waiting.pop(limit.rows, (high - limit.low) / rows)
            high = _high_of(limit, high, rows, float(stated), parameters)
            text = f"rows of {(high - limit.low) / rows:.4g} on average, all alike ({limit.rows})"
        elif limit.bounds_loops:
            text = f"rising evenly from {limit.low} to {high}"
        indices[array.name] = _Index(low=limit.low, high=high, rises=limit.bounds_loops, text=text)
    source = kernel.addressed.kernel
    loops: frozenset[str] = frozenset() if source is None else source.all_inames()
    made_up = {
        a.name: a.dtype.kind in "iu" for a in kernel.arrays if a.is_read and a.name not in known
    }
    for name, value in waiting.items():
        # access patterns follow from index arrays alone, trip counts from integers alone
        deciding = [a for a, is_integer in made_up.items() if is_integer or name not in loops]
        if isinstance(value, str):
            deciding = list(indices)
        if deciding:
            raise KernelBuildError(
                f"kernel {kernel.name!r}: {name}={value} is stated of the data, and made-up inputs"
                f" ({', '.join(deciding)}) would not be so: pass yours by a function,"
                f" {option('make_arguments')}"
            )
    return known, scalars, bindings.shapes, indices


def _high_of(
    limit: IndexLimits, high: int, rows: int, mean: float, parameters: Mapping[str, Any]
) -> int:
    """Return the last element of an array of rows, so that these have a mean length."""
    wanted = limit.low + round(mean * rows)
    if wanted > high:
        sizes = ", ".join(f"{name}={value}" for name, value in parameters.items())
        raise KernelBuildError(
            f"{rows} rows of {mean:g} elements ({limit.rows}) need {wanted}, and the arrays hold"
            f" {high} at {sizes}: make sizes and statistics agree, or pass your data by a"
            f" function, {option('make_arguments')}"
        )
    return wanted


def _sizes(kernel: DeviceKernel) -> frozenset[str]:
    """Return the integer scalars that decide loops, shapes or subscripts."""
    source = kernel.addressed.kernel
    return frozenset(kernel.integers) if source is None else size_arguments(source)


def _limits(
    kernel: DeviceKernel,
    scalars: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    known: Mapping[str, Any],
) -> Mapping[str, IndexLimits]:
    source = kernel.addressed.kernel
    if source is None:
        return {}
    sizes = {name: int(scalars[name]) for name in kernel.integers}
    contents = {array.name: known[array.name] for array in kernel.arrays if array.name in known}
    try:
        return index_limits(source, sizes, shapes, contents)
    except CountingError as error:
        raise KernelBuildError(
            f"kernel {kernel.name!r}: {error}; no inputs are made for it: pass yours by a function,"
            f" {option('make_arguments')}"
        ) from error


def _numbers(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    names = components_of(dtype)
    if names:
        fields: Any = dtype.fields
        result = np.zeros(shape, dtype)
        for name in names:
            result[name] = _numbers(rng, fields[name][0], shape)
        return result
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(1, _LARGEST_INTEGER + 1, shape)).astype(dtype)
    real = np.asarray(rng.uniform(_LOWEST, _HIGHEST, shape))
    if dtype.kind == "c":
        real = real + 1j * rng.uniform(_LOWEST, _HIGHEST, shape)
    return real.astype(dtype)
