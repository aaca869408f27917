"""Launches of a translation unit at given sizes, found without a device."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
from loopy.target.c.c_execution import DEF_EVEN_DIV_FUNCTION

from countperf.counting.copies import generated
from countperf.harness.arrays import ArrayArgument
from countperf.harness.description import describe_kernel
from countperf.harness.scalars import as_scalar
from countperf.machine_code.calling_conventions import KernelLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCode:
    """Host code that Loopy generates for OpenCL: what it launches at any sizes."""

    text: str
    function: str  # name of the function in it
    device_code: str = field(repr=False)
    scalars: Mapping[str, np.dtype[Any]]  # arguments that are no arrays
    arrays: tuple[str, ...]  # those that are
    offsets: frozenset[str]  # scalars that only say where arrays begin
    strided: tuple[ArrayArgument, ...]  # arrays with strides that Loopy leaves to the caller

    @classmethod
    def of(cls, unit: Any) -> HostCode:
        """Generate the code of a translation unit."""
        if not isinstance(unit.target, lp.PyOpenCLTarget):
            unit = unit.copy(target=lp.PyOpenCLTarget())
        code, kernel = generated(unit), describe_kernel(unit, _no_launch)
        return cls(
            text=code.host_code(),
            function=code.host_programs[kernel.name].name,
            device_code=code.device_code(),
            scalars=kernel.scalars,
            arrays=tuple(kernel.arguments),
            offsets=kernel.offsets,
            strided=tuple(part for part in kernel.arguments.values() if part.automatic),
        )

    def numbers(self, parameters: Mapping[str, int]) -> dict[str, Any]:
        """Return the scalar arguments at given sizes, as the code takes them."""
        values: dict[str, Any] = dict.fromkeys(self.scalars, 1) | dict.fromkeys(self.offsets, 0)
        for name in (name for array in self.strided for name in array.automatic):
            values.pop(name, None)
        values |= {name: parameters[name] for name in self.scalars if name in parameters}
        for array in self.strided:
            values |= array.chosen_strides(array.extents(values), values)
        return {name: as_scalar(dtype, values[name], name) for name, dtype in self.scalars.items()}

    def launches(self, parameters: Mapping[str, int]) -> tuple[KernelLaunch, ...]:
        """Return what is launched at given sizes, but for launches of no group."""
        arguments = {name: name for name in self.arrays} | self.numbers(parameters)
        launches = launches_of(self.text, self.function, arguments)
        return tuple(launch for launch in launches if launch.number_of_groups)


def _no_launch(_: Mapping[str, Any]) -> list[Any]:
    return []


class _KernelStandIn:
    """Takes arguments as pyopencl's kernels do, and keeps them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: dict[int, bytes | None] = {}
        self.arrays: dict[int, str] = {}

    @property
    def num_args(self) -> _AnyNumber:
        return _AnyNumber()

    def _set_arg_multi(self, pairs: tuple[Any, ...]) -> None:
        self.arguments |= dict.fromkeys(pairs[::2])
        self.arrays |= {
            index: value
            for index, value in zip(pairs[::2], pairs[1::2], strict=True)
            if isinstance(value, str)
        }

    def _set_arg_buf_multi(self, pairs: tuple[Any, ...]) -> None:
        self.arguments |= {
            index: bytes(value) for index, value in zip(pairs[::2], pairs[1::2], strict=True)
        }

    def _set_arg_buf_pack_multi(self, triples: tuple[Any, ...]) -> None:
        for index, kind, value in zip(triples[::3], triples[1::3], triples[2::3], strict=True):
            self.arguments[index] = struct.pack(kind.decode(), value)


class _AnyNumber:
    """Equals every number: generated code checks how many arguments a kernel has."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class _Kernels:
    def __init__(self) -> None:
        self._made: dict[str, _KernelStandIn] = {}

    def __getattr__(self, name: str) -> _KernelStandIn:
        return self._made.setdefault(name, _KernelStandIn(name))


def launches_of(
    host_code: str, host_function: str, arguments: Mapping[str, Any]
) -> tuple[KernelLaunch, ...]:
    """Run Loopy's host code with stand-ins for the device."""
    launches: list[KernelLaunch] = []

    def enqueue(
        _: Any,
        kernel: _KernelStandIn,
        groups: tuple[int, ...],
        group_shape: tuple[int, ...],
        *__: Any,
    ) -> None:
        launches.append(
            KernelLaunch(
                kernel=kernel.name,
                arguments=tuple(each for _, each in sorted(kernel.arguments.items())),
                groups=three(groups),
                group_shape=three(group_shape),
                arrays=dict(kernel.arrays),
            )
        )

    stand_in = SimpleNamespace(enqueue_nd_range_kernel=enqueue)
    namespace: dict[str, Any] = {"_lpy_cl": stand_in, "_lpy_np": np, "_lpy_pack": struct.pack}
    exec(DEF_EVEN_DIV_FUNCTION, namespace)
    exec(host_code, namespace)
    namespace[host_function](
        _Kernels(),
        SimpleNamespace(),
        **arguments,
        allocator=lambda size: SimpleNamespace(size=size, release=lambda: None),
    )
    return tuple(launches)


def three(extents: Sequence[int]) -> tuple[int, int, int]:
    """Return extents along three axes; 1 where there is none."""
    first, second, third = (*(int(extent) for extent in extents), 1, 1)[:3]
    return first, second, third
