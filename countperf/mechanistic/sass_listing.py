"""Listings of NVIDIA machine code (SASS), read into instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from countperf.errors import ParameterError
from countperf.machine_code.sass_instruction import SassInstruction

_ARCHITECTURE = re.compile(r"^\s*(?:code for |arch = |\.target\s+)(sm_\w+)")
_FUNCTION = re.compile(r"^\s*(?:Function\s*:\s*(.*\S)|\.text\.(\S+):)")
_LABEL = re.compile(r"^\s*(\.L_\w+):")
_LINE = re.compile(
    r"^\s*(\{)?\s*/\*([0-9a-fA-F]+)\*/\s+(\{)?\s*(?:@(!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_.]*)\s*"
    r"([^;]*?)\s*(?:;\s*(\})?|(\}))"
)


@dataclass(frozen=True, slots=True)
class SassCode:
    """A function of a listing."""

    instructions: list[SassInstruction]  # in order


def parse_sass(text: str) -> dict[str, SassCode]:
    """Read the functions of a listing."""
    codes: dict[str, SassCode] = {}
    architectures = {match[1] for line in text.splitlines() if (match := _ARCHITECTURE.match(line))}
    for name, architecture, lines in _functions(text):
        code = _code(lines)
        if not code.instructions:
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
        title = _FUNCTION.match(line)
        target = _ARCHITECTURE.match(line)
        if title or target:
            yield name, architecture, lines
            lines = []
        if title:
            name = title[1] or title[2]
        elif target:
            architecture = target[1]
        lines.append(line)
    yield name, architecture, lines


def _code(lines: list[str]) -> SassCode:
    code: list[SassInstruction] = []
    labels: dict[str, int] = {}
    in_braces = opened = False
    for line in lines:
        if (label := _LABEL.match(line)) is not None:
            labels[label[1]] = len(code)
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        opens = bool(match[1] or match[3])
        in_braces, opened = (True, True) if opens else (in_braces, False)
        instruction = SassInstruction(
            opcode=match[5],
            operands=tuple(part.strip() for part in match[6].split(",")) if match[6] else (),
            guard=match[4] or "",
            address=int(match[2], 16),
            with_previous=in_braces and not opened,
        )
        _ = instruction.name  # refuses what is not known
        if match[7] or match[8]:
            in_braces = False
        code.append(instruction)
    labels |= {hex(instruction.address): position for position, instruction in enumerate(code)}
    return SassCode([_with_target(instruction, labels) for instruction in code])


def _with_target(instruction: SassInstruction, labels: dict[str, int]) -> SassInstruction:
    name = instruction.label
    name = hex(int(name, 16)) if name.startswith("0x") else name
    return replace(instruction, target=labels.get(name)) if name else instruction
