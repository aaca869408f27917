"""OpenCL and CUDA devices, their limits, and sessions and programs, and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, Protocol

from countperf.display import ShortRepr
from countperf.errors import KernelBuildError
from countperf.hardware.identity import DeviceIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from countperf.harness.description import Kernel
    from countperf.harness.devices import DriverSearch


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


OPENCL_PRELUDE, CUDA_PRELUDE = (
    Path(__file__).with_name(f"portable_{name}.h").read_text(encoding="utf-8")
    for name in ("opencl", "cuda")
)
"""A kernel is ``KERNEL name(GLOBAL float *RESTRICT out, int n) { ... }``; it asks for ``GROUP_ID``,
``LOCAL_ID`` and ``GLOBAL_ID``, declares ``LOCAL_ARRAY(float, a, 64);`` and meets at
``LOCAL_BARRIER;``. ``CYCLES`` is the device's own clock, or 0 where it has none. Functions of
numbers are those of OpenCL; ``F4`` is four f32 in a row.
"""

# --- timing of one run: by the device's event timer, or by a script in tests

# host minus event is 5 to 40 us on CPU devices; what is beyond this is no launch overhead
_PLAUSIBLE_OVERHEAD_S = 1e-3
_CLOCK_RATE_TOLERANCE = 0.01


class Event(Protocol):
    """Protocol of an event: the part of ``pyopencl.Event`` that the harness uses."""

    def wait(self) -> object:
        """Wait until the command is done."""
        ...

    @property
    def profile(self) -> Any:
        """When the command began and ended: `start` and `end`, ns."""
        ...


Launch = Callable[[], Sequence[Event]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One run."""

    time_s: float  # by the timer of the clock, s
    host_s: float  # from before the launch to after the end by the host's clock, s


class EventClock:
    """Run times from the device's event timer."""

    def now(self) -> float:
        """Return the host's time, s."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Wait, s."""
        time.sleep(seconds)

    def time_run(self, launch: Launch) -> Timing:
        """Time from the start of the first command to the end of the last one."""
        before = time.perf_counter()
        events = launch()
        events[-1].wait()
        after = time.perf_counter()
        elapsed_ns = events[-1].profile.end - events[0].profile.start
        return Timing(time_s=elapsed_ns * 1e-9, host_s=after - before)


class FakeClock:
    """Scripted run times for tests; nothing is launched and nobody waits."""

    def __init__(self, durations: Iterable[float] = (), *, overhead_s: float = 1e-5) -> None:
        self._durations = iter(durations)
        self._overhead_s = overhead_s
        self._now = 0.0

    def now(self) -> float:
        """Return the sum of what was spent, s."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let scripted time pass, s."""
        self._now += seconds

    def time_run(self, launch: Launch) -> Timing:
        """Return the next scripted time."""
        del launch
        duration = next(self._durations)
        self.sleep(duration + self._overhead_s)
        return Timing(time_s=duration, host_s=duration + self._overhead_s)


Clock = EventClock | FakeClock


def check_clocks(runs: Sequence[tuple[float, float]]) -> tuple[float, str]:
    """Compare event times with the host's clock, pairs of s.

    An event lies within the host's interval, so it is not longer (but for 1 % between the clocks'
    rates), and what the host adds is launching and waking up: at most 1 ms or half the event.
    Returns the median of what it adds, s, and what is wrong.
    """
    event, host = (median(times) for times in zip(*runs, strict=True))
    overhead = median(of_host - of_event for of_event, of_host in runs)
    if event > host * (1 + _CLOCK_RATE_TOLERANCE):
        return overhead, f"event time {event:.3g} s exceeds the host's {host:.3g} s"
    if overhead > max(_PLAUSIBLE_OVERHEAD_S, 0.5 * event):
        return overhead, f"event time {event:.3g} s is far below the host's {host:.3g} s"
    return overhead, ""
