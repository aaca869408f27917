"""Memory transactions of sub-groups, and bank conflicts in local memory.

A sub-group is a number of consecutive work items of a group, numbered over the local axes with axis
0 fastest (OpenCL 3.0, section 3.2.1, leaves the mapping to the implementation; this is what GPUs
do); the last one of a group may be partial. All its items execute an access together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from countperf.counting.lanes import LanePattern, lane_patterns
from countperf.errors import CountingError

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis

BANKS = 32
BANK_WIDTH_BYTES = 4
"""Of local memory: those of every NVIDIA GPU since Fermi but Kepler's."""

_NOTHING = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class SubGroupCounts:
    """Sub-group instructions by a measure: lines that they touch, or passes over the banks."""

    distribution: tuple[tuple[int, int], ...]  # measure, and instructions that have it; sorted
    accesses: int  # executions by all work items

    @property
    def instructions(self) -> int:
        """Sub-group instructions with at least one active item."""
        return sum(number for _, number in self.distribution)

    @property
    def total(self) -> int:
        """The measure summed over all sub-group instructions."""
        return sum(measure * number for measure, number in self.distribution)

    @property
    def mean(self) -> Fraction:
        """Mean measure of a sub-group instruction; zero if there are none."""
        return Fraction(self.total, self.instructions or 1)


def transactions(
    access: AccessAnalysis,
    parameters: Mapping[str, int],
    *,
    line_bytes: int,
    sub_group_size: int,
) -> SubGroupCounts:
    """Count the lines that each sub-group touches whenever it executes an access.

    One instruction touches as many lines as have a byte of an element of an active item in them:
    items that share a line share its transaction (CUDA C++ Best Practices Guide, "Coalesced Access
    to Global Memory", for lines of 32 bytes).
    """
    _check_positive(line_bytes=line_bytes, sub_group_size=sub_group_size)
    return _measured(access, parameters, line_bytes, sub_group_size, _distinct)


def lines_moved(
    accesses: Iterable[AccessAnalysis],
    parameters: Mapping[str, int],
    *,
    line_bytes: int,
    sub_group_size: int,
) -> dict[str, int]:
    """Return the transactions of all loads from global memory, and those of all stores to it."""
    result = {"load": 0, "store": 0}
    for access in accesses:
        if access.access.address_space == "global":
            result[access.access.direction] += transactions(
                access, parameters, line_bytes=line_bytes, sub_group_size=sub_group_size
            ).total
    return result


def bank_conflicts(
    access: AccessAnalysis,
    parameters: Mapping[str, int],
    *,
    banks: int = BANKS,
    bank_width_bytes: int = BANK_WIDTH_BYTES,
    sub_group_size: int,
) -> SubGroupCounts:
    """Find how many words of one bank the items of a sub-group need at a time: passes over them.

    CUDA C++ Programming Guide, sections "Shared Memory" of the compute capabilities. Elements wider
    than a word take all their words at once, so that 64-bit elements side by side take two passes
    in banks of 4 bytes.
    """
    _check_positive(banks=banks, bank_width_bytes=bank_width_bytes, sub_group_size=sub_group_size)
    if access.access.address_space != "local":
        raise CountingError(
            f"{access.label} is no access to local memory: it has no bank conflicts; see "
            "transactions()",
            where=access.label,
        )

    def degrees(words: NDArray[np.int64]) -> NDArray[np.int64]:
        in_banks = (np.where(words % banks == bank, words, _NOTHING) for bank in range(banks))
        return np.max(np.stack([_distinct(some) for some in in_banks]), axis=0)

    return _measured(access, parameters, bank_width_bytes, sub_group_size, degrees)


# --- patterns


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise CountingError(f"{name} is {value}; it must be at least 1", where=name)


def access_patterns(
    access: AccessAnalysis, parameters: Mapping[str, int], modulus: int
) -> list[LanePattern]:
    """Return the patterns of an access whose address and conditions are known."""
    if access.address is None or access.is_estimate:
        why = access.is_estimate or "data, from which its address is read,"
        raise CountingError(
            f"{access.label}: {why} decides which items access what together, so that no pattern "
            "is known; enumerate it with the data at hand, or leave it out",
            where=access.label,
        )
    return lane_patterns(access.place, access.address, access.checked(parameters), modulus)


# --- sub-groups


def _measured(
    access: AccessAnalysis,
    parameters: Mapping[str, int],
    unit_bytes: int,
    sub_group_size: int,
    measure: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> SubGroupCounts:
    """Sort sub-group instructions by a measure of the units of memory that their items touch."""
    size = access.access.bits // 8
    counted: Counter[int] = Counter()
    accesses = 0
    for pattern in access_patterns(access, parameters, unit_bytes // gcd(unit_bytes, size)):
        accesses += int(pattern.active.sum()) * sum(pattern.shifts.values())
        offsets, active = in_sub_groups(pattern, sub_group_size)
        for shift, number in pattern.shifts.items():
            first = (offsets + shift) * size // unit_bytes
            last = ((offsets + shift) * size + size - 1) // unit_bytes
            for value in measure(_spans(first, last, active))[active.any(axis=1)].tolist():
                counted[value] += number
    repeats = access.repeats
    return SubGroupCounts(
        distribution=tuple(sorted((value, n * repeats) for value, n in counted.items())),
        accesses=accesses * repeats,
    )


def in_sub_groups(
    pattern: LanePattern, sub_group_size: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return offsets and activity by sub-group (rows), the last one padded; without shifts."""
    items = len(pattern.offsets)
    rows = -(-items // sub_group_size)
    padding = (0, rows * sub_group_size - items)
    offsets = np.pad(pattern.offsets, padding).reshape(rows, sub_group_size)
    active = np.pad(pattern.active, padding).reshape(rows, sub_group_size)
    return offsets, active


def _spans(
    first: NDArray[np.int64], last: NDArray[np.int64], active: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return everything from first to last for each item, beside each other."""
    width = int((last - first).max(initial=0)) + 1
    parts = [np.where(active & (first + k <= last), first + k, _NOTHING) for k in range(width)]
    return np.concatenate(parts, axis=1)


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of distinct values of each row, nothings aside."""
    ordered = np.sort(values, axis=1)
    is_new = np.ones(ordered.shape, bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return (is_new & (ordered != _NOTHING)).sum(axis=1)
