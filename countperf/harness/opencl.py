"""OpenCL as a backend: its platforms and devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import loopy as lp
import pyopencl as cl

from countperf.caches import POCLS, give_a_cache
from countperf.counting.copies import generated
from countperf.hardware.identity import DeviceIdentity, DeviceType, make_slug, platform_prefix
from countperf.harness.backend import Findings
from countperf.harness.device import Device, DeviceLimits
from countperf.harness.environment import read_processor
from countperf.harness.icd import INSTALL_ADVICE, find_drivers, loader_setting
from countperf.harness.session import Session

if TYPE_CHECKING:
    import pyopencl as cl


class OpenClBackend:
    """Runs kernels through pyopencl."""

    name = "opencl"
    label_prefix = ""

    def discover(self) -> Findings:
        """List platforms and devices; the first call decides which drivers the process sees."""
        drivers = find_drivers()
        give_a_cache(POCLS)
        with loader_setting(drivers):
            try:
                platforms = cl.get_platforms()
            except cl.Error:  # the loader has no driver at all
                platforms = []
        counter: Counter[str] = Counter()
        devices: list[Device] = []
        for platform in platforms:
            prefix = platform_prefix(platform.name)
            for handle in _devices_of(platform):
                devices.append(describe(handle, f"{prefix}:{counter[prefix]}"))
                counter[prefix] += 1
        return Findings(
            label_prefix=self.label_prefix,
            drivers=drivers,
            platforms=tuple((platform.name, platform.version) for platform in platforms),
            devices=tuple(devices),
        )

    def open(self, device: Device) -> Session:
        """Open a device; pyopencl.Error if the driver refuses."""
        return Session.open(device)

    def generate(self, t_unit: Any) -> str:
        """Return the OpenCL C of a translation unit."""
        if not isinstance(t_unit.target, lp.PyOpenCLTarget):
            t_unit = t_unit.copy(target=lp.PyOpenCLTarget())
        code = generated(t_unit)
        return str(code.device_code())

    def failures(self) -> tuple[type[Exception], ...]:
        """Return pyopencl's errors."""
        return (cl.Error,)

    def advise(self, reason: str, device: Device) -> str:
        """Say what to do about a device that failed its trial for that reason."""
        if "unknown target CPU" in reason and device.label.startswith("pocl:"):
            return (
                "PoCL's compiler does not know this processor, a fault of PyPI's"
                " pocl-binary-distribution on new processors:"
                f" 'pip uninstall pocl-binary-distribution' and {INSTALL_ADVICE}"
            )
        if "OUT_OF_HOST_MEMORY" in reason or "OUT_OF_RESOURCES" in reason:
            return "free memory on the machine or the device, and try again"
        return f"update or reinstall the driver of {device.identity.platform}, or {INSTALL_ADVICE}"


def _devices_of(platform: cl.Platform) -> Sequence[cl.Device]:
    try:
        return platform.get_devices()
    except cl.Error:  # some drivers answer "device not found" instead of nothing
        return ()


def describe(handle: cl.Device, label: str) -> Device:
    """Read identity and limits of a pyopencl device."""
    device_type = _device_type(handle)
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
    limits = DeviceLimits(
        max_group_size=handle.max_work_group_size,
        max_group_shape=tuple(handle.max_work_item_sizes),
        local_memory_bytes=handle.local_mem_size,
        global_memory_bytes=handle.global_mem_size,
        max_allocation_bytes=handle.max_mem_alloc_size,
        timer_resolution_s=handle.profiling_timer_resolution * 1e-9,
        max_clock_mhz=handle.max_clock_frequency,
        sub_group_size=_sub_group_size(handle, device_type),
        compute_capability=_compute_capability(handle),
    )
    return Device(label=label, identity=identity, limits=limits, handle=handle, backend="opencl")


def _device_type(handle: cl.Device) -> DeviceType:
    if handle.type & cl.device_type.CPU:
        return "cpu"
    if handle.type & cl.device_type.GPU:
        return "gpu"
    return "accelerator" if handle.type & cl.device_type.ACCELERATOR else "other"


def _sub_group_size(handle: cl.Device, device_type: DeviceType) -> int:
    if device_type == "cpu":
        return int(handle.native_vector_width_float)
    return int(_extension(handle, "warp_size_nv") or _extension(handle, "wavefront_width_amd") or 0)


def _compute_capability(handle: cl.Device) -> str:
    major = _extension(handle, "compute_capability_major_nv")
    minor = _extension(handle, "compute_capability_minor_nv")
    return "" if major is None or minor is None else f"{major}.{minor}"


def _extension(handle: cl.Device, name: str) -> int | None:
    """Return what only some vendors' drivers answer."""
    try:
        return int(getattr(handle, name))
    except (cl.Error, AttributeError):
        return None
