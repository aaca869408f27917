"""Effects of called functions that are not followed: divisions of vectors, and unknown ones."""

from __future__ import annotations

import re

import numpy as np

from countperf.machine_code.machine_state import REGISTERS, UNKNOWN, Machine
from countperf.machine_code.mask_registers import elements_of
from countperf.machine_code.operands import Action

DIVISION = re.compile(r"__ocl_svml_[a-z]\d_([iu])(div|rem)(\d+)")
_SCRATCH = tuple(
    REGISTERS[name].number
    for name in ("%rax", "%rcx", "%rdx", "%rsi", "%rdi", "%r8", "%r9", "%r10", "%r11")
)
"""Registers that a function need not restore."""


def divide(is_signed: bool, what: str, lanes: int) -> Action:
    """Return what divides the first vector by the second one, lane by lane."""
    kind = np.int32 if is_signed else np.uint32

    def operate(machine: Machine) -> None:
        (a, known), (b, also) = (
            elements_of(machine.vectors[number, : 4 * lanes], 32) for number in (0, 1)
        )
        one, other = (each.view(kind).astype(np.int64) for each in (a, b))
        divisor = np.where(other == 0, 1, other)
        quotient = np.abs(one) // np.abs(divisor) * np.sign(one) * np.sign(divisor)
        found = quotient if what == "div" else one - quotient * divisor
        raw = found.astype(np.uint32).view(np.uint8).astype(np.int16)
        is_known = np.repeat(known & also & (other != 0), 4)
        machine.quotient = np.zeros_like(machine.vectors[0])
        machine.quotient[: 4 * lanes] = np.where(is_known, raw, UNKNOWN)

    return operate


def take_quotient(machine: Machine) -> None:
    """Move the result of a division to the first vector, as its function returns it."""
    machine.vectors[0] = machine.quotient


def forget_call(machine: Machine) -> None:
    """Forget what a function may change of which nothing is known."""
    for number in _SCRATCH:
        machine.registers[number] = machine.low[number] = None
    machine.vectors[:] = machine.masks[:] = UNKNOWN
    machine.flags = None
