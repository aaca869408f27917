"""Listings of NVIDIA machine code (SASS), read into instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from countperf.errors import ParameterError

_FUNCTION = re.compile(r"^\s*(?:Function\s*:\s*(\S+)|\.text\.(\S+):)")
_LABEL = re.compile(r"^\s*(\.L_\w+):")
_LINE = re.compile(
    r"^\s*(\{)?\s*/\*([0-9a-fA-F]+)\*/\s+(\{)?\s*(?:@(!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_.]*)\s*"
    r"([^;]*?)\s*(?:;\s*(\})?|(\}))"
)
_REGISTER = re.compile(r"\b(U?R)(\d+)\b|\b(U?P)(\d)\b|\.(CC)\b")
_GLOBAL = ("LDG", "STG", "LD", "ST", "LDL", "STL", "ATOM", "ATOMG", "RED", "TLD", "TEX")
_SHARED = ("LDS", "STS", "ATOMS", "LDSM")
_CONSTANT = ("LDC", "ULDC")
_NO_RESULT = ("ST", "STG", "STS", "STL", "RED", "BRA", "EXIT", "BAR", "NOP", "SYNC", "BSYNC")
_OTHER_UNITS = ("MUFU", "DADD", "DMUL", "DFMA", "DSETP")
_JUMPS = ("BRA", "SSY", "PBK", "PCNT", "BSSY", "CALL", "CAL", "JCAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class SassInstruction:
    """One instruction.

    Attributes
    ----------
    address : int
        Its place in the code, byte.
    opcode : str
        Its name with modifiers.
    writes, reads : frozenset of str
        Registers, predicates, and ``CC`` (the carry).
    is_conditional : bool
        Whether a predicate guards it.
    target : str
        Label or address that a branch names; empty for others.
    with_previous : bool
        Whether it is issued together with the one before.
    guard : str
        The predicate that guards it, ``!P0`` for its inverse; empty if none does.
    operands : tuple of str
        As they are printed.
    """

    address: int
    opcode: str
    writes: frozenset[str]
    reads: frozenset[str]
    is_conditional: bool = False
    target: str = ""
    with_previous: bool = False
    guard: str = ""
    operands: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """Its name without modifiers."""
        return self.opcode.split(".")[0]

    @property
    def kind(self) -> Literal["global", "shared", "constant", "other unit", "core"]:
        """Unit that executes it; a core, unless it is known otherwise (control included)."""
        if self.base in _GLOBAL:
            return "global"
        if self.base in _SHARED:
            return "shared"
        if self.base in _CONSTANT:
            return "constant"
        return "other unit" if self.base in _OTHER_UNITS else "core"


@dataclass(frozen=True, slots=True)
class SassCode:
    """A function of a listing.

    Attributes
    ----------
    instructions : list of SassInstruction
        In order.
    labels : dict from str to int
        Addresses of labels.
    """

    instructions: list[SassInstruction]
    labels: dict[str, int]

    def place_of(self, target: str) -> int | None:
        """Return the place of the instruction at a label or an address; None if there is none."""
        address = self.labels.get(target)
        if address is None and target.startswith("0x"):
            address = int(target, 16)
        return next(
            (p for p, each in enumerate(self.instructions) if each.address == address), None
        )


def parse_sass(text: str) -> dict[str, SassCode]:
    """Read the functions of a listing.

    Parameters
    ----------
    text : str
        What ``cuobjdump -sass`` or ``nvdisasm`` prints.

    Returns
    -------
    dict from str to SassCode
        By name, functions without instructions left out.

    Raises
    ------
    ParameterError
        There is no instruction.
    """
    found: dict[str, SassCode] = {}
    code = found.setdefault("kernel", SassCode([], {}))
    pending: list[str] = []
    in_braces = opened = False
    for line in text.splitlines():
        if (title := _FUNCTION.match(line)) is not None:
            code = found.setdefault(title[1] or title[2], SassCode([], {}))
            continue
        if (label := _LABEL.match(line)) is not None:
            pending.append(label[1])
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        opens = bool(match[1] or match[3])
        in_braces, opened = (True, True) if opens else (in_braces, False)
        instruction = _instruction(
            int(match[2], 16), match[4] or "", match[5], match[6], in_braces and not opened
        )
        if match[7] or match[8]:
            in_braces = False
        code.labels.update(dict.fromkeys(pending, instruction.address))
        pending.clear()
        code.instructions.append(instruction)
    kernels = {name: each for name, each in found.items() if each.instructions}
    if not kernels:
        message = "no instruction in the listing; pass what cuobjdump -sass or nvdisasm prints"
        raise ParameterError(message, parameter="text")
    return kernels


def _instruction(
    address: int, guard: str, opcode: str, operands: str, with_previous: bool
) -> SassInstruction:
    base = opcode.split(".")[0]
    parts = [part.strip() for part in operands.split(",")] if operands else []
    reads: set[str] = set(_names(guard)) if guard else set()
    writes: set[str] = set()
    number = 0 if base in _NO_RESULT else 2 if base.endswith("SETP") else 1
    for place, part in enumerate(parts):
        names = _names(part)
        if place < number and "[" not in part:
            writes |= set(names)
            if names and ".64" in opcode and names[0].startswith("R"):
                writes.add(f"R{int(names[0][1:]) + 1}")
        else:
            reads |= set(names)
            if "[" in part and ".E" in opcode and names and names[0].startswith("R"):
                reads.add(f"R{int(names[0][1:]) + 1}")  # an address of 64 bits
    if ".X" in opcode:
        reads.add("CC")
    target = ""
    if base in _JUMPS and parts:
        target = parts[-1].strip("`() ")
    return SassInstruction(
        address=address,
        opcode=opcode,
        writes=frozenset(writes),
        reads=frozenset(reads),
        is_conditional=bool(guard) and guard not in ("PT", "!UPT"),
        target=target,
        with_previous=with_previous,
        guard=guard,
        operands=tuple(parts),
    )


def _names(text: str) -> list[str]:
    """Return the registers, predicates and the carry that an operand names."""
    return [
        f"{match[1]}{match[2]}" if match[1] else f"{match[3]}{match[4]}" if match[3] else "CC"
        for match in _REGISTER.finditer(text)
    ]
