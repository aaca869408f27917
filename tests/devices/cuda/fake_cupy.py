# ruff: noqa: ARG005, N802
"""Modules with the interface of CuPy, which fail where told; kernels run on the host."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from countperf.devices.cuda import CudaDriver
from countperf.devices.targets import generate_cuda
from tests.devices.cuda.emulator import CompileError, EmulatedModule, Memory

_COMPILED: dict[str, EmulatedModule] = {}  # by source
SHARED_LIMIT = 48 * 1024


class CUDARuntimeError(RuntimeError):
    """As CuPy's: a status, and a message that begins with its name."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class CUDADriverError(RuntimeError):
    """As CuPy's, which is not one of the runtime's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class CompileException(Exception):  # noqa: N818 - CuPy's name
    """As CuPy's."""


class FakeCupy:
    """Stands for the module ``cupy``."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 1,
        ready: Mapping[str, tuple[EmulatedModule, str]] | None = None,
    ) -> None:
        self.folder = folder
        self.failures: dict[str, Exception] = {}
        self.launches: list[str] = []
        self.shared_bytes = 0  # dynamic ones of the last launch
        self.clock_ms = 0.0
        self.device = 0
        self.free_bytes = 2**33
        self.ready = dict(ready or {})
        self.sources: list[str] = []
        self._numbers = itertools.count()
        self.properties = {
            "name": b"NVIDIA Imaginary 9000",
            "major": 9,
            "minor": 0,
            "totalGlobalMem": 2**34,
            "multiProcessorCount": 4,
            "maxThreadsPerBlock": 1024,
            "maxThreadsDim": (1024, 1024, 64),
            "maxGridSize": (2**31 - 1, 65535, 65535),
            "sharedMemPerBlock": SHARED_LIMIT,
            "warpSize": 32,
        }
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDeviceCount=lambda: self.fail("count") or count,
                getDeviceProperties=lambda device: dict(self.properties),
                deviceGetAttribute=lambda attrib, device: {13: 1_980_000}[attrib],
                memGetInfo=lambda: (self.free_bytes, 2**34),
                driverGetVersion=lambda: 13010,
                runtimeGetVersion=lambda: 13000,
                memsetAsync=lambda ptr, value, size, stream: ctypes.memset(ptr, value, size),
                memcpyAsync=lambda dst, src, size, kind, stream: (
                    self.fail("memcpy") or ctypes.memmove(dst, src, size)
                ),
            ),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            compiler=SimpleNamespace(CompileException=CompileException),
            Device=lambda index: SimpleNamespace(use=lambda: setattr(self, "device", index)),
            Stream=lambda **_: SimpleNamespace(ptr=7, synchronize=lambda: self.fail("synchronize")),
            Event=self._make_event,
            Memory=lambda size: _Memory(self, size),
            get_elapsed_time=lambda begin, end: end.time_ms - begin.time_ms,
        )

    def RawModule(self, *, code: str, options: tuple[str, ...], backend: str) -> FakeRawModule:
        assert backend == "nvrtc"
        assert all(option.startswith("-") for option in options)
        return FakeRawModule(self, code)

    def compile(self, code: str) -> tuple[EmulatedModule, str]:
        self.sources.append(code)
        if code in self.ready:
            return self.ready[code]
        if code not in _COMPILED:
            folder = self.folder / f"module{next(self._numbers)}"
            folder.mkdir()
            try:
                _COMPILED[code] = EmulatedModule({"code": code}, folder)
            except CompileError as error:
                raise CompileException(str(error)) from error
        return _COMPILED[code], "code"

    def _make_event(self) -> SimpleNamespace:
        event = SimpleNamespace(time_ms=0.0, synchronize=lambda: self.fail("wait"))
        event.record = lambda stream: setattr(event, "time_ms", self.clock_ms)
        return event

    def fail(self, call: str) -> None:
        if call in self.failures:
            raise self.failures.pop(call)

    def driver(self) -> CudaDriver:
        return CudaDriver(self)


def compiled_at_once(units: Mapping[str, Any], folder: Path) -> FakeCupy:
    """Return a fake for which the code of many kernels is compiled already."""
    sources = {name: generate_cuda(unit).source for name, unit in units.items()}
    module = EmulatedModule(sources, folder)
    return FakeCupy(folder, ready={source: (module, name) for name, source in sources.items()})


class _Memory:
    def __init__(self, cupy: FakeCupy, size: int) -> None:
        cupy.fail("malloc")
        if size > cupy.free_bytes:
            # memory outside a pool: OutOfMemoryError is raised by pools alone
            raise CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory")
        self.size = size
        self._memory = Memory(size)
        self.ptr = self._memory.address

    def __del__(self) -> None:
        memory = getattr(self, "_memory", None)
        assert memory is None or memory.is_intact, "a kernel wrote outside its arrays"


@dataclass
class FakeRawModule:
    cupy: FakeCupy
    code: str

    def compile(self) -> None:
        self.cupy.fail("compile")
        self.built = self.cupy.compile(self.code)

    def get_function(self, name: str) -> FakeRawKernel:
        if not re.search(rf"\b{name}\(", self.code):
            raise CUDADriverError(500, "CUDA_ERROR_NOT_FOUND: named symbol not found")
        return FakeRawKernel(self.cupy, self.built, self.code, name)


@dataclass
class FakeRawKernel:
    cupy: FakeCupy
    built: tuple[EmulatedModule, str]
    code: str
    name: str
    max_threads_per_block = 1024
    max_dynamic_shared_size_bytes = SHARED_LIMIT
    preferred_shared_memory_carveout = -1

    @property
    def shared_size_bytes(self) -> int:
        sizes = {"float": 4, "double": 8, "int": 4}
        return sum(
            sizes[kind] * math.prod(int(n) for n in re.findall(r"\d+", extent))
            for kind, extent in re.findall(r"__shared__ (\w+) \w+\[([\d* ]+)\]", self.code)
        )

    def kernel(self, grid: Any, block: Any, args: Any, *, shared_mem: int, stream: Any) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        assert stream.ptr == 7
        assert all(isinstance(each, np.generic) for each in args)
        self.cupy.launches.append(self.name)
        self.cupy.shared_bytes = shared_mem
        self.cupy.fail("launch")
        if self.name != "hold":
            module, source = self.built
            module.launch(source, self.name, [max(1, n) for n in grid], block, args)
            self.cupy.clock_ms += 0.25
