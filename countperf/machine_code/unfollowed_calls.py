"""Effects of called functions that are not followed: divisions of vectors, and unknown ones."""

from __future__ import annotations

import re

from countperf.machine_code.integer_operands import (
    Action,
    signed,
)
from countperf.machine_code.machine_state import (
    REGISTERS,
    UNKNOWN_LANES,
    Machine,
    Value,
)

DIVISION = re.compile(r"__ocl_svml_[a-z]\d_([iu])(div|rem)(\d+)")
_SCRATCH = tuple(
    REGISTERS[name].number
    for name in ("%rax", "%rcx", "%rdx", "%rsi", "%rdi", "%r8", "%r9", "%r10", "%r11")
)
"""Registers that a function need not restore."""


def divide(is_signed: bool, what: str, lanes: int) -> Action:
    """Return what divides the first vector by the second one, lane by lane."""

    def lane(one: Value, other: Value) -> Value:
        if one is None or not other:
            return None
        a, b = (signed(one, 32), signed(other, 32)) if is_signed else (one, other)
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return (quotient if what == "div" else a - quotient * b) & 0xFFFF_FFFF

    def operate(machine: Machine) -> None:
        first, second = machine.vectors[:2]
        pairs = zip(first[:lanes], second[:lanes], strict=True)
        machine.quotient = (*(lane(*pair) for pair in pairs), *(0,) * (len(first) - lanes))

    return operate


def take_quotient(machine: Machine) -> None:
    """Move the result of a division to the first vector, as its function returns it."""
    machine.vectors[0] = machine.quotient


def forget_call(machine: Machine) -> None:
    """Forget what a function may change of which nothing is known."""
    for number in _SCRATCH:
        machine.registers[number] = machine.low[number] = None
    machine.vectors[:] = [UNKNOWN_LANES] * len(machine.vectors)
    machine.masks[:] = [(0, 0)] * len(machine.masks)
    machine.flags = None
