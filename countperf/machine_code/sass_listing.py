"""Listings of NVIDIA machine code (SASS), read into instructions.

Instructions of a function lie side by side from address 0 on: every 16 bytes since Volta, every 8
bytes before, with a control word in front of each three (Maxwell, Pascal) or seven (Kepler). Code
with a gap, out of order, or that runs past its end is refused: lines are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from countperf.errors import ParameterError
from countperf.machine_code.sass_instruction import SassInstruction

_ARCHITECTURE = re.compile(r"^\s*(?:code for |arch = |\.target\s+)(sm_\w+)")
_FUNCTION = re.compile(r"^\s*(?:Function\s*:\s*(.*\S)|\.text\.(\S+):)")
_LABEL = re.compile(r"^\s*([.$][\w$.]+):")
_BEGUN = re.compile(r"^\s*\{?\s*/\*[0-9a-fA-F]+\*/\s+[{@A-Z]")
_LINE = re.compile(
    r"^\s*(\{)?\s*/\*([0-9a-fA-F]+)\*/\s+(\{)?\s*(?:@(!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_.]*)\s*"
    r"([^;]*?)\s*(?:;\s*(\})?|(\}))"
)
_SCOPES = ("SSY", "PBK", "PCNT", "BSSY")
_ENDS = ("EXIT", "BRA", "RET", "KILL", "BRX", "BRXU", "JMP", "JMX", "JMXU")
"""Instructions behind which a function may end."""


def parse_sass(text: str) -> dict[str, list[SassInstruction]]:
    """Read the instructions of each function of a listing, in order."""
    codes: dict[str, list[SassInstruction]] = {}
    architectures = {match[1] for line in text.splitlines() if (match := _ARCHITECTURE.match(line))}
    for name, architecture, lines in _functions(text):
        code = _code(name, lines)
        if not code:
            continue
        key = f"{name} ({architecture})" if len(architectures) > 1 else name
        if key in codes:
            message = f"the listing has two functions {key}; pass that of one object file"
            raise ParameterError(message, parameter="text")
        codes[key] = code
    if not codes:
        message = "no instruction in the listing; pass what cuobjdump -sass or nvdisasm prints"
        raise ParameterError(message, parameter="text")
    return codes


def _functions(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name of each function, its architecture, and its lines."""
    name, architecture = "kernel", ""
    lines: list[str] = []
    for line in text.splitlines():
        title, target = _FUNCTION.match(line), _ARCHITECTURE.match(line)
        if title or target:
            yield name, architecture, lines
            lines = []
        name = title[1] or title[2] if title else name
        architecture = target[1] if target and not title else architecture
        lines.append(line)
    yield name, architecture, lines


def _code(name: str, lines: list[str]) -> list[SassInstruction]:
    code: list[SassInstruction] = []
    labels: dict[str, int] = {}
    in_braces = False
    for line in lines:
        if (label := _LABEL.match(line)) is not None:
            if label[1] in labels:
                raise _make_damaged_error(name, f"{label[1]} stands twice")
            labels[label[1]] = len(code)
            continue
        match = _LINE.match(line)
        if match is None:
            if _BEGUN.match(line):
                raise _make_damaged_error(name, f"{line.strip()!r} is no whole instruction")
            continue
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
    labels |= _places(name, [instruction.address for instruction in code])
    code = [_with_target(instruction, labels) for instruction in code]
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


def _places(name: str, addresses: list[int]) -> dict[str, int]:
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


def _with_target(instruction: SassInstruction, labels: dict[str, int]) -> SassInstruction:
    name = instruction.label
    name = hex(int(name, 16)) if name.startswith("0x") else name
    return replace(instruction, target=labels.get(name)) if name else instruction
