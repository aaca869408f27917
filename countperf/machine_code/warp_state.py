"""Values that the 32 lanes of a sub-group hold while its machine code is followed.

A value is an array of 32 integers: 32 bits each, unsigned, and ``UNKNOWN`` in lanes where it is
data or comes from an instruction that is not followed. Predicates are 0 and 1. Operands are text as
``nvdisasm`` prints it: registers with a sign, halves (``.H1``), constants of bank 0, immediates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Lanes: TypeAlias = npt.NDArray[np.int64]
Bits: TypeAlias = npt.NDArray[np.bool_]

LANES = 32
UNKNOWN = -1

Handler: TypeAlias = (
    "Callable[[frozenset[str], Sequence[str], WarpState], Mapping[str, Lanes] | None]"
)

MASK = 0xFFFF_FFFF
_OPERAND = re.compile(
    r"^(?P<sign>[-~!]?)\|?(?:(?P<constant>c\s*\[0x0\]\s*\[(?P<place>\w+)\])|(?P<name>U?[RP](?:\d+|Z|T)"
    r"|SR_\w+(?:\.\w)?|SRZ))\|?(?P<rest>(?:\.\w+)*)$"
)
_NUMBER = re.compile(r"^-?(?:0x[0-9a-f]+|\d+)$")
PREDICATES = re.compile(r"^!?(U?P(?:\d|T))$")


def lanes_of(value: int) -> Lanes:
    """Return the same value in all lanes."""
    return np.full(LANES, value & MASK, dtype=np.int64)


def unknown() -> Lanes:
    """Return a value that no lane knows."""
    return np.full(LANES, UNKNOWN, dtype=np.int64)


@dataclass(slots=True)
class WarpState:
    """Registers of a sub-group, and what it is launched with."""

    # words of 32 bits of constant bank 0 by their places: sizes and other arguments
    constants: Mapping[int, int]
    special: Mapping[str, Lanes]  # ``SR_TID.X`` and so on
    # registers and predicates that were written, by name
    registers: dict[str, Lanes] = field(default_factory=dict[str, Lanes])

    def read(self, operand: str) -> Lanes:
        """Return the value of an operand; unknown if it is none that is followed."""
        match = _OPERAND.match(operand)
        if match is None:
            if _NUMBER.match(operand):
                return lanes_of(int(operand, 0))
            return unknown()
        if match["constant"]:
            value = self._constant(int(match["place"], 16))
        else:
            value = self._named(match["name"])
        known = value != UNKNOWN
        if "|" in operand:
            value = np.abs(signed(value)) & MASK
        match match["sign"]:
            case "-":
                value = -value & MASK
            case "~":
                value = ~value & MASK
            case "!":
                value = 1 - value
            case _:
                pass
        if ".H1" in match["rest"]:
            value = value >> 16
        return np.where(known, value, UNKNOWN)

    def _constant(self, place: int) -> Lanes:
        value = self.constants.get(place)
        return unknown() if value is None else lanes_of(value)

    def _named(self, name: str) -> Lanes:
        if name in ("RZ", "URZ", "SRZ"):
            return lanes_of(0)
        if name in ("PT", "UPT"):
            return lanes_of(1)
        found = self.special.get(name) if name.startswith("SR") else self.registers.get(name)
        return unknown() if found is None else found

    def write(self, name: str, value: Lanes, active: Bits) -> None:
        """Write a register in some lanes."""
        if name in ("RZ", "URZ", "PT", "UPT"):
            return
        old = self.registers.get(name)
        self.registers[name] = np.where(active, value, unknown() if old is None else old)


def signed(value: Lanes) -> Lanes:
    """Return 32 bits as signed numbers."""
    return np.where(value >= 1 << 31, value - (1 << 32), value)


def next_register(name: str) -> str:
    """Return the register that holds the upper half of 64 bits."""
    match = re.match(r"(U?R)(\d+)$", name)
    return name if match is None else f"{match[1]}{int(match[2]) + 1}"


def upper_of(operand: str) -> str:
    """Return the operand that holds the upper half of 64 bits."""
    if operand in ("RZ", "URZ"):
        return operand
    match = re.match(r"c\s*\[0x0\]\s*\[(\w+)\]", operand)
    if match:
        return f"c[0x0][{int(match[1], 16) + 4:#x}]"
    return next_register(register_of(operand)) if operand[0] in "RU" else operand


def register_of(text: str) -> str:
    """Return the register that an operand names, without modifiers (``.H1``, ``.CC``)."""
    return text.split(".")[0]


def joined(value: Lanes, *inputs: Lanes) -> Lanes:
    """Return a value of 32 bits, unknown where an input is."""
    known = np.all([each != UNKNOWN for each in inputs], axis=0)
    return np.where(known, value & MASK, UNKNOWN)
