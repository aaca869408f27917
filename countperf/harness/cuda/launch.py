"""CUDA launches of a Loopy translation unit with arrays and sizes.

Indices are 32 bits wide, as on OpenCL, unless arrays or grid are too large for that: then the
kernel is built once more with 64-bit indices.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from countperf.errors import KernelBuildError
from countperf.harness.cuda.memory import DeviceMemory, as_argument
from countperf.harness.cuda.target import (
    CudaCode,
    generate_cuda,
    needs_wide_indices,
    retarget,
    widened,
)
from countperf.harness.description import Kernel, check_offsets, describe_kernel

if TYPE_CHECKING:
    from countperf.harness.device import Device


class GpuProgram(Protocol):
    """Built kernels of one source."""

    def function(self, name: str) -> Any:
        """Return CuPy's raw kernel of that name."""
        ...


class GpuSession(Protocol):
    """Part of an open GPU that building and launching kernels needs."""

    @property
    def device(self) -> Device:
        """Return the GPU."""
        ...

    @property
    def handle(self) -> Any:
        """Return what the driver knows of the GPU."""
        ...

    def module(self, source: str, options: Sequence[str] = ()) -> GpuProgram:
        """Compile CUDA C."""
        ...

    def allocate(self, size: int) -> DeviceMemory:
        """Allocate device memory, byte."""
        ...

    def enqueue(
        self, function: Any, groups: tuple[int, ...], group: tuple[int, ...], arguments: Any
    ) -> None:
        """Launch a kernel."""
        ...

    def span(self, *, hold: bool = False) -> AbstractContextManager[list[Any]]:
        """Note the events before and after what is enqueued in the context."""
        ...

    def finish(self) -> None:
        """Wait for all that was enqueued."""
        ...


_Shape = Sequence[int]
_Launch = tuple[Any, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]


def build_kernel(session: GpuSession, t_unit: Any) -> Kernel:
    """Generate CUDA for a translation unit and build it."""
    check_offsets(t_unit)
    entry = t_unit.default_entrypoint
    options = tuple(entry.options.build_options)

    @cache
    def build(wide: bool) -> tuple[CudaCode, GpuProgram]:
        code = generate_cuda(t_unit, wide_indices=wide)
        program = session.module(code.source, options)
        for name in code.kernels:
            check_resources(session, name, program.function(name))
        return code, program

    build(False)
    plans: dict[tuple[Any, ...], _Plan] = {}
    alive: list[Any] = []  # weak references: arguments that are gone take the plan with them

    def launch(arguments: Mapping[str, Any]) -> list[Any]:
        key = tuple((name, _key(value)) for name, value in sorted(arguments.items()))
        if key not in plans:
            plans.clear()
            wide = _is_wide(kernel, build(False)[0], arguments)
            plans[key] = _Plan(session, *build(wide), arguments)
            memory = [value for value in arguments.values() if isinstance(value, DeviceMemory)]
            alive[:] = [weakref.ref(each, lambda _: plans.clear()) for each in memory]
        return plans[key].launch()

    kernel = describe_kernel(widened(retarget(t_unit)), launch)
    return kernel


def _key(value: Any) -> Any:
    if isinstance(value, DeviceMemory):
        return value.ptr
    return value.tobytes() if isinstance(value, np.void) else value


class _Plan:
    """The launches of a kernel at given arguments, worked out beforehand."""

    def __init__(
        self,
        session: GpuSession,
        code: CudaCode,
        program: GpuProgram,
        arguments: Mapping[str, Any],
    ) -> None:
        self._session = session
        self._shared: list[DeviceMemory] = []
        self._launches: list[_Launch] = []

        def allocate(size: int) -> Any:
            self._shared.append(session.allocate(int(size)))
            return as_argument(self._shared[-1])

        def note(
            name: str, grid: Sequence[int], group: Sequence[int], given: Sequence[Any]
        ) -> None:
            groups, shape = tuple(map(int, grid)), tuple(map(int, group))
            check_grid(session, name, groups)
            function = program.function(name)
            check_group(session, function, shape)
            if prod(groups):  # CUDA has no empty grids
                self._launches.append((function, groups, shape, tuple(given)))

        code.host(note, allocate, **{name: as_argument(value) for name, value in arguments.items()})
        session.finish()

    def launch(self) -> list[Any]:
        """Enqueue all launches."""
        session = self._session
        with session.span(hold=True) as spans:
            for function, groups, shape, arguments in self._launches:
                session.enqueue(function, groups, shape, arguments)
        return spans


def _is_wide(kernel: Kernel, code: CudaCode, arguments: Mapping[str, Any]) -> bool:
    values = {name: arguments[name] for name in kernel.scalars}
    needed = kernel.needed_bytes(values)
    counts = {
        name: needed[name] // argument.dtype.itemsize for name, argument in kernel.arguments.items()
    }
    extents: list[int] = []

    def note(_: str, grid: _Shape, group: _Shape, __: Any) -> None:
        extents.extend(int(n) * int(size) for n, size in zip(grid, group, strict=False))

    def allocate(size: int) -> Any:
        extents.append(int(size))  # byte, which is more than elements
        return np.uint64(0)

    code.host(note, allocate, **{name: as_argument(value) for name, value in arguments.items()})
    return needs_wide_indices(counts, extents)


def check_resources(session: GpuSession, name: str, function: Any) -> None:
    """Compare what a kernel declares with what the GPU has."""
    local = int(function.shared_size_bytes)
    if local > session.device.limits.local_memory_bytes:
        limit = session.device.limits.local_memory_bytes
        message = f"{name}: {local} byte of local memory: {session.device.label} has {limit}"
        raise KernelBuildError(message)


def check_group(session: GpuSession, function: Any, group: tuple[int, ...]) -> None:
    """Compare a work group with what the GPU can run."""
    limits = session.device.limits
    most = min(limits.max_group_size, int(function.max_threads_per_block))
    along = zip(group, limits.max_group_shape, strict=False)
    if prod(group) > most or any(extent > largest for extent, largest in along):
        shape = "x".join(map(str, group))
        label = session.device.label
        raise KernelBuildError(
            f"groups of {shape} work items: {label} runs this kernel with up to {most}"
        )


def check_grid(session: GpuSession, name: str, groups: tuple[int, ...]) -> None:
    """Compare the number of groups with what the GPU can launch."""
    limits = session.handle.max_grid
    if len(groups) > len(limits) or any(n > most for n, most in zip(groups, limits, strict=False)):
        shape = "x".join(map(str, groups))
        most = "x".join(map(str, limits))
        message = f"{name}: {shape} groups: {session.device.label} launches up to {most}"
        raise KernelBuildError(message)
