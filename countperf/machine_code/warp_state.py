"""Values that the 32 lanes of a sub-group hold while its machine code is followed.

A value is an array of 32 integers: 32 bits each, unsigned; ``UNKNOWN`` in lanes where it comes from
data, and below it where it comes from an instruction that is not followed, though no data decides
it. Predicates are 0 and 1. Operands are text as ``nvdisasm`` prints it: registers with a sign,
halves (``.H1``), constants of bank 0, immediates.
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
_LOWEST = np.iinfo(np.int64).min
_OTHER_BANK = re.compile(r"^-?\|?c\s*\[(?!0x0\])")
_NUMBER = re.compile(r"^-?(?:0x[0-9a-f]+|\d+)$")


def lanes_of(value: int) -> Lanes:
    """Return the same value in all lanes."""
    return np.full(LANES, value & MASK, dtype=np.int64)


def unknown() -> Lanes:
    """Return a value that no lane knows."""
    return np.full(LANES, UNKNOWN, dtype=np.int64)


@dataclass(slots=True)
class WarpState:
    """Registers of a sub-group, and what it is launched with."""

    # words of 32 bits of constant bank 0 by their places: sizes; None: data, such as addresses
    constants: Mapping[int, int | None]
    special: Mapping[str, Lanes]  # ``SR_TID.X`` and so on
    # registers and predicates that were written; no code depends on what others hold
    registers: dict[str, Lanes] = field(default_factory=dict[str, Lanes])
    # instructions and operands, by how far the values that they make are below ``UNKNOWN``
    unfollowed: list[str] = field(default_factory=list[str])

    def read(self, operand: str) -> Lanes:
        """Return the value of an operand; not followed if it is of no known form."""
        match = _OPERAND.match(operand)
        if match is None:
            if _NUMBER.match(operand):
                return lanes_of(int(operand, 0))
            return unknown() if _OTHER_BANK.match(operand) else self.not_followed(operand)
        if match["constant"]:
            value = self._constant(int(match["place"], 16), operand)
        else:
            value = self._named(match["name"])
        known = value >= 0
        taken = value
        if "|" in operand:
            taken = np.abs(signed(taken)) & MASK
        match match["sign"]:
            case "-":
                taken = -taken & MASK
            case "~":
                taken = ~taken & MASK
            case "!":
                taken = 1 - taken
            case _:
                pass
        if ".H1" in match["rest"]:
            taken = taken >> 16
        return np.where(known, taken, value)

    def not_followed(self, name: str) -> Lanes:
        """Return a value that an instruction makes that is not followed."""
        if name not in self.unfollowed:
            self.unfollowed.append(name)
        return np.full(LANES, UNKNOWN - 1 - self.unfollowed.index(name), dtype=np.int64)

    def name_of(self, value: int) -> str:
        """Return what is not followed; empty for a value that is known or data."""
        return self.unfollowed[UNKNOWN - 1 - value] if value < UNKNOWN else ""

    def _constant(self, place: int, operand: str) -> Lanes:
        word = place & ~3
        if word not in self.constants:
            return self.not_followed(operand)
        value = self.constants[word]
        return unknown() if value is None else lanes_of(value >> 8 * (place - word))

    def _named(self, name: str) -> Lanes:
        if name in ("RZ", "URZ", "SRZ"):
            return lanes_of(0)
        if name in ("PT", "UPT"):
            return lanes_of(1)
        if name.startswith("SR"):
            lanes = self.special.get(name)
            return self.not_followed(name) if lanes is None else lanes
        return self.registers.get(name, lanes_of(0))

    def write(self, name: str, value: Lanes, active: Bits) -> None:
        """Write a register in some lanes."""
        if name not in ("RZ", "URZ", "PT", "UPT"):
            self.registers[name] = np.where(active, value, self._named(name))


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
    lost = merged(inputs)
    return np.where(lost < 0, lost, value & MASK)


def merged(inputs: Sequence[Lanes]) -> Lanes:
    """Return 0 where all inputs are known; else why not: what data decides is data."""
    lost = np.max([np.where(each < 0, each, _LOWEST) for each in inputs], axis=0)
    return np.where(lost == _LOWEST, 0, lost)
