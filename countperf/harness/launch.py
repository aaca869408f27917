"""OpenCL launches of a Loopy translation unit with arrays and sizes.

Code is generated once per kernel; Loopy's generated host function works out the launch (grid,
group, order of arguments) for each call. It is called directly, without Loopy's executor, which
would look at every argument again at each run. A stand-in for pyopencl's module in the host
function's namespace notes the events of all launches, since a translation unit may need several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import loopy as lp
import numpy as np
import pyopencl as cl
from loopy.target.c.c_execution import DEF_EVEN_DIV_FUNCTION

from countperf.counting.copies import generated
from countperf.counting.element_types import check_element_types, uses_half
from countperf.errors import CountingError, KernelBuildError
from countperf.harness.description import Kernel, check_offsets, describe_kernel

if TYPE_CHECKING:
    import pyopencl as cl

    from countperf.harness.device import Device


class OpenClSession(Protocol):
    """Part of an open OpenCL device that building and launching kernels needs."""

    @property
    def device(self) -> Device:
        """Return the device."""
        ...

    @property
    def queue(self) -> cl.CommandQueue:
        """Return the queue."""
        ...

    def build(self, source: str, options: Sequence[str] = ()) -> cl.Program:
        """Build OpenCL C."""
        ...

    def allocate(self, size: int) -> cl.Buffer:
        """Allocate device memory, byte."""
        ...


Extents = tuple[int, ...]
ChooseGroups = Callable[[Extents, Extents], Extents]
"""Function from the groups of a launch and the shape of a group, by axis, to the groups to run."""


class _Recorder:
    """Stands for the module ``pyopencl`` in generated code, and notes every launch."""

    def __init__(self, session: OpenClSession, choose_groups: ChooseGroups | None) -> None:
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
            check_group(self._session, kernel, group_shape)
        if self._choose_groups is not None:
            groups = self._choose_groups(groups, group_shape)
        event = self._module.enqueue_nd_range_kernel(queue, kernel, groups, group_shape, *more)
        self.events.append(event)
        return event


def build_kernel(
    session: OpenClSession, t_unit: Any, *, choose_groups: ChooseGroups | None = None
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


def check_group(session: OpenClSession, kernel: cl.Kernel, group_shape: tuple[int, ...]) -> None:
    """Compare a work group with what the device can run."""
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
