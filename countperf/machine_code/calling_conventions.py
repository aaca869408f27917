"""A kernel as a runtime launches it: registers and memory of a work group at the call.

Arrays are given places of their own, far apart. PoCL 3.1 calls a function of the group with
pointers to the arguments, to a context (numbers of groups, offsets, shape of the group), and the
group's number along three axes. Intel's runtime (2026.2) calls one with the arguments side by side,
each at a multiple of its size, behind them a block of sizes, and the group's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from countperf.machine_code.machine_state import REGISTERS, ArrayData, Machine

_ARGUMENTS = 0x1000_0000_0000
_CONTEXT = 0x1100_0000_0000
_RUNTIME = 0x1200_0000_0000
_ARRAYS = 0x2000_0000_0000
_APART = 1 << 36
_CELL = 256
_LOCAL_ARRAYS = 8
_WORD = 8

_SIZES_FROM = {"global": (0x20, 0x90), "local": (0x38, 0x50, 0xA8, 0xC0), "groups": (0x68, 0xD8)}
"""Offsets in the block of sizes of Intel's runtime, for three axes each."""
_AXES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """A kernel and what it is launched with."""

    kernel: str  # name of the device's kernel
    arguments: tuple[bytes | None, ...]  # in order
    groups: tuple[int, int, int]  # along three axes
    group_shape: tuple[int, int, int]
    # names of arrays by their places among the arguments, where they are known
    arrays: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def number_of_groups(self) -> int:
        """All groups."""
        return prod(self.groups)


def middle_group(launch: KernelLaunch) -> tuple[int, int, int]:
    """Return the number of a group in the middle, which no border cuts."""
    first, second, third = (extent // 2 for extent in launch.groups)
    return first, second, third


def fill_arrays(machine: Machine, launch: KernelLaunch, contents: Mapping[str, ArrayData]) -> None:
    """Let arrays hold what is given by their names."""
    for index, name in launch.arrays.items():
        if name in contents:
            start = _ARRAYS + index * _APART
            machine.arrays.append((start, start + _APART // 2, contents[name]))


def pocl_group(launch: KernelLaunch, number: Sequence[int]) -> Machine:
    """Return the state in which PoCL calls the function of a group."""
    machine = Machine()
    cells = [*launch.arguments, *[None] * _LOCAL_ARRAYS]
    for position, value in enumerate(cells):
        cell = _ARGUMENTS + (1 << 20) + _CELL * position
        machine.store(_ARGUMENTS + _WORD * position, 64, cell)
        _put(machine, cell, value, position)
    _words(machine, _CONTEXT, (*launch.groups, 0, 0, 0, *launch.group_shape))
    _call(machine, _ARGUMENTS, _CONTEXT, *number)
    return machine


def intel_group(launch: KernelLaunch, number: Sequence[int]) -> Machine:
    """Return the state in which Intel's runtime calls the function of a group."""
    machine = Machine()
    end = _ARGUMENTS
    for position, value in enumerate(launch.arguments):
        size = _WORD if value is None else len(value)
        end += -end % size
        _put(machine, end, value, position)
        end += size
    end += -end % _WORD
    shape = launch.group_shape
    whole = [a * b for a, b in zip(launch.groups, shape, strict=True)]
    _words(machine, end, (_AXES, 0, 0, 0))
    for name, sizes in (("global", whole), ("local", shape), ("groups", launch.groups)):
        for offset in _SIZES_FROM[name]:
            _words(machine, end + offset, sizes)
    _words(machine, _CONTEXT, (*number, 0))
    _call(machine, _ARGUMENTS, _CONTEXT, _RUNTIME)
    return machine


def _put(machine: Machine, address: int, value: bytes | None, place: int) -> None:
    if value is None:
        machine.store(address, 64, _ARRAYS + place * _APART)
    else:
        machine.store(address, 8 * len(value), int.from_bytes(value, "little"))


def _words(machine: Machine, address: int, values: Sequence[int]) -> None:
    for position, value in enumerate(values):
        machine.store(address + _WORD * position, 64, value)


def _call(machine: Machine, *values: int) -> None:
    names = ("%rdi", "%rsi", "%rdx", "%rcx", "%r8")
    for name, value in zip(names, values, strict=False):
        machine.registers[REGISTERS[name].number] = value
