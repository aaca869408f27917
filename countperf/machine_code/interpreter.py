"""Execution counts of a function's instructions, found by following them with concrete sizes.

A branch that depends on data goes on to the next instruction: what it guards is executed. In
functions that are called, the way is taken that is shorter to the end: the other one is that of
special values. The last branch back to the beginning of a loop is refused if it depends on data.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

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
from countperf.steps import report

MOST_STEPS, _VECTOR_STEPS, _SHOWN = 6_000_000, 20, 100_000
"""Steps until a group is given up (10 s), for an instruction with vectors, between reports."""

STACK = 0x7FFF_0000_0000  # stack pointer at entry of a followed function

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


class Line(NamedTuple):
    """An instruction as it is written."""

    address: int  # where it is
    mnemonic: str  # without prefixes and comments
    operands: str


class BlockEnd(NamedTuple):
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


class CodeBlock(NamedTuple):
    """Instructions that are executed together."""

    lines: tuple[int, ...]
    actions: tuple[Action, ...]
    end: BlockEnd
    steps: int  # one, and what its actions cost but for those that take notes


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
        self.lines, self.entries = tuple(lines), dict(entries)
        self.constants = constants or {}
        self._blocks: dict[tuple[int, bool], CodeBlock] = {}  # by whether notes are taken
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

    def straight(self, executed: Mapping[int, int]) -> list[tuple[tuple[int, ...], bool]]:
        """Return lines that are executed in a row, equally often, and whether these repeat."""
        straight: list[list[int]] = []
        for number in sorted(executed):
            before = number - 1
            if (
                number in self._starts
                or executed.get(before) != executed[number]
                or self._ends_block(before)
            ):
                straight.append([])
            straight[-1].append(number)
        return [(tuple(lines), self.targets.get(lines[-1]) == lines[0]) for lines in straight]

    def _ends_block(self, number: int) -> bool:
        return self.lines[number].mnemonic.startswith(("j", "ret", "call"))

    def block(self, start: int, *, notes: bool = False) -> CodeBlock:
        """Return the block that begins with a line, with or without actions that take notes."""
        if (start, notes) in self._blocks:
            return self._blocks[start, notes]
        actions: list[Action] = []
        steps, number = 1, start
        end: BlockEnd | None = None
        while end is None and number < len(self.lines):
            end = self._end_of(number)
            if end is None:
                actions += self._notes_of_line(number, notes=notes)
                if (action := self._action(number)) is not None:
                    actions.append(action)
                    steps += _VECTOR_STEPS if "mm" in self.lines[number].operands else 1
                if number + 1 in self._starts:
                    end = BlockEnd(following=number + 1)
            number += 1
        end = end or BlockEnd(leaves=True)  # the code ends
        block = CodeBlock(tuple(range(start, number)), tuple(actions), end, steps)
        return self._blocks.setdefault((start, notes), block)

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
        if (self.minds_vectors and number in self._needed) or "mm" not in line.operands:
            step = note_of_step(name, line.operands)
            yield from [] if step is None else [step]

    def _action(self, number: int) -> Action | None:
        line = self.lines[number]
        if self.minds_vectors and (line.mnemonic[0] == "k" or "mm" in line.operands):
            return vector_action(line.mnemonic, line.operands) if number in self._needed else None
        return action_of(line.mnemonic, line.operands)

    @cached_property
    def _needed(self) -> frozenset[int]:
        """Instructions with vectors that can decide anything."""
        blocks: list[list[int]] = [[]]
        for number in range(len(self.lines)):
            if number in self._starts or self._ends_block(number - 1):
                blocks.append([])
            blocks[-1].append(number)
        lines = [(line.mnemonic, line.operands) for line in self.lines]
        return find_needed_lines(lines, blocks, range(2) if self._divisions else ())

    def follow_function(
        self, entry: str, machine: Machine, most_steps: int = MOST_STEPS
    ) -> Counter[int]:
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
            vars(machine).update(vars(start))
            return self._follow_lines(entry, machine, most_steps)

    def _follow_lines(self, entry: str, machine: Machine, most_steps: int) -> Counter[int]:
        counts, stack, steps = Counter[int](), _Stack(), 0
        position: int | None = self.places[self.entries[entry]]
        loops = Loops(machine)
        while position is not None:
            block = self.block(position, notes=position not in counts)
            for action in block.actions:
                action(machine)
            counts[position] += 1
            steps += block.steps
            if steps % _SHOWN < block.steps:
                report("following compiled code, steps", steps)
            if steps > most_steps:
                raise CountingError(f"gave up after {most_steps} steps")
            end, flags = block.end, machine.flags
            taken = None if end.condition is None else end.condition(machine)
            if end.condition is None:
                flags = None
            elif taken is None:
                flags, taken = None, self._decide(block, position, is_called=bool(stack))
            loops.note_block(position, end.suffix, taken, flags)
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
            lines.update(dict.fromkeys(self.block(start, notes=True).lines, count))
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
        """Functions of Intel's library that divide integers in vectors, by place."""
        return {
            self.places[address]: kind
            for name, address in self.entries.items()
            if address in self.places and (kind := _DIVISION.fullmatch(name))
        }

    def _decide(self, block: CodeBlock, position: int, *, is_called: bool) -> bool:
        """Decide a branch that depends on data: on to what it guards, or the shorter way."""
        target, following = block.end.target, block.end.following
        if is_called:
            to_target = 0 if target is None else self._to_end[target]
            return to_target < self._to_end[following or 0]
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
    def _to_end(self) -> list[int]:
        """The least number of lines from each to one that returns; a call is as bad as many."""
        lengths, before = [_ENDLESS] * (len(self.lines) + 1), list[int]()
        while lengths != before:
            before = [*lengths]
            for position, line in reversed([*enumerate(self.lines)]):
                name, target = line.mnemonic, self.targets.get(position)
                leaves = name.startswith("ret") or (name[0] == "j" and target is None)
                goes_on = not name.startswith(("jmp", "ret", "ud2", "hlt"))
                ways = [_ENDLESS if target is None else lengths[target]]
                ways += [lengths[position + 1]] * goes_on + [0] * leaves
                own = _CALL if name.startswith("call") else 1
                lengths[position] = min(_ENDLESS, own + min(ways))
        return lengths


def _note_of_access(number: int, operands: str) -> Action | None:
    """Return what notes where an instruction accesses memory, but for gathers and scatters."""
    operand = next(part for part in operands_of(operands) if "(" in part)
    address = address_of(_DECORATION.sub("", operand))
    if address is None:
        return None

    def note(machine: Machine) -> None:
        if (value := address(machine)) is not None:
            machine.accessed.setdefault(number, value)

    return note


def _divide(kind: re.Match[str], machine: Machine) -> Lanes:
    """Divide the first vector by the second one, lane by lane."""
    size = 4 * int(kind[3])
    (a, known), (b, also) = (elements_of(v[:size], f"{kind[1]}4") for v in machine.vectors[:2])
    one, other = a.astype(np.int64), b.astype(np.int64)
    divisor = np.where(other == 0, 1, other)
    quotient = np.abs(one) // np.abs(divisor) * np.sign(one) * np.sign(divisor)
    result = quotient if kind[2] == "div" else one - quotient * divisor
    raw = result.astype(np.uint32).view(np.uint8).astype(np.int16)
    whole = np.zeros(VECTOR_BYTES, dtype=np.int16)
    whole[:size] = np.where(np.repeat(known & also & (other != 0), 4), raw, UNKNOWN)
    return whole


def forget_call(machine: Machine) -> None:
    """Forget what a function may change of which nothing is known."""
    for number in _SCRATCH:
        machine.registers[number] = machine.low[number] = None
    machine.vectors[:] = machine.masks[:] = UNKNOWN
    machine.flags = None
