"""Protocols of a backend, which OpenCL and CUDA implement.

The harness knows devices, sessions and programs by these protocols only. A further backend is a
class with the methods of `Backend` and a line in `backends`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from countperf.harness.clock import Event
    from countperf.harness.description import Kernel
    from countperf.harness.device import Device
    from countperf.harness.icd import DriverSearch


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

    label_prefix: str = ""  # as in `Backend`
    devices: tuple[Device, ...] = ()  # all its devices, whether they work or not
    platforms: tuple[tuple[str, str], ...] = ()  # name and version of each platform
    problem: str = ""  # if it can have no devices: why, and what to do about it
    advice: str = ""
    # whether the machine seems to have such devices, so that the advice is worth giving
    is_expected: bool = False
    # drivers that a loader was to load, where the backend has one
    drivers: DriverSearch | None = None


class Backend(Protocol):
    """A way to run kernels."""

    @property
    def name(self) -> str:
        """Short name, such as ``opencl``."""
        ...

    @property
    def label_prefix(self) -> str:
        """Prefix of its devices' labels if they share one, else empty."""
        ...

    def discover(self) -> Findings:
        """List its devices."""
        ...

    def open(self, device: Device) -> Session:
        """Open one of its devices; raises one of `failures` if the driver refuses."""
        ...

    def generate(self, t_unit: Any) -> str:
        """Return the device code of a translation unit, which Loopy keeps for when it is built."""
        ...

    def failures(self) -> tuple[type[Exception], ...]:
        """Return what its driver raises when something goes wrong."""
        ...

    def advise(self, reason: str, device: Device) -> str:
        """Say what to do about a device that failed for that reason."""
        ...
