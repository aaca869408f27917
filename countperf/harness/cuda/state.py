"""Clocks, power, temperature and memory of an NVIDIA GPU, from NVML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_SM, _MEMORY, _GPU_TEMPERATURE = 1, 2, 0  # NVML's numbers for clocks and sensors


class GpuState:
    """Reads the state of one GPU; whatever cannot be read is left out."""

    def __init__(self, nvml: Any, bus_id: str) -> None:
        self._nvml = nvml
        self._handle: Any = None
        if nvml is not None:
            self._handle = self._read(lambda: nvml.nvmlDeviceGetHandleByPciBusId(bus_id))

    def _read(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (self._nvml.NVMLError, AttributeError):  # not on this GPU, or not in this NVML
            return None

    def _number(self, call: Callable[[], Any], factor: float = 1.0) -> float | None:
        value = self._read(call)
        return None if value is None else float(value) * factor

    def values(self) -> dict[str, float]:
        """Return the state now."""
        if self._handle is None:
            return {}
        return {name: value for name, value in self._all() if value is not None}

    def _all(self) -> Iterator[tuple[str, float | None]]:
        nvml, gpu = self._nvml, self._handle
        yield "sm_clock_mhz", self._number(lambda: nvml.nvmlDeviceGetClockInfo(gpu, _SM))
        yield "memory_clock_mhz", self._number(lambda: nvml.nvmlDeviceGetClockInfo(gpu, _MEMORY))
        yield "max_sm_clock_mhz", self._number(lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, _SM))
        yield "power_w", self._number(lambda: nvml.nvmlDeviceGetPowerUsage(gpu), 1e-3)
        yield "power_limit_w", self._number(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu), 1e-3)
        temperature = self._number(lambda: nvml.nvmlDeviceGetTemperature(gpu, _GPU_TEMPERATURE))
        yield "temperature_c", temperature
        yield "performance_state", self._number(lambda: nvml.nvmlDeviceGetPerformanceState(gpu))
        reasons = self._number(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
        yield "throttle_reasons", reasons
        yield "memory_used_bytes", self._number(lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used)

    def driver_version(self) -> str:
        """Return the version of NVIDIA's driver; empty where NVML is not there."""
        if self._nvml is None:
            return ""
        version = self._read(self._nvml.nvmlSystemGetDriverVersion)
        return version.decode() if isinstance(version, bytes) else str(version or "")

    def memory_clock_mhz(self) -> float | None:
        """Return the highest clock of the memory, MHz."""
        if self._handle is None:
            return None
        return self._number(lambda: self._nvml.nvmlDeviceGetMaxClockInfo(self._handle, _MEMORY))
