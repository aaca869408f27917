"""The modules through which CUDA is reached, CuPy and NVML: their errors, a GPU's state."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countperf.errors import DeviceError, DeviceLostError, MeasurementError

INSTALL_ADVICE = (
    "'pip install countperf[cuda]' for CUDA 13 drivers (580 and newer), or"
    " 'pip install countperf[cuda12]' for CUDA 12"
)
_DRIVER_ADVICE = (
    "install NVIDIA's driver, or where it is older than CUDA 13 'pip install countperf[cuda12]';"
    " in a container pass the GPU through ('docker run --gpus all')"
)

OUT_OF_MEMORY = 2
_INSUFFICIENT_DRIVER = 35
# errors after which every call of this process fails, by number (cudaError_t, CUresult alike)
_STICKY = frozenset(
    (46, 100, 101, 214, 220, 226, 300, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999)
)

_READINGS: Mapping[str, tuple[str, tuple[int, ...], float]] = {
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", (1,), 1.0),
    "memory_clock_mhz": ("nvmlDeviceGetClockInfo", (2,), 1.0),
    "max_sm_clock_mhz": ("nvmlDeviceGetMaxClockInfo", (1,), 1.0),
    "power_w": ("nvmlDeviceGetPowerUsage", (), 1e-3),
    "power_limit_w": ("nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
    "temperature_c": ("nvmlDeviceGetTemperature", (0,), 1.0),
    "performance_state": ("nvmlDeviceGetPerformanceState", (), 1.0),
    "throttle_reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), 1.0),
    "memory_used_bytes": ("nvmlDeviceGetMemoryInfo", (), 1.0),
}
"""By name: function of NVML, the number of a clock or sensor, the unit of what it returns."""


@dataclass(frozen=True, slots=True)
class CudaDriver:
    """CuPy, and NVML where it is there."""

    cupy: Any  # cuPy
    nvml: Any = None  # ``pynvml``, initialized

    @property
    def runtime(self) -> Any:
        """Return CuPy's CUDA runtime."""
        return self.cupy.cuda.runtime

    def failures(self) -> tuple[type[Exception], ...]:
        """Return what CuPy raises when CUDA fails."""
        cuda = self.cupy.cuda
        return (
            cuda.runtime.CUDARuntimeError,
            cuda.driver.CUDADriverError,
            cuda.memory.OutOfMemoryError,
        )

    @contextmanager
    def guarded(self, what: str) -> Generator[None]:
        """Turn CUDA's failures into ours."""
        try:
            yield
        except self.failures() as error:
            status = getattr(error, "status", None)
            if isinstance(error, MemoryError) or status == OUT_OF_MEMORY:
                raise MeasurementError(f"{what}: the device has not enough memory") from error
            if status in _STICKY:
                message = f"{what}: {error}; start a new process to use the device again"
                raise DeviceLostError(message) from error
            raise MeasurementError(f"{what}: {error}") from error


def load_driver(
    load: Callable[[str], Any] = importlib.import_module,
) -> CudaDriver:
    """Import CuPy and NVML."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy tells of every library that it does not find
        try:
            cupy = load("cupy")
        except ImportError as error:
            message = f"CuPy is not installed, or does not load ({error}); {INSTALL_ADVICE}"
            raise DeviceError(message) from error
    driver = CudaDriver(cupy, _load_nvml(load))
    try:
        count = int(driver.runtime.getDeviceCount())
    except (RuntimeError, OSError) as error:  # CUDA's own, or its library is not there
        raise DeviceError(f"{_why_not(driver.runtime, error)}; {_DRIVER_ADVICE}") from error
    if count < 1:
        raise DeviceError(f"CUDA finds no GPU; {_DRIVER_ADVICE}")
    return driver


def _why_not(runtime: Any, error: Exception) -> str:
    """Say why CUDA does not start; its own message is the same for no driver and for an old one."""
    if getattr(error, "status", None) != _INSUFFICIENT_DRIVER:
        return f"CuPy is there, but CUDA does not start: {error}"
    known, wanted = int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion())
    if known == 0:
        return "CuPy is there, but no NVIDIA driver"
    return (
        f"CuPy is there, but the NVIDIA driver is too old: it has CUDA {cuda_version(known)}, CuPy"
        f" needs {cuda_version(wanted)}"
    )


def cuda_version(number: int) -> str:
    """Return CUDA's version from its number."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _load_nvml(load: Callable[[str], Any]) -> Any:
    try:
        nvml = load("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - clocks and power are good to know, no more
        return None
    return nvml


def is_installed() -> bool:
    """Tell whether CuPy is there, without importing it."""
    return importlib.util.find_spec("cupy") is not None


def has_nvidia_gpu() -> bool:
    """Tell whether the machine seems to have an NVIDIA GPU, by the files of its driver."""
    return Path("/proc/driver/nvidia").exists() or os.path.exists("/dev/nvidiactl")  # noqa: PTH110


class GpuState:
    """Reads clocks, power, temperature and memory of one GPU; leaves out what cannot be read."""

    def __init__(self, nvml: Any, bus_id: str) -> None:
        self._nvml = nvml
        self._gpu = None if nvml is None else self._read("nvmlDeviceGetHandleByPciBusId", bus_id)

    def _read(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except (self._nvml.NVMLError, AttributeError):  # not on this GPU, or not in this NVML
            return None

    def values(self) -> dict[str, float]:
        """Return the state now."""
        found: dict[str, float] = {}
        if self._gpu is None:
            return found
        for name, (function, arguments, factor) in _READINGS.items():
            value = self._read(function, self._gpu, *arguments)
            if value is not None:
                found[name] = float(getattr(value, "used", value)) * factor
        return found

    def driver_version(self) -> str:
        """Return the version of NVIDIA's driver; empty where NVML is not there."""
        if self._nvml is None:
            return ""
        version = self._read("nvmlSystemGetDriverVersion")
        return version.decode() if isinstance(version, bytes) else str(version or "")
