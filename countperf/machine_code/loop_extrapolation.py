"""Extrapolation of loops of several blocks whose iterations are alike.

Iterations are alike if they take the same way, and registers, flags, what is loaded, and what is
written to the same places of memory grow by the same amounts in each of `_ALIKE` of them. So many
more are taken for granted as no branch or conditional move decides otherwise, and what they load is
what is expected, but for the last ones. Nothing that grows may go into an instruction whose result
does not grow evenly with it, such as a bitwise one or a comparison of vectors.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from countperf.machine_code.even_growth import (
    ENDLESS,
    even,
    even_flags,
    even_vectors,
    grown_flags,
    iterations_alike,
    without_carry,
)
from countperf.machine_code.machine_state import Flags, Journal, Lanes, Machine, Value

_ALIKE = 5
_LAST = 2
_LONGEST = 200_000
"""Steps that are kept to compare iterations."""

_MOST_WRITES = 100_000
"""Known values that are written for iterations that are not followed."""


_Passed = tuple[int, bool | None, int]
"""A block, whether its branch was taken, and how often; several times where it is a loop."""


class _State(NamedTuple):
    """State at the beginning of an iteration, and positions in the record."""

    passed: int
    written: int
    loaded: int
    stepped: int
    decided: int
    registers: tuple[Value, ...]
    low: tuple[Value, ...]
    vectors: tuple[Lanes, ...]
    masks: tuple[tuple[int, int], ...]
    flags: Flags | None


class _Write(NamedTuple):
    """A known value that iterations write: the last one, and growth of value and place."""

    address: int
    bits: int
    value: int
    grown: int
    step: int


class _Growth(NamedTuple):
    """Growth of the state per iteration."""

    registers: tuple[int, ...]
    vectors: dict[int, tuple[int, ...]]
    flags: tuple[int, int]
    written: list[_Write]
    iterations: int


@dataclass(slots=True)
class _Watch:
    count: int = 0
    watched_from: int = 1
    states: list[_State] = field(default_factory=list[_State])


@dataclass(slots=True)
class Loops:
    """The way through a function, and the loops that are being gone through."""

    machine: Machine  # the processor
    _way: list[_Passed] = field(default_factory=list[_Passed])
    _flags: list[tuple[str, Flags | None]] = field(default_factory=list[tuple[str, Flags | None]])
    _watches: dict[tuple[int, int], _Watch] = field(default_factory=dict[tuple[int, int], _Watch])

    def __post_init__(self) -> None:
        self._begin()

    def passed(
        self, place: int, suffix: str = "", taken: bool | None = None, flags: Flags | None = None
    ) -> None:
        """Note that a block was executed, and what its branch decided by."""
        self._way.append((place, taken, 1))
        self._flags.append((suffix, flags))

    def repeated(self, place: int, times: int) -> None:
        """Note that a block was executed several times more."""
        self._way.append((place, None, times))
        self._flags.append(("", None))

    def back(self, place: int, target: int) -> Counter[int]:
        """Go on by iterations that are alike, where a branch leads back."""
        for inner in [key for key in self._watches if target <= key[1] and key[0] < place]:
            del self._watches[inner]
        watch = self._watches.setdefault((place, target), _Watch())
        watch.count += 1
        if len(self._way) > _LONGEST:
            for each in self._watches.values():
                each.watched_from, each.states = 2 * each.count, []
            self._begin()
        if watch.count < watch.watched_from:
            return Counter()
        if not any(each.states for each in self._watches.values()):
            self._begin()
        watch.states.append(self._state())
        if len(watch.states) <= _ALIKE:
            return Counter()
        growth = self._growth(watch.states)
        last = watch.states[-2:]
        watch.states = []
        if growth is None:
            watch.watched_from = 2 * watch.count
            return Counter()
        return self._go_on(growth, *last)

    def _begin(self) -> None:
        self._way.clear()
        self._flags.clear()
        self.machine.journal = Journal()

    def _state(self) -> _State:
        machine = self.machine
        return _State(
            len(self._way),
            len(machine.journal.written),
            len(machine.journal.loaded),
            len(machine.journal.stepped),
            len(machine.journal.decided),
            tuple(machine.registers),
            tuple(machine.low),
            tuple(machine.vectors),
            tuple(machine.masks),
            machine.flags,
        )

    def _growth(self, states: Sequence[_State]) -> _Growth | None:
        """Return by how much everything grows; None if iterations are not alike."""
        ways = [self._way[a.passed : b.passed] for a, b in itertools.pairwise(states)]
        if any(way != ways[0] for way in ways):
            return None
        if len({(state.low, state.masks) for state in states}) > 1:
            return None
        carried = self._even_steps(states)
        if carried is None:
            return None
        flags = even_flags([state.flags for state in states])
        registers = even([state.registers for state in states], 64)
        vectors = even_vectors([state.vectors for state in states])
        written = self._written(states)
        iterations = self._iterations(states)
        if iterations is not None:
            iterations = self._with_alike_loads(states, min(iterations, carried))
        if (
            flags is None
            or registers is None
            or vectors is None
            or written is None
            or iterations is None
            or (any(e.step for e in written) and iterations * len(written) > _MOST_WRITES)
        ):
            return None
        return _Growth(registers, vectors, flags, written, iterations)

    def _written(self, states: Sequence[_State]) -> list[_Write] | None:
        """Return what is written to which places; None if that does not grow evenly."""
        log = self.machine.journal.written
        slices = [log[a.written : b.written] for a, b in itertools.pairwise(states)]
        if len({len(each) for each in slices}) > 1:
            return None
        found: list[_Write] = []
        for writes in zip(*slices, strict=True):
            values = [value for _, _, value in writes]
            if all(value is None for value in values):
                continue
            step = even([(address,) for address, _, _ in writes], 64)
            grown = even([(value,) for value in values], 64)
            same_bits = len({bits for _, bits, _ in writes}) == 1
            if step is None or grown is None or not same_bits:
                return None
            address, bits, value = writes[-1]
            if value is None:
                return None
            found.append(_Write(address, bits, value, grown[0], step[0]))
        return found

    def _iterations(self, states: Sequence[_State]) -> int | None:
        """Return for how many more iterations all is decided alike; None for endless ones."""
        branches = [self._flags[a.passed : b.passed] for a, b in itertools.pairwise(states)]
        log = self.machine.journal.decided
        moves = [log[a.decided : b.decided] for a, b in itertools.pairwise(states)]
        if len({len(each) for each in moves}) > 1:
            return None
        least: int | None = None
        for decisions in itertools.chain(zip(*branches, strict=True), zip(*moves, strict=True)):
            suffixes = {suffix for suffix, _ in decisions}
            flags = [each for _, each in decisions]
            if all(each is None for each in flags):
                continue
            growth = even_flags(flags)
            if growth is None or len(suffixes) > 1:
                return None
            more = iterations_alike(flags[-1], growth, suffixes.pop())
            if more is not None:
                least = more if least is None else min(least, more)
        return least - _LAST if least is not None and least > _LAST else None

    def _even_steps(self, states: Sequence[_State]) -> int | None:
        """Return for how many iterations nothing that grows makes what does not grow evenly."""
        log = self.machine.journal.stepped
        slices = [log[a.stepped : b.stepped] for a, b in itertools.pairwise(states)]
        if len({len(each) for each in slices}) > 1:
            return None
        most = ENDLESS
        for operands in zip(*slices, strict=True):
            if all(each == operands[0] for each in operands):
                continue
            shifts = {shift for shift, _ in operands}
            shift = shifts.pop()
            if shifts or shift is None:
                return None
            if shift < 0:
                fitting = without_carry([values for _, values in operands], -shift)
                if fitting is None:
                    return None
                most = min(most, fitting)
                continue
            grown = even([values[:1] for _, values in operands], 64)
            if grown is None or grown[0] % (1 << shift):
                return None
        return most

    def _with_alike_loads(self, states: Sequence[_State], most: int) -> int | None:
        """Return for how many more iterations what is loaded grows as before; None for none."""
        log = self.machine.journal.loaded
        slices = [log[a.loaded : b.loaded] for a, b in itertools.pairwise(states)]
        if len({len(each) for each in slices}) > 1:
            return None
        for loads in zip(*slices, strict=True):
            step = even([(address,) for address, _, _ in loads], 64)
            bits = loads[0][1]
            grown = even([(value,) for _, _, value in loads], bits)
            if step is None or grown is None or any(each[1] != bits for each in loads):
                return None
            address, _, value = loads[-1]
            if step[0]:
                for number in range(1, most + 1):
                    expected = (value + grown[0] * number) % (1 << bits)
                    if self.machine.look(address + step[0] * number, bits) != expected:
                        most = number - 1
                        break
        return most or None

    def _go_on(self, growth: _Growth, before: _State, now: _State) -> Counter[int]:
        machine, times = self.machine, growth.iterations
        machine.registers[:] = [
            None if value is None else (value + by * times) % (1 << 64)
            for value, by in zip(machine.registers, growth.registers, strict=True)
        ]
        for number, lanes in growth.vectors.items():
            machine.vectors[number] = tuple(
                None if value is None else (value + by * times) % (1 << 32)
                for value, by in zip(machine.vectors[number], lanes, strict=True)
            )
        if machine.flags is not None:
            machine.flags = grown_flags(machine.flags, *growth.flags, times)
        moves = any(each.step for each in growth.written)
        for number in range(1, times + 1) if moves else (times,):
            for each in growth.written:
                value = (each.value + each.grown * number) % (1 << each.bits)
                machine.store(each.address + each.step * number, each.bits, value)
        found: Counter[int] = Counter()
        for place, _, number in self._way[before.passed : now.passed]:
            found[place] += number * times
        for place, number in found.items():
            self.repeated(place, number)
        return found
