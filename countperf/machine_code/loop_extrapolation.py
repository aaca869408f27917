"""Extrapolation of loops whose iterations are alike.

They are if they take the same way, and registers, flags, what is loaded and written grow by the
same amounts in `_ALIKE` of them. So many more are taken for granted as no branch or conditional
move decides otherwise, and what they load is what is expected. Nothing that grows may go into an
instruction whose result does not grow evenly with it (`note_of_step`).
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
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
    read_signed,
    reader,
)

_ALIKE = 3
_LONGEST = 200_000  # steps that are kept to compare iterations

_MOST_WRITES = 100_000  # known values that are written for iterations that are not followed

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
    constant: tuple[object, ...]  # the lowest bytes, and masks
    vectors: bytes
    flags: Flags | None


class _Write(NamedTuple):
    """A known value that iterations write: the last one, and growth of value and place."""

    address: int
    bits: int
    value: int
    grown: int
    step: int


class _Watch:
    """Iterations of a loop that were seen, and states of those that are compared."""

    def __init__(self) -> None:
        self.count, self.watched_from = 0, 1
        self.states: list[_State] = []


class Loops:
    """The loops of a function that are being gone through."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._watches: dict[tuple[int, int], _Watch] = {}
        machine.journal = EffectRecord()

    def note_block(
        self,
        position: int,
        suffix: str = "",
        taken: bool | None = None,
        flags: Flags | None = None,
        times: int = 1,
    ) -> None:
        """Note that a block was executed, what its branch decided by, and how often."""
        self.machine.journal.passed.append((position, taken, times))
        self.machine.journal.decided.append((suffix, flags))

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
        states = [*watch.states, self._state()]
        watch.states = states if len(states) <= _ALIKE else []
        if watch.states:
            return Counter()
        counts = self._extrapolate(states)
        if not counts:
            watch.watched_from = 2 * watch.count
        return counts

    def _state(self) -> _State:
        machine = self.machine
        return _State(
            {name: len(record) for name, record in vars(machine.journal).items()},
            tuple(machine.registers),
            (*machine.low, machine.masks.tobytes()),
            machine.vectors.tobytes(),
            machine.flags,
        )

    def _by_iteration(self, name: str, states: Sequence[_State]) -> Iterator[tuple[Any, ...]]:
        """Return what stands side by side in the record of iterations."""
        record, starts = getattr(self.machine.journal, name), [s.lengths[name] for s in states]
        return zip(*(record[a:b] for a, b in itertools.pairwise(starts)), strict=True)

    def _extrapolate(self, states: Sequence[_State]) -> Counter[int]:
        """Go on by iterations that are alike; return how often blocks are executed in these."""
        lengths = even([[*state.lengths.values()] for state in states], 64)
        if lengths is None or any(
            len(set(blocks)) > 1 for blocks in self._by_iteration("passed", states)
        ):
            return Counter()
        evenly = self._count_even(states)
        if len({state.constant for state in states}) > 1 or not evenly:
            return Counter()
        flags = even_flags([state.flags for state in states])
        registers = even([state.registers for state in states], 64)
        vectors = _even_vectors([state.vectors for state in states])
        written = self._describe_writes(states)
        times = self._with_alike_loads(states, min(self._iterations(states), evenly))
        if flags is None or registers is None or vectors is None or written is None or not times:
            return Counter()
        moves, machine = any(write.step for write in written), self.machine
        if moves and times * len(written) > _MOST_WRITES:
            return Counter()
        machine.registers[:] = [
            None if value is None else (value + by * times) % (1 << 64)
            for value, by in zip(machine.registers, registers, strict=True)
        ]
        grown = _words(machine.vectors) + vectors * np.uint32(times % (1 << _LANE_BITS))
        lanes = grown.view(np.uint8).astype(np.int16)
        machine.vectors[:] = np.where(machine.vectors >= 0, lanes, UNKNOWN)
        if machine.flags is not None:
            machine.flags = grow_flags(machine.flags, *flags, times)
        for number in range(1, times + 1) if moves else (times,):
            for write in written:
                value = (write.value + write.grown * number) % (1 << write.bits)
                machine.store(write.address + write.step * number, write.bits, value)
        counts: Counter[int] = Counter()
        way = slice(*(state.lengths["passed"] for state in states[-2:]))
        for position, _, number in machine.journal.passed[way]:
            counts[position] += number * times
        for position, number in counts.items():
            self.note_block(position, times=number)
        return counts

    def _describe_writes(self, states: Sequence[_State]) -> list[_Write] | None:
        """Return what is written to which places; None if that does not grow evenly."""
        written: list[_Write] = []
        for writes in self._by_iteration("written", states):
            address, bits, value = writes[-1]
            if all(known is None for _, _, known in writes):
                continue
            step, grown = even([write[::2] for write in writes], 64) or (None, 0)
            if step is None or value is None or any(write[1] != bits for write in writes):
                return None
            written.append(_Write(address, bits, value, grown, step))
        return written

    def _iterations(self, states: Sequence[_State]) -> int:
        """Return for how many more iterations all is decided alike; 0 for endless ones."""
        ends: list[int | None] = []
        for decisions in self._by_iteration("decided", states):
            suffixes, flags = zip(*decisions, strict=True)
            growth = even_flags(flags)
            if growth is None or (flags[0] is not None and len(set(suffixes)) > 1):
                return 0
            ends.append(iterations_alike(flags[-1], growth, suffixes[-1]))
        return min((end for end in ends if end is not None), default=0)

    def _count_even(self, states: Sequence[_State]) -> int:
        """Return for how many more iterations results grow evenly with all that grows."""
        most = sys.maxsize
        for operands in self._by_iteration("stepped", states):
            if len(set(operands)) > 1:
                (shift, *others) = {shift for shift, _ in operands}
                grown = even([values[:1] for _, values in operands], 64)
                if others or shift is None or grown is None:
                    return 0
                if grown[0] % (1 << shift):  # two lanes, packed, of which the lower must not carry
                    lower = [values[0] % (1 << shift) for _, values in operands]
                    steps = even([(lane,) for lane in lower], 64)
                    if shift != _LANE_BITS or steps is None:
                        return 0
                    flags = Flags("sub", lower[-1], 0, lower[-1], shift)
                    most = min(most, to_change(flags, steps[0], 0, "ae"))
        return most

    def _with_alike_loads(self, states: Sequence[_State], most: int) -> int | None:
        """Return for how many more iterations what is loaded grows as before; None for none."""
        for loads in self._by_iteration("loaded", states):
            address, bits, value = loads[-1]
            step = even([(at,) for at, _, _ in loads], 64)
            grown = even([(known,) for _, _, known in loads], bits)
            if step is None or grown is None or any(load[1] != bits for load in loads):
                return None
            for number in range(1, most + 1) if step[0] else ():
                expected = (value + grown[0] * number) % (1 << bits)
                if self.machine.look(address + step[0] * number, bits) != expected:
                    most = number - 1
                    break
        return most or None


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
        growth.append(read_signed(steps.pop(), bits))
    return tuple(growth)


def _even_vectors(rows: Sequence[bytes]) -> npt.NDArray[np.uint32] | None:
    """Return by how much words of vector registers grow; None if unevenly."""
    vectors = np.frombuffer(b"".join(rows), np.int16).reshape(len(rows), -1, VECTOR_BYTES)
    grown: Any = np.diff(_words(vectors), axis=0)
    known: Any = vectors >= 0
    return grown[0] if (known == known[0]).all() and (grown == grown[0]).all() else None


def even_flags(flags: Sequence[Flags | None]) -> tuple[int, int] | None:
    """Return by how much what flags compare grows; None if unevenly, or if that has no meaning."""
    known = [flag for flag in flags if flag is not None]
    if not known:
        return 0, 0
    if len(known) < len(flags) or len({(flag.kind, flag.bits) for flag in known}) > 1:
        return None
    growth = even([(flag.first, flag.second) for flag in known], known[0].bits)
    if growth is None or (known[0].kind == "exact" and len(set(known)) > 1):
        return None
    return growth[0], growth[1]


def grow_flags(flags: Flags, first: int, second: int, times: int) -> Flags:
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
    whole = 1 << flags.bits
    is_unsigned = canonical(suffix) in UNSIGNED
    possible = range(whole) if is_unsigned else range(-(whole >> 1), whole >> 1)
    condition = condition_of(suffix)
    assert condition is not None
    machine = Machine()
    machine.flags = flags
    now = condition(machine)
    one, other = (n if is_unsigned else read_signed(n, flags.bits) for n in flags[1:3])

    def goes_on(iterations: int) -> bool:
        if one + first * iterations in possible and other + second * iterations in possible:
            machine.flags = grow_flags(flags, first, second, iterations)
            return condition(machine) == now
        return False

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
    """Return how many low bits of an operand an instruction changes in its own way; None for all.

    The result grows evenly with what grows by multiples of ``1 << bits``.
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
