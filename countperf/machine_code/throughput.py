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
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from countperf.errors import DeviceError
from countperf.machine_code.blocks import Line
from countperf.machine_code.interpreter import MachineProgram
from countperf.machine_code.loop_nests import iterations
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
_AT_ONCE = 200
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
Analyzed = dict[BlockText, Cycles]


def cycles_of(
    program: MachineProgram, executed: Mapping[int, int], analyzed: Analyzed
) -> Counter[str]:
    """Return what executing lines takes on the processor of reference."""
    blocks, joined = _blocks_of(program, executed), _join_blocks_of(program, executed)
    analyze((block for block, *_ in (*blocks, *joined)), analyzed)
    cycles: Counter[str] = Counter()
    for block, times, is_loop in blocks:
        figures = analyzed[block]
        cycles["cycles"] += round(times * figures.cycles)
        cycles["cycles_throughput"] += round(times * figures.throughput)
        cycles["cycles_operations"] += round(times * figures.operations)
        if is_loop:
            cycles["cycles_loop"] += round(times * figures.cycles)
    for block, times in joined:
        cycles["cycles_overlapped"] += round(times * analyzed[block].cycles)
    return cycles


def _blocks_of(
    program: MachineProgram, executed: Mapping[int, int]
) -> list[tuple[BlockText, int, bool]]:
    """Return blocks that matter, how often each is executed, and whether it repeats itself."""
    least = SMALLEST_SHARE * sum(executed.values())
    return [
        (block, executed[lines[0]], is_loop)
        for lines, is_loop in program.straight(executed)
        if executed[lines[0]] * len(lines) >= least
        and (block := _text(program.lines[line] for line in lines))
    ]


def _join_blocks_of(
    program: MachineProgram, executed: Mapping[int, int]
) -> list[tuple[BlockText, float]]:
    """Return the same with short loops joined with what is around them, without repetitions."""
    least = SMALLEST_SHARE * sum(executed.values())
    return [
        (block, part.executed / len(lines))
        for part in iterations(program, executed, LONGEST_ITERATION)
        if part.executed >= least
        and (lines := part.iteration())
        and (block := _text(program.lines[line] for line in lines))
    ]


def blocks_of(program: MachineProgram, executed: Mapping[int, int]) -> list[BlockText]:
    """Return the blocks that `cycles_of` needs to be analyzed; parameters are those of it."""
    blocks = _blocks_of(program, executed), _join_blocks_of(program, executed)
    return [block for some in blocks for block, *_ in some]


def analyze(blocks: Iterable[BlockText], analyzed: Analyzed) -> None:
    """Analyze blocks that are not known yet, all in one run of the analyzer (up to 200 blocks)."""
    new = sorted({block for block in blocks if block not in analyzed})
    for first in range(0, len(new), _AT_ONCE):
        some = new[first : first + _AT_ONCE]
        figures = _figures(_run(some))
        if len(figures) != len(some):
            figures = [_alone(block) for block in some]
        analyzed |= zip(some, figures, strict=True)


def _text(lines: Iterable[Line]) -> BlockText:
    texts: list[str] = []
    for line in lines:
        name, operands = line.mnemonic, line.operands
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
