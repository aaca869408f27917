"""An OpenCL or CUDA device, and limits of its groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from countperf.display import ShortRepr
from countperf.hardware.identity import DeviceIdentity

GroupClass = Literal["small", "medium", "large"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits(ShortRepr):
    """Limits of a device: group sizes, memory, timer resolution.

    Attributes
    ----------
    max_group_size : int
        Work items per group.
    max_group_shape : tuple of int
        Work items per group along each axis.
    local_memory_bytes, global_memory_bytes, max_allocation_bytes : int
        Local memory of a group, global memory, largest single array; byte.
    timer_resolution_s : float
        Of event times, s.
    max_clock_mhz : int
        As the driver reports it, MHz; 0 if it does not.
    sub_group_size : int
        Work items that execute together; on a CPU the elements of a vector. 0 if not known.
    compute_capability : str
        NVIDIA's version of the architecture, such as ``"9.0"``; empty for others.
    """

    max_group_size: int
    max_group_shape: tuple[int, ...]
    local_memory_bytes: int
    global_memory_bytes: int
    max_allocation_bytes: int
    timer_resolution_s: float = 1e-9
    max_clock_mhz: int = 0
    sub_group_size: int = 0
    compute_capability: str = ""

    def sizes(self) -> dict[str, int]:
        """Return the sizes that are stored with measurements, by name."""
        return {
            "max_group_size": self.max_group_size,
            "local_memory_bytes": self.local_memory_bytes,
            "global_memory_bytes": self.global_memory_bytes,
            "max_allocation_bytes": self.max_allocation_bytes,
        }

    @property
    def group_class(self) -> GroupClass:
        """Set of the paper's work-group sizes that suits the device.

        The paper leaves the rule open. Ours: large from 1024 items per group on, small below 512,
        the largest group of the medium and large sets.
        """
        if self.max_group_size >= 1024:
            return "large"
        return "medium" if self.max_group_size >= 512 else "small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(ShortRepr):
    """A device that is present.

    Attributes
    ----------
    label : str
        Platform and index, ``pocl:0`` or ``cuda:0``.
    identity : DeviceIdentity
        Which device it is.
    limits : DeviceLimits
        What it can hold and run.
    handle : object
        What the backend knows the device by.
    backend : str
        Name of what runs kernels on it, one of `countperf.harness.registry.backends`.
    """

    label: str
    identity: DeviceIdentity
    limits: DeviceLimits
    handle: Any = field(repr=False, compare=False)
    backend: str = "opencl"
