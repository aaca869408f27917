"""OpenCL: its platforms and devices, and one of them in use."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pyopencl as cl

from countperf.caches import POCLS, give_a_cache
from countperf.counting.frontend.schedule import check_element_types, uses_half
from countperf.devices import device as common
from countperf.devices.description import DeviceKernel, check_offsets, describe_kernel
from countperf.devices.identity import (
    DeviceIdentity,
    DeviceType,
    make_slug,
    platform_prefix,
    read_processor,
)
from countperf.devices.targets import GeneratedLaunch, HostBuilder, generate_for_target
from countperf.errors import CountingError, KernelBuildError

if TYPE_CHECKING:
    from numpy.typing import NDArray


_KINDS: tuple[DeviceType, ...] = ("accelerator", "gpu", "cpu")  # the last that holds is taken


class OpenClBackend:
    """Runs kernels through pyopencl."""

    def discover(self) -> common.Findings:
        """List platforms and devices; the first call decides which drivers the process sees."""
        drivers, needs_folder = common.find_drivers()
        give_a_cache(POCLS)
        with common.loader_setting(drivers) if needs_folder else nullcontext():
            try:
                platforms = cl.get_platforms()
            except cl.Error:  # the loader has no driver at all
                platforms = []
        counter: Counter[str] = Counter()
        devices: list[common.Device] = []
        for platform in platforms:
            prefix = platform_prefix(platform.name)
            with suppress(cl.Error):  # some drivers answer "device not found" instead of nothing
                for handle in platform.get_devices():
                    devices.append(describe(handle, f"{prefix}:{counter[prefix]}"))
                    counter[prefix] += 1
        problem, advice = ("", "") if devices else common.advise_drivers()
        return common.Findings(
            drivers=drivers,
            platforms=tuple(platform.name for platform in platforms),
            devices=tuple(devices),
            problem=problem,
            advice=advice,
        )

    def open(self, device: common.Device) -> OpenCLSession:
        """Open a device; pyopencl.Error if the driver refuses."""
        return OpenCLSession(device)

    def failures(self) -> tuple[type[Exception], ...]:
        """Return pyopencl's errors."""
        return (cl.Error,)

    def advise(self, device: common.Device) -> str:
        """Say what to do about a device that failed its trial."""
        return (
            "free memory on the machine and the device, and try again; or update or reinstall the"
            f" driver of {device.identity.platform} (on new processors, PyPI's PoCL fails: 'pip"
            f" uninstall pocl-binary-distribution'), or {common.INSTALL_ADVICE}"
        )


def describe(handle: cl.Device, label: str) -> common.Device:
    """Read identity and limits of a pyopencl device."""
    device_type: DeviceType = "other"
    for kind in _KINDS:
        if handle.type & getattr(cl.device_type, kind.upper()):
            device_type = kind
    processor = read_processor() if device_type == "cpu" else ""
    name = handle.name.strip()
    slug = make_slug(handle.platform.name, name, processor)
    if slug.startswith("nvidia-"):
        slug += "-opencl"  # the plain name is that of the same GPU through CUDA
    identity = DeviceIdentity(
        slug=slug,
        platform=handle.platform.name.strip(),
        vendor=handle.vendor.strip(),
        name=name,
        driver_version=handle.driver_version.strip(),
        device_type=device_type,
        compute_units=handle.max_compute_units,
        processor=processor,
    )
    lanes = handle.native_vector_width_float if device_type == "cpu" else None
    for name in ("warp_size_nv", "wavefront_width_amd"):
        lanes = lanes or _extension(handle, name)
    capability = [_extension(handle, f"compute_capability_{n}_nv") for n in ("major", "minor")]
    limits = common.DeviceLimits(
        max_group_size=handle.max_work_group_size,
        max_group_shape=tuple(handle.max_work_item_sizes),
        local_memory_bytes=handle.local_mem_size,
        global_memory_bytes=handle.global_mem_size,
        max_allocation_bytes=handle.max_mem_alloc_size,
        timer_resolution_s=handle.profiling_timer_resolution * 1e-9,
        max_clock_mhz=handle.max_clock_frequency,
        sub_group_size=lanes or 0,
        cache_line_bytes=handle.global_mem_cacheline_size,
        compute_capability=".".join(map(str, capability)) if None not in capability else "",
    )
    return common.Device(label=label, identity=identity, limits=limits, handle=handle)


def _extension(handle: cl.Device, name: str) -> int | None:
    """Return what only some vendors' drivers answer."""
    try:
        return int(getattr(handle, name))
    except (cl.Error, AttributeError):
        return None


_NAME_ADVICE = (
    "where a name is a word or a function of OpenCL C, such as half, give another:"
    " lp.rename_argument, lp.rename_iname, lp.rename_callable"
)
_SIGNATURE = re.compile(r"^(__kernel void .*)\)$", re.MULTILINE)

Extents = tuple[int, ...]
ChooseGroups = Callable[[Extents, Extents], Extents]
"""Function from the groups of a launch and the shape of a group, by axis, to the groups to run."""


class OpenCLSession(common.Session):
    """Context and profiling queue of an OpenCL device."""

    def __init__(self, device: common.Device) -> None:
        self.device = device
        self.context = cl.Context([device.handle])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=profiling)

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
                message = f"does not build on {self.device.label}: {common.pick_errors(str(error))}"
                raise KernelBuildError(message) from error

    def load(self, source: str, *, fresh: bool = False) -> common.Launch:
        """Build hand-written kernels, as in `countperf.devices.device.Session`."""
        with tempfile.TemporaryDirectory(prefix="countperf-build-") as folder:
            program = self.build(
                common.OPENCL_PRELUDE + source, cache_folder=Path(folder) if fresh else None
            )
        kernels: Callable[[str], cl.Kernel] = cache(partial(cl.Kernel, program))

        def launch(name: str, groups: int, size: int, arguments: Sequence[Any]) -> list[cl.Event]:
            kernels(name).set_args(*arguments)
            shape = (groups * size,)
            return [cl.enqueue_nd_range_kernel(self.queue, kernels(name), shape, (size,))]

        return launch

    def build_kernel(
        self,
        t_unit: Any,
        unused_local_bytes: int | None = None,
        *,
        choose_groups: ChooseGroups | None = None,
    ) -> DeviceKernel:
        """Generate OpenCL C for a translation unit and build it."""
        unit, device = retarget(t_unit), self.device
        entry = unit.default_entrypoint
        check_offsets(unit)
        check_types(device, unit)
        code = generate_for_target(unit)
        source = code.source
        more: tuple[Any, ...] = ()
        if unused_local_bytes:  # as one more argument, of which the host function does not know
            source = _SIGNATURE.sub(r"\1, __local char *unused_local)", source)
            more = (cl.LocalMemory(unused_local_bytes),)
        try:
            program = self.build(source, tuple(entry.options.build_options))
        except KernelBuildError as error:
            raise KernelBuildError(f"{error}; {_NAME_ADVICE}") from error
        if lost := {*code.kernels} - {*program.kernel_names.split(";")}:
            raise KernelBuildError(
                f"{device.label} compiles {', '.join(sorted(lost))}, and has no kernel of"
                " that name then; give the kernel another name, loopy.rename_callable"
            )
        kernels = {name: cl.Kernel(program, name) for name in code.kernels}

        def prepare(arguments: Mapping[str, Any]) -> Callable[[], list[Any]]:
            launches = code.launches(arguments, lambda size: self.allocate(int(size)))
            of_group = cl.kernel_work_group_info
            for launch in launches:
                ask = kernels[launch.kernel].get_work_group_info
                keys = of_group.WORK_GROUP_SIZE, of_group.LOCAL_MEM_SIZE
                device.check_group(launch.shape, *(int(ask(key, device.handle)) for key in keys))

            def run(each: GeneratedLaunch) -> cl.Event:
                kernel, groups = kernels[each.kernel], each.groups
                if choose_groups is not None:
                    groups = choose_groups(groups, each.shape)
                kernel.set_args(*each.arguments, *more)
                given: Any = self.queue, kernel, groups, each.shape
                return cl.enqueue_nd_range_kernel(*given, g_times_l=True, allow_empty_ndrange=True)

            return lambda: [run(each) for each in launches]

        return describe_kernel(unit, prepare)

    def finish(self) -> None:
        """Wait for all that was enqueued."""
        self.queue.finish()

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


class OpenClTarget(lp.PyOpenCLTarget):
    """OpenCL C, and a host function that tells what it launches."""

    # as of `NvidiaCudaTarget`
    hash_fields = (*lp.PyOpenCLTarget.hash_fields, "__module__")

    def get_host_ast_builder(self) -> Any:
        """Return what writes the host function."""
        return HostBuilder(self)


def retarget(t_unit: Any) -> Any:
    """Return a translation unit for OpenCL, whatever it was made for."""
    given, kept = t_unit.target, ("atomics_flavor", "use_int8_for_bool")
    is_opencl = isinstance(given, lp.PyOpenCLTarget)
    options = {name: getattr(given, name) for name in kept} if is_opencl else {}
    return t_unit.copy(target=OpenClTarget(**options))


def check_types(device: common.Device, t_unit: Any) -> None:
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
