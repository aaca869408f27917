"""Instructions of NVIDIA's machine code (SASS), and values that the 32 lanes of a sub-group hold.

A value is an array of 32 integers: 32 bits each, unsigned; ``UNKNOWN`` in lanes where it comes from
data, and below it where it comes from an instruction that is not followed, though no data decides
it. Predicates are 0 and 1. Operands are text as ``nvdisasm`` prints it: registers with a sign,
halves (``.H1``), constants of bank 0, immediates.

Classes have the names that `countperf.machine_code.classify_x86` gives. Memories have OpenCL's
names: ``load.local.32`` is CUDA's shared memory, ``load.private.32`` what CUDA calls local memory,
such as spilled registers. Atomic accesses are ``atomic.<memory>``.

Sources: NVIDIA, "CUDA Binary Utilities", section "Instruction Set Reference"; widths of operands as
nvdisasm 13 prints them for code of nvcc 13.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from countperf.errors import CountingError

PREDICATES = re.compile(r"^!?(U?P(?:\d|T))$")
_REGISTER = re.compile(r"^-?\|?(U?R(?:\d+|Z))\b")
_NAMES = re.compile(r"\b(U?R\d+|U?P\d)\b((?:\.\w+)*)")
_NOTHING = ("RZ", "URZ", "PT", "UPT")
_SIZES = re.compile(r"\.(?:U|S)?(8|16|64|96|128|256)\b")
_SPACES = {"G": "global", "S": "local", "SM": "local", "L": "private", "": "global"}
_ACCESS = re.compile(r"(U?LD|ST|ATOM|RED)(G|S|L|C|CU|SM)?$")
_TYPES = {"F": "f32", "D": "f64", "H": "f16"}
_ARITHMETIC = {
    "ADD": "add",
    "MUL": "mul",
    "FMA": "fma",
    "MNMX": "minmax",
    **dict.fromkeys(("SETP", "SET", "CHK", "CMP"), "compare"),
}
_CONVERSION = re.compile(r"U?(I2F|F2I)$|F2F$|FRND$")
_FLOAT = re.compile(
    r"(?P<type>[FDH])(?P<kind>ADD|MUL|FMA|MNMX|SETP|SET|CHK|CMP)(?P<lanes>2?)3?(?:_?32I)?$"
)
_CLASSES = {
    name: kind
    for kind, names in {
        "convert": "I2F I2FP F2I F2F F2FP I2I FRND F2IP I2IP",
        "move": "MOV MOV32I SEL FSEL S2R S2UR CS2R CS2UR R2UR R2P P2R PRMT UR2UP UP2UR",
        "branch": "BRA EXIT SSY SYNC PBK BRK PCNT CONT CAL CALL JCAL RET BSSY BSYNC BREAK BRX"
        " BRXU JMP JMX JMXU WARPSYNC BPT KILL BMOV",
        "shuffle": "SHFL VOTE MATCH REDUX CREDUX",
        "barrier": "BAR",
        "load.image": "TEX TEXS TLD TLDS TLD4 SULD",
        "store.image": "SUST",
        "other": "NOP DEPBAR LDGDEPBAR MEMBAR ERRBAR CCTL CCTLL YIELD NANOSLEEP PSETP PSET PLOP3"
        " FENCE PREEXIT ACQBULK B2R R2B LEPC CGAERRBAR",
        "iop.scalar": "IADD IADD3 IADD32I IMAD IMAD32I IMADSP IMUL IMUL32I ISCADD ISCADD32I LEA LOP"
        " LOP3 LOP32I SHF SHL SHR ISETP ISET ICMP IMNMX IABS IDP FLO POPC BREV BFE BFI BMSK SGXT"
        " XMAD VIADD VIADDMNMX VIMNMX VIMNMX3 VABSDIFF VABSDIFF4 CSET CSETP RRO",
    }.items()
    for name in names.split()
}
"""Classes by name; a name with ``U`` in front, of the uniform unit, is in the same class."""

_WRITING = ("PSETP", "PSET", "PLOP3", "B2R", "LEPC", "BMOV")
_TWO_PREDICATES = ("SETP", "PLOP3")
_WITH_CARRIES = ("IADD3", "UIADD3", "LEA", "ULEA", "IADD", "IMAD", "UIMAD")
_WITHOUT_RESULT = ("store", "branch", "barrier", "other")
CALLS = ("CALL", "CAL", "JCAL", "RET", "BRX", "JMP", "JMX")
"""Calls and computed jumps, which are not followed."""
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
    def name(self) -> str:
        """Its class, see `classify_sass`."""
        return classify_sass(self.opcode, self.operands)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Predicates, all of which have to be true."""
        own = (self.guard,) if self.guard else ()
        if self.base != "BRA":
            return own
        return own + tuple(operand for operand in self.operands[:-1] if PREDICATES.match(operand))

    @property
    def is_conditional(self) -> bool:
        """Whether a predicate decides that it is executed."""
        return not {*self.conditions} <= {"PT", "UPT"}

    @property
    def label(self) -> str:
        """Label that a branch, a call or the start of a scope names; empty for others."""
        named = self.base in _JUMPS and self.operands
        return self.operands[-1].strip("`() ") if named else ""

    @property
    def results(self) -> tuple[str, ...]:
        """Registers, predicates and ``CC`` (the carry) that it writes."""
        return results_of(self.opcode, self.operands)

    @property
    def reads(self) -> frozenset[str]:
        """Registers, predicates and ``CC`` that it reads, but for its guard."""
        return reads_of(self.opcode, self.operands)


@lru_cache(maxsize=2**12)
def classify_sass(opcode: str, operands: tuple[str, ...] = ()) -> str:
    """Return the class of an instruction."""
    base = opcode.split(".")[0]
    if match := _ACCESS.match(base):
        return _access(match[1], match[2] or "", opcode)
    if operands[1:3] == ("-RZ", "RZ") or opcode.startswith("IMAD.MOV"):
        return "move"
    names = [base.removeprefix("U"), base] if base.startswith("U") else [base]
    for name in names:
        if match := _FLOAT.match(name):
            lanes = 2 if match["lanes"] else 1
            return f"flop.{_ARITHMETIC[match['kind']]}.{_TYPES[match['type']]}.{lanes}"
        if name == "MUFU":
            kind = "sqrt" if ".SQRT" in opcode else "special"
            return f"flop.{kind}.{'f64' if '64H' in opcode else 'f32'}.1"
        if name in _CLASSES:
            return _CLASSES[name]
    message = f"the instruction {opcode} of NVIDIA's machine code is not known, and is not counted"
    raise CountingError(message)


def _access(kind: str, space: str, opcode: str) -> str:
    if space in ("C", "CU") or kind == "ULD":
        return "load.constant"
    where = _SPACES[space]
    if kind in ("ATOM", "RED"):
        return f"atomic.{where}"
    size = _SIZES.search(opcode)
    direction = "store" if kind == "ST" else "load"
    return f"{direction}.{where}.{size[1] if size else 32}"


@lru_cache(maxsize=2**12)
def results_of(opcode: str, operands: tuple[str, ...]) -> tuple[str, ...]:
    """Return the registers and predicates that an instruction writes.

    Predicates before the first register are results; behind it, those before the first operand that
    is none of them are carries out.
    """
    return tuple(name for name, _ in _results(opcode, operands) if name not in _NOTHING)


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
    has_none = classify_sass(opcode, tuple(operands)).startswith(_WITHOUT_RESULT)
    plain = base.removeprefix("U")
    if not operands or (has_none and plain not in _WRITING) or plain in ("RED", "REDG", "REDS"):
        return
    index = 0
    most = 1 if base.endswith("CHK") else 2 if base.endswith(_TWO_PREDICATES) else len(operands)
    while index < min(most, len(operands)) and (match := PREDICATES.match(operands[index])):
        yield match[1], index
        index += 1
    if index == most or base == "R2P" or index == len(operands):
        return
    match = _REGISTER.match(operands[index])
    if match is None:
        return
    for name in _wide(match[1], _width_written(opcode)):
        yield name, index
    if ".CC" in operands[index]:
        yield "CC", index
    index += 1
    if base in (*_WITH_CARRIES, "VOTE", "VOTEU"):
        while index < len(operands) and (match := PREDICATES.match(operands[index])):
            if operands[index].startswith("!"):
                return
            yield match[1], index
            index += 1
            if base.startswith("VOTE"):
                return


def _wide(name: str, number: int) -> Iterator[str]:
    """Yield a register and those behind it that hold the rest of its value."""
    yield name
    for _ in range(1, number):
        yield (name := next_register(name))


def _width_written(opcode: str) -> int:
    base, *modifiers = opcode.split(".")
    if _ACCESS.match(base):
        return _data_width(opcode)
    if base == "CS2R":
        return 1 if "32" in modifiers else 2
    if _CONVERSION.match(base):
        return _find_conversion_width(base, modifiers, is_read=False)
    return 2 if "WIDE" in modifiers or _is_wide(base, modifiers) else 1


def _width_read(opcode: str, operands: Sequence[str], index: int, name: str) -> int:
    base, *modifiers = opcode.split(".")
    if "[" in operands[index]:
        has_64 = name.startswith("UR") or ".U32" not in name
        return 2 if ".64" in name or ("E" in modifiers and has_64) else 1
    if "P" in name.partition(".")[0]:
        return 1
    if _ACCESS.match(base):
        return _data_width(opcode)
    if _CONVERSION.match(base):
        return _find_conversion_width(base, modifiers, is_read=True)
    if "WIDE" in modifiers or (base.removeprefix("U") == "IMAD" and "HI" in modifiers):
        registers = [p for p, modifier in enumerate(operands) if not PREDICATES.match(modifier)]
        return 2 if index == registers[-1] and len(registers) > 3 else 1
    return 2 if _is_wide(base, modifiers) else 1


def _find_conversion_width(base: str, modifiers: Sequence[str], *, is_read: bool) -> int:
    if base.endswith(("I2F", "F2I")):
        wide = {"F64"} if base.endswith("F2I") is is_read else {"S64", "U64"}
        return 2 if wide & set(modifiers) else 1
    types = [modifier for modifier in modifiers if re.fullmatch(r"[FSU]\d+", modifier)]
    return 2 if types and types[-1 if is_read else 0] == "F64" else 1


def _is_wide(base: str, modifiers: Sequence[str]) -> bool:
    match = _FLOAT.match(base.removeprefix("U"))
    if match is not None:
        return match["type"] == "D" or (match["type"] == "F" and bool(match["lanes"]))
    return bool({"64", "S64", "U64"} & set(modifiers)) and not base.endswith("SHF")


def _data_width(opcode: str) -> int:
    size = _SIZES.search(opcode)
    return max(1, int(size[1]) // 32) if size else 1


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
            value = self._name_operand(match["name"])
        known = value >= 0
        taken = value
        if "|" in operand:
            taken = np.abs(signed(taken)) & MASK
        if match["sign"]:
            taken = {"-": -taken & MASK, "~": ~taken & MASK, "!": 1 - taken}[match["sign"]]
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

    def _constant(self, offset: int, operand: str) -> Lanes:
        word = offset & ~3
        if word not in self.constants:
            return self.not_followed(operand)
        value = self.constants[word]
        return unknown() if value is None else lanes_of(value >> 8 * (offset - word))

    def _name_operand(self, name: str) -> Lanes:
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
            self.registers[name] = np.where(active, value, self._name_operand(name))


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
    # what data decides is data
    lost = np.max([np.where(lanes < 0, lanes, _LOWEST) for lanes in inputs], axis=0)
    return np.where(lost == _LOWEST, value & MASK, lost)
