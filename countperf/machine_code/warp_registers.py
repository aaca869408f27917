"""Registers and predicates that instructions of NVIDIA's machine code write and read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from countperf.machine_code.warp_state import PREDICATES, next_register, register_of

_NO_RESULT = (
    *("ST", "STG", "STS", "STL", "RED", "BRA", "EXIT", "BAR", "NOP", "SYNC", "BSYNC", "SSY"),
    *("BSSY", "PBK", "PCNT", "BRK", "CONT", "DEPBAR", "MEMBAR", "RET", "CALL", "CAL", "JCAL"),
    *("WARPSYNC", "ERRBAR", "CCTL", "YIELD", "BREAK"),
)
_REGISTERS = re.compile(r"^(U?R(?:\d+|Z))(?:\.\w+)*$")


def results_of(opcode: str, operands: Sequence[str]) -> tuple[str, ...]:
    """Return the registers and predicates that an instruction writes.

    Predicates before the first register are results; behind it, those before the first operand that
    is none of them are carries out.
    """
    base = opcode.split(".")[0]
    if base in _NO_RESULT or not operands:
        return ()
    found: list[str] = []
    if base.endswith(("SETP", "CHK")) or base in ("PLOP3", "UPLOP3", "VOTE", "VOTEU", "R2P"):
        leading = operands[:2] if base not in ("FCHK",) else operands[:1]
        found += [match[1] for each in leading if (match := PREDICATES.match(each))]
        return tuple(each for each in found if each not in ("PT", "UPT"))
    rest = list(operands)
    while rest and (match := PREDICATES.match(rest[0])):
        found.append(match[1])
        rest.pop(0)
    if rest and (match := _REGISTERS.match(rest[0])):
        found.append(match[1])
        if ".CC" in rest[0]:
            found.append("CC")
        if re.search(r"\.(?:64|WIDE|128|96)\b", opcode) and match[1] not in ("RZ", "URZ"):
            number = 4 if ".128" in opcode else 2
            for _ in range(number - 1):
                found.append(next_register(found[-1]))
        rest.pop(0)
        while rest and (match := PREDICATES.match(rest[0])) and not rest[0].startswith("!"):
            if base not in ("IADD3", "UIADD3", "LEA", "ULEA", "IADD", "IMAD", "UIMAD"):
                break
            found.append(match[1])
            rest.pop(0)
    return tuple(each for each in found if each not in ("RZ", "URZ", "PT", "UPT"))


_NAMES = re.compile(r"\bU?R\d+\b|\bU?P\d\b")


def reads_of(opcode: str, operands: Sequence[str]) -> frozenset[str]:
    """Return the registers and predicates that an instruction reads, but for its guard.

    A wide value stands in two registers.
    """
    own = list(results_of(opcode, operands))
    found: set[str] = set()
    for each in operands:
        name = register_of(each)
        if name in own:
            own.remove(name)
            continue
        found |= set(_NAMES.findall(each))
    if re.search(r"\.(?:WIDE|64|U64|S64)\b|^U?IMAD\.HI\b", opcode):
        found |= {next_register(name) for name in found}
    if ".X" in opcode and not any(name.startswith(("P", "UP")) for name in found):
        found.add("CC")
    return frozenset(found)
