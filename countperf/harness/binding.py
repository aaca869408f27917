"""Arguments of a launch, made from the inputs of a kernel and checked."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from loopy import AddressSpace
from pymbolic import evaluate

from countperf.counting.index_arrays import shapes_of_temporaries
from countperf.counting.index_values import deciding_arrays, find_outside
from countperf.errors import KernelBuildError
from countperf.harness.arrays import KernelArray, Placement, as_scalar
from countperf.harness.description import Kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countperf.harness.device import Device, Session

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

    kernel: Kernel
    session: Session
    arguments: dict[str, Any]  # for `Kernel.launch`: device memory and NumPy scalars, by name
    bindings: Bindings  # where arrays lie in that memory

    def read(self, name: str) -> NDArray[Any]:
        """Copy an array of the kernel from the device, in its own shape."""
        (array,) = (array for array in self.kernel.arrays if array.name == name)
        views: dict[tuple[int, ...], NDArray[Any]] = {}
        for place, part in array.parts.items():
            placement = self.bindings.placements[part.name]
            memory = self.arguments[part.name]
            flat = self.session.download(memory, part.dtype, placement.count)
            views[place] = placement.view(flat)
        if not array.separate:
            return views[()]
        whole = np.empty(self.bindings.shapes[name], array.dtype)
        for place, (_, part) in zip(array.parts, array.split(whole), strict=True):
            part[...] = views[place]
        return whole


def resolve_arguments(
    kernel: Kernel, parameters: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
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


def _scalars(kernel: Kernel, numbers: Mapping[str, Any]) -> dict[str, Any]:
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
    kernel: Kernel, array: KernelArray, values: Mapping[str, Any], given: NDArray[Any] | None
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
    kernel: Kernel,
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


def check_accesses(kernel: Kernel, bindings: Bindings, inputs: Mapping[str, Any]) -> None:
    """Refuse a launch in which a subscript that data decide leaves its array, or may leave it."""
    source = kernel.addressed.kernel
    if source is None:
        return
    sizes = {name: int(bindings.scalars[name]) for name in kernel.integers}
    shapes = {**shapes_of_temporaries(source, sizes), **bindings.shapes}
    accesses = kernel.addressed.unproved(shapes, sizes)
    if not accesses:
        return
    deciding = deciding_arrays(source, accesses)
    contents = {
        array.name: np.asarray(inputs[array.name])
        if array.name in inputs
        else np.broadcast_to(np.zeros((), array.dtype), bindings.shapes[array.name])
        for array in kernel.arrays
        if array.name in deciding
    }
    key = (
        tuple(bindings.scalars.items()),
        *(zlib.crc32(np.ascontiguousarray(contents[n]).data) for n in inputs if n in contents),
    )
    if key in kernel.checked_indices:
        return
    outside = find_outside(source, bindings.scalars, bindings.shapes, contents, accesses)
    if outside is not None:
        raise KernelBuildError(f"kernel {kernel.name!r}: {outside.text}")
    kernel.checked_indices.add(key)


def check_private_arrays(kernel: Kernel, device: Device, bindings: Bindings) -> None:
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
    kernel: Kernel,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, Any] | None = None,
) -> BoundArguments:
    """Put a kernel's inputs into device memory, and allocate what it gets no inputs for."""
    bindings = resolve_arguments(kernel, parameters, inputs)
    check_private_arrays(kernel, session.device, bindings)
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
