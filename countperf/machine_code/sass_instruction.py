"""Instructions of NVIDIA's machine code (SASS): their units, and registers that they use.

Sources: NVIDIA, "CUDA Binary Utilities", section "Instruction Set Reference"; widths of operands as
nvdisasm 13 prints them for code of nvcc 13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from countperf.errors import CountingError

PREDICATES = re.compile(r"^!?(U?P(?:\d|T))$")
_REGISTER = re.compile(r"^-?\|?(U?R(?:\d+|Z))\b")
_NAMES = re.compile(r"\b(U?R\d+|U?P\d)\b((?:\.\w+)*)")
_NOTHING = ("RZ", "URZ", "PT", "UPT")

_SIZES = re.compile(r"\.(?:U|S)?(8|16|64|96|128|256)\b")
_ACCESS = re.compile(r"(U?LD|ST|ATOM|RED)(G|S|L|C|CU|SM)?$")
_FLOAT = re.compile(
    r"(?P<type>[FDH])(?:ADD|MUL|FMA|MNMX|SETP|SET|CHK|CMP)(?P<lanes>2?)3?(?:_?32I)?$"
)
_IMAGES = ("TEX", "TEXS", "TLD", "TLDS", "TLD4", "SULD", "SUST")
_HAVE_RESULTS = {
    name: has_result
    for has_result, names in (
        (
            False,
            "BRA EXIT SSY SYNC PBK BRK PCNT CONT CAL CALL JCAL RET BSSY BSYNC BREAK BRX BRXU JMP"
            " JMX JMXU WARPSYNC BPT KILL BAR SUST NOP DEPBAR LDGDEPBAR MEMBAR ERRBAR CCTL CCTLL"
            " YIELD NANOSLEEP FENCE PREEXIT ACQBULK R2B CGAERRBAR",
        ),
        (
            True,
            "I2F I2FP F2I F2F F2FP I2I FRND F2IP I2IP MOV MOV32I SEL FSEL S2R S2UR CS2R CS2UR R2UR"
            " R2P P2R PRMT UR2UP UP2UR BMOV SHFL VOTE MATCH REDUX CREDUX PSETP PSET PLOP3 B2R LEPC"
            " IADD IADD3 IADD32I IMAD IMAD32I IMADSP IMUL IMUL32I ISCADD ISCADD32I LEA LOP LOP3"
            " LOP32I SHF SHL SHR ISETP ISET ICMP IMNMX IABS IDP FLO POPC BREV BFE BFI BMSK SGXT"
            " XMAD VIADD VIADDMNMX VIMNMX VIMNMX3 VABSDIFF VABSDIFF4 CSET CSETP RRO",
        ),
    )
    for name in names.split()
}
"""Whether instructions have results; a name with ``U`` in front, of the uniform unit, is alike."""

Unit = Literal["global", "shared", "constant", "other unit", "core"]
_TWO_PREDICATES = ("SETP", "PLOP3")
_WITH_CARRIES = ("IADD3", "UIADD3", "LEA", "ULEA", "IADD", "IMAD", "UIMAD")
_JUMPS = ("BRA", "SSY", "PBK", "PCNT", "BSSY", "CALL", "CAL", "JCAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class SassInstruction:
    """An instruction."""

    opcode: str  # its name with modifiers
    operands: tuple[str, ...] = ()  # as they are printed
    guard: str = ""  # the predicate that guards it, ``!P0`` for its inverse
    target: int | None = None  # place of the instruction that it names
    address: int = 0  # its place in the code, byte
    with_previous: bool = False  # whether it is issued together with the one before

    @property
    def base(self) -> str:
        """Its name without modifiers."""
        return self.opcode.split(".")[0]

    @property
    def unit(self) -> Unit:
        """The unit that executes it; a core, unless it is known otherwise."""
        return unit_of(self.opcode)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Predicates, all of which have to be true."""
        own = (self.guard,) if self.guard else ()
        if self.base != "BRA":
            return own
        return own + tuple(operand for operand in self.operands[:-1] if PREDICATES.match(operand))

    @property
    def label(self) -> str:
        """What a branch, a call or the start of a scope names; empty for others."""
        named = self.base in _JUMPS and self.operands
        return self.operands[-1].strip("`() ") if named else ""

    @property
    def results(self) -> tuple[str, ...]:
        """Registers, predicates and ``CC`` (the carry) that it writes."""
        return results_of(self.opcode, self.operands)

    @property
    def reads(self) -> frozenset[str]:
        """What it reads of these, but for its guard."""
        return reads_of(self.opcode, self.operands)


@lru_cache(maxsize=2**12)
def unit_of(opcode: str) -> Unit:
    """Return the unit that executes an instruction; refuse one that is not known."""
    base = opcode.split(".")[0]
    if match := _ACCESS.match(base):
        if match[2] in ("C", "CU") or match[1] == "ULD":
            return "constant"
        return "shared" if match[2] in ("S", "SM") else "global"
    for name in (base.removeprefix("U"), base):
        if match := _FLOAT.match(name):
            return "other unit" if match["type"] == "D" else "core"
        if name == "MUFU":
            return "other unit"
        if name in _IMAGES:
            return "global"
        if name in _HAVE_RESULTS:
            return "core"
    message = f"the instruction {opcode} of NVIDIA's machine code is not known, and is not analyzed"
    raise CountingError(message)


@lru_cache(maxsize=2**12)
def results_of(opcode: str, operands: tuple[str, ...]) -> tuple[str, ...]:
    """Return the registers and predicates that an instruction writes.

    Predicates before the first register are results; behind it, those before the first operand that
    is none of them are carries out.
    """
    return tuple(each for each, _ in _results(opcode, operands) if each not in _NOTHING)


@lru_cache(maxsize=2**12)
def reads_of(opcode: str, operands: tuple[str, ...]) -> frozenset[str]:
    """Return the registers and predicates that an instruction reads, but for its guard."""
    taken = {position for _, position in _results(opcode, operands)}
    reads: set[str] = set()
    for position, operand in enumerate(operands):
        if position not in taken:
            for match in _NAMES.finditer(operand):
                name, kind = match[1], match[2]
                reads |= set(_wide(name, _width_read(opcode, operands, position, name + kind)))
    if ".X" in opcode and not any("P" in name for name in reads):
        reads.add("CC")
    return frozenset(reads)


def _results(opcode: str, operands: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield what an instruction writes, and the place of the operand that names it."""
    base = opcode.split(".")[0]
    access, plain = _ACCESS.match(base), base.removeprefix("U")
    if access is not None and access[1] in ("ST", "RED"):
        return
    if not operands or not _HAVE_RESULTS.get(plain, True):
        return
    place = 0
    most = 1 if base.endswith("CHK") else 2 if base.endswith(_TWO_PREDICATES) else len(operands)
    while place < min(most, len(operands)) and (match := PREDICATES.match(operands[place])):
        yield match[1], place
        place += 1
    if place == most or base == "R2P" or place == len(operands):
        return
    match = _REGISTER.match(operands[place])
    if match is None:
        return
    for name in _wide(match[1], _width_written(opcode)):
        yield name, place
    if ".CC" in operands[place]:
        yield "CC", place
    place += 1
    if base in (*_WITH_CARRIES, "VOTE", "VOTEU"):
        while place < len(operands) and (match := PREDICATES.match(operands[place])):
            if operands[place].startswith("!"):
                return
            yield match[1], place
            place += 1
            if base.startswith("VOTE"):
                return


def _wide(name: str, number: int) -> Iterator[str]:
    """Yield a register and those behind it that hold the rest of its value."""
    yield name
    match = re.match(r"(U?R)(\d+)$", name)
    for more in range(1, number if match else 1):
        assert match is not None
        yield f"{match[1]}{int(match[2]) + more}"


def _width_written(opcode: str) -> int:
    base, *modifiers = opcode.split(".")
    if _ACCESS.match(base):
        return _data_width(opcode)
    if base == "CS2R":
        return 1 if "32" in modifiers else 2
    types = [modifier for modifier in modifiers if re.fullmatch(r"[FSU]\d+", modifier)]
    if base.endswith("I2F"):
        return 2 if "F64" in modifiers else 1
    if base.endswith("F2I"):
        return 2 if {"S64", "U64"} & set(modifiers) else 1
    if base in ("F2F", "FRND"):
        return 2 if types[:1] == ["F64"] else 1
    return 2 if "WIDE" in modifiers or _is_wide(base, modifiers) else 1


def _width_read(opcode: str, operands: Sequence[str], place: int, name: str) -> int:
    base, *modifiers = opcode.split(".")
    if "[" in operands[place]:
        has_64 = ".64" in name or name.startswith("UR") or ".U32" not in name
        return 2 if ".64" in name or ("E" in modifiers and has_64) else 1
    if "P" in name.partition(".")[0]:
        return 1
    if _ACCESS.match(base):
        return _data_width(opcode)
    types = [modifier for modifier in modifiers if re.fullmatch(r"[FSU]\d+", modifier)]
    if base.endswith("I2F"):
        return 2 if {"S64", "U64"} & set(modifiers) else 1
    if base.endswith("F2I"):
        return 2 if "F64" in modifiers else 1
    if base in ("F2F", "FRND"):
        return 2 if types[-1:] == ["F64"] else 1
    if "WIDE" in modifiers or (base.removeprefix("U") == "IMAD" and "HI" in modifiers):
        registers = [p for p, modifier in enumerate(operands) if not PREDICATES.match(modifier)]
        return 2 if place == registers[-1] and len(registers) > 3 else 1
    return 2 if _is_wide(base, modifiers) else 1


def _is_wide(base: str, modifiers: Sequence[str]) -> bool:
    match = _FLOAT.match(base.removeprefix("U"))
    if match is not None:
        return match["type"] == "D" or (match["type"] == "F" and bool(match["lanes"]))
    return "64" in modifiers


def _data_width(opcode: str) -> int:
    size = _SIZES.search(opcode)
    return max(1, int(size[1]) // 32) if size else 1
