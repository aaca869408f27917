"""Code as blocks of instructions that are executed together, ready to be followed.

Most vectors of a kernel hold its numbers. Whether the control flow can depend on what an
instruction writes is found backwards, block by block, with one set of registers that are needed at
the end of any block:

1. What goes to an integer register, to flags or to memory is needed, but for results of
   floating-point arithmetic, which are never known.
2. What an instruction reads is needed if what it writes is.
3. A register that a block writes, all of it, before it reads it is not needed at its beginning.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from countperf.machine_code.integer_unit import action_of
from countperf.machine_code.loop_extrapolation import note_of_step
from countperf.machine_code.machine_state import REGISTERS, UNKNOWN, Machine
from countperf.machine_code.operands import (
    Action,
    Condition,
    Read,
    address_of,
    condition_of,
    operands_of,
    reader,
)
from countperf.machine_code.vector_moves import elements_of
from countperf.machine_code.vector_unit import leads_to_integers, vector_action

_NO_ACCESS = ("lea", "nop", "prefetch", "call", "j")
_DECORATION = re.compile(r"\{.*?\}")
_DECIDING = ("cmov", "set", "adc", "sbb")
ENDLESS = 1 << 30
_CALL = 1000
_DIVISION = re.compile(r"__ocl_svml_[a-z]\d_([iu])(div|rem)(\d+)")
_SCRATCH = tuple(
    REGISTERS[name].number
    for name in ("%rax", "%rcx", "%rdx", "%rsi", "%rdi", "%r8", "%r9", "%r10", "%r11")
)
"""Registers that a function need not restore."""
_REGISTER = re.compile(r"%(?:[xyz]mm(\d+)|k([0-7]))")
_WHOLE = re.compile(r"^%(?:[xyz]mm\d+|k[0-7])(?:\{%k[0-7]\}\{z\})?$")
_NUMBERS = re.compile(
    r"^v?(?:add|sub|mul|div|sqrt|rsqrt|rcp|fn?m(?:add|sub)\w*|hadd|addsub|round|rndscale|scalef"
    r"|getexp|getmant|fixupimm|range|reduce|min|max)\w*[ps][hsd]$"
)
"""Arithmetic on floating-point numbers: results that are never known."""
_READS_TARGET = re.compile(r"^(?![vk])|^v(?:pternlog|perm[it]2|pdp|pmadd52|psh[lr]dv|\w*gather)")
"""Instructions that read their destination, or leave part of it: mostly those without VEX."""
_TESTS = ("vptest", "vtestp", "kortest", "ktest", "vucomi", "vcomi", "ucomi", "comi", "ptest")


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction as it is written."""

    address: int  # where it is
    mnemonic: str  # without prefixes and comments
    operands: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockEnd:
    """Way in which a block ends."""

    # what decides whether ``target`` follows, and its name; without one it does if there is one
    condition: Condition | None = None
    suffix: str = ""
    target: int | None = None
    following: int | None = None
    # a function that is entered before, by place or by what computes its address
    called: int | Read | None = None
    leaves: bool = False  # whether it ends the function
    returns: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CodeBlock:
    """Instructions that are executed together."""

    lines: tuple[int, ...]
    actions: tuple[Action, ...]
    end: BlockEnd
    steps: int  # the actions that take no notes, and one


class Code:
    """Blocks of the code of an object."""

    def __init__(self, lines: Sequence[Line], entries: Mapping[str, int]) -> None:
        self.lines = tuple(lines)
        self.entries = dict(entries)
        self._blocks: dict[tuple[int, bool], CodeBlock] = {}

    @cached_property
    def minds_vectors(self) -> bool:
        """True if integers in vectors are followed, too."""
        return any(leads_to_integers(line.mnemonic, line.operands) for line in self.lines)

    def follow_vectors(self) -> None:
        """Follow integers in vectors from now on."""
        self.minds_vectors = True
        self._blocks.clear()

    @cached_property
    def places(self) -> dict[int, int]:
        """Numbers of lines by address."""
        return {line.address: position for position, line in enumerate(self.lines)}

    @cached_property
    def _starts(self) -> frozenset[int]:
        """Numbers of lines that begin blocks."""
        starts = {self.places.get(address, -1) for address in self.entries.values()}
        for position, line in enumerate(self.lines):
            if line.mnemonic[0] == "j":
                target = self.target(line)
                starts.add(position + 1)
                if target is not None:
                    starts.add(target)
        return frozenset(starts)

    def straight(self, executed: Mapping[int, int]) -> list[tuple[tuple[int, ...], bool]]:
        """Return lines that are executed one after the other, equally often."""
        straight: list[list[int]] = []
        ended = True
        for number in sorted(executed):
            if (
                ended
                or number in self._starts
                or number != straight[-1][-1] + 1
                or executed[number] != executed[straight[-1][-1]]
            ):
                straight.append([])
            straight[-1].append(number)
            ended = self.lines[number].mnemonic.startswith(("j", "ret", "call"))
        return [(tuple(lines), self._repeats(lines)) for lines in straight]

    def _repeats(self, places: Sequence[int]) -> bool:
        last = self.lines[places[-1]]
        return last.mnemonic[0] == "j" and self.target(last) == places[0]

    def target(self, line: Line) -> int | None:
        """Return the number of the line that a branch leads to; None if it is none of these."""
        text = line.operands.split(maxsplit=1)[0] if line.operands else ""
        try:
            return self.places.get(int(text.removeprefix("0x"), 16))
        except ValueError:
            return None

    def block(self, start: int, *, notes: bool = False) -> CodeBlock:
        """Return the block that begins with a line, with or without actions that take notes."""
        block = self._blocks.get((start, notes))
        if block is None:
            block = self._blocks[start, notes] = self._make_block(start, notes=notes)
        return block

    def _make_block(self, start: int, *, notes: bool) -> CodeBlock:
        actions: list[Action] = []
        steps = 1
        if start in self._divisions:
            actions.append(self._divisions[start])
        number = start
        end: BlockEnd | None = None
        while end is None and number < len(self.lines):
            line = self.lines[number]
            end = self._end_of(line, number + 1)
            if end is not None:
                if end.returns and number in self._after_division:
                    actions.append(_take_quotient)
            else:
                actions += self._notes_of_line(number, notes=notes)
                action = self._action(number)
                if action is not None:
                    actions.append(action)
                    steps += 1
                if number + 1 in self._starts:
                    end = BlockEnd(following=number + 1)
            number += 1
        if end is None:  # the code ends
            end = BlockEnd(following=number if number > start else None, leaves=True)
        return CodeBlock(tuple(range(start, number)), tuple(actions), end, steps)

    def _end_of(self, line: Line, following: int) -> BlockEnd | None:
        """Return how a line ends a block; None if the next line follows."""
        name = line.mnemonic
        if name.startswith("ret") or name in ("ud2", "hlt"):
            return BlockEnd(following=following, leaves=True, returns=True)
        if name.startswith("jmp"):
            target = self.target(line)
            return BlockEnd(target=target, leaves=target is None)
        if name[0] == "j":
            return BlockEnd(
                suffix=name[1:],
                condition=condition_of(name[1:]) or (lambda _: None),
                target=self.target(line),
                following=following,
            )
        if name.startswith("call"):
            called = self.target(line)
            if line.operands.startswith("*"):
                called = reader(line.operands[1:], 64)
            return BlockEnd(
                following=following, called=(lambda _: None) if called is None else called
            )
        return None

    def _notes_of_line(self, number: int, *, notes: bool) -> Iterator[Action]:
        """Yield what takes notes of accesses, decisions and steps before a line is followed."""
        line = self.lines[number]
        name = line.mnemonic
        accesses = notes and "(" in line.operands and not name.startswith(_NO_ACCESS)
        if accesses and (note := _note_of_access(number, line.operands)) is not None:
            yield note
        if name.startswith(_DECIDING):
            yield _note_decision(name.removeprefix("cmov").removeprefix("set"))
        step = note_of_step(name, line.operands)
        is_followed = self.minds_vectors and number in self._needed
        if step is not None and (is_followed or "mm" not in line.operands):
            yield step

    def _action(self, number: int) -> Action | None:
        line = self.lines[number]
        operands = line.operands
        if self.minds_vectors and (line.mnemonic[0] == "k" or "mm" in operands):
            return vector_action(line.mnemonic, operands) if number in self._needed else None
        return action_of(line.mnemonic, operands)

    @cached_property
    def _needed(self) -> frozenset[int]:
        """Instructions with vectors that can decide anything."""
        blocks: list[list[int]] = [[]]
        for position, line in enumerate(self.lines):
            if position in self._starts:
                blocks.append([])
            blocks[-1].append(position)
            if line.mnemonic.startswith(("j", "ret", "call")):
                blocks.append([])
        lines = [(line.mnemonic, line.operands) for line in self.lines]
        return needed_lines(lines, blocks, range(2) if self._divisions else ())

    @cached_property
    def last_back(self) -> dict[int, int]:
        """The last branch back to each place that branches lead back to."""
        last_back: dict[int, int] = {}
        for position, line in enumerate(self.lines):
            target = self.target(line) if line.mnemonic[0] == "j" else None
            if target is not None and target <= position:
                last_back[target] = position
        return last_back

    @cached_property
    def to_end(self) -> dict[int, int]:
        """The least number of lines from each to one that returns; a call is as bad as many."""
        into: dict[int, list[int]] = {}
        ends: list[int] = []
        for position, line in enumerate(self.lines):
            name, target = line.mnemonic, self.target(line) if line.mnemonic[0] == "j" else None
            if name.startswith("ret") or (name[0] == "j" and target is None):
                ends.append(position)
                if name.startswith(("ret", "jmp")):
                    continue
            if target is not None:
                into.setdefault(target, []).append(position)
            if not name.startswith(("jmp", "ud2", "hlt")):
                into.setdefault(position + 1, []).append(position)
        to_end: dict[int, int] = {}
        waiting = [(1, position) for position in ends]
        heapq.heapify(waiting)
        while waiting:
            length, position = heapq.heappop(waiting)
            if position in to_end:
                continue
            to_end[position] = length
            for before in into.get(position, ()):
                is_call = self.lines[before].mnemonic.startswith("call")
                heapq.heappush(waiting, (length + (_CALL if is_call else 1), before))
        return to_end

    @cached_property
    def _divisions(self) -> dict[int, Action]:
        """Division functions by address."""
        divisions: dict[int, Action] = {}
        for name, address in self.entries.items():
            kind = _DIVISION.fullmatch(name)
            if kind is not None and address in self.places:
                divisions[self.places[address]] = _divide(kind[1] == "i", kind[2], int(kind[3]))
        return divisions

    @cached_property
    def _after_division(self) -> frozenset[int]:
        """Return addresses of division functions."""
        returns = [n for n, line in enumerate(self.lines) if line.mnemonic.startswith("ret")]
        ends = (bisect_left(returns, position) for position in self._divisions)
        return frozenset(returns[end] for end in ends if end < len(returns))


def _note_of_access(number: int, operands: str) -> Action | None:
    """Return what notes where an instruction accesses memory, but for gathers and scatters."""
    operand = next(part for part in operands_of(operands) if "(" in part)
    address = address_of(_DECORATION.sub("", operand))
    if address is None:
        return None

    def note(machine: Machine) -> None:
        value = address(machine)
        if value is not None:
            machine.accessed.setdefault(number, value)

    return note


def _note_decision(suffix: str) -> Action:
    def note(machine: Machine) -> None:
        machine.journal.decided.append((suffix, machine.flags))

    return note


def _name_block(text: str) -> set[str]:
    return {f"k{match[2]}" if match[2] else f"v{match[1]}" for match in _REGISTER.finditer(text)}


class _Effect:
    """Vector and mask registers that an instruction reads and writes.

    ``decides`` is whether it writes anything else; ``kills``, whether nothing is left of what was
    in the register that it writes.
    """

    __slots__ = ("decides", "kills", "reads", "writes")

    def __init__(self, mnemonic: str, operands: str) -> None:
        parts, named = operands_of(operands), _name_block(operands)
        self.reads, self.writes = named, set[str]()
        self.kills = self.decides = False
        if not named:
            return
        target = _REGISTER.match(parts[-1])
        sets_mask = parts[-1].startswith("%k")
        is_test = mnemonic.startswith(("ktest", "kortest")) or (
            mnemonic.startswith(_TESTS) and not sets_mask
        )
        if target is None or is_test:
            self.decides = True
            return
        own = _name_block(target[0])
        others = set[str]().union(*(_name_block(part) for part in parts[:-1]))
        others |= _name_block(parts[-1].removeprefix(target[0]))
        keeps = _READS_TARGET.match(mnemonic) is not None or not _WHOLE.match(parts[-1])
        self.writes, self.kills = own, not keeps
        self.reads = others | own if keeps else others
        if "gather" in mnemonic:  # which clears its mask
            self.writes |= {name for name in others if name.startswith("k")}
        if _NUMBERS.match(mnemonic):
            self.reads = own if keeps and mnemonic.startswith("v") else set[str]()


def needed_lines(
    lines: Sequence[tuple[str, str]],
    blocks: Iterable[Sequence[int]],
    always: Iterable[int] = (),
) -> frozenset[int]:
    """Return the numbers of instructions with vectors or masks that can decide anything."""
    effects = [_Effect(*line) for line in lines]
    parts = [list(block) for block in blocks]
    at_end = {f"v{number}" for number in always}
    while True:
        before, needed = len(at_end), set[int]()
        for block in parts:
            live = set(at_end)
            for number in reversed(block):
                effect = effects[number]
                if effect.decides or effect.writes & live:
                    needed.add(number)
                    if effect.kills:
                        live -= effect.writes
                    live |= effect.reads
            at_end |= live
        if len(at_end) == before:
            return frozenset(needed)


def _divide(is_signed: bool, what: str, lanes: int) -> Action:
    """Return what divides the first vector by the second one, lane by lane."""
    kind = np.int32 if is_signed else np.uint32

    def operate(machine: Machine) -> None:
        (a, known), (b, also) = (
            elements_of(machine.vectors[number, : 4 * lanes], 32) for number in (0, 1)
        )
        one, other = (words.view(kind).astype(np.int64) for words in (a, b))
        divisor = np.where(other == 0, 1, other)
        quotient = np.abs(one) // np.abs(divisor) * np.sign(one) * np.sign(divisor)
        result = quotient if what == "div" else one - quotient * divisor
        raw = result.astype(np.uint32).view(np.uint8).astype(np.int16)
        is_known = np.repeat(known & also & (other != 0), 4)
        machine.quotient = np.zeros_like(machine.vectors[0])
        machine.quotient[: 4 * lanes] = np.where(is_known, raw, UNKNOWN)

    return operate


def _take_quotient(machine: Machine) -> None:
    """Move the result of a division to the first vector, as its function returns it."""
    machine.vectors[0] = machine.quotient


def forget_call(machine: Machine) -> None:
    """Forget what a function may change of which nothing is known."""
    for number in _SCRATCH:
        machine.registers[number] = machine.low[number] = None
    machine.vectors[:] = machine.masks[:] = UNKNOWN
    machine.flags = None
