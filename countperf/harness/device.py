"""An OpenCL or CUDA device, and limits of its groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from countperf.display import ShortRepr
from countperf.errors import KernelBuildError
from countperf.hardware.identity import DeviceIdentity

GroupClass = Literal["small", "medium", "large"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits(ShortRepr):
    """Limits of a device: group sizes, memory, timer resolution."""

    max_group_size: int  # work items per group
    max_group_shape: tuple[int, ...]  # work items per group along each axis
    local_memory_bytes: int  # local memory of a group, global memory, largest single array
    global_memory_bytes: int
    max_allocation_bytes: int
    timer_resolution_s: float = 1e-9  # of event times, s
    max_clock_mhz: int = 0  # as the driver reports it, MHz
    sub_group_size: int = 0  # work items that execute together
    compute_capability: str = ""  # NVIDIA's version of the architecture, such as ``"9.0"``

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
    """A device that is present."""

    label: str  # platform and index, ``pocl:0`` or ``cuda:0``
    identity: DeviceIdentity  # which device it is
    limits: DeviceLimits  # what it can hold and run
    handle: Any = field(repr=False, compare=False)  # what the backend knows the device by
    # name of what runs kernels on it, one of `countperf.harness.registry.backends`
    backend: str = "opencl"

    def check_group(self, shape: tuple[int, ...], most: int) -> None:
        """Refuse a work group that is too large; the driver says how many items a kernel may."""
        most = min(self.limits.max_group_size, most)
        along = zip(shape, self.limits.max_group_shape, strict=False)
        if prod(shape) > most or any(extent > largest for extent, largest in along):
            raise KernelBuildError(
                f"groups of {'x'.join(map(str, shape))} work items: {self.label} runs this kernel"
                f" with up to {most}"
            )

    def check_local(self, size: int) -> None:
        """Refuse a kernel that takes more local memory than there is, byte."""
        if size > self.limits.local_memory_bytes:
            raise KernelBuildError(
                f"{size} byte of local memory: {self.label} has {self.limits.local_memory_bytes}"
            )
