"""Cycles of code on a reference processor, by LLVM's machine code analyzer.

Each block is taken to be repeated, so that results wait for those of the repetition before where
registers say so; memory never waits. Sums over blocks take a loop as it would be if it never ended;
where its trip counts are small, processors have begun what follows before it ends. So an iteration
of the loop around it, with all that is executed inside, is also a block if it is short enough.

Source: LLVM, "llvm-mca - LLVM Machine Code Analyzer".
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

PROCESSOR = "znver4"
"""The processor of reference: it has vectors of 512 bits."""

_REPETITIONS = 60
_OPTIONS = (
    "-mtriple=x86_64",
    f"-mcpu={PROCESSOR}",
    f"-iterations={_REPETITIONS}",
    "-resource-pressure=0",
    "-instruction-info=0",
)
SMALLEST_SHARE = 2e-4
"""Smallest share of all executed instructions for which a block is analyzed."""
LONGEST_ITERATION = 512
"""Most instructions of an iteration, with those of loops inside, that overlaps the next one: about
as many as processors have in flight. Of 128, 512 and 2048, with it left-out classes are predicted
best (PoCL on Zen 3); penalties for branches that end such loops did not help."""
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
_ANALYZED: dict[BlockText, Cycles] = {}
"""Blocks that were analyzed already."""


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
        figures = _ANALYZED[text]
        if kind == "joined":
            cycles["cycles_overlapped"] += round(times * figures.cycles)
            continue
        cycles["cycles"] += round(times * figures.cycles)
        cycles["cycles_throughput"] += round(times * figures.throughput)
        cycles["cycles_operations"] += round(times * figures.operations)
        if kind == "loop":
            cycles["cycles_loop"] += round(times * figures.cycles)
    return cycles


def blocks_of(program: MachineProgram, executed: Mapping[int, int]) -> list[AnalyzedBlock]:
    """Return the blocks that matter, one by one and with short loops joined to what is around."""
    least = SMALLEST_SHARE * sum(executed.values())
    blocks = [
        AnalyzedBlock(_text(program, lines), executed[lines[0]], "loop" if is_loop else "")
        for lines, is_loop in program.straight(executed)
        if executed[lines[0]] * len(lines) >= least
    ]
    blocks += [
        AnalyzedBlock(_text(program, lines), part.executed / len(lines), "joined")
        for part in iterations(program, executed, LONGEST_ITERATION)
        if part.executed >= least and (lines := part.iteration())
    ]
    return [block for block in blocks if block.text]


def analyze(blocks: Iterable[AnalyzedBlock]) -> None:
    """Analyze blocks that are not known yet, all in one run of the analyzer (up to 200 blocks)."""
    texts = {block.text for block in blocks}
    if len(_ANALYZED) > _MOST_KEPT:
        _ANALYZED.clear()
    new = sorted(texts - _ANALYZED.keys())
    for first in range(0, len(new), _AT_ONCE):
        some = new[first : first + _AT_ONCE]
        figures = _figures(_run(some))
        if len(figures) != len(some):
            figures = [_alone(block) for block in some]
        _ANALYZED.update(zip(some, figures, strict=True))


def _text(program: MachineProgram, lines: Iterable[int]) -> BlockText:
    texts: list[str] = []
    for number in lines:
        name, operands = program.lines[number].mnemonic, program.lines[number].operands
        if name.startswith(_LEFT_OUT) or operands.startswith("*"):
            continue
        if name[0] == "j":
            texts.append(f"{name} {_LABEL}")
        else:
            operands = _SEGMENT.sub("", _NEXT_TO_CODE.sub("0(%rip)", operands))
            texts.append(f"{name} {operands}".rstrip())
    return tuple(texts)


def _alone(block: BlockText) -> Cycles:
    """Analyze a block that may have instructions that the analyzer does not know: without them.

    If it knows none, each takes a cycle.
    """
    lines = list(block)
    while lines:
        outcome = _run([lines])
        figures = _figures(outcome)
        if figures:
            return figures[0]
        problems = {int(number) for number in _PROBLEM.findall(outcome.stderr)}
        known = [line for number, line in enumerate(lines, start=2) if number not in problems]
        if len(known) == len(lines):
            said = outcome.stderr.strip()[-_MESSAGE_LIMIT:]
            raise DeviceError(
                f"llvm-mca does not analyze {lines[0]!r} ...: {said}; {ANALYZER_ADVICE}"
            )
        lines = known
    return Cycles(*(float(len(block)),) * 3)


def _figures(outcome: subprocess.CompletedProcess[str]) -> list[Cycles]:
    return [
        Cycles(int(cycles) / _REPETITIONS, float(throughput), int(operations) / _REPETITIONS)
        for cycles, operations, throughput in _FIGURES.findall(outcome.stdout)
    ]


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


# {{{ loops within each other, read from branches backward


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

    Of loops that begin alike, the last one is around the others if it ends its iterations more
    seldom than they begin; else all end iterations of one loop.
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
            inside = range(position, end + 1)
            parts.append(
                Stretch(
                    count,
                    (),
                    tuple(_nest_parts(straight, inside, ends, end if is_outer else position)),
                )
            )
            position = end
        else:
            parts.append(part)
        position += 1
    return parts


# }}}
