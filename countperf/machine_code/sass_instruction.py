"""Instructions of NVIDIA's machine code (SASS), read from listings.

Those of a function lie side by side from address 0 on: every 16 bytes since Volta, every 8 bytes
before, with a control word in front of each three (Maxwell, Pascal) or seven (Kepler). Memories
have OpenCL's names: ``load.local.32`` is CUDA's shared memory, ``load.private.32`` what CUDA calls
local memory, such as spilled registers.

Sources: NVIDIA, "CUDA Binary Utilities", section "Instruction Set Reference"; widths of operands as
nvdisasm 13 prints them for code of nvcc 13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from countperf.errors import CountingError, ParameterError

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
_SCOPES = ("SSY", "PBK", "PCNT", "BSSY")
_JUMPS = ("BRA", *_SCOPES, "CALL", "CAL", "JCAL")
_ENDS = ("EXIT", "BRA", "RET", "KILL", "BRX", "BRXU", "JMP", "JMX", "JMXU")
"""Instructions behind which a function may end."""


@dataclass(frozen=True, kw_only=True)
class SassInstruction:
    """An instruction."""

    opcode: str  # its name with modifiers
    operands: tuple[str, ...] = ()  # as they are printed
    guard: str = ""  # the predicate that guards it, ``!P0`` for its inverse
    target: int | None = None  # place of the instruction that it names
    address: int = 0  # its place in the code, byte
    with_previous: bool = False  # whether it is issued together with the one before

    @cached_property
    def base(self) -> str:
        """Its name without modifiers."""
        return self.opcode.split(".")[0]

    @cached_property
    def modifiers(self) -> frozenset[str]:
        """Words of its opcode behind the name."""
        return frozenset(self.opcode.split(".")[1:])

    @cached_property
    def name(self) -> str:
        """Its class; of an unknown instruction, an error."""
        if match := _ACCESS.match(self.base):
            return self._classify_access(match[1], match[2] or "")
        if self.operands[1:3] == ("-RZ", "RZ") or self.opcode.startswith("IMAD.MOV"):
            return "move"
        for name in (self.base.removeprefix("U"), self.base):
            if match := _FLOAT.match(name):
                lanes = 2 if match["lanes"] else 1
                return f"flop.{_ARITHMETIC[match['kind']]}.{_TYPES[match['type']]}.{lanes}"
            if name == "MUFU":
                kind = "sqrt" if "SQRT" in self.modifiers else "special"
                return f"flop.{kind}.{'f64' if '64H' in self.opcode else 'f32'}.1"
            if name in _CLASSES:
                return _CLASSES[name]
        raise CountingError(
            f"the instruction {self.opcode} of NVIDIA's machine code is not known, and is not"
            " counted"
        )

    def _classify_access(self, kind: str, space: str) -> str:
        if space in ("C", "CU") or kind == "ULD":
            return "load.constant"
        if kind in ("ATOM", "RED"):
            return f"atomic.{_SPACES[space]}"
        size = _SIZES.search(self.opcode)
        direction = "store" if kind == "ST" else "load"
        return f"{direction}.{_SPACES[space]}.{size[1] if size else 32}"

    @property
    def is_data(self) -> bool:
        """Whether it reads memory that kernels write."""
        return self.name.startswith(("load.", "atomic.")) and self.name != "load.constant"

    @cached_property
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
        return self.operands[-1].strip("`() ") if self.base in _JUMPS and self.operands else ""

    @cached_property
    def results(self) -> tuple[str, ...]:
        """Registers, predicates and ``CC`` (the carry) that it writes.

        Predicates before the first register are results; behind it, those before the first operand
        that is none of them are carries out.
        """
        return tuple(name for name, _ in self._find_results() if name not in _NOTHING)

    @cached_property
    def reads(self) -> frozenset[str]:
        """Registers, predicates and ``CC`` that it reads, but for its guard."""
        taken = {position for _, position in self._find_results()}
        reads: set[str] = set()
        for position, operand in enumerate(self.operands):
            if position not in taken:
                for match in _NAMES.finditer(operand):
                    name, kind = match[1], match[2]
                    reads |= set(_wide(name, self._width_read(position, name + kind)))
        if ".X" in self.opcode and not any("P" in name for name in reads):
            reads.add("CC")
        return frozenset(reads)

    def _find_results(self) -> Iterator[tuple[str, int]]:
        """Yield what it writes, and the place of the operand that names it."""
        operands, plain = self.operands, self.base.removeprefix("U")
        has_none = self.name.startswith(_WITHOUT_RESULT) and plain not in _WRITING
        if not operands or has_none or plain in ("RED", "REDG", "REDS"):
            return
        most = len(operands)
        if self.base.endswith(("CHK", *_TWO_PREDICATES)):
            most = min(most, 1 if self.base.endswith("CHK") else 2)
        index = 0
        while index < most and (match := PREDICATES.match(operands[index])):
            yield match[1], index
            index += 1
        if index == most or self.base == "R2P":
            return
        match = _REGISTER.match(operands[index])
        if match is None:
            return
        for name in _wide(match[1], self._width_written()):
            yield name, index
        if ".CC" in operands[index]:
            yield "CC", index
        is_vote = self.base.startswith("VOTE")
        if is_vote or self.base in _WITH_CARRIES:
            for place, operand in enumerate(operands[index + 1 :], start=index + 1):
                if operand.startswith("!") or not PREDICATES.match(operand):
                    return
                yield operand, place
                if is_vote:
                    return

    def _width_written(self) -> int:
        if _ACCESS.match(self.base):
            return self._data_width()
        if self.base == "CS2R":
            return 1 if "32" in self.modifiers else 2
        if _CONVERSION.match(self.base):
            return self._find_conversion_width(is_read=False)
        return 2 if "WIDE" in self.modifiers or self._is_wide() else 1

    def _width_read(self, index: int, name: str) -> int:
        base, modifiers, operands = self.base, self.modifiers, self.operands
        if "[" in operands[index]:
            has_64 = name.startswith("UR") or ".U32" not in name
            return 2 if ".64" in name or ("E" in modifiers and has_64) else 1
        if "P" in name.partition(".")[0]:
            return 1
        if _ACCESS.match(base):
            return self._data_width()
        if _CONVERSION.match(base):
            return self._find_conversion_width(is_read=True)
        if "WIDE" in modifiers or (base.removeprefix("U") == "IMAD" and "HI" in modifiers):
            registers = [place for place, text in enumerate(operands) if not PREDICATES.match(text)]
            return 2 if index == registers[-1] and len(registers) > 3 else 1
        return 2 if self._is_wide() else 1

    def _find_conversion_width(self, *, is_read: bool) -> int:
        if self.base.endswith(("I2F", "F2I")):
            wide = {"F64"} if self.base.endswith("F2I") is is_read else {"S64", "U64"}
            return 2 if wide & self.modifiers else 1
        types = re.findall(r"\.([FSU]\d+)\b", self.opcode)
        return 2 if types and types[-1 if is_read else 0] == "F64" else 1

    def _is_wide(self) -> bool:
        match = _FLOAT.match(self.base.removeprefix("U"))
        if match is not None:
            return match["type"] == "D" or (match["type"] == "F" and bool(match["lanes"]))
        return bool({"64", "S64", "U64"} & self.modifiers) and not self.base.endswith("SHF")

    def _data_width(self) -> int:
        size = _SIZES.search(self.opcode)
        return max(1, int(size[1]) // 32) if size else 1


def _wide(name: str, number: int) -> Iterator[str]:
    """Yield a register and those behind it that hold the rest of its value."""
    yield name
    for _ in range(1, number):
        yield (name := next_register(name))


def next_register(name: str) -> str:
    """Return the register that holds the upper half of 64 bits."""
    match = re.match(r"(U?R)(\d+)$", name)
    return name if match is None else f"{match[1]}{int(match[2]) + 1}"


_FUNCTION = re.compile(r"^\s*(?:Function\s*:\s*(.*\S)|\.text\.(\S+):)", re.MULTILINE)
_LABEL = re.compile(r"^\s*([.$][\w$.]+):")
_LINE = re.compile(
    r"^\s*(\{)?\s*/\*([0-9a-fA-F]+)\*/\s+(\{)?\s*(?:@(!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_.]*)\s*"
    r"([^;]*?)\s*(?:;\s*(\})?|(\}))"
)


def parse_sass(text: str) -> dict[str, list[SassInstruction]]:
    """Read the instructions of each function of a listing, in order."""
    codes: dict[str, list[SassInstruction]] = {}
    parts = ["kernel", "", *_FUNCTION.split(text)]
    for first, other, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        name = first or other
        code = _read_function(name, body)
        if code and name in codes:
            raise ParameterError(
                f"the listing has two functions {name}; pass that of one architecture, of one"
                " object file",
                parameter="sass",
            )
        codes |= {name: code} if code else {}
    if not codes:
        message = "no instruction in the listing; pass what cuobjdump -sass or nvdisasm prints"
        raise ParameterError(message, parameter="sass")
    return codes


def _read_function(name: str, text: str) -> list[SassInstruction]:
    code: list[SassInstruction] = []
    labels, in_braces = {f".text.{name}": 0}, False
    for line in text.splitlines():
        if (label := _LABEL.match(line)) is not None:
            labels[label[1]] = len(code)
        elif (match := _LINE.match(line)) is not None:
            opened = bool(match[1] or match[3])
            in_braces = in_braces or opened
            instruction = SassInstruction(
                opcode=match[5],
                operands=tuple(part.strip() for part in match[6].split(",")) if match[6] else (),
                guard=match[4] or "",
                address=int(match[2], 16),
                with_previous=in_braces and not opened,
            )
            _ = instruction.name  # refuses what is not known
            in_braces = in_braces and not (match[7] or match[8])
            code.append(instruction)
    if not code:
        return code
    labels |= _find_places(name, [instruction.address for instruction in code])
    for place, instruction in enumerate(code):
        if label := instruction.label:
            label = hex(int(label, 16)) if label.startswith("0x") else label
            code[place] = replace(instruction, target=labels.get(label))
    for instruction in code:
        stays = instruction.base in ("BRA", *_SCOPES) or instruction.label.startswith("$")
        if stays and instruction.target is None:
            what = f"{instruction.opcode} {', '.join(instruction.operands)}".strip()
            raise _make_damaged_error(
                name, f"{what} at {instruction.address:#x} leads to no line of it"
            )
    last = next((one for one in reversed(code) if one.base != "NOP"), None)
    if last is not None and (last.base not in _ENDS or last.is_conditional):
        raise _make_damaged_error(
            name, f"code goes on behind the last line, {last.opcode} at {last.address:#x}"
        )
    return code


def _find_places(name: str, addresses: Sequence[int]) -> dict[str, int]:
    """Return the places of addresses, and of control words, those of what follows; no gaps."""
    places: dict[str, int] = {}
    step = 16 if all(address % 16 == 0 for address in addresses) else 8
    control = 0  # bytes from a control word to the next
    if step == 8 and addresses[0]:
        control = 64 if any(address % 64 == 32 for address in addresses) else 32
    expected = 0
    for position, address in enumerate(addresses):
        if control and expected % control == 0:
            places[hex(expected)] = position
            expected += 8
        if address != expected:
            raise _make_damaged_error(name, f"{address:#x} stands where {expected:#x} is expected")
        places[hex(address)] = position
        expected += step
    return places


def _make_damaged_error(name: str, what: str) -> ParameterError:
    message = (
        f"function {name} of the listing: {what}: lines are missing, doubled or out of order; pass"
        " the whole listing, as cuobjdump -sass or nvdisasm prints it"
    )
    return ParameterError(message, parameter="sass")
