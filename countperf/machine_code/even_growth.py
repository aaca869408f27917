"""Even growth of registers, vectors and flags from iteration to iteration, and where it ends."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from countperf.machine_code.conditions import EQUALITY, ORDERS, UNSIGNED, canonical, condition_of
from countperf.machine_code.integer_operands import signed
from countperf.machine_code.machine_state import Flags, Lanes, Machine, Value

ENDLESS = 1 << 62
"""More iterations than any loop has."""
_LANE_BITS = 32


def even(rows: Sequence[Sequence[Value]], bits: int) -> tuple[int, ...] | None:
    """Return by how much values grow from each row to the next; None if unevenly."""
    found: list[int] = []
    for values in zip(*rows, strict=True):
        known = [value for value in values if value is not None]
        if not known:
            found.append(0)
            continue
        steps = {(b - a) % (1 << bits) for a, b in itertools.pairwise(known)}
        if len(known) < len(values) or len(steps) > 1:
            return None
        found.append(signed(steps.pop(), bits))
    return tuple(found)


def without_carry(rows: Sequence[Sequence[Value]], shift: int) -> int | None:
    """Return for how many iterations elements of 64 bits, shifted to the left, fit into 32.

    Then their high lanes stay zero, and low ones grow evenly; None where they do not.
    """
    grown = even(rows, _LANE_BITS)
    if grown is None:
        return None
    most, largest = ENDLESS, (1 << _LANE_BITS >> shift) - 1
    for place, (value, step) in enumerate(zip(rows[-1], grown, strict=True)):
        if value is None:
            continue
        if value > (0 if place % 2 else largest) or (place % 2 and step):
            return None
        if step:
            most = min(most, (largest - value) // step if step > 0 else value // -step)
    return most


def even_vectors(rows: Sequence[tuple[Lanes, ...]]) -> dict[int, tuple[int, ...]] | None:
    """Return by how much lanes of vector registers grow, by register; None if unevenly."""
    found: dict[int, tuple[int, ...]] = {}
    for number, vectors in enumerate(zip(*rows, strict=True)):
        if any(each != vectors[0] for each in vectors):
            grown = even(vectors, 32)
            if grown is None:
                return None
            found[number] = grown
    return found


def even_flags(flags: Sequence[Flags | None]) -> tuple[int, int] | None:
    """Return by how much what flags compare grows; None if unevenly."""
    if all(each is None for each in flags):
        return 0, 0
    steps = {
        None if a is None or b is None else growth_of(a, b) for a, b in itertools.pairwise(flags)
    }
    return steps.pop() if len(steps) == 1 else None


def growth_of(before: Flags, after: Flags) -> tuple[int, int] | None:
    """Return by how much what flags compare grew; None if that has no meaning."""
    if (before.kind, before.bits) != (after.kind, after.bits):
        return None
    if after.kind not in ("sub", "add"):
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
    machine = Machine(flags=flags)
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
