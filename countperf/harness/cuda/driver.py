"""The modules through which CUDA is reached, CuPy and NVML: their errors."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Generator
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


def ask_nvml(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what NVML answers; None where it is not there, or does not know."""
    if nvml is None:
        return None
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):  # not on this GPU, or not in this NVML
        return None
