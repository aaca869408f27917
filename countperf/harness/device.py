"""OpenCL and CUDA devices, their limits, and what the harness knows of sessions and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from countperf.display import ShortRepr
from countperf.errors import KernelBuildError
from countperf.hardware.identity import DeviceIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from countperf.harness.clock import Event
    from countperf.harness.description import Kernel
    from countperf.harness.icd import DriverSearch


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
    # name of what runs kernels on it, one of `countperf.harness.devices.backends`
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


class Program(Protocol):
    """Hand-written kernels, built for a device."""

    def launch(
        self, name: str, groups: int, group_size: int, arguments: Sequence[Any]
    ) -> Sequence[Event]:
        """Enqueue a kernel of one axis; arguments are device memory and NumPy scalars."""
        ...


class Session(Protocol):
    """A device in use."""

    @property
    def device(self) -> Device:
        """The device."""
        ...

    def load(self, source: str, *, fresh: bool = False) -> Program:
        """Build hand-written kernels."""
        ...

    def build_kernel(self, t_unit: Any) -> Kernel:
        """Generate code for a translation unit and build it."""
        ...

    def allocate(self, size: int) -> Any:
        """Return new device memory of that many bytes (at least 4), filled with zeros."""
        ...

    def upload(self, array: NDArray[Any]) -> Any:
        """Return new device memory with the elements of a contiguous array in memory order."""
        ...

    def download(self, memory: Any, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return the first elements of device memory."""
        ...

    def copy_in(self, memory: Any, array: NDArray[Any]) -> None:
        """Copy a contiguous array to the beginning of device memory, and wait."""
        ...

    def copy_out(self, array: NDArray[Any], memory: Any) -> None:
        """Fill a contiguous array from the beginning of device memory, and wait."""
        ...

    def finish(self) -> None:
        """Wait for all that was enqueued."""
        ...

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels, besides the Python packages."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Devices of a backend on this machine, or the reason for their absence."""

    label_prefix: str = ""  # of the labels of its devices, if they share one
    devices: tuple[Device, ...] = ()  # all its devices, whether they work or not
    platforms: tuple[tuple[str, str], ...] = ()  # name and version of each platform
    problem: str = ""  # if it can have no devices: why, and what to do about it
    advice: str = ""
    # whether the machine seems to have such devices, so that the advice is worth giving
    is_expected: bool = False
    # drivers that a loader was to load, where the backend has one
    drivers: DriverSearch | None = None


# --- one dialect for hand-written kernels, which OpenCL and CUDA both compile after a prelude

OPENCL_PRELUDE, CUDA_PRELUDE = (
    Path(__file__).with_name(f"portable_{name}.h").read_text(encoding="utf-8")
    for name in ("opencl", "cuda")
)
"""A kernel is ``KERNEL name(GLOBAL float *RESTRICT out, int n) { ... }``; it asks for ``GROUP_ID``,
``LOCAL_ID`` and ``GLOBAL_ID``, declares ``LOCAL_ARRAY(float, a, 64);`` and meets at
``LOCAL_BARRIER;``. ``CYCLES`` is the device's own clock, or 0 where it has none. Functions of
numbers are those of OpenCL; ``F4`` is four f32 in a row.
"""
