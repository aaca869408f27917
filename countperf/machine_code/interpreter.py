"""Execution counts of a function's instructions, found by following them with concrete sizes.

Integers are followed through the code: sizes, numbers of groups, places of arrays and whatever
loops count are known, data is not.

Rules
-----
1. A branch that depends on data goes on to the next instruction: what it guards is executed. The
   last one back to the beginning of a loop is refused: nobody knows how often.
2. Iterations of a loop that are alike are not followed one by one (`loop_extrapolation`).
3. A function that is called is followed where its code is known, else the call is counted only.
4. In functions that are called, of two ways that depend on data the one is taken that is shorter to
   the end: the other is that of special values.
5. Integer divisions in vectors by Intel's library are known by their name.
"""

from __future__ import annotations

import copy
import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from countperf.errors import CountingError
from countperf.machine_code.integer_unit import action_of
from countperf.machine_code.loop_extrapolation import Loops, note_of_step
from countperf.machine_code.machine_state import (
    REGISTERS,
    STACK_POINTER,
    UNKNOWN,
    VECTOR_BYTES,
    Action,
    Condition,
    Lanes,
    Machine,
    Read,
    address_of,
    condition_of,
    operands_of,
    reader,
)
from countperf.machine_code.vector_unit import (
    elements_of,
    find_needed_lines,
    leads_to_integers,
    vector_action,
)

MOST_STEPS = 6_000_000
"""Integer instructions after which a group is given up."""

STACK = 0x7FFF_0000_0000
"""Stack pointer at entry of a followed function."""

_DEEPEST = 16
_NO_ACCESS = ("lea", "nop", "prefetch", "call", "j")
_DECORATION = re.compile(r"\{.*?\}")
_DECIDING = ("cmov", "set", "adc", "sbb")
_ENDLESS = 1 << 30
_CALL = 1000
_DIVISION = re.compile(r"__ocl_svml_[a-z]\d_([iu])(div|rem)(\d+)")
_SCRATCH = tuple(
    REGISTERS[name].number
    for name in ("%rax", "%rcx", "%rdx", "%rsi", "%rdi", "%r8", "%r9", "%r10", "%r11")
)
"""Registers that a function need not restore."""


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
    forgets: bool = False  # whether it goes on to a function of which nothing is known


@dataclass(frozen=True, slots=True, eq=False)
class CodeBlock:
    """Instructions that are executed together."""

    lines: tuple[int, ...]
    actions: tuple[Action, ...]
    end: BlockEnd
    steps: int  # the actions that take no notes, and one


_Stack = list[tuple[int, Lanes | None]]
"""Where functions return to, and their result if they divide."""


class MachineProgram:
    """Code of an object that can be followed with the values in its registers."""

    def __init__(
        self,
        lines: Sequence[Line],
        entries: Mapping[str, int],
        constants: Mapping[int, bytes] | None = None,
    ) -> None:
        self.lines = tuple(lines)
        self.entries = dict(entries)
        self.constants = constants or {}
        # by whether notes are taken
        self._blocks: dict[tuple[int, bool], CodeBlock] = {}
        self.places = {line.address: position for position, line in enumerate(self.lines)}
        jumps = [n for n, line in enumerate(self.lines) if line.mnemonic[0] == "j"]
        # the lines that jumps lead to, by those of the jumps, where they are known
        self.targets = {n: to for n in jumps if (to := self._target(self.lines[n])) is not None}
        entered = {self.places.get(address, -1) for address in self.entries.values()}
        self._starts = {*entered, *(n + 1 for n in jumps), *self.targets.values()}

    def _target(self, line: Line) -> int | None:
        text = line.operands.split(maxsplit=1)[0] if line.operands else ""
        try:
            return self.places.get(int(text.removeprefix("0x"), 16))
        except ValueError:
            return None

    @cached_property
    def minds_vectors(self) -> bool:
        """True if integers in vectors are followed, too."""
        return any(leads_to_integers(line.mnemonic, line.operands) for line in self.lines)

    # {{{ blocks

    def straight(self, executed: Mapping[int, int]) -> list[tuple[tuple[int, ...], bool]]:
        """Return lines that are executed in a row, equally often, and whether these repeat."""
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
            ended = self._ends_block(number)
        return [(tuple(lines), self.targets.get(lines[-1]) == lines[0]) for lines in straight]

    def _ends_block(self, number: int) -> bool:
        return self.lines[number].mnemonic.startswith(("j", "ret", "call"))

    def block(self, start: int, *, notes: bool = False) -> CodeBlock:
        """Return the block that begins with a line, with or without actions that take notes."""
        block = self._blocks.get((start, notes))
        if block is None:
            block = self._blocks[start, notes] = self._make_block(start, notes=notes)
        return block

    def _make_block(self, start: int, *, notes: bool) -> CodeBlock:
        actions: list[Action] = []
        steps, number = 1, start
        end: BlockEnd | None = None
        while end is None and number < len(self.lines):
            end = self._end_of(number)
            if end is None:
                actions += self._notes_of_line(number, notes=notes)
                action = self._action(number)
                if action is not None:
                    actions.append(action)
                    steps += 1
                if number + 1 in self._starts:
                    end = BlockEnd(following=number + 1)
            number += 1
        end = end or BlockEnd(leaves=True)  # the code ends
        return CodeBlock(tuple(range(start, number)), tuple(actions), end, steps)

    def _end_of(self, number: int) -> BlockEnd | None:
        """Return how a line ends a block; None if the next line follows."""
        line, target = self.lines[number], self.targets.get(number)
        name = line.mnemonic
        if name.startswith("ret") or name in ("ud2", "hlt"):
            return BlockEnd(leaves=True)
        if name.startswith("jmp"):
            return BlockEnd(target=target, leaves=target is None, forgets=target is None)
        if name[0] == "j":
            condition = condition_of(name[1:]) or (lambda _: None)
            return BlockEnd(
                suffix=name[1:], condition=condition, target=target, following=number + 1
            )
        if name.startswith("call"):
            called = self._target(line)
            if line.operands.startswith("*"):
                called = reader(line.operands[1:], 64)
            return BlockEnd(following=number + 1, called=-1 if called is None else called)
        return None

    def _notes_of_line(self, number: int, *, notes: bool) -> Iterator[Action]:
        """Yield what takes notes of accesses, decisions and steps before a line is followed."""
        line = self.lines[number]
        name = line.mnemonic
        accesses = notes and "(" in line.operands and not name.startswith(_NO_ACCESS)
        if accesses and (note := _note_of_access(number, line.operands)) is not None:
            yield note
        if name.startswith(_DECIDING):
            suffix = name.removeprefix("cmov").removeprefix("set")
            yield lambda machine: machine.journal.decided.append((suffix, machine.flags))
        step = note_of_step(name, line.operands)
        is_followed = self.minds_vectors and number in self._needed
        if step is not None and (is_followed or "mm" not in line.operands):
            yield step

    def _action(self, number: int) -> Action | None:
        line = self.lines[number]
        if self.minds_vectors and (line.mnemonic[0] == "k" or "mm" in line.operands):
            is_needed = number in self._needed
            return vector_action(line.mnemonic, line.operands) if is_needed else None
        return action_of(line.mnemonic, line.operands)

    @cached_property
    def _needed(self) -> frozenset[int]:
        """Instructions with vectors that can decide anything."""
        blocks: list[list[int]] = [[]]
        for number in range(len(self.lines)):
            if number in self._starts:
                blocks.append([])
            blocks[-1].append(number)
            if self._ends_block(number):
                blocks.append([])
        lines = [(line.mnemonic, line.operands) for line in self.lines]
        return find_needed_lines(lines, blocks, range(2) if self._divisions else ())

    # }}}

    # {{{ the way

    def executed(self, entry: str, machine: Machine, most_steps: int = MOST_STEPS) -> Counter[int]:
        """Follow a function to its end; return how often each line is executed, by its number."""
        if entry not in self.entries or self.entries[entry] not in self.places:
            raise CountingError(f"there is no function {entry!r}: {', '.join(self.entries)}")
        machine.registers[STACK_POINTER] = STACK
        machine.constants = self.constants
        start = copy.deepcopy(machine)
        try:
            return self._follow_lines(entry, machine, most_steps)
        except CountingError:
            if self.minds_vectors:
                raise
            # vectors may have written what is read one by one
            self.minds_vectors = True
            self._blocks.clear()
            start.accessed = machine.accessed
            machine.accessed.clear()
            executed = self._follow_lines(entry, start, most_steps)
            machine.steps = start.steps
            return executed

    def _follow_lines(self, entry: str, machine: Machine, most_steps: int) -> Counter[int]:
        counts: Counter[int] = Counter()
        stack: _Stack = []
        position: int | None = self.places[self.entries[entry]]
        steps = 0
        loops = Loops(machine)
        while position is not None:
            block = self.block(position, notes=position not in counts)
            for action in block.actions:
                action(machine)
            counts[position] += 1
            steps += block.steps
            if steps > most_steps:
                raise CountingError(f"gave up after {most_steps} steps")
            end, flags = block.end, machine.flags
            taken = None if end.condition is None else end.condition(machine)
            if end.condition is not None and taken is None:
                flags, taken = None, self._decide(block, position, is_called=bool(stack))
            loops.passed(position, end.suffix, taken, None if end.condition is None else flags)
            if end.called is not None and end.following is not None:
                position = self._enter_call(end.called, end.following, machine, stack)
            elif end.leaves or (taken and end.target is None):
                if end.forgets:
                    forget_call(machine)
                position, result = stack.pop() if stack else (None, None)
                if result is not None:
                    machine.vectors[0] = result
            elif end.target is None or taken is False:
                position = end.following
            else:
                if end.target <= position:
                    counts.update(loops.back(position, end.target))
                position = end.target
        machine.steps += steps
        lines: Counter[int] = Counter()
        for start, count in counts.items():
            for line in self.block(start, notes=True).lines:
                lines[line] += count
        return lines

    def _enter_call(
        self, called: int | Read, following: int, machine: Machine, stack: _Stack
    ) -> int:
        """Return where a call leads: past it, if nothing is known of the function."""
        if not isinstance(called, int):
            called = self.places.get(called(machine) or -1, -1)
        if called < 0 or len(stack) >= _DEEPEST:
            forget_call(machine)
            return following
        kind = self._divisions.get(called)
        stack.append((following, None if kind is None else _divide(kind, machine)))
        return called

    @cached_property
    def _divisions(self) -> dict[int, re.Match[str]]:
        """Division functions by place."""
        kinds = {address: _DIVISION.fullmatch(name) for name, address in self.entries.items()}
        return {
            self.places[at]: kind
            for at, kind in kinds.items()
            if kind is not None and at in self.places
        }

    def _decide(self, block: CodeBlock, position: int, *, is_called: bool) -> bool:
        """Decide a branch that depends on data: on to what it guards.

        In functions that are called, the shorter way to the end is taken.
        """
        target, following = block.end.target, block.end.following
        if is_called:
            to_target = 0 if target is None else self._to_end.get(target, _ENDLESS)
            return to_target < self._to_end.get(following or 0, _ENDLESS)
        last = block.lines[-1]
        if target is not None and target <= position and self._last_back[target] == last:
            raise CountingError(
                f"the loop that ends at {self.lines[last].address:#x} depends on data"
            )
        return False

    @cached_property
    def _last_back(self) -> dict[int, int]:
        """The last branch back to each place that branches lead back to."""
        return {target: n for n, target in self.targets.items() if target <= n}

    @cached_property
    def _to_end(self) -> dict[int, int]:
        """The least number of lines from each to one that returns; a call is as bad as many."""
        into: dict[int, list[int]] = {}
        waiting: list[tuple[int, int]] = []
        for position, line in enumerate(self.lines):
            name, target = line.mnemonic, self.targets.get(position)
            if name.startswith("ret") or (name[0] == "j" and target is None):
                waiting.append((1, position))
            if target is not None:
                into.setdefault(target, []).append(position)
            if not name.startswith(("jmp", "ret", "ud2", "hlt")):
                into.setdefault(position + 1, []).append(position)
        heapq.heapify(waiting)
        to_end: dict[int, int] = {}
        while waiting:
            length, position = heapq.heappop(waiting)
            if position not in to_end:
                to_end[position] = length
                for before in into.get(position, ()):
                    is_call = self.lines[before].mnemonic.startswith("call")
                    heapq.heappush(waiting, (length + (_CALL if is_call else 1), before))
        return to_end

    # }}}


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


def _divide(kind: re.Match[str], machine: Machine) -> Lanes:
    """Divide the first vector by the second one, lane by lane."""
    dtype, lanes = np.int32 if kind[1] == "i" else np.uint32, int(kind[3])
    (a, known), (b, also) = (
        elements_of(machine.vectors[number, : 4 * lanes], 32) for number in (0, 1)
    )
    one, other = (words.view(dtype).astype(np.int64) for words in (a, b))
    divisor = np.where(other == 0, 1, other)
    quotient = np.abs(one) // np.abs(divisor) * np.sign(one) * np.sign(divisor)
    result = quotient if kind[2] == "div" else one - quotient * divisor
    raw = result.astype(np.uint32).view(np.uint8).astype(np.int16)
    whole = np.zeros(VECTOR_BYTES, dtype=np.int16)
    whole[: 4 * lanes] = np.where(np.repeat(known & also & (other != 0), 4), raw, UNKNOWN)
    return whole


def forget_call(machine: Machine) -> None:
    """Forget what a function may change of which nothing is known."""
    for number in _SCRATCH:
        machine.registers[number] = machine.low[number] = None
    machine.vectors[:] = machine.masks[:] = UNKNOWN
    machine.flags = None
