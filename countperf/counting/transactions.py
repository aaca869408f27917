"""Memory transactions of sub-groups, and bank conflicts in local memory.

A sub-group is a number of consecutive work items of a group, numbered over the local axes with axis
0 fastest (OpenCL 3.0, section 3.2.1, leaves the mapping to the implementation; this is what GPUs
do); the last one of a group may be partial. All its items execute an access together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from countperf.counting.lanes import LanePattern, full_pattern, lane_patterns
from countperf.counting.places import always_full
from countperf.errors import CountingError
from countperf.symbolic.quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis

Distribution = tuple[tuple[int, int], ...]

_NOTHING = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Lines that the sub-groups touch in an access."""

    # what was asked for
    line_bytes: int
    sub_group_size: int
    # number of lines, and number of sub-group instructions that touch so many; sorted
    distribution: Distribution
    accesses: int  # executions by all work items

    @property
    def instructions(self) -> int:
        """Sub-group instructions with at least one active item."""
        return sum(number for _, number in self.distribution)

    @property
    def transactions(self) -> int:
        """Lines touched, summed over all sub-group instructions."""
        return sum(lines * number for lines, number in self.distribution)

    @property
    def transferred_bytes(self) -> int:
        """Transactions times the size of a line, bytes."""
        return self.transactions * self.line_bytes

    @property
    def lines_per_instruction(self) -> Fraction:
        """Mean number of lines per sub-group instruction; zero if there are none."""
        return Fraction(self.transactions, self.instructions or 1)

    @property
    def bytes_per_instruction(self) -> Fraction:
        """Mean bytes of the lines that a sub-group instruction touches."""
        return self.lines_per_instruction * self.line_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BankConflicts:
    """Conflict degrees of an access to local memory."""

    # what was asked for
    banks: int
    bank_width_bytes: int
    sub_group_size: int
    # conflict degree, and number of sub-group instructions that have it; sorted
    distribution: Distribution

    @property
    def instructions(self) -> int:
        """Sub-group instructions with at least one active item."""
        return sum(number for _, number in self.distribution)

    @property
    def maximum(self) -> int:
        """Largest degree; 1 is free of conflicts, 0 if nothing is accessed."""
        return max((degree for degree, _ in self.distribution), default=0)

    @property
    def mean(self) -> Fraction:
        """Mean degree over sub-group instructions."""
        total = sum(degree * number for degree, number in self.distribution)
        return Fraction(total, self.instructions or 1)


def transactions(
    access: AccessAnalysis,
    parameters: Mapping[str, int],
    *,
    line_bytes: int,
    sub_group_size: int,
) -> Transactions:
    """Count the lines that each sub-group touches whenever it executes an access.

    One instruction touches as many lines as have a byte of an element of an active item in them:
    items that share a line share its transaction (CUDA C++ Best Practices Guide, "Coalesced Access
    to Global Memory", for lines of 32 bytes).
    """
    _check_positive(line_bytes=line_bytes, sub_group_size=sub_group_size)
    size = access.access.bits // 8
    patterns = access_patterns(access, parameters, line_bytes // gcd(line_bytes, size))
    counted: dict[int, int] = {}
    executed = 0

    def lines(offsets: NDArray[np.int64], active: NDArray[np.bool_]) -> NDArray[np.int64]:
        first = offsets * size // line_bytes
        last = (offsets * size + size - 1) // line_bytes
        return _distinct(_spans(first, last, active))

    for pattern in patterns:
        executed += int(pattern.active.sum()) * sum(pattern.shifts.values())
        _tally(counted, pattern, sub_group_size, lines)
    return Transactions(
        line_bytes=line_bytes,
        sub_group_size=sub_group_size,
        distribution=_times(counted, access.repeats),
        accesses=executed * access.repeats,
    )


def bank_conflicts(
    access: AccessAnalysis,
    parameters: Mapping[str, int] | None = None,
    *,
    banks: int,
    bank_width_bytes: int,
    sub_group_size: int,
) -> BankConflicts:
    """Find how many words of one bank the items of a sub-group need at a time.

    CUDA C++ Programming Guide, sections "Shared Memory" of the compute capabilities. Elements wider
    than a word take all their words at once, so that 64-bit elements side by side have degree 2 in
    banks of 4 bytes.
    """
    _check_positive(banks=banks, bank_width_bytes=bank_width_bytes, sub_group_size=sub_group_size)
    if access.access.address_space != "local":
        raise CountingError(
            f"{access.label} is no access to local memory: it has no bank conflicts; see "
            "transactions()",
            where=access.label,
        )
    size = access.access.bits // 8
    modulus = bank_width_bytes // gcd(bank_width_bytes, size)
    if parameters is None:
        patterns = [_only_pattern(access, modulus)]
    else:
        patterns = access_patterns(access, parameters, modulus)

    def degrees(offsets: NDArray[np.int64], active: NDArray[np.bool_]) -> NDArray[np.int64]:
        first = offsets * size // bank_width_bytes
        last = (offsets * size + size - 1) // bank_width_bytes
        words = _spans(first, last, active)
        return np.max(
            np.stack(
                [
                    _distinct(np.where((words % banks == bank), words, _NOTHING))
                    for bank in range(banks)
                ]
            ),
            axis=0,
        )

    counted: dict[int, int] = {}
    for pattern in patterns:
        _tally(counted, pattern, sub_group_size, degrees)
    return BankConflicts(
        banks=banks,
        bank_width_bytes=bank_width_bytes,
        sub_group_size=sub_group_size,
        distribution=_times(counted, access.repeats),
    )


# --- patterns


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise CountingError(f"{name} is {value}; it must be at least 1", where=name)


def access_patterns(
    access: AccessAnalysis, parameters: Mapping[str, int], modulus: int
) -> list[LanePattern]:
    """Return the patterns of an access whose address and conditions are known."""
    address = _known_address(access)
    values = access.checked(parameters)
    return lane_patterns(access.place, address, values, modulus)


def _known_address(access: AccessAnalysis) -> QuasiPolynomial:
    if access.address is None or access.is_estimate:
        why = access.is_estimate or "data, from which its address is read,"
        raise CountingError(
            f"{access.label}: {why} decides which items access what together, so that no pattern "
            "is known; enumerate it with the data at hand, or leave it out",
            where=access.label,
        )
    return access.address


def _only_pattern(access: AccessAnalysis, modulus: int) -> LanePattern:
    """Return the pattern of an access that has the same one in all groups and iterations."""
    address = _known_address(access)
    where = access.place
    lanes = where.lanes
    along: dict[str, QuasiPolynomial] = {}
    rest = QuasiPolynomial()
    for monomial, c in address.terms.items():
        part = QuasiPolynomial({monomial: c})
        names = part.names()
        if names & lanes.keys():
            if len(names) > 1 or not part.is_affine:
                raise _parameters_needed(access)
            (name,) = names
            along[name] = along.get(name, QuasiPolynomial()) + part
        else:
            rest = rest + part
    is_alike = all(
        not m or (c.denominator == 1 and int(c) % modulus == 0) for m, c in rest.terms.items()
    )
    if not (is_alike and always_full(where)):
        raise _parameters_needed(access)
    alone = sum(along.values(), QuasiPolynomial.constant(rest.constant_term))
    return full_pattern(where, alone, modulus)


def _parameters_needed(access: AccessAnalysis) -> CountingError:
    return CountingError(
        f"{access.label}: its pattern may depend on group, iteration or sizes; pass parameters",
        where=access.label,
    )


# --- sub-groups


def _tally(
    counted: dict[int, int],
    pattern: LanePattern,
    sub_group_size: int,
    measure: Callable[[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.int64]],
) -> None:
    """Add up how many sub-group instructions of a pattern have which measure."""
    offsets, active = in_sub_groups(pattern, sub_group_size)
    working = active.any(axis=1)
    for shift, number in pattern.shifts.items():
        for value in measure(offsets + shift, active)[working].tolist():
            counted[value] = counted.get(value, 0) + number


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


def _times(counted: Mapping[int, int], repeats: int) -> Distribution:
    return tuple(sorted((value, number * repeats) for value, number in counted.items()))
