"""Extrapolation of loops whose iterations are alike.

Iterations are alike if they take the same way, and registers, flags, what is loaded, and what is
written to the same places of memory grow by the same amounts in each of `_ALIKE` of them. So many
more are taken for granted as no branch or conditional move decides otherwise, and what they load is
what is expected, but for the last ones. Nothing that grows may go into an instruction whose result
does not grow evenly with it, such as a bitwise one or a comparison of vectors (`note_of_step`).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from countperf.machine_code.machine_state import (
    EQUALITY,
    ORDERS,
    REGISTERS,
    UNKNOWN,
    UNSIGNED,
    VECTOR_BYTES,
    Action,
    EffectRecord,
    Flags,
    Lanes,
    Machine,
    Value,
    canonical,
    condition_of,
    operands_of,
    reader,
    signed,
)

_ALIKE = 5
_LAST = 2
_LONGEST = 200_000
"""Steps that are kept to compare iterations."""

_MOST_WRITES = 100_000
"""Known values that are written for iterations that are not followed."""

_LANE_BITS = 32
_STEPS = re.compile(
    r"^(?:s[ha]rx?|shld|ro[rl]|and|or|xor|test|bzhi|bextr|bt|bs[fr]|bswap|pext|pdep|[tl]zcnt|popcnt"
    r"|bls|i?div|i?mul|movz|cbw"
    r"|vps[rl][la]|vpand|vpor|vpxor|vpternlog|vpcmp|vp?test|vpm(?:in|ax|ul)|vpmov\w2m|v?p?movmsk"
    r"|v?p?blendv|vpack|vpabs|vp?maskmov|vpshufb|vpinsr[bw]|vpextr[bw]|vpbroadcast[bw])"
)
"""Instructions whose results do not grow evenly when their operands do."""

_WRITES_ONLY = re.compile(
    r"^(?:movz|s[ha][lr]x|bzhi|bextr|pext|pdep|[tl]zcnt|popcnt|bls|v(?!pternlog|ptest$|testp))"
)
"""Instructions of `_STEPS` that do not read their destination, but for masked ones."""

_LINEAR = re.compile(r"^vp(?:slld|mulld)$")
_IMPLIED = re.compile(r"^i?(?:div|mul)")
_SHIFT_RIGHT = re.compile(r"^s[ha]r[bwlq]?$")
_BITWISE = re.compile(r"^(?:and|or|xor|test)[lq]?$")
_NARROW = re.compile(r"^%(?:e|r\d+d)")
_CONSTANT = re.compile(r"^\$(0x[0-9a-f]+|\d+)$")
_VECTOR = re.compile(r"^%[xyz]mm(\d+)")


class _State(NamedTuple):
    """State at the beginning of an iteration, and lengths of the records."""

    lengths: dict[str, int]
    registers: tuple[Value, ...]
    low: tuple[Value, ...]
    vectors: bytes
    masks: bytes
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
    vectors: npt.NDArray[np.uint32] | None  # None if none grows
    flags: tuple[int, int]
    written: list[_Write]
    iterations: int


@dataclass(slots=True)
class _Watch:
    count: int = 0
    watched_from: int = 1
    states: list[_State] = field(default_factory=list[_State])


class Loops:
    """The loops of a function that are being gone through."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._watches: dict[tuple[int, int], _Watch] = {}
        machine.journal = EffectRecord()

    def passed(
        self,
        position: int,
        suffix: str = "",
        taken: bool | None = None,
        flags: Flags | None = None,
        times: int = 1,
    ) -> None:
        """Note that a block was executed, what its branch decided by, and how often."""
        self.machine.journal.passed.append((position, taken, times))
        self.machine.journal.branched.append((suffix, flags))

    def back(self, position: int, target: int) -> Counter[int]:
        """Go on by iterations that are alike, where a branch leads back."""
        for inner in [key for key in self._watches if target <= key[1] and key[0] < position]:
            del self._watches[inner]
        watch = self._watches.setdefault((position, target), _Watch())
        watch.count += 1
        if len(self.machine.journal.passed) > _LONGEST:
            for other in self._watches.values():
                other.watched_from, other.states = 2 * other.count, []
            self.machine.journal = EffectRecord()
        if watch.count < watch.watched_from:
            return Counter()
        if not any(other.states for other in self._watches.values()):
            self.machine.journal = EffectRecord()
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

    def _state(self) -> _State:
        machine = self.machine
        return _State(
            {name: len(record) for name, record in vars(machine.journal).items()},
            tuple(machine.registers),
            tuple(machine.low),
            machine.vectors.tobytes(),
            machine.masks.tobytes(),
            machine.flags,
        )

    def _by_iteration(self, name: str, states: Sequence[_State]) -> list[tuple[Any, ...]] | None:
        """Return what stands side by side in a record; None if some iterations have more."""
        record, starts = getattr(self.machine.journal, name), [s.lengths[name] for s in states]
        slices = [record[a:b] for a, b in itertools.pairwise(starts)]
        return None if len(set(map(len, slices))) > 1 else list(zip(*slices, strict=True))

    def _growth(self, states: Sequence[_State]) -> _Growth | None:
        """Return by how much everything grows; None if iterations are not alike."""
        ways = self._by_iteration("passed", states)
        if ways is None or any(len(set(blocks)) > 1 for blocks in ways):
            return None
        if len({(state.low, state.masks) for state in states}) > 1 or not self._has_even(states):
            return None
        flags = even_flags([state.flags for state in states])
        registers = even([state.registers for state in states], 64)
        is_even, vectors = _even_vectors([state.vectors for state in states])
        written = self._describe_writes(states)
        iterations = self._iterations(states)
        if iterations is not None:
            iterations = self._with_alike_loads(states, iterations)
        if flags is None or registers is None or not is_even or written is None or not iterations:
            return None
        if any(write.step for write in written) and iterations * len(written) > _MOST_WRITES:
            return None
        return _Growth(registers, vectors, flags, written, iterations)

    def _describe_writes(self, states: Sequence[_State]) -> list[_Write] | None:
        """Return what is written to which places; None if that does not grow evenly."""
        rows = self._by_iteration("written", states)
        if rows is None:
            return None
        written: list[_Write] = []
        for writes in rows:
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
            written.append(_Write(address, bits, value, grown[0], step[0]))
        return written

    def _iterations(self, states: Sequence[_State]) -> int | None:
        """Return for how many more iterations all is decided alike; None for endless ones."""
        branches = self._by_iteration("branched", states)
        moves = self._by_iteration("decided", states)
        if branches is None or moves is None:
            return None
        least: int | None = None
        for decisions in (*branches, *moves):
            suffixes = {suffix for suffix, _ in decisions}
            flags = [move for _, move in decisions]
            if any(move is not None for move in flags):
                growth = even_flags(flags)
                if growth is None or len(suffixes) > 1:
                    return None
                more = iterations_alike(flags[-1], growth, suffixes.pop())
                if more is not None:
                    least = more if least is None else min(least, more)
        return least - _LAST if least is not None and least > _LAST else None

    def _has_even(self, states: Sequence[_State]) -> bool:
        """Say whether nothing that grows goes where results do not grow evenly with it."""
        rows = self._by_iteration("stepped", states)
        for operands in rows or ():
            if any(entry != operands[0] for entry in operands):
                (shift, *others) = {shift for shift, _ in operands}
                if others or shift is None:
                    return False
                grown = even([values[:1] for _, values in operands], 64)
                if grown is None or grown[0] % (1 << shift):
                    return False
        return rows is not None

    def _with_alike_loads(self, states: Sequence[_State], most: int) -> int | None:
        """Return for how many more iterations what is loaded grows as before; None for none."""
        rows = self._by_iteration("loaded", states)
        if rows is None:
            return None
        for loads in rows:
            step = even([(address,) for address, _, _ in loads], 64)
            bits = loads[0][1]
            grown = even([(value,) for _, _, value in loads], bits)
            if step is None or grown is None or any(load[1] != bits for load in loads):
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
        if growth.vectors is not None:
            grown = _words(machine.vectors) + growth.vectors * np.uint32(times % (1 << _LANE_BITS))
            known = machine.vectors >= 0
            machine.vectors[:] = np.where(known, grown.view(np.uint8).astype(np.int16), UNKNOWN)
        if machine.flags is not None:
            machine.flags = grown_flags(machine.flags, *growth.flags, times)
        moves = any(write.step for write in growth.written)
        for number in range(1, times + 1) if moves else (times,):
            for write in growth.written:
                value = (write.value + write.grown * number) % (1 << write.bits)
                machine.store(write.address + write.step * number, write.bits, value)
        counts: Counter[int] = Counter()
        way = slice(before.lengths["passed"], now.lengths["passed"])
        for position, _, number in machine.journal.passed[way]:
            counts[position] += number * times
        for position, number in counts.items():
            self.passed(position, times=number)
        return counts


def _words(vectors: Lanes) -> npt.NDArray[np.uint32]:
    """Return vectors as integers of 32 bits, with zeros for unknown bytes."""
    return np.where(vectors < 0, 0, vectors).astype(np.uint8).view(np.uint32)


def even(rows: Sequence[Sequence[Value]], bits: int) -> tuple[int, ...] | None:
    """Return by how much values grow from each row to the next; None if unevenly."""
    growth: list[int] = []
    for values in zip(*rows, strict=True):
        known = [value for value in values if value is not None]
        if not known:
            growth.append(0)
            continue
        steps = {(b - a) % (1 << bits) for a, b in itertools.pairwise(known)}
        if len(known) < len(values) or len(steps) > 1:
            return None
        growth.append(signed(steps.pop(), bits))
    return tuple(growth)


def _even_vectors(rows: Sequence[bytes]) -> tuple[bool, npt.NDArray[np.uint32] | None]:
    """Say whether words of vector registers grow evenly, and by how much; None if none does."""
    if len(set(rows)) == 1:
        return True, None
    vectors = np.frombuffer(b"".join(rows), np.int16).reshape(len(rows), -1, VECTOR_BYTES)
    grown: Any = np.diff(_words(vectors), axis=0)
    known: Any = vectors >= 0
    return bool((known == known[0]).all() and (grown == grown[0]).all()), grown[0]


def even_flags(flags: Sequence[Flags | None]) -> tuple[int, int] | None:
    """Return by how much what flags compare grows; None if unevenly."""
    if all(flag is None for flag in flags):
        return 0, 0
    steps = {_growth_of(a, b) for a, b in itertools.pairwise(flags)}
    return steps.pop() if len(steps) == 1 else None


def _growth_of(before: Flags | None, after: Flags | None) -> tuple[int, int] | None:
    """Return by how much what flags compare grew; None if that has no meaning."""
    if before is None or after is None:
        return None
    if (before.kind, before.bits) != (after.kind, after.bits):
        return None
    if after.kind == "exact":
        return (0, 0) if before == after else None
    whole = 1 << after.bits
    return (
        signed((after.first - before.first) % whole, after.bits),
        signed((after.second - before.second) % whole, after.bits),
    )


def grown_flags(flags: Flags, first: int, second: int, times: int) -> Flags:
    """Return flags after what they compare has grown so many times."""
    if not (first or second):
        return flags
    whole = 1 << flags.bits
    one, other = (flags.first + first * times) % whole, (flags.second + second * times) % whole
    result = (one - other if flags.kind == "sub" else one + other) % whole
    return Flags(flags.kind, one, other, result, flags.bits)


def iterations_alike(flags: Flags | None, growth: tuple[int, int], suffix: str) -> int | None:
    """Return for how many more iterations a condition decides alike; None if for good."""
    if flags is None or growth == (0, 0):
        return None
    if canonical(suffix) in EQUALITY:
        if flags.result == 0:
            return 0
        return to_equality(flags, *growth)
    if canonical(suffix) not in ORDERS:
        return 0
    return to_change(flags, *growth, suffix)


def to_equality(flags: Flags, first: int, second: int) -> int | None:
    """Return how many more iterations there are before what is compared is equal; None for ever."""
    step = first - second if flags.kind == "sub" else first + second
    for left in (flags.result, flags.result - (1 << flags.bits)):
        if step and left % step == 0 and -left // step > 0:
            return -left // step - 1
    return None


def to_change(flags: Flags, first: int, second: int, suffix: str) -> int:
    """Return how many more iterations decide as flags do now where an order decides.

    What is compared changes evenly, so that the order changes once, before anything overflows.
    """
    bits, whole = flags.bits, 1 << flags.bits
    is_unsigned = canonical(suffix) in UNSIGNED
    lowest = 0 if is_unsigned else -(whole >> 1)
    condition = condition_of(suffix)
    assert condition is not None
    machine = Machine()
    machine.flags = flags
    now = condition(machine)

    def number(value: int) -> int:
        return value if is_unsigned else signed(value, bits)

    starts = number(flags.first), number(flags.second)

    def goes_on(iterations: int) -> bool:
        one, other = starts[0] + first * iterations, starts[1] + second * iterations
        if not (lowest <= one < lowest + whole and lowest <= other < lowest + whole):
            return False
        machine.flags = grown_flags(flags, first, second, iterations)
        return condition(machine) == now

    low, high = 0, 1
    while goes_on(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if goes_on(middle) else (low, middle)
    return low


def note_of_step(mnemonic: str, operands: str) -> Action | None:
    """Return the action that notes operands of a result that grows by steps, if any."""
    parts = operands_of(operands)
    is_product = mnemonic.startswith("imul") and len(parts) > 1  # of which the high half is lost
    if is_product or not _STEPS.match(mnemonic) or (len(parts) > 1 and parts[0] == parts[1]):
        return None
    if _LINEAR.match(mnemonic):  # lane by lane, whatever is carried out of these
        return None
    if len(parts) > 1 and "{" not in parts[-1] and _WRITES_ONLY.match(mnemonic):
        del parts[-1]
    vectors = [int(match[1]) for part in parts if (match := _VECTOR.match(part))]
    if vectors:

        def note_vectors(machine: Machine) -> None:
            content = machine.vectors[vectors].tobytes()
            machine.journal.stepped.append((None, (int.from_bytes(content, "little"),)))

        return note_vectors
    shift = _low_bits(mnemonic, parts)
    implied = ("%rax", "%rdx") if _IMPLIED.match(mnemonic) else ()
    named = (*parts, *implied) if shift is None else parts[-1:]
    reads = [reader(part, 64 if part in REGISTERS else 32) for part in named]

    def note(machine: Machine) -> None:
        machine.journal.stepped.append((shift, tuple(read(machine) for read in reads)))

    return note


def _low_bits(mnemonic: str, parts: Sequence[str]) -> int | None:
    """Return how many low bits of an operand an instruction changes in its own way.

    What grows by multiples of ``1 << bits`` leaves them as they are, so that the result grows
    evenly: of shifts to the right by constants, and of ``and``, ``or`` and ``xor`` with constants
    whose other bits are all zeros or all ones. None for other instructions.
    """
    constant = _CONSTANT.match(parts[0]) if parts else None
    if _SHIFT_RIGHT.match(mnemonic) and (constant or len(parts) == 1):
        return int(constant[1], 0) if constant else 1
    if constant is None or len(parts) != 2 or not _BITWISE.match(mnemonic):
        return None
    value = int(constant[1], 0)
    width = 32 if mnemonic.endswith("l") or _NARROW.match(parts[1]) else 64
    if value >> (width - 1):
        value = ~value & ((1 << width) - 1)
    return value.bit_length()
