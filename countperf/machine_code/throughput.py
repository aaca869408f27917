"""Cycles of code on a reference processor, by LLVM's machine code analyzer (llvm-mca).

Each block is taken to be repeated; memory never waits. Processors have begun what follows before a
short loop ends: an iteration of the loop around it, with all that is executed inside, is also a
block if it is short enough.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from countperf.errors import DeviceError
from countperf.machine_code.interpreter import MachineProgram
from countperf.machine_code.tools import ANALYZER_ADVICE, find_analyzer, run_program

PROCESSOR = "znver4"  # the processor of reference: it has vectors of 512 bits

_REPETITIONS = 60
_OPTIONS = (
    "-mtriple=x86_64",
    f"-mcpu={PROCESSOR}",
    f"-iterations={_REPETITIONS}",
    "-resource-pressure=0",
    "-instruction-info=0",
)
SMALLEST_SHARE = 2e-4  # smallest share of all executed instructions for which a block is analyzed
LONGEST_ITERATION = 512
"""Most instructions of an iteration, with those of loops inside, that overlaps the next one: about
as many as processors have in flight. Of 128, 512 and 2048, left-out classes are predicted best."""
_AT_ONCE, _MOST_KEPT = 200, 20_000
_MESSAGE_LIMIT = 800
_LABEL = ".L0"
_LEFT_OUT = ("nop", "data16", "ret", "ud2", "hlt", "endbr", "xchg", "call")
_NEXT_TO_CODE = re.compile(r"-?0x[0-9a-f]+\(\)")
_SEGMENT = re.compile(r"%[c-gs]s:(?=\()")
_FIGURES = re.compile(
    r"Instructions:\s+\d+\nTotal Cycles:\s+(\d+)\nTotal uOps:\s+(\d+)\n.*?"
    r"Block RThroughput:\s+([\d.]+)",
    re.DOTALL,
)
_UNKNOWN_PROCESSOR = "is not a recognized processor"
_PROBLEM = re.compile(r"<stdin>:(\d+):\d+: error")


class Cycles(NamedTuple):
    """Mean cycles of a repeated block, and cycles of its busiest resource."""

    cycles: float
    throughput: float
    operations: float


BlockText = tuple[str, ...]
_ANALYZED: dict[BlockText, Cycles] = {}  # blocks that were analyzed already


class AnalyzedBlock(NamedTuple):
    """Instructions that are executed together, as the analyzer takes them."""

    text: BlockText
    times: float  # how often they are executed
    kind: str  # ``loop`` if they repeat themselves, ``joined`` if loops inside are joined


def cycles_of(program: MachineProgram, executed: Mapping[int, int]) -> Counter[str]:
    """Return what executing lines takes on the processor of reference."""
    blocks = blocks_of(program, executed)
    analyze(blocks)
    cycles: Counter[str] = Counter()
    for text, times, kind in blocks:
        names = ("", "_throughput", "_operations")
        by_name: dict[str, float] = dict(zip(names, _ANALYZED[text], strict=True))
        if kind == "joined":
            by_name = {"_overlapped": by_name[""]}
        elif kind == "loop":
            by_name["_loop"] = by_name[""]
        cycles.update({f"cycles{name}": round(times * by) for name, by in by_name.items()})
    return cycles


def blocks_of(program: MachineProgram, executed: Mapping[int, int]) -> list[AnalyzedBlock]:
    """Return the blocks that matter, one by one and with short loops joined to what is around."""
    least = SMALLEST_SHARE * sum(executed.values())
    blocks = [
        AnalyzedBlock(tuple(_text(program, lines)), executed[lines[0]], "loop" if is_loop else "")
        for lines, is_loop in program.straight(executed)
        if executed[lines[0]] * len(lines) >= least
    ]
    blocks += [
        AnalyzedBlock(tuple(_text(program, lines)), part.executed / len(lines), "joined")
        for part in iterations(program, executed, LONGEST_ITERATION)
        if part.executed >= least and (lines := part.iteration())
    ]
    return [block for block in blocks if block.text]


def analyze(blocks: Iterable[AnalyzedBlock]) -> None:
    """Analyze blocks that are not known yet, all in one run of the analyzer (up to 200 blocks)."""
    if len(_ANALYZED) > _MOST_KEPT:
        _ANALYZED.clear()
    new = sorted({block.text for block in blocks} - _ANALYZED.keys())
    for first in range(0, len(new), _AT_ONCE):
        _ANALYZED.update(_analyze_texts(new[first : first + _AT_ONCE]))


def _analyze_texts(texts: Iterable[BlockText]) -> dict[BlockText, Cycles]:
    """Analyze blocks, but for what the analyzer does not know; of nothing else, each takes 1."""
    figures = {text: Cycles(*(float(len(text)),) * 3) for text in texts}
    known = {text: [*text] for text in figures}
    while known:
        outcome = _run([*known.values()])
        if len(found := _FIGURES.findall(outcome.stdout)) == len(known):
            for text, (cycles, operations, throughput) in zip(known, found, strict=True):
                figures[text] = Cycles(
                    int(cycles) / _REPETITIONS, float(throughput), int(operations) / _REPETITIONS
                )
            break
        problems, number = {int(line) for line in _PROBLEM.findall(outcome.stderr)}, 0
        before, known = known, dict[BlockText, list[str]]()
        for text, lines in before.items():
            numbered = enumerate(lines, start=number + 2)  # behind the line that begins a block
            known[text] = [line for place, line in numbered if place not in problems]
            number += len(lines) + 2
        if known == before:
            said, first = outcome.stderr.strip()[-_MESSAGE_LIMIT:], next(iter(known))[0]
            raise DeviceError(f"llvm-mca does not analyze {first!r} ...: {said}; {ANALYZER_ADVICE}")
        known = {text: lines for text, lines in known.items() if lines}
    return figures


def _text(program: MachineProgram, lines: Iterable[int]) -> Iterator[str]:
    for number in lines:
        name, operands = program.lines[number].mnemonic, program.lines[number].operands
        if name.startswith(_LEFT_OUT) or operands.startswith("*"):
            continue
        if name[0] == "j":
            yield f"{name} {_LABEL}"
        else:
            operands = _SEGMENT.sub("", _NEXT_TO_CODE.sub("0(%rip)", operands))
            yield f"{name} {operands}".rstrip()


def _run(blocks: Sequence[Sequence[str]]) -> subprocess.CompletedProcess[str]:
    program = find_analyzer()
    if program is None:
        raise DeviceError(f"no llvm-mca found that knows {PROCESSOR}: {ANALYZER_ADVICE}")
    regions = (
        "\n".join((f"# LLVM-MCA-BEGIN {number}", *lines, f"# LLVM-MCA-END {number}"))
        for number, lines in enumerate(blocks)
    )
    outcome = run_program(program, *_OPTIONS, input="\n".join((*regions, f"{_LABEL}:\n")))
    if _UNKNOWN_PROCESSOR in outcome.stderr:
        raise DeviceError(f"{program} does not know {PROCESSOR}: {ANALYZER_ADVICE}")
    return outcome


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instructions that are executed one after the other, or a loop of stretches."""

    count: int  # how often it is executed; a loop: how many iterations
    lines: tuple[int, ...] = ()  # numbers of its lines, none of a loop
    parts: tuple[Stretch, ...] = ()  # what an iteration of a loop executes

    @property
    def executed(self) -> int:
        """Number of executed instructions."""
        return self.count * len(self.lines) + sum(part.executed for part in self.parts)

    def times(self, part: Stretch) -> int:
        """Return how often an iteration executes a part, rounded."""
        return (2 * part.count + self.count) // (2 * self.count)

    @property
    def length(self) -> int:
        """Number of instructions of an iteration, with all iterations of loops inside."""
        return len(self.lines) + sum(self.times(part) * part.length for part in self.parts)

    def iteration(self) -> list[int]:
        """Return the lines of an iteration, those of loops inside as often as they are executed."""
        lines = list(self.lines)
        for part in self.parts:
            lines += part.iteration() * self.times(part)
        return lines


def iterations(
    code: MachineProgram, executed: Mapping[int, int], longest: int
) -> Iterator[Stretch]:
    """Yield loops whose iterations have at most so many instructions, and what is outside of them.

    Loops inside belong to an iteration of the loop around them where they are short enough.
    """
    straight = [Stretch(executed[lines[0]], lines) for lines, _ in code.straight(executed)]
    ends: dict[int, list[int]] = {}
    for position, stretch in enumerate(straight):
        target = code.targets.get(stretch.lines[-1])
        if target is not None and target <= stretch.lines[-1]:
            ends.setdefault(target, []).append(position)
    waiting = _nest_parts(straight, range(len(straight)), ends)[::-1]
    while waiting:
        part = waiting.pop()
        if part.parts and part.length > longest:
            waiting += part.parts[::-1]
        else:
            yield part


def _nest_parts(
    straight: Sequence[Stretch], where: range, ends: Mapping[int, Sequence[int]], within: int = -1
) -> list[Stretch]:
    """Return the parts of code; those of a loop that ends at ``within`` end before.

    Of loops that begin alike, the last is around the others if it ends more seldom than they begin.
    """
    parts: list[Stretch] = []
    position = where.start
    while position < where.stop:
        part = straight[position]
        limit = within if position == where.start and within >= 0 else where.stop
        back = [end for end in ends.get(part.lines[0], ()) if position <= end < limit]
        if back:
            end = back[-1]
            is_outer = len(back) > 1 and 2 * straight[end].count < part.count
            count = straight[end].count if is_outer else part.count
            first, position = position, end
            inside = range(first, end + 1), ends, end if is_outer else first
            part = Stretch(count, parts=tuple(_nest_parts(straight, *inside)))
        parts.append(part)
        position += 1
    return parts
