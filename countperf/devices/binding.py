"""Arguments of a launch, made from the inputs of a kernel and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from loopy import AddressSpace
from numpy.typing import NDArray
from pymbolic import evaluate

from countperf.counting.extents import IndexLimits, ranges_of
from countperf.devices.description import DeviceKernel, Placement, as_scalar, components_of
from countperf.errors import CountingError, KernelBuildError, option
from countperf.sizes import Sizes

if TYPE_CHECKING:
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
        whole = np.empty(self.bindings.shapes[name], array.dtype)
        for argument, part in array.split(whole):
            placement = self.bindings.placements[argument.name]
            memory = self.arguments[argument.name]
            flat = self.session.download(memory, argument.dtype, placement.count)
            part[...] = placement.view(flat)
        return whole


def resolve_arguments(
    kernel: DeviceKernel, parameters: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
) -> Bindings:
    """Find the values of all scalars, and where arrays lie, at given sizes."""
    arrays = {array.name: array for array in kernel.arrays}
    given: dict[str, NDArray[Any]] = {}
    numbers = {**dict.fromkeys(kernel.offsets, 0), **parameters}
    for name, value in (inputs or {}).items():
        if name in kernel.scalars:
            numbers[name] = value
        elif name in arrays:
            given[name] = np.asarray(value)
        else:
            listed = ", ".join([*arrays, *kernel.scalars])
            raise KernelBuildError(
                f"kernel {kernel.name!r} has no argument {name!r} (it has: {listed})"
            )
    values = {
        name: as_scalar(dtype, numbers[name], f"kernel {kernel.name!r}: {name}")
        for name, dtype in kernel.scalars.items()
        if name in numbers
    }
    if missing := sorted(set(kernel.scalars) - set(values) - kernel.optional):
        raise KernelBuildError(
            f"kernel {kernel.name!r}: no value for argument {', '.join(missing)}; pass"
            f" {missing[0]}=... with the sizes, or in what make_arguments returns"
        )
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in arrays.items():
        has = given.get(name)
        own = None if has is None else array.without_separate(has.shape)
        parts = array.parts.values()
        # parts of an array without a declared shape may go differently far
        extents = [part.extents(values, kernel.addressed, own) for part in parts]
        shape = shapes[name] = array.whole([max(some) for some in zip(*extents, strict=True)])
        if has is not None and (has.dtype != array.dtype or has.shape != shape):
            raise KernelBuildError(
                f"argument {name!r} wants {array.dtype} of shape {shape}, not {has.dtype} of shape"
                f" {has.shape}"
            )
        contents = array.split(has) if has is not None and has.size else zip(parts, repeat(None))
        for part, content in contents:
            strides = part.choose_strides(array.without_separate(shape), values, content)
            for stride, value in strides.items():
                values[stride] = as_scalar(kernel.scalars[stride], value, f"stride {stride}")
    kernel.check_sizes(values)
    placements = {
        part.name: part.placement(values, kernel.addressed, array.without_separate(shapes[name]))
        for name, array in arrays.items()
        for part in array.parts.values()
    }
    return Bindings(scalars=values, shapes=shapes, placements=placements)


def check_accesses(kernel: DeviceKernel, bindings: Bindings, inputs: Mapping[str, Any]) -> None:
    """Refuse a launch in which a subscript that data decide may leave its array."""
    if kernel.addressed.kernel is None:
        return
    sizes = {name: int(bindings.scalars[name]) for name in kernel.integers}
    contents = {
        array.name: np.asarray(inputs.get(array.name, np.zeros(1, array.dtype)))
        for array in kernel.arrays
    }
    ranges = ranges_of(contents)
    key = (*sizes.items(), *ranges.items())
    if key in kernel.checked_indices:
        return
    if outside := kernel.addressed.describe_outside(sizes, bindings.shapes, ranges):
        raise KernelBuildError(f"kernel {kernel.name!r}: {outside}")
    kernel.checked_indices.add(key)


def check_private_arrays(kernel: DeviceKernel, device: Device, bindings: Bindings) -> None:
    """Refuse private arrays that are larger than a GPU, or the stack of a thread, has for them."""
    source = kernel.addressed.kernel
    if source is None:
        return
    sizes = {name: int(bindings.scalars[name]) for name in kernel.integers}
    shapes = kernel.addressed.shapes_of_temporaries(sizes)
    variables = source.temporary_variables
    arrays = [n for n in shapes if shapes[n] and variables[n].address_space == AddressSpace.PRIVATE]
    held = sum(prod(shapes[name]) * variables[name].dtype.itemsize for name in arrays)
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
    """Put a kernel's inputs into device memory, and allocate what it gets no inputs for."""
    bindings = resolve_arguments(kernel, parameters, inputs)
    check_private_arrays(kernel, session.device, bindings)
    if not unchecked:
        check_accesses(kernel, bindings, inputs or {})
    arguments: dict[str, Any] = dict(bindings.scalars)
    for array in kernel.arrays:
        given = None if inputs is None else inputs.get(array.name)
        if given is None:
            for part in array.parts.values():
                arguments[part.name] = session.allocate(bindings.placements[part.name].size_bytes)
            continue
        for part, content in array.split(np.asarray(given)):
            arguments[part.name] = session.upload(bindings.placements[part.name].contents(content))
    return BoundArguments(kernel=kernel, session=session, arguments=arguments, bindings=bindings)


# --- Default inputs of a kernel: positive, so that roots and logarithms are of ordinary values

_AROUND_1 = 0.5, 1.5  # so that long products neither vanish nor overflow
_LARGEST_INTEGER = 3


def default_inputs(
    kernel: DeviceKernel,
    rng: np.random.Generator,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    statistics: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make inputs for a kernel, from the types and shapes that it declares."""
    inputs, shapes, limits = _decide(kernel, rng, parameters, given or {}, statistics or {})
    for array in kernel.arrays:
        if array.is_read and array.name not in inputs:
            shape, limit = shapes[array.name], limits.get(array.name)
            if limit is None:
                inputs[array.name] = _draw(rng, array.dtype, shape)
                continue
            values = rng.integers(limit.low, limit.high + 1, shape)
            if limit.bounds_loops:
                values = np.linspace(limit.low, limit.high, prod(shape)).reshape(shape)
            inputs[array.name] = np.asarray(values).astype(array.dtype)
    return inputs


def describe_indices(
    kernel: DeviceKernel, parameters: Sizes, given: Mapping[str, Any], statistics: Mapping[str, Any]
) -> str:
    """Say which index arrays `default_inputs` makes up, and how; nothing if there are none."""
    _, shapes, limits = _decide(kernel, np.random.default_rng(0), parameters, given, statistics)
    texts: list[str] = []
    for name, limit in limits.items():
        text = "rising evenly from" if limit.bounds_loops else "random,"
        text += f" {limit.low} to {limit.high}"
        if limit.rows:
            mean = (limit.high - limit.low) / (prod(shapes[name]) - 1)
            text = f"rows of {mean:.4g} on average, all alike ({limit.rows})"
        texts.append(f"{name}: {text}")
    return "; ".join(texts)


def _decide(
    kernel: DeviceKernel,
    rng: np.random.Generator,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any],
    statistics: Mapping[str, Any],
) -> tuple[dict[str, Any], Mapping[str, tuple[int, ...]], dict[str, IndexLimits]]:
    """Return scalars and given inputs, shapes of arrays, and limits of index arrays."""
    source = kernel.addressed.kernel
    sizes = kernel.integers if source is None else kernel.addressed.size_arguments()
    known = {name: value for name, value in given.items() if name not in parameters}
    scalars = {
        name: _draw(rng, dtype, ())[()]
        for name, dtype in kernel.scalars.items()
        if name not in {*parameters, *known, *kernel.optional, *sizes}
    }
    bindings = resolve_arguments(kernel, {**parameters, **scalars}, known)
    made_up = [array for array in kernel.arrays if array.is_read and array.name not in known]
    limits: dict[str, IndexLimits] = {}
    if source is not None:
        values = {name: int(bindings.scalars[name]) for name in kernel.integers}
        contents = {array.name: known[array.name] for array in kernel.arrays if array.name in known}
        try:
            limits = kernel.addressed.index_limits(values, bindings.shapes, contents)
        except CountingError as error:
            raise KernelBuildError(
                f"kernel {kernel.name!r}: {error}; no inputs are made for it: pass yours by a"
                f" function, {option('make_arguments')}"
            ) from error
    waiting = {str(name): value for name, value in statistics.items() if value != "indirect"}
    indices: dict[str, IndexLimits] = {}
    for array in made_up:
        if (limit := limits.get(array.name)) is None:
            continue
        low, high, loop = limit.low, min(limit.high, int(np.iinfo(array.dtype).max)), limit.rows
        rows = prod(bindings.shapes[array.name]) - 1
        if loop and rows > 0:
            mean = float(waiting.pop(loop, (high - low) / rows))
            needed = low + round(mean * rows)
            if needed > high:
                at = ", ".join(f"{name}={value}" for name, value in parameters.items())
                raise KernelBuildError(
                    f"{rows} rows of {mean:g} elements ({loop}) need {needed}, and the arrays hold"
                    f" {high} at {at}: make sizes and statistics agree, or pass your data by a"
                    f" function, {option('make_arguments')}"
                )
            high = needed
        indices[array.name] = replace(limit, high=high, rows=loop if rows > 0 else "")
    loops: frozenset[str] = frozenset() if source is None else source.all_inames()
    for name, value in waiting.items():
        # access patterns follow from index arrays alone, trip counts from integers alone
        deciding = [a.name for a in made_up if a.dtype.kind in "iu" or name not in loops]
        if isinstance(value, str):
            deciding = list(indices)
        if deciding:
            raise KernelBuildError(
                f"kernel {kernel.name!r}: {name}={value} is stated of the data, and made-up inputs"
                f" ({', '.join(deciding)}) would not be so: pass yours by a function,"
                f" {option('make_arguments')}"
            )
    return {**scalars, **known}, bindings.shapes, indices


def _draw(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if names := components_of(dtype):
        result = np.zeros(shape, dtype)
        for name in names:
            result[name] = _draw(rng, result[name].dtype, shape)
        return result
    if dtype.kind in "biu":
        ends = (0, 1) if dtype.kind == "b" else (1, _LARGEST_INTEGER)
        return np.asarray(rng.integers(ends[0], ends[1] + 1, shape)).astype(dtype)
    real = np.asarray(rng.uniform(*_AROUND_1, shape))
    if dtype.kind == "c":
        real = real + 1j * rng.uniform(*_AROUND_1, shape)
    return real.astype(dtype)
