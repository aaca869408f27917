"""CUDA as a backend: its devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from countperf.devices.cuda.session import (
    INSTALL_ADVICE,
    CudaDriver,
    CudaHandle,
    CudaSession,
    cuda_version,
    has_nvidia_gpu,
    is_installed,
    load_driver,
)
from countperf.devices.device import Device, DeviceLimits, Findings
from countperf.devices.identity import DeviceIdentity, make_slug
from countperf.errors import DeviceError, DeviceLostError, MeasurementError

_PLATFORM = "CUDA"
_CLOCK_RATE_ATTRIBUTE = 13  # cudaDevAttrClockRate, kHz
_EVENT_RESOLUTION_S = 5e-7  # CUDA Runtime API, cudaEventElapsedTime


class CudaBackend:
    """Runs kernels through CuPy."""

    def __init__(self, load: Callable[[], CudaDriver] | None = None) -> None:
        self._given = load
        self._driver: CudaDriver | None = None

    def _load_library(self) -> CudaDriver:
        if self._driver is None:
            self._driver = (self._given or load_driver)()
        return self._driver

    def discover(self) -> Findings:
        """List the GPUs; CuPy is imported only if it is installed."""
        expected = has_nvidia_gpu()
        if self._given is None and not is_installed():
            return Findings(
                label_prefix="cuda",
                problem="CuPy is not installed, through which NVIDIA GPUs are used",
                advice=INSTALL_ADVICE,
                is_expected=expected,
            )
        try:
            driver = self._load_library()
        except DeviceError as error:
            problem, _, advice = str(error).partition("; ")
            return Findings(  # whoever installs CuPy wants to know
                label_prefix="cuda", problem=problem, advice=advice, is_expected=True
            )
        runtime = driver.runtime
        return Findings(
            label_prefix="cuda",
            platforms=((_PLATFORM, cuda_version(runtime.driverGetVersion())),),
            devices=tuple(
                describe(driver, index) for index in range(int(runtime.getDeviceCount()))
            ),
        )

    def open(self, device: Device) -> CudaSession:
        """Open a GPU; DeviceLostError or MeasurementError if CUDA refuses."""
        return CudaSession.open(device)

    def generate(self, t_unit: Any) -> str:
        """Return the CUDA C of a translation unit."""
        from countperf.devices.cuda.target import generate_cuda

        return generate_cuda(t_unit).source

    def failures(self) -> tuple[type[Exception], ...]:
        """Return CuPy's errors, and ours for them."""
        return (DeviceLostError, MeasurementError, *self._load_library().failures())

    def advise(self, device: Device) -> str:
        """Say what to do about a GPU that failed its trial."""
        return (
            f"see that 'nvidia-smi' shows no error and free memory on {device.label}, and that CuPy"
            f" and NVRTC fit driver and GPU ({INSTALL_ADVICE}), and start anew"
        )


def describe(driver: CudaDriver, index: int) -> Device:
    """Read identity and limits of a GPU."""
    runtime = driver.runtime
    properties: dict[str, Any] = runtime.getDeviceProperties(index)
    name = _text(properties["name"])
    free, total = _memory(driver, index, int(properties["totalGlobalMem"]))
    identity = DeviceIdentity(
        slug=make_slug("NVIDIA", name),
        platform=_PLATFORM,
        vendor="NVIDIA Corporation",
        name=name,
        driver_version=cuda_version(runtime.driverGetVersion()),
        device_type="gpu",
        compute_units=int(properties["multiProcessorCount"]),
    )
    limits = DeviceLimits(
        max_group_size=int(properties["maxThreadsPerBlock"]),
        max_group_shape=tuple(int(extent) for extent in properties["maxThreadsDim"]),
        local_memory_bytes=int(properties["sharedMemPerBlock"]),
        global_memory_bytes=total,
        max_allocation_bytes=min(free, total),
        timer_resolution_s=_EVENT_RESOLUTION_S,
        max_clock_mhz=_clock_mhz(driver, index, properties),
        sub_group_size=int(properties["warpSize"]),
        compute_capability=f"{properties['major']}.{properties['minor']}",
    )
    handle = CudaHandle(
        driver=driver,
        index=index,
        max_grid=tuple(int(extent) for extent in properties["maxGridSize"]),
    )
    return Device(
        label=f"cuda:{index}", identity=identity, limits=limits, handle=handle, backend="cuda"
    )


def _memory(driver: CudaDriver, index: int, total: int) -> tuple[int, int]:
    try:
        driver.cupy.cuda.Device(index).use()
        free, _ = driver.runtime.memGetInfo()
    except driver.failures():  # its trial will say what is wrong with it
        return total, total
    return max(4, int(free)), total


def _clock_mhz(driver: CudaDriver, index: int, properties: dict[str, Any]) -> int:
    kilohertz = properties.get("clockRate", 0)  # CUDA 13 left it out of the properties
    if not kilohertz:
        try:
            kilohertz = driver.runtime.deviceGetAttribute(_CLOCK_RATE_ATTRIBUTE, index)
        except driver.failures():
            kilohertz = 0
    return int(kilohertz) // 1000


def _text(value: Any) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).strip()
