"""From a Loopy translation unit to something that can be launched with arrays and sizes.

Code is generated once per kernel; Loopy's generated host function works out the launch (grid,
group, order of arguments) for each call. It is called directly, without Loopy's executor, which
would look at every argument again at each run. A stand-in for pyopencl's module in the host
function's namespace notes the events of all launches, since a translation unit may need several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.counting.size_ranges import size_ranges
from countperf.errors import KernelBuildError

if TYPE_CHECKING:
    import pyopencl as cl
    from numpy.typing import NDArray

    from countperf.harness.backend import Session as AnySession
    from countperf.harness.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayArgument:
    """An array argument of a kernel, its sizes still symbolic.

    Attributes
    ----------
    name : str
        Of the argument.
    dtype : numpy.dtype
        Type of its elements.
    shape, strides : tuple
        Expressions of pymbolic in the parameters; strides in elements.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]

    def layout(self, parameters: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides, strides in elements, at given parameters."""
        from pymbolic import evaluate

        shape = tuple(int(evaluate(extent, dict(parameters))) for extent in self.shape)
        strides = tuple(int(evaluate(stride, dict(parameters))) for stride in self.strides)
        return shape, strides

    def count(self, parameters: Mapping[str, Any]) -> int:
        """Return how many elements of memory the array takes."""
        shape, strides = self.layout(parameters)
        if 0 in shape:
            return 0
        steps = ((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        return 1 + sum(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel built for a device.

    Attributes
    ----------
    name : str
        Of the kernel in the translation unit.
    arrays : tuple of ArrayArgument
        Its array arguments.
    scalars : frozenset of str
        Names of its other arguments.
    ranges : Mapping from str to range
        Values that the integers among them hold.
    launch : callable
        Enqueues the kernel with all its arguments by name, arrays as device memory; returns the
        events of its launches.
    """

    name: str
    arrays: tuple[ArrayArgument, ...]
    scalars: frozenset[str]
    ranges: Mapping[str, range]
    launch: Callable[[Mapping[str, Any]], list[Any]]


class _Recorder:
    """Stands for the module ``pyopencl`` in generated code, and notes every launch."""

    def __init__(self, session: Session) -> None:
        import pyopencl as cl

        self._module = cl
        self._session = session
        self.events: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def enqueue_nd_range_kernel(
        self,
        queue: cl.CommandQueue,
        kernel: cl.Kernel,
        groups: tuple[int, ...],
        group_shape: tuple[int, ...],
        *more: Any,
    ) -> cl.Event:
        """Check the group against the device's limits, and launch."""
        if not self.events:
            check_group(self._session, kernel, group_shape)
        event = self._module.enqueue_nd_range_kernel(queue, kernel, groups, group_shape, *more)
        self.events.append(event)
        return event


def build_kernel(session: Session, t_unit: Any) -> Kernel:
    """Generate OpenCL C for a translation unit and build it.

    Parameters
    ----------
    session : Session
        Device to build for.
    t_unit : loopy.TranslationUnit
        With one entry point whose argument types are known.

    Returns
    -------
    Kernel
        Ready to be launched.

    Raises
    ------
    KernelBuildError
        The device's compiler refuses it.
    loopy.LoopyError
        Loopy generates no code for it.
    """
    import loopy as lp
    from loopy.target.c.c_execution import DEF_EVEN_DIV_FUNCTION

    from countperf.counting.copies import generated

    if not isinstance(t_unit.target, lp.PyOpenCLTarget):
        t_unit = t_unit.copy(target=lp.PyOpenCLTarget())
    entry = t_unit.default_entrypoint
    code = generated(t_unit)
    program = session.build(code.device_code(), tuple(entry.options.build_options))
    recorder = _Recorder(session)
    namespace: dict[str, Any] = {"_lpy_cl": recorder, "_lpy_np": np}
    exec("from struct import pack as _lpy_pack", namespace)  # names that Loopy's code relies on
    exec(DEF_EVEN_DIV_FUNCTION, namespace)
    exec(code.host_code(), namespace)
    host_function = namespace[code.host_programs[entry.name].name]
    kernels = _kernels_of(program)

    def allocate(size: int) -> cl.Buffer:
        return session.allocate(int(size))

    def launch(arguments: Mapping[str, Any]) -> list[Any]:
        recorder.events = []
        host_function(kernels, session.queue, **arguments, allocator=allocate)
        return recorder.events

    return describe_kernel(entry, launch)


def describe_kernel(entry: Any, launch: Callable[[Mapping[str, Any]], list[Any]]) -> Kernel:
    """Describe the arguments of a kernel of Loopy's that can be launched.

    Raises
    ------
    KernelBuildError
        The shape or type of an array is not known.
    """
    arrays = tuple(_array(arg, entry.name) for arg in entry.args if hasattr(arg, "dim_tags"))
    scalars = frozenset(arg.name for arg in entry.args) - {array.name for array in arrays}
    ranges = size_ranges(entry)
    return Kernel(name=entry.name, arrays=arrays, scalars=scalars, ranges=ranges, launch=launch)


def _kernels_of(program: cl.Program) -> Any:
    from types import SimpleNamespace

    import pyopencl as cl

    names = program.kernel_names.split(";")
    return SimpleNamespace(**{name: cl.Kernel(program, name) for name in names})


def _array(argument: Any, kernel: str) -> ArrayArgument:
    if argument.shape is None or argument.dim_tags is None or argument.dtype is None:
        message = f"kernel {kernel!r}: give shape and type of argument {argument.name!r}"
        raise KernelBuildError(message)
    return ArrayArgument(
        name=argument.name,
        dtype=np.dtype(argument.dtype.numpy_dtype),
        shape=tuple(argument.shape),
        strides=tuple(tag.stride for tag in argument.dim_tags),
    )


def check_group(session: Session, kernel: cl.Kernel, group_shape: tuple[int, ...]) -> None:
    """Compare a work group with what the device can run.

    Raises
    ------
    KernelBuildError
        The group has too many work items, or needs too much local memory.
    """
    import pyopencl as cl

    device = session.device
    limits = device.limits
    items = int(np.prod(group_shape))
    key = cl.kernel_work_group_info
    most = min(
        limits.max_group_size, kernel.get_work_group_info(key.WORK_GROUP_SIZE, device.handle)
    )
    along = zip(group_shape, limits.max_group_shape, strict=False)
    if items > most or any(extent > largest for extent, largest in along):
        shape = "x".join(map(str, group_shape))
        message = f"groups of {shape} work items: {device.label} runs this kernel with up to {most}"
        raise KernelBuildError(message)
    local = kernel.get_work_group_info(key.LOCAL_MEM_SIZE, device.handle)
    if local > limits.local_memory_bytes:
        message = f"{local} byte of local memory: {device.label} has {limits.local_memory_bytes}"
        raise KernelBuildError(message)


def read_output(
    session: AnySession, array: ArrayArgument, memory: Any, parameters: Mapping[str, Any]
) -> NDArray[Any]:
    """Copy an array from the device to the host, in its own shape and memory order."""
    shape, strides = array.layout(parameters)
    flat = session.download(memory, array.dtype, array.count(parameters))
    in_bytes = tuple(stride * array.dtype.itemsize for stride in strides)
    return np.ndarray(shape, array.dtype, flat.data, strides=in_bytes)
