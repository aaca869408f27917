"""An OpenCL device in use: context, queue, programs, memory, launches of translation units.

Code is generated once per kernel; Loopy's generated host function works out the launch (grid,
group, order of arguments) for each call. It is called directly, without Loopy's executor, which
would look at every argument again at each run. A stand-in for pyopencl's module in the host
function's namespace notes the events of all launches, since a translation unit may need several.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import loopy as lp
import numpy as np
import pyopencl as cl
from loopy.target.c.c_execution import DEF_EVEN_DIV_FUNCTION

from countperf.counting.copies import check_element_types, generated, uses_half
from countperf.errors import CountingError, KernelBuildError
from countperf.harness.description import Kernel, check_offsets, describe_kernel
from countperf.harness.device import Device
from countperf.harness.portable import OPENCL_PRELUDE

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Program:
    """Hand-written kernels, built."""

    def __init__(self, queue: cl.CommandQueue, program: cl.Program) -> None:
        self._queue = queue
        self._program = program
        self._kernels: dict[str, cl.Kernel] = {}

    def launch(
        self, name: str, groups: int, group_size: int, arguments: Sequence[Any]
    ) -> list[cl.Event]:
        """Enqueue a kernel of one axis; arguments are buffers and NumPy scalars."""
        if name not in self._kernels:
            self._kernels[name] = cl.Kernel(self._program, name)
        kernel = self._kernels[name]
        kernel.set_args(*arguments)
        shape = (groups * group_size,)
        return [cl.enqueue_nd_range_kernel(self._queue, kernel, shape, (group_size,))]


class Session:
    """Context and profiling queue of an OpenCL device."""

    def __init__(self, device: Device, context: cl.Context, queue: cl.CommandQueue) -> None:
        self.device = device
        self.context = context
        self.queue = queue

    @classmethod
    def open(cls, device: Device) -> Self:
        """Open a device."""
        context = cl.Context([device.handle])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        return cls(device, context, cl.CommandQueue(context, properties=profiling))

    def build(
        self, source: str, options: Sequence[str] = (), *, cache_folder: Path | None = None
    ) -> cl.Program:
        """Build a program."""
        with warnings.catch_warnings():
            # some drivers chat about builds that succeeded, and pyopencl warns of every word
            warnings.simplefilter("ignore", cl.CompilerWarning)
            try:
                return cl.Program(self.context, source).build(
                    options=list(options),
                    cache_dir=None if cache_folder is None else str(cache_folder),
                )
            except cl.Error as error:
                message = f"does not build on {self.device.label}: {build_message(str(error))}"
                raise KernelBuildError(message) from error

    def load(self, source: str, *, fresh: bool = False) -> Program:
        """Build hand-written kernels, as in `countperf.harness.backend.Session`."""
        text = OPENCL_PRELUDE + source
        if not fresh:
            return Program(self.queue, self.build(text))
        with tempfile.TemporaryDirectory(prefix="countperf-build-") as folder:
            return Program(self.queue, self.build(text, cache_folder=Path(folder)))

    def build_kernel(self, t_unit: Any) -> Kernel:
        """Generate code for a translation unit and build it."""
        return build_kernel(self, t_unit)

    def finish(self) -> None:
        """Wait for all that was enqueued."""
        self.queue.finish()

    def versions(self) -> dict[str, str]:
        """Return nothing besides what the Python packages tell."""
        return {}

    def copy_in(self, memory: cl.Buffer, array: NDArray[Any]) -> None:
        """Copy a contiguous array to the beginning of a buffer, and wait."""
        cl.enqueue_copy(self.queue, memory, array, is_blocking=True)

    def copy_out(self, array: NDArray[Any], memory: cl.Buffer) -> None:
        """Fill a contiguous array from the beginning of a buffer, and wait."""
        cl.enqueue_copy(self.queue, array, memory, is_blocking=True)

    def allocate(self, size: int) -> cl.Buffer:
        """Return new device memory of that many bytes (at least 4), filled with zeros."""
        words = max(1, -(-size // 4))
        buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 4 * words)
        cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.uint32), 0, 4 * words)
        return buffer

    def upload(self, array: NDArray[Any]) -> cl.Buffer:
        """Return new device memory with the elements of a contiguous array in memory order."""
        if array.size == 0:
            return self.allocate(0)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=array.ravel(order="K"))

    def download(self, memory: cl.Buffer, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return the first elements of device memory."""
        result = np.empty(count, dtype)
        if count:
            cl.enqueue_copy(self.queue, result, memory)
        return result


def build_message(text: str, limit: int = 600) -> str:
    """Shorten what pyopencl says of a failed build to the compiler's own words."""
    lines = [line.strip() for line in text.splitlines()]
    noise = ("Build on <pyopencl", "(options:", "(source saved as")
    kept = [line for line in lines if line and not line.startswith(noise)]
    own = [line for line in kept if "BUILD_PROGRAM_FAILURE" not in line]
    message = "; ".join(own or kept)
    return message if len(message) <= limit else message[: limit - 3] + "..."


Extents = tuple[int, ...]
ChooseGroups = Callable[[Extents, Extents], Extents]
"""Function from the groups of a launch and the shape of a group, by axis, to the groups to run."""


class _Recorder:
    """Stands for the module ``pyopencl`` in generated code, and notes every launch."""

    def __init__(self, session: Session, choose_groups: ChooseGroups | None) -> None:
        self._module = cl
        self._session = session
        self._choose_groups = choose_groups
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
            device, key = self._session.device, cl.kernel_work_group_info
            most, local = (
                int(kernel.get_work_group_info(which, device.handle))
                for which in (key.WORK_GROUP_SIZE, key.LOCAL_MEM_SIZE)
            )
            device.check_group(group_shape, most)
            device.check_local(local)
        if self._choose_groups is not None:
            groups = self._choose_groups(groups, group_shape)
        event = self._module.enqueue_nd_range_kernel(queue, kernel, groups, group_shape, *more)
        self.events.append(event)
        return event


def build_kernel(
    session: Session, t_unit: Any, *, choose_groups: ChooseGroups | None = None
) -> Kernel:
    """Generate OpenCL C for a translation unit and build it."""
    if not isinstance(t_unit.target, lp.PyOpenCLTarget):
        t_unit = t_unit.copy(target=lp.PyOpenCLTarget())
    entry = t_unit.default_entrypoint
    check_offsets(t_unit)
    check_types(session.device, t_unit)
    code = generated(t_unit)
    program = session.build(code.device_code(), tuple(entry.options.build_options))
    recorder = _Recorder(session, choose_groups)
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

    return describe_kernel(t_unit, launch)


def check_types(device: Device, t_unit: Any) -> None:
    """Refuse a kernel with types that no code is generated for, or that a device lacks."""
    try:
        check_element_types(t_unit.default_entrypoint)
    except CountingError as error:
        raise KernelBuildError(str(error)) from error
    if uses_half(t_unit) and "cl_khr_fp16" not in device.handle.extensions.split():
        raise KernelBuildError(
            f"{device.label} has no numbers of half precision (it lacks cl_khr_fp16), and kernel"
            f" {t_unit.default_entrypoint.name!r} has some; declare np.float16 as np.float32, or"
            " choose another device"
        )


def _kernels_of(program: cl.Program) -> Any:
    names = program.kernel_names.split(";")
    return SimpleNamespace(**{name: cl.Kernel(program, name) for name in names})
