"""CUDA through CuPy: its GPUs, and one in use: stream, modules, memory, events, launches."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from operator import gt, mul
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.devices import device as common
from countperf.devices.description import DeviceKernel, check_offsets, describe_kernel
from countperf.devices.identity import DeviceIdentity, make_slug
from countperf.devices.targets import GeneratedLaunch, generate_cuda, retarget
from countperf.errors import DeviceError, DeviceLostError, KernelBuildError, MeasurementError

if TYPE_CHECKING:
    from numpy.typing import NDArray

INSTALL_ADVICE = (
    "'pip install countperf[cuda]' for CUDA 13 drivers (580 and newer), or"
    " 'pip install countperf[cuda12]' for CUDA 12"
)
_DRIVER_ADVICE = (
    "install NVIDIA's driver, or where it is older than CUDA 13 'pip install countperf[cuda12]';"
    " in a container pass the GPU through ('docker run --gpus all')"
)

_OUT_OF_MEMORY = 2
_PLATFORM = "CUDA"
_CLOCK_RATE_ATTRIBUTE = 13  # cudaDevAttrClockRate, kHz
_EVENT_RESOLUTION_S = 5e-7  # CUDA Runtime API, cudaEventElapsedTime
# errors after which every call of this process fails, by number (cudaError_t, CUresult alike)
_STICKY = frozenset(
    (46, 100, 101, 214, 220, 226, 300, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999)
)


@dataclass(frozen=True, slots=True)
class CudaDriver:
    """CUDA as CuPy has it."""

    cupy: Any  # the module

    @property
    def runtime(self) -> Any:
        """CuPy's CUDA runtime."""
        return self.cupy.cuda.runtime

    def failures(self) -> tuple[type[Exception], ...]:
        """Return what CuPy raises when CUDA fails."""
        cuda = self.cupy.cuda
        driver, memory = cuda.driver.CUDADriverError, cuda.memory.OutOfMemoryError
        return cuda.runtime.CUDARuntimeError, driver, memory

    @contextmanager
    def guard_calls(self, what: str) -> Generator[None]:
        """Turn CUDA's failures into ours."""
        try:
            yield
        except self.failures() as error:
            status = getattr(error, "status", None)
            if isinstance(error, MemoryError) or status == _OUT_OF_MEMORY:
                raise MeasurementError(f"{what}: the device has not enough memory") from error
            if status in _STICKY:
                message = f"{what}: {error}; start a new process to use the device again"
                raise DeviceLostError(message) from error
            raise MeasurementError(f"{what}: {error}") from error


def load_driver(load: Callable[[str], Any] = importlib.import_module) -> CudaDriver:
    """Import CuPy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy tells of every library that it does not find
        try:
            driver = CudaDriver(load("cupy"))
        except ImportError as error:
            message = f"CuPy is not installed, or does not load ({error}); {INSTALL_ADVICE}"
            raise DeviceError(message) from error
    try:
        count = int(driver.runtime.getDeviceCount())
    except (RuntimeError, OSError) as error:  # CUDA's own, or its library is not there
        message = f"CuPy is there, but CUDA does not start: {error}; {_DRIVER_ADVICE}"
        raise DeviceError(message) from error
    if count < 1:
        raise DeviceError(f"CUDA finds no GPU; {_DRIVER_ADVICE}")
    return driver


def has_nvidia_gpu() -> bool:
    """Tell whether the machine seems to have an NVIDIA GPU, by the files of its driver."""
    return Path("/proc/driver/nvidia").exists() or Path("/dev/nvidiactl").exists()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CudaHandle:
    """Handle of a GPU: its ordinal and its driver's object."""

    driver: CudaDriver
    index: int  # CUDA's number of the GPU
    max_grid: tuple[int, ...]  # groups along each axis


class CudaBackend:
    """Runs kernels through CuPy."""

    def __init__(self, load: Callable[[], CudaDriver] = load_driver) -> None:
        self._load: Callable[[], CudaDriver] = cache(load)

    def discover(self) -> common.Findings:
        """List the GPUs."""
        try:
            driver = self._load()
        except DeviceError as error:
            problem, _, advice = str(error).partition("; ")
            return common.Findings(
                label_prefix="cuda",
                problem=problem,
                advice=advice,  # which whoever installs CuPy wants to know
                is_expected=importlib.util.find_spec("cupy") is not None or has_nvidia_gpu(),
            )
        number = range(int(driver.runtime.getDeviceCount()))
        return common.Findings(
            label_prefix="cuda",
            platforms=(_PLATFORM,),
            devices=tuple(describe(driver, index) for index in number),
        )

    def open(self, device: common.Device) -> CudaSession:
        """Open a GPU; DeviceLostError or MeasurementError if CUDA refuses."""
        return CudaSession(device)

    def failures(self) -> tuple[type[Exception], ...]:
        """Return CuPy's errors, and ours for them."""
        return (DeviceLostError, MeasurementError, *self._load().failures())

    def advise(self, device: common.Device) -> str:
        """Say what to do about a GPU that failed its trial."""
        return (
            f"see that 'nvidia-smi' shows no error and free memory on {device.label}, and that CuPy"
            f" and NVRTC fit driver and GPU ({INSTALL_ADVICE}), and start anew"
        )


def describe(driver: CudaDriver, index: int) -> common.Device:
    """Read identity and limits of a GPU."""
    properties: dict[str, Any] = driver.runtime.getDeviceProperties(index)
    name, version = bytes(properties["name"]).decode().strip(), driver.runtime.driverGetVersion()
    free, kilohertz = int(properties["totalGlobalMem"]), properties.get("clockRate", 0)
    with suppress(*driver.failures()):  # its trial will say what is wrong with it
        driver.cupy.cuda.Device(index).use()
        free = max(4, int(driver.runtime.memGetInfo()[0]))
        # CUDA 13 left it out of the properties
        kilohertz = kilohertz or driver.runtime.deviceGetAttribute(_CLOCK_RATE_ATTRIBUTE, index)
    identity = DeviceIdentity(
        slug=make_slug("NVIDIA", name),
        platform=_PLATFORM,
        vendor="NVIDIA Corporation",
        name=name,
        driver_version=f"{version // 1000}.{version % 1000 // 10}",
        device_type="gpu",
        compute_units=int(properties["multiProcessorCount"]),
    )
    limits = common.DeviceLimits(
        max_group_size=int(properties["maxThreadsPerBlock"]),
        max_group_shape=tuple(int(extent) for extent in properties["maxThreadsDim"]),
        local_memory_bytes=int(properties["sharedMemPerBlock"]),
        global_memory_bytes=int(properties["totalGlobalMem"]),
        max_allocation_bytes=free,
        timer_resolution_s=_EVENT_RESOLUTION_S,
        max_clock_mhz=int(kilohertz) // 1000,
        sub_group_size=int(properties["warpSize"]),
        compute_capability=f"{properties['major']}.{properties['minor']}",
    )
    grid = tuple(int(extent) for extent in properties["maxGridSize"])
    handle = CudaHandle(driver=driver, index=index, max_grid=grid)
    return common.Device(
        label=f"cuda:{index}", identity=identity, limits=limits, handle=handle, backend="cuda"
    )


Extents = tuple[int, ...]
_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyKind
_ALL_SHARED = 100  # percent of what is divided between shared memory and cache
_HOLD_S = 2e-5
_HOLD_SOURCE = """
extern "C" __global__ void hold(long long cycles)
{ long long begin = clock64(); while (clock64() - begin < cycles) { } }
"""


@dataclass(frozen=True, slots=True)
class CudaSpan:
    """All that was enqueued between two events; stands for one event of a run."""

    driver: CudaDriver
    begin: Any
    end: Any

    def wait(self) -> None:
        """Wait for the end."""
        with self.driver.guard_calls("the kernel does not run"):
            self.end.synchronize()

    @property
    def profile(self) -> SimpleNamespace:
        """The time between the events, ns; it begins at 0."""
        self.wait()
        elapsed_ms = self.driver.cupy.cuda.get_elapsed_time(self.begin, self.end)
        return SimpleNamespace(start=0, end=round(elapsed_ms * 1e6))


class CudaSession(common.Session):
    """Stream of a GPU, with what is built and allocated for it."""

    def __init__(self, device: common.Device) -> None:
        self.device = device
        self.handle: CudaHandle = device.handle
        self.driver = self.handle.driver
        with self.driver.guard_calls(f"{device.label} does not open"):
            self._use()
            self._stream = self.driver.cupy.cuda.Stream(non_blocking=True)

    def _use(self) -> None:
        self.driver.cupy.cuda.Device(self.handle.index).use()

    def module(self, source: str, options: Sequence[str] = ()) -> Callable[[str], Any]:
        """Compile CUDA C with NVRTC; return what finds CuPy's raw kernels by name."""
        self._use()
        with self._building():
            module = self.driver.cupy.RawModule(
                code=source, options=("--std=c++17", *options), backend="nvrtc"
            )
            module.compile()

        def find(name: str) -> Any:
            with self._building():
                return module.get_function(name)

        return cache(find)

    @contextmanager
    def _building(self) -> Generator[None]:
        """Turn failures of compiler and loader into ours."""
        what = f"does not build on {self.device.label}"
        try:
            with self.driver.guard_calls(what):
                yield
        except self.driver.cupy.cuda.compiler.CompileException as error:
            raise KernelBuildError(f"{what}: {common.pick_errors(str(error))}") from error
        except MeasurementError as error:
            raise KernelBuildError(str(error)) from error
        except (RuntimeError, OSError) as error:  # NVRTC's library is not there
            raise KernelBuildError(f"{what}: {error}") from error

    def load(self, source: str, *, fresh: bool = False) -> common.Launch:
        """Build hand-written kernels, as in `countperf.devices.device.Session`."""
        # a comment that differs each time keeps CuPy's cache of binaries out
        stamp = f"// {np.random.default_rng().integers(2**62)}\n" if fresh else ""
        find = self.module(common.CUDA_PRELUDE + source + stamp)

        def launch(name: str, groups: int, size: int, arguments: Sequence[Any]) -> list[CudaSpan]:
            function = find(name)
            with self.span() as spans:
                self.enqueue(function, (groups,), (size,), arguments)
            return spans

        return launch

    def build_kernel(self, t_unit: Any, unused_local_bytes: int | None = None) -> DeviceKernel:
        """Generate CUDA for a translation unit and build it."""
        check_offsets(t_unit)
        entry = t_unit.default_entrypoint
        index_limit = int(np.iinfo(entry.index_dtype.numpy_dtype).max)
        code = generate_cuda(t_unit)
        find = self.module(code.source, tuple(entry.options.build_options))
        for name in code.kernels:
            function = find(name)
            if unused_local_bytes is not None:
                with self._building():  # a module is shared by all that build the same source
                    most = max(unused_local_bytes, int(function.max_dynamic_shared_size_bytes))
                    function.max_dynamic_shared_size_bytes = most
                    function.preferred_shared_memory_carveout = _ALL_SHARED

        def prepare(arguments: Mapping[str, Any]) -> Callable[[], list[Any]]:
            launches = code.launches(arguments, lambda size: self.allocate(int(size)))
            for launch in launches:
                check_grid(self, launch, index_limit)
                function = find(launch.kernel)
                limits = int(function.max_threads_per_block), int(function.shared_size_bytes)
                self.device.check_group(launch.shape, *limits)
            self.finish()

            def enqueue() -> list[Any]:
                with self.span(hold=True) as spans:
                    for each in launches:
                        if prod(each.groups):  # none is empty
                            launched = find(each.kernel), each.groups, each.shape, each.arguments
                            self.enqueue(*launched, unused_local_bytes or 0)
                return spans

            return enqueue

        return describe_kernel(retarget(t_unit), prepare)

    def enqueue(
        self, function: Any, groups: Extents, group: Extents, arguments: Any, shared_bytes: int = 0
    ) -> None:
        """Launch a kernel; arguments are device memory and NumPy scalars."""
        given = [a if isinstance(a, np.generic) else np.uint64(a.ptr) for a in arguments]
        function.kernel(groups, group, tuple(given), shared_mem=shared_bytes, stream=self._stream)

    @contextmanager
    def span(self, *, hold: bool = False) -> Generator[list[CudaSpan]]:
        """Note the events before and after what is enqueued in the context."""
        self._use()
        spans: list[CudaSpan] = []
        with self.driver.guard_calls("the launch fails"):
            if hold:
                function, arguments = self._hold
                self.enqueue(function, (1,), (1,), arguments)
            begin = self._record()
            yield spans
            spans.append(CudaSpan(self.driver, begin, self._record()))

    @cached_property
    def _hold(self) -> tuple[Any, Any]:
        clock_hz = max(1, self.device.limits.max_clock_mhz) * 1e6
        return self.module(_HOLD_SOURCE)("hold"), (np.int64(_HOLD_S * clock_hz),)

    def _record(self) -> Any:
        event = self.driver.cupy.cuda.Event()
        event.record(self._stream)
        return event

    def finish(self) -> None:
        """Wait for all that was enqueued."""
        with self.driver.guard_calls("the kernel does not run"):
            self._stream.synchronize()

    def allocate(self, size: int) -> Any:
        """Return new device memory of that many bytes (at least 4), filled with zeros."""
        size = max(4, -(-size // 4) * 4)
        self._use()
        with self.driver.guard_calls(f"{size} byte"):
            memory = self.driver.cupy.cuda.Memory(size)
            self.driver.runtime.memsetAsync(memory.ptr, 0, size, self._stream.ptr)
        return memory

    def copy_in(self, memory: Any, array: NDArray[Any]) -> None:
        """Copy a contiguous array to the beginning of device memory, and wait."""
        self._copy(memory.ptr, array.ctypes.data, array.nbytes, _TO_DEVICE)

    def copy_out(self, array: NDArray[Any], memory: Any) -> None:
        """Fill a contiguous array from the beginning of device memory, and wait."""
        self._copy(array.ctypes.data, memory.ptr, array.nbytes, _TO_HOST)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        self._use()
        with self.driver.guard_calls("the copy fails"):
            self.driver.runtime.memcpyAsync(target, source, size, kind, self._stream.ptr)
            self._stream.synchronize()

    def versions(self) -> dict[str, str]:
        """Return versions of driver and runtime."""
        runtime = self.driver.runtime
        return {
            "cuda_driver": str(runtime.driverGetVersion()),
            "cuda_runtime": str(runtime.runtimeGetVersion()),
        }


def check_grid(session: CudaSession, launch: GeneratedLaunch, index_limit: int) -> None:
    """Compare the number of groups with what the GPU can launch, and the code can number."""
    name, groups = launch.kernel, launch.groups
    items = max(map(mul, groups, launch.shape))
    if items > index_limit:
        raise KernelBuildError(
            f"{name}: {items} work items along an axis, and the kernel computes indices up to"
            f" {index_limit}; pass smaller sizes, or make it with index_dtype=np.int64"
        )
    limits = session.handle.max_grid
    if len(groups) > len(limits) or any(map(gt, groups, limits)):
        wanted, most = ("x".join(map(str, extents)) for extents in (groups, limits))
        message = f"{name}: {wanted} groups: {session.device.label} launches up to {most}"
        raise KernelBuildError(message)
