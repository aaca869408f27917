"""How often the instructions of a function are executed, without running it.

Integers are followed through the code: sizes, numbers of groups, places of arrays and whatever
loops count are known, data is not.

Rules
-----
1. A branch that depends on data goes on to the next instruction: what it guards is executed. The
   last one back to the beginning of a loop is refused: nobody knows how often.
2. Iterations of a loop of one block whose integers all grow by the same amounts are not followed
   one by one.
3. A function that is called is followed where its code is known, else the call is counted only.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from countperf.errors import CountingError
from countperf.harness.compiled.machine import (
    EQUALITY,
    SETS_UNKNOWN_FLAGS,
    STACK_POINTER,
    UNSIGNED,
    Action,
    Condition,
    Constants,
    Flags,
    Machine,
    action_of,
    canonical,
    condition_of,
    signed,
)
from countperf.harness.compiled.packed import leads_to_integers, packed_action, target_of

MOST_STEPS = 6_000_000
"""Integer instructions after which a group is given up."""

_STACK = 0x7FFF_0000_0000
_WATCHED = 2
"""Iterations of a loop that have to be alike before the others are taken to be."""


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction as it is written.

    Attributes
    ----------
    address : int
        Where it is.
    mnemonic, operands : str
        Without prefixes and comments.
    """

    address: int
    mnemonic: str
    operands: str


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Instructions that are executed together.

    ``condition`` decides whether ``target`` follows; without one, it does if it is not None.
    ``suffix`` is the condition's name, ``vectors`` are the vector registers that are written,
    ``called`` is a function that is entered before, ``leaves`` ends the function.
    """

    lines: tuple[int, ...]
    actions: tuple[Action, ...]
    suffix: str
    condition: Condition | None
    target: int | None
    following: int | None
    called: int | None
    leaves: bool
    vectors: tuple[int, ...]


class Program:
    """Code of an object, ready to be followed.

    Parameters
    ----------
    lines : sequence of Line
        All instructions, in order of their addresses.
    entries : Mapping from str to int
        Addresses of functions.
    """

    def __init__(
        self, lines: Sequence[Line], entries: Mapping[str, int], constants: Constants | None = None
    ) -> None:
        self.lines = tuple(lines)
        self.constants = constants or Constants({})
        self.entries = dict(entries)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {line.address: place for place, line in enumerate(self.lines)}

    @cached_property
    def _starts(self) -> frozenset[int]:
        found = {self._places.get(address, -1) for address in self.entries.values()}
        for place, line in enumerate(self.lines):
            if line.mnemonic[0] == "j":
                target = self._target(line)
                found.add(place + 1)
                if target is not None:
                    found.add(target)
        return frozenset(found)

    def _target(self, line: Line) -> int | None:
        text = line.operands.split(maxsplit=1)[0] if line.operands else ""
        try:
            return self._places.get(int(text.removeprefix("0x"), 16))
        except ValueError:
            return None

    @cached_property
    def _blocks(self) -> dict[int, _Block]:
        return {}

    def _block(self, start: int) -> _Block:
        found = self._blocks.get(start)
        if found is None:
            found = self._blocks[start] = self._made(start)
        return found

    def _made(self, start: int) -> _Block:
        actions: list[Action] = []
        vectors: set[int] = set()
        condition: Condition | None = None
        suffix = ""
        target, called, leaves = None, None, False
        place = start
        following: int | None = None
        while True:
            if place >= len(self.lines):
                leaves = True
                break
            line = self.lines[place]
            name = line.mnemonic
            place += 1
            following = place
            if name.startswith("ret") or name in ("ud2", "hlt"):
                leaves = True
                break
            if name.startswith("jmp"):
                target = self._target(line)
                following = None
                leaves = target is None
                break
            if name[0] == "j":
                suffix = name[1:]
                target, condition = self._target(line), condition_of(suffix)
                if condition is None:
                    condition = _unknown
                break
            if name.startswith("call"):
                called = self._target(line)
                break
            action = self._action(line)
            if action is not None:
                actions.append(action)
                vector = target_of(line.operands)
                if vector is not None:
                    vectors.add(vector)
            if place in self._starts:
                break
        return _Block(
            tuple(range(start, place)),
            tuple(actions),
            suffix,
            condition,
            target,
            following,
            called,
            leaves,
            tuple(sorted(vectors)),
        )

    @cached_property
    def _minds_vectors(self) -> bool:
        """Whether integers in vectors are followed, too."""
        return any(leads_to_integers(each.mnemonic, each.operands) for each in self.lines)

    def _action(self, line: Line) -> Action | None:
        operands = line.operands
        if self._minds_vectors and (line.mnemonic[0] == "k" or "mm" in operands):
            if SETS_UNKNOWN_FLAGS.match(line.mnemonic):
                return action_of(line.mnemonic, operands)
            return packed_action(line.mnemonic, operands)
        return action_of(line.mnemonic, operands)

    def executed(self, entry: str, machine: Machine, most_steps: int = MOST_STEPS) -> Counter[int]:
        """Follow a function to its end; return how often each line is executed, by its number.

        Parameters
        ----------
        entry : str
            The function.
        machine : Machine
            Registers and memory as they are when it is called; its stack is provided.
        most_steps : int, optional
            Integer instructions after which the function is given up.

        Raises
        ------
        CountingError
            It takes too long, a loop depends on data, or there is no such function.
        """
        if entry not in self.entries or self.entries[entry] not in self._places:
            raise CountingError(f"there is no function {entry!r}: {', '.join(self.entries)}")
        machine.registers[STACK_POINTER] = _STACK
        machine.constants = self.constants
        start = copy.deepcopy(machine)
        try:
            return self._followed(entry, machine, most_steps)
        except CountingError:
            if self._minds_vectors:
                raise
            # vectors may have written what is read one by one
            self._minds_vectors = True
            self._blocks.clear()
            return self._followed(entry, start, most_steps)

    def _followed(self, entry: str, machine: Machine, most_steps: int) -> Counter[int]:
        counts: Counter[int] = Counter()
        stack: list[int] = []
        place: int | None = self._places[self.entries[entry]]
        steps = 0
        while place is not None:
            block = self._block(place)
            for action in block.actions:
                action(machine)
            counts[place] += 1
            steps += len(block.actions) + 1
            if steps > most_steps:
                raise CountingError(f"gave up after {most_steps} steps")
            if block.called is not None and len(stack) < 16:
                assert block.following is not None
                stack.append(block.following)
                place = block.called
                continue
            if block.leaves:
                place = stack.pop() if stack else None
                continue
            if block.condition is None:
                place = block.following if block.target is None else block.target
                continue
            taken = block.condition(machine)
            if taken is None:
                taken = self._guess(block, place)
            if taken and block.target == place:
                left = (most_steps - steps) // (len(block.actions) + 1)
                more, followed = self._repeated(block, machine, left)
                counts[place] += more
                steps += followed * (len(block.actions) + 1)
                place = block.following
                continue
            if taken and block.target is None:  # a tail call
                place = stack.pop() if stack else None
                continue
            place = block.target if taken else block.following
        found: Counter[int] = Counter()
        for start, count in counts.items():
            for line in self._block(start).lines:
                found[line] += count
        return found

    @cached_property
    def _last_back(self) -> dict[int, int]:
        """The last branch back to each place that branches lead back to."""
        found: dict[int, int] = {}
        for place, line in enumerate(self.lines):
            target = self._target(line) if line.mnemonic[0] == "j" else None
            if target is not None and target <= place:
                found[target] = place
        return found

    def _guess(self, block: _Block, place: int) -> bool:
        """Decide a branch that depends on data: on to what it guards."""
        end = block.lines[-1]
        if (
            block.target is not None
            and block.target <= place
            and self._last_back[block.target] == end
        ):
            raise CountingError(
                f"the loop that ends at {self.lines[end].address:#x} depends on data"
            )
        return False

    def _repeated(self, block: _Block, machine: Machine, most: int) -> tuple[int, int]:
        """Go on with a block that branches to itself, until it does not.

        Returns how often, and in how many iterations of those that were followed one by one; it
        gives up after `most` of these.
        """
        condition = block.condition
        assert condition is not None
        end = self.lines[block.lines[-1]].address
        done, followed, watch_from = 0, 0, 1
        watched: list[_State] = []
        stored = machine.stored
        while True:
            for action in block.actions:
                action(machine)
            done, followed = done + 1, followed + 1
            taken = condition(machine)
            if taken is None:
                raise CountingError(f"the loop that ends at {end:#x} depends on data")
            if not taken:
                return done, followed
            if followed > most:
                raise CountingError(f"gave up on the loop that ends at {end:#x}: it goes on")
            if followed < watch_from:
                continue
            if not watched:
                stored = machine.stored
            watched.append(_state(machine, block))
            if len(watched) > _WATCHED + 1:
                steps = _steps(watched)
                if steps is not None and machine.stored == stored:
                    done += _skip(machine, block.suffix, steps, block.vectors)
                watched, watch_from = [], 2 * followed


def _unknown(machine: Machine) -> bool | None:
    del machine
    return None


_State = tuple[tuple[int | None, ...], Flags | None]


class _Steps(NamedTuple):
    """By how much registers, lanes of vectors and what flags compare grow in each iteration."""

    grown: tuple[int | None, ...]
    first: int
    second: int
    kind: str


def _state(machine: Machine, block: _Block) -> _State:
    lanes = (lane for number in block.vectors for lane in machine.vectors[number])
    return (*machine.registers, *lanes), machine.flags


def _steps(states: Sequence[_State]) -> _Steps | None:
    """Return by how much registers and flags grow from each state to the next; None if unevenly."""
    found = [_difference(one, other) for one, other in itertools.pairwise(states)]
    return found[0] if all(each == found[0] for each in found) else None


def _difference(before: _State, after: _State) -> _Steps | None:
    """Return by how much registers and flags grew; None if that has no meaning."""
    (old, old_flags), (new, new_flags) = before, after
    if old_flags is None or new_flags is None:
        return None
    if (old_flags.kind, old_flags.bits) != (new_flags.kind, new_flags.bits):
        return None

    def signed_difference(a: int, b: int, bits: int) -> int:
        return signed((b - a) % (1 << bits), bits)

    grown = tuple(None if a is None or b is None else b - a for a, b in zip(old, new, strict=True))
    return _Steps(
        grown,
        signed_difference(old_flags.first, new_flags.first, new_flags.bits),
        signed_difference(old_flags.second, new_flags.second, new_flags.bits),
        new_flags.kind,
    )


def _skip(machine: Machine, suffix: str, steps: _Steps, vectors: Sequence[int]) -> int:
    """Go on by iterations that are all alike, to the last that branches back; return how many."""
    grown, first, second, kind = steps
    flags, condition = machine.flags, condition_of(suffix)
    assert flags is not None
    assert condition is not None
    if kind not in ("sub", "add") or not (first or second):
        return 0
    whole = 1 << flags.bits
    if canonical(suffix) in EQUALITY:
        low = _to_equality(flags, first - second if kind == "sub" else first + second, suffix)
    else:
        low = _to_end(machine, condition, flags, first, second, suffix in UNSIGNED)
    one, other = (flags.first + first * low) % whole, (flags.second + second * low) % whole
    result = (one - other if kind == "sub" else one + other) % whole
    machine.flags = Flags(flags.kind, one, other, result, flags.bits)

    def grow(values: Sequence[int | None], by: Sequence[int | None], bits: int) -> list[int | None]:
        return [
            None if value is None or step is None else (value + step * low) & ((1 << bits) - 1)
            for value, step in zip(values, by, strict=True)
        ]

    number = len(machine.registers)
    machine.registers = grow(machine.registers, grown[:number], 64)
    for place, vector in enumerate(vectors):
        start = number + 16 * place
        machine.vectors[vector] = tuple(
            grow(machine.vectors[vector], grown[start : start + 16], 32)
        )
    return low


def _to_equality(flags: Flags, step: int, suffix: str) -> int:
    """Return how many more iterations branch back where the result decides by being zero."""
    if canonical(suffix) == "e":
        return 0
    for left in (flags.result, flags.result - (1 << flags.bits)):
        if step and left % step == 0 and -left // step > 0:
            return -left // step - 1
    return 0


def _to_end(
    machine: Machine,
    condition: Condition,
    flags: Flags,
    first: int,
    second: int,
    is_unsigned: bool,
) -> int:
    """Return how many more iterations branch back where an order decides.

    What is compared changes evenly, so that the order changes once, before anything overflows.
    """
    bits, whole = flags.bits, 1 << flags.bits
    lowest = 0 if is_unsigned else -(whole >> 1)

    def number(value: int) -> int:
        return value if is_unsigned else signed(value, bits)

    starts = number(flags.first), number(flags.second)

    def goes_on(iterations: int) -> bool:
        one, other = starts[0] + first * iterations, starts[1] + second * iterations
        if not (lowest <= one < lowest + whole and lowest <= other < lowest + whole):
            return False
        result = (one - other if flags.kind == "sub" else one + other) % whole
        machine.flags = Flags(flags.kind, one % whole, other % whole, result, bits)
        return bool(condition(machine))

    low, high = 0, 1
    while goes_on(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if goes_on(middle) else (low, middle)
    return low
