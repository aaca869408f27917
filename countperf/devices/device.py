"""OpenCL and CUDA devices, their limits, and sessions and programs, clocks, and drivers."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import prod
from operator import gt
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from countperf.devices.identity import DeviceIdentity
from countperf.errors import DeviceError, KernelBuildError
from countperf.text import ShortRepr, cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countperf.devices.description import DeviceKernel


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
    cache_line_bytes: int = 0  # bytes of global memory that move together
    compute_capability: str = ""  # NVIDIA's version of the architecture, such as ``"9.0"``

    @property
    def group_class(self) -> Literal["small", "medium", "large"]:
        """Set of the paper's work-group sizes that suits the device, by a rule of ours."""
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
    # name of what runs kernels on it, one of `countperf.devices.discovery.backends`
    backend: str = "opencl"
    # that opened the driver
    process: int = field(default_factory=os.getpid, repr=False, compare=False)

    def check_group(self, shape: tuple[int, ...], most: int, local_bytes: int) -> None:
        """Refuse a work group of more items than the driver allows, or of too much memory."""
        most, room = min(self.limits.max_group_size, most), self.limits.local_memory_bytes
        if prod(shape) > most or any(map(gt, shape, self.limits.max_group_shape)):
            raise KernelBuildError(
                f"groups of {'x'.join(map(str, shape))} work items: {self.label} runs this kernel"
                f" with up to {most}"
            )
        if local_bytes > room:
            raise KernelBuildError(f"{local_bytes} byte of local memory: {self.label} has {room}")


def check_process(owner: int, what: str) -> None:
    """Refuse what another process opened, from which this one was forked."""
    if owner != os.getpid():
        raise DeviceError(
            f"{what} was opened by process {owner}, from which this one was forked, and does not"
            " survive a fork: start processes with multiprocessing.get_context('spawn'), or before"
            " a device is used",
            device=what,
        )


def pick_errors(text: str) -> str:
    """Return the errors among the lines of a compiler, or all that it says, at most so long."""
    lines = [line.strip() for line in text.splitlines() if "error" in line or "fatal" in line]
    return cut("; ".join(lines) or " ".join(text.split()), 600)


Launch = Callable[[str, int, int, Sequence[Any]], Sequence[Any]]
"""Enqueues a kernel of one axis (name, groups, group size, arguments); returns its events."""


class Session(Protocol):
    """A device in use."""

    device: Device

    def load(self, source: str, *, fresh: bool = False) -> Launch:
        """Build hand-written kernels; return what enqueues them."""
        ...

    def build_kernel(self, t_unit: Any, unused_local_bytes: int | None = None) -> DeviceKernel:
        """Generate code for a translation unit and build it; see `KernelCase`."""
        ...

    def allocate(self, size: int) -> Any:
        """Return new device memory of that many bytes (at least 4), filled with zeros."""

    def upload(self, array: NDArray[Any]) -> Any:
        """Return new device memory with the elements of a contiguous array in memory order."""
        memory = self.allocate(array.nbytes)
        if array.size:
            self.copy_in(memory, array.ravel(order="K"))
        return memory

    def download(self, memory: Any, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return the first elements of device memory."""
        result = np.empty(count, dtype)
        if count:
            self.copy_out(result, memory)
        return result

    def copy_in(self, memory: Any, array: NDArray[Any]) -> None:
        """Copy a contiguous array to the beginning of device memory, and wait."""

    def copy_out(self, array: NDArray[Any], memory: Any) -> None:
        """Fill a contiguous array from the beginning of device memory, and wait."""

    def finish(self) -> None:
        """Wait for all that was enqueued."""

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels, besides the Python packages."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Devices of a backend on this machine, or the reason for their absence."""

    label_prefix: str = ""  # of the labels of its devices, if they share one
    devices: tuple[Device, ...] = ()  # all its devices, whether they work or not
    platforms: tuple[str, ...] = ()  # names of its platforms
    drivers: tuple[DriverFile, ...] = ()  # that a loader was to load, where the backend has one
    problem: str = ""  # if it has no devices: why, and what to do about it
    advice: str = ""
    # whether the machine seems to have such devices, so that the advice is worth giving
    is_expected: bool = True


OPENCL_PRELUDE, CUDA_PRELUDE = (
    Path(__file__).with_name(f"portable_{name}.h").read_text(encoding="utf-8")
    for name in ("opencl", "cuda")
)
"""What hand-written kernels are written in: ``KERNEL name(GLOBAL float *RESTRICT out, int n)``."""

# --- timing of one run: by the device's event timer

# host minus event is 5 to 40 us on CPU devices; what is beyond this is no launch overhead
_PLAUSIBLE_OVERHEAD_S = 1e-3
_CLOCK_RATE_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
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

    def time_run(self, launch: Callable[[], Sequence[Any]]) -> RunTime:
        """Time from the start of the first command to the end of the last one."""
        before = time.perf_counter()
        events = launch()
        events[-1].wait()
        after = time.perf_counter()
        elapsed_ns = events[-1].profile.end - events[0].profile.start
        return RunTime(time_s=elapsed_ns * 1e-9, host_s=after - before)


def check_clocks(runs: Sequence[tuple[float, float]]) -> tuple[float, str]:
    """Return the median of what the host's clock adds to event times, s, and what is wrong.

    What the host adds is launching and waking up: at most 1 ms or half the event.
    """
    event, host = (median(times) for times in zip(*runs, strict=True))
    overhead = median(of_host - of_event for of_event, of_host in runs)
    if event > host * (1 + _CLOCK_RATE_TOLERANCE):
        return overhead, f"event time {event:.3g} s exceeds the host's {host:.3g} s"
    if overhead > max(_PLAUSIBLE_OVERHEAD_S, 0.5 * event):
        return overhead, f"event time {event:.3g} s is far below the host's {host:.3g} s"
    return overhead, ""


# --- OpenCL drivers that the loader sees
#
# The loader inside the pyopencl wheel (ocl-icd) reads ``.icd`` files in one folder, for which it
# asks once; that of the wheel ``intel-opencl-rt`` holds a path of the machine that made it. So
# where the environment holds drivers, we write one folder with the system's files and ours.

VENDORS_VARIABLE = "OCL_ICD_VENDORS"
SYSTEM_FOLDER = "/etc/OpenCL/vendors"
INTEL_LIBRARY = "libintelocl.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFile:
    """An ``.icd`` file."""

    name: str  # of the file
    library: str  # driver library it names: a path, or a name for the dynamic loader
    origin: str  # folder or package it comes from
    problem: str = field(init=False, default="")  # with it, as far as can be seen from outside

    def __post_init__(self) -> None:
        if "/" in self.library and not Path(self.library).is_file():
            object.__setattr__(self, "problem", f"{self.library} is not there")


def find_drivers() -> tuple[tuple[DriverFile, ...], bool]:
    """Find out which drivers the loader is to see, and whether it takes a folder of our own."""
    if setting := os.environ.get(VENDORS_VARIABLE):
        return _read_folder(Path(setting)), False
    of_system = _read_folder(Path(os.environ.get("OPENCL_VENDOR_PATH") or SYSTEM_FOLDER))
    known = {Path(file.library).name for file in of_system if not file.problem}
    root = Path(sys.prefix)
    intel = root / "lib" / INTEL_LIBRARY
    own = [file for file in _read_folder(root / "etc/OpenCL/vendors") if not file.problem]
    own = [file for file in own if Path(file.library).name not in {INTEL_LIBRARY, *known}]
    if intel.is_file() and INTEL_LIBRARY not in known:
        given = {"name": "countperf-intel.icd", "library": str(intel), "origin": "intel-opencl-rt"}
        own.insert(0, DriverFile(**given))
    return (*of_system, *own), bool(own)


@contextmanager
def loader_setting(files: Iterable[DriverFile]) -> Generator[None]:
    """Point the loader, but no child process, to drivers while it first asks for platforms."""
    with tempfile.TemporaryDirectory(prefix="countperf-opencl-") as folder:
        for number, file in enumerate(files):
            # the loader takes files in their alphabetical order; keep ours after the system's
            target = Path(folder) / f"{number:02d}-{file.name}"
            target.write_text(file.library + "\n", encoding="utf-8")
        os.environ[VENDORS_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[VENDORS_VARIABLE]


def _read_folder(folder: Path) -> tuple[DriverFile, ...]:
    """Read the files in a folder; one that cannot be read has nothing for the loader either."""
    found: list[DriverFile] = []
    with suppress(OSError):
        for path in sorted(folder.glob("*.icd")):
            library = path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0]
            found.append(DriverFile(name=path.name, library=library.strip(), origin=str(folder)))
    return tuple(file for file in found if file.library)


INSTALL_ADVICE = (
    "install an OpenCL driver: on Debian or Ubuntu 'apt-get install pocl-opencl-icd' (as root),"
    " or in any Python environment on an x86-64 processor 'pip install countperf[intel]'"
)


def advise_drivers() -> tuple[str, str]:
    """Say why OpenCL has no device, as far as its setting tells, and what to do about it."""
    if setting := os.environ.get(VENDORS_VARIABLE):
        return f"no OpenCL driver: {VENDORS_VARIABLE}={setting} is no folder of working drivers", (
            f"unset {VENDORS_VARIABLE}, and countperf finds the drivers of the system and of the"
            f" Python environment itself; or set it to a folder with .icd files such as"
            f" {SYSTEM_FOLDER}"
        )
    return "no OpenCL device found", INSTALL_ADVICE
