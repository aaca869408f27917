"""Execution counts of a function's instructions, found by following them with concrete sizes.

Integers are followed through the code: sizes, numbers of groups, places of arrays and whatever
loops count are known, data is not.

Rules
-----
1. A branch that depends on data goes on to the next instruction: what it guards is executed. The
   last one back to the beginning of a loop is refused: nobody knows how often.
2. Iterations of a loop of one block whose integers all grow by the same amounts are not followed
   one by one.
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

from countperf.errors import CountingError
from countperf.machine_code.avx512 import leads_to_integers, packed_action, target_of
from countperf.machine_code.carried_bits import carried_action
from countperf.machine_code.conditions import condition_of
from countperf.machine_code.integer_operands import (
    Action,
    Condition,
    Read,
    address_of,
    operands_of,
    reader,
)
from countperf.machine_code.integer_unit import SETS_UNKNOWN_FLAGS, action_of
from countperf.machine_code.loop_extrapolation import (
    Loops,
    note_of_step,
)
from countperf.machine_code.machine_state import (
    STACK_POINTER,
    Constants,
    Machine,
    Value,
)
from countperf.machine_code.needed_vectors import needed_lines
from countperf.machine_code.repeated_block import State, skip_iterations, state_of, steps_between
from countperf.machine_code.unfollowed_calls import DIVISION, divide, forget_call, take_quotient

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Way in which a block ends."""

    suffix: str = ""
    condition: Condition | None = None
    target: int | None = None
    following: int | None = None
    called: int | Read | None = None
    leaves: bool = False
    returns: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Instructions that are executed together.

    ``condition`` decides whether ``target`` follows; without one, it does if it is not None.
    ``suffix`` is the condition's name, ``vectors`` are the vector registers that are written,
    ``called`` is a function that is entered before, by place or by what computes its address;
    ``leaves`` ends the function. ``steps`` are the actions that take no notes, and one.
    """

    lines: tuple[int, ...]
    actions: tuple[Action, ...]
    suffix: str
    condition: Condition | None
    target: int | None
    following: int | None
    called: int | Read | None
    leaves: bool
    vectors: tuple[int, ...]
    steps: int


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

    def straight(self, executed: Mapping[int, int]) -> list[tuple[tuple[int, ...], bool]]:
        """Return lines that are executed one after the other, equally often.

        Parameters
        ----------
        executed : mapping from int to int
            How often each line is.

        Returns
        -------
        list of (tuple of int, bool)
            Numbers of lines, in order, and whether the last one branches to the first.
        """
        found: list[list[int]] = []
        ended = True
        for place in sorted(executed):
            if (
                ended
                or place in self._starts
                or place != found[-1][-1] + 1
                or executed[place] != executed[found[-1][-1]]
            ):
                found.append([])
            found[-1].append(place)
            ended = self.lines[place].mnemonic.startswith(("j", "ret", "call"))
        return [(tuple(each), self._repeats(each)) for each in found]

    def _repeats(self, places: Sequence[int]) -> bool:
        last = self.lines[places[-1]]
        return last.mnemonic[0] == "j" and self._target(last) == places[0]

    def _target(self, line: Line) -> int | None:
        text = line.operands.split(maxsplit=1)[0] if line.operands else ""
        try:
            return self._places.get(int(text.removeprefix("0x"), 16))
        except ValueError:
            return None

    @cached_property
    def _blocks(self) -> dict[tuple[int, bool], _Block]:
        return {}

    def _block(self, start: int, *, notes: bool = False) -> _Block:
        found = self._blocks.get((start, notes))
        if found is None:
            found = self._blocks[start, notes] = self._made(start, notes=notes)
        return found

    def _made(self, start: int, *, notes: bool) -> _Block:
        actions: list[Action] = []
        steps = 1
        vectors: set[int] = set()
        if start in self._divisions:
            actions.append(self._divisions[start])
        place = start
        end: _End | None = None
        while end is None and place < len(self.lines):
            line = self.lines[place]
            end = self._end_of(line, place + 1)
            if end is not None:
                if end.returns and place in self._after_division:
                    actions.append(take_quotient)
            else:
                actions += self._notes_of_line(place, notes=notes)
                action = self._action(place)
                if action is not None:
                    actions.append(action)
                    steps += 1
                    vector = target_of(line.operands)
                    if vector is not None:
                        vectors.add(vector)
                if place + 1 in self._starts:
                    end = _End(following=place + 1)
            place += 1
        if end is None:  # the code ends
            end = _End(following=place if place > start else None, leaves=True)
        return _Block(
            tuple(range(start, place)),
            tuple(actions),
            end.suffix,
            end.condition,
            end.target,
            end.following,
            end.called,
            end.leaves,
            tuple(sorted(vectors)),
            steps,
        )

    def _end_of(self, line: Line, following: int) -> _End | None:
        """Return how a line ends a block; None if the next line follows."""
        name = line.mnemonic
        if name.startswith("ret") or name in ("ud2", "hlt"):
            return _End(following=following, leaves=True, returns=True)
        if name.startswith("jmp"):
            target = self._target(line)
            return _End(target=target, leaves=target is None)
        if name[0] == "j":
            return _End(
                suffix=name[1:],
                condition=condition_of(name[1:]) or _unknown,
                target=self._target(line),
                following=following,
            )
        if name.startswith("call"):
            called = self._target(line)
            if line.operands.startswith("*"):
                called = reader(line.operands[1:], 64)
            return _End(following=following, called=_unknown_place if called is None else called)
        return None

    def _notes_of_line(self, place: int, *, notes: bool) -> Iterator[Action]:
        """Yield what takes notes of accesses, decisions and steps before a line is followed."""
        line = self.lines[place]
        name = line.mnemonic
        if notes and "(" in line.operands and not name.startswith(_NO_ACCESS):
            yield from _notes_of(place, line.operands)
        if name.startswith(_DECIDING):
            yield _note_decision(name.removeprefix("cmov").removeprefix("set"))
        step = note_of_step(name, line.operands)
        if step is not None and (self._is_followed(place) or "mm" not in line.operands):
            yield step

    @cached_property
    def _minds_vectors(self) -> bool:
        """Whether integers in vectors are followed, too."""
        return any(leads_to_integers(each.mnemonic, each.operands) for each in self.lines)

    def _action(self, place: int) -> Action | None:
        line = self.lines[place]
        operands = line.operands
        if self._minds_vectors and (line.mnemonic[0] == "k" or "mm" in operands):
            if SETS_UNKNOWN_FLAGS.match(line.mnemonic):
                return action_of(line.mnemonic, operands)
            if place not in self._needed:
                return None
            return packed_action(line.mnemonic, operands)
        return carried_action(line.mnemonic, operands) or action_of(line.mnemonic, operands)

    def _is_followed(self, place: int) -> bool:
        """Say whether an instruction with vectors is followed."""
        return self._minds_vectors and place in self._needed

    @cached_property
    def _needed(self) -> frozenset[int]:
        """Instructions with vectors that can decide anything."""
        blocks: list[list[int]] = [[]]
        for place, line in enumerate(self.lines):
            if place in self._starts:
                blocks.append([])
            blocks[-1].append(place)
            if line.mnemonic.startswith(("j", "ret", "call")):
                blocks.append([])
        lines = [(line.mnemonic, line.operands) for line in self.lines]
        return needed_lines(lines, blocks, range(2) if self._divisions else ())

    def executed(self, entry: str, machine: Machine, most_steps: int = MOST_STEPS) -> Counter[int]:
        """Follow a function to its end; return how often each line is executed, by its number.

        Parameters
        ----------
        entry : str
            The function.
        machine : Machine
            Registers and memory as they are when it is called; its stack is provided. Afterwards
            it has noted where lines accessed memory when they were executed first.
        most_steps : int, optional
            Integer instructions after which the function is given up.

        Raises
        ------
        CountingError
            It takes too long, a loop depends on data, or there is no such function.
        """
        if entry not in self.entries or self.entries[entry] not in self._places:
            raise CountingError(f"there is no function {entry!r}: {', '.join(self.entries)}")
        machine.registers[STACK_POINTER] = STACK
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
            start.accessed = machine.accessed
            machine.accessed.clear()
            return self._followed(entry, start, most_steps)

    def _followed(self, entry: str, machine: Machine, most_steps: int) -> Counter[int]:
        counts: Counter[int] = Counter()
        stack: list[int] = []
        place: int | None = self._places[self.entries[entry]]
        steps = 0
        loops = Loops(machine)
        while place is not None:
            block = self._block(place, notes=place not in counts)
            for action in block.actions:
                action(machine)
            counts[place] += 1
            steps += block.steps
            if steps > most_steps:
                raise CountingError(f"gave up after {most_steps} steps")
            if block.condition is None:
                loops.passed(place)
            if block.called is not None and block.following is not None:
                place = self._entered(block.called, block.following, machine, stack)
                continue
            if block.leaves:
                if self.lines[block.lines[-1]].mnemonic.startswith("jmp"):
                    forget_call(machine)  # on to a function of which nothing is known
                place = stack.pop() if stack else None
                continue
            if block.condition is None:
                before, place = place, block.following if block.target is None else block.target
                if block.target is not None and block.target <= before:
                    counts.update(loops.back(before, block.target))
                continue
            flags = machine.flags
            taken = block.condition(machine)
            if taken is None:
                flags = None
                taken = self._shorter(block) if stack else self._guess(block, place)
            loops.passed(place, block.suffix, taken, flags)
            if taken and block.target == place:
                block = self._block(place)
                left = (most_steps - steps) // block.steps
                more, followed = self._repeated(block, machine, left)
                counts[place] += more
                loops.repeated(place, more)
                steps += followed * block.steps
                place = block.following
                continue
            if taken and block.target is None:  # a tail call
                place = stack.pop() if stack else None
                continue
            if taken and block.target is not None and block.target < place:
                counts.update(loops.back(place, block.target))
            place = block.target if taken else block.following
        return self._lines_of(counts)

    def _entered(
        self,
        called: int | Read,
        following: int,
        machine: Machine,
        stack: list[int],
    ) -> int:
        """Return where a call leads: past it, if nothing is known of the function."""
        if not isinstance(called, int):
            called = self._places.get(called(machine) or -1, -1)
        if called >= 0 and len(stack) < _DEEPEST:
            stack.append(following)
            return called
        forget_call(machine)
        return following

    def _lines_of(self, blocks: Mapping[int, int]) -> Counter[int]:
        """Return how often each line runs, from how often each block does."""
        found: Counter[int] = Counter()
        for start, count in blocks.items():
            for line in self._block(start, notes=True).lines:
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

    def _shorter(self, block: _Block) -> bool:
        """Decide a branch that depends on data in a function that is called."""
        if block.target is None or block.following is None:
            return True
        return self._to_end.get(block.target, _ENDLESS) < self._to_end.get(
            block.following, _ENDLESS
        )

    @cached_property
    def _to_end(self) -> dict[int, int]:
        """The least number of lines from each to one that returns; a call is as bad as many."""
        into: dict[int, list[int]] = {}
        ends: list[int] = []
        for place, line in enumerate(self.lines):
            name, target = line.mnemonic, self._target(line) if line.mnemonic[0] == "j" else None
            if name.startswith("ret") or (name[0] == "j" and target is None):
                ends.append(place)
                if name.startswith(("ret", "jmp")):
                    continue
            if target is not None:
                into.setdefault(target, []).append(place)
            if not name.startswith(("jmp", "ud2", "hlt")):
                into.setdefault(place + 1, []).append(place)
        found: dict[int, int] = {}
        waiting = [(1, place) for place in ends]
        heapq.heapify(waiting)
        while waiting:
            length, place = heapq.heappop(waiting)
            if place in found:
                continue
            found[place] = length
            for each in into.get(place, ()):
                is_call = self.lines[each].mnemonic.startswith("call")
                heapq.heappush(waiting, (length + (_CALL if is_call else 1), each))
        return found

    @cached_property
    def _divisions(self) -> dict[int, Action]:
        """Division functions by address."""
        found: dict[int, Action] = {}
        for name, address in self.entries.items():
            kind = DIVISION.fullmatch(name)
            if kind is not None and address in self._places:
                found[self._places[address]] = divide(kind[1] == "i", kind[2], int(kind[3]))
        return found

    @cached_property
    def _after_division(self) -> frozenset[int]:
        """Return addresses of division functions."""
        found: set[int] = set()
        for place in self._divisions:
            while place < len(self.lines) and not self.lines[place].mnemonic.startswith("ret"):
                place += 1
            found.add(place)
        return frozenset(found)

    def _repeated(self, block: _Block, machine: Machine, most: int) -> tuple[int, int]:
        """Go on with a block that branches to itself, until it does not.

        Returns how often, and in how many iterations of those that were followed one by one; it
        gives up after `most` of these.
        """
        condition = block.condition
        assert condition is not None
        end = self.lines[block.lines[-1]].address
        done, followed, watch_from = 0, 0, 1
        watched: list[State] = []
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
            watched.append(state_of(machine, block.vectors))
            if len(watched) > _WATCHED + 1:
                steps = steps_between(watched)
                if steps is not None and machine.stored == stored:
                    done += skip_iterations(machine, block.suffix, steps, block.vectors)
                watched, watch_from = [], 2 * followed


def _notes_of(number: int, operands: str) -> list[Action]:
    """Return what notes where an instruction accesses memory, but for gathers and scatters."""
    place = next(part for part in operands_of(operands) if "(" in part)
    address = address_of(_DECORATION.sub("", place))
    if address is None:
        return []

    def note(machine: Machine) -> None:
        value = address(machine)
        if value is not None:
            machine.accessed.setdefault(number, value)

    return [note]


def _note_decision(suffix: str) -> Action:
    def note(machine: Machine) -> None:
        machine.journal.decided.append((suffix, machine.flags))

    return note


def _unknown_place(machine: Machine) -> Value:
    del machine
    return None


def _unknown(machine: Machine) -> bool | None:
    del machine
    return None
