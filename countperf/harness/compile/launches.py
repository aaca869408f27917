"""Launches of a translation unit at given sizes, found without a device."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from loopy.target.c.c_execution import DEF_EVEN_DIV_FUNCTION

from countperf.machine_code.launch import KernelLaunch


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
            place: value
            for place, value in zip(pairs[::2], pairs[1::2], strict=True)
            if isinstance(value, str)
        }

    def _set_arg_buf_multi(self, pairs: tuple[Any, ...]) -> None:
        self.arguments |= {
            place: bytes(value) for place, value in zip(pairs[::2], pairs[1::2], strict=True)
        }

    def _set_arg_buf_pack_multi(self, triples: tuple[Any, ...]) -> None:
        for place, kind, value in zip(triples[::3], triples[1::3], triples[2::3], strict=True):
            self.arguments[place] = struct.pack(kind.decode(), value)


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
    found: list[KernelLaunch] = []

    def enqueue(
        _: Any,
        kernel: _KernelStandIn,
        groups: tuple[int, ...],
        group_shape: tuple[int, ...],
        *__: Any,
    ) -> None:
        found.append(
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
    return tuple(found)


def three(extents: Sequence[int]) -> tuple[int, int, int]:
    """Return extents along three axes; 1 where there is none."""
    first, second, third = (*(int(extent) for extent in extents), 1, 1)[:3]
    return first, second, third
