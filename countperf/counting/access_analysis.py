"""Each memory access of a kernel in its place: address, strides, executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import gcd

import numpy as np
from numpy.typing import NDArray

from countperf.counting.accesses import Address
from countperf.counting.automatic import offset_of
from countperf.counting.keys import Case, MemoryAccess
from countperf.counting.lanes import lane_patterns
from countperf.counting.preparation import Instruction, InstructionPart, PreparedKernel
from countperf.counting.scopes import AxisStride, Scope, strides_of
from countperf.counting.size_parameters import SizeParameters
from countperf.errors import CountingError
from countperf.symbolic.affine import NotAffineError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.text import ShortRepr

PROBABILITY = "the probability of a condition"
"""Name of a probability that the caller states, in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAnalysis(ShortRepr):
    """A memory access of one instruction."""

    program: int  # device program
    instruction: str  # id of the instruction
    access: MemoryAccess  # array, address space, direction, bits of an element, subscript
    repeats: int  # how often the access stands in the instruction
    executions: PiecewiseQuasiPolynomial  # executions by all work items, repeats included
    # offset from the start of the memory that the array lies in, elements; in loop variables and
    # parameters
    address: QuasiPolynomial | None
    index: Address | None  # the same by subscript, without an offset of the array
    # along local axes, group axes, loops from the outermost to the innermost, and copies
    strides: tuple[AxisStride, ...]
    is_estimate: str  # which of the caller's statistics enter; empty if everything is exact
    scope: Scope = field(repr=False, compare=False)  # where it is executed
    sizes: SizeParameters = field(repr=False, compare=False)  # of the kernel

    @property
    def label(self) -> str:
        """The access in words, for messages."""
        return f"kernel '{self.sizes.kernel}', instruction '{self.instruction}', {self.text}"

    @property
    def text(self) -> str:
        """The access as ``load a[i, k]``."""
        return f"{self.access.direction} {self.access.text}"


def analyze_accesses(prepared: PreparedKernel) -> tuple[AccessAnalysis, ...]:
    """Analyze the accesses of a prepared kernel alone."""
    tally = prepared.tally("source")
    accesses = (
        _analyze_access(prepared, launch.program.number, instruction, part)
        for launch in prepared.launches()
        for instruction in tally.instructions(launch)
        for part in instruction.parts
        if isinstance(part.key, MemoryAccess)
    )
    return tuple(access for access in accesses if access.executions)


def _analyze_access(
    prepared: PreparedKernel, program: int, read: Instruction, part: InstructionPart
) -> AccessAnalysis:
    domains, access = prepared.domains, part.key
    assert isinstance(access, MemoryAccess)
    # the source's view has no first iterations
    cases = tuple(case for case in part.conditions if isinstance(case, Case))
    scope = replace(read.scope, cases=cases)
    address = domains.address(access)
    counted, _ = domains.trip_statistics(scope.within)
    estimates = [f"the mean trip count of '{n}'" for n in sorted(scope.within - counted)]
    if part.share != 1 or isinstance(part.number, Fraction):
        estimates.append(PROBABILITY)
    flat: QuasiPolynomial | None = None
    if address is not None:
        with suppress(NotAffineError):  # else it is not known where the array begins
            offset = offset_of(domains.variable(access.array))
            flat = address.flat + domains.to_polynomial(offset)
    return AccessAnalysis(
        program=program,
        instruction=read.loopy.id,
        access=access,
        repeats=int(part.number) or 1,
        executions=domains.executions(scope.within, scope.cases, scope.grid).scale(part.times),
        address=flat,
        index=address,
        strides=strides_of(scope, access, read.kinds),
        is_estimate=" and ".join(estimates),
        scope=scope,
        sizes=prepared.sizes,
    )


# --- Memory transactions of sub-groups, and bank conflicts in local memory
# Sub-groups are consecutive work items of a group, axis 0 fastest, as on GPUs (OpenCL 3.0, section
# 3.2.1, leaves it open); the last one may be partial. All its items execute an access together.

BANKS = 32
BANK_WIDTH_BYTES = 4
"""Of local memory: those of every NVIDIA GPU since Fermi but Kepler's."""

_NOTHING = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class SubGroupCounts:
    """Sub-group instructions by a measure: lines that they touch, or passes over the banks."""

    distribution: tuple[tuple[int, int], ...]  # measure, and instructions that have it; sorted

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
    access: AccessAnalysis, parameters: Mapping[str, int], *, line_bytes: int, sub_group_size: int
) -> SubGroupCounts:
    """Count the lines that each sub-group touches whenever it executes an access.

    Items that share a line share its transaction (CUDA C++ Best Practices Guide, "Coalesced Access
    to Global Memory", for lines of 32 bytes).
    """
    return _measure_sub_groups(access, parameters, line_bytes, sub_group_size, _count_distinct)


def lines_moved(
    accesses: Iterable[AccessAnalysis],
    parameters: Mapping[str, int],
    *,
    line_bytes: int,
    sub_group_size: int,
) -> dict[str, int]:
    """Return the transactions of all loads from global memory, and those of all stores to it."""
    result = {"load": 0, "store": 0}
    sizes = {"line_bytes": line_bytes, "sub_group_size": sub_group_size}
    for access in accesses:
        if access.access.address_space == "global":
            result[access.access.direction] += transactions(access, parameters, **sizes).total
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
    than a word take all their words at once.
    """
    if access.access.address_space != "local":
        raise CountingError(
            f"{access.label} is no access to local memory: it has no bank conflicts; see "
            "transactions()"
        )

    def measure(words: NDArray[np.int64]) -> NDArray[np.int64]:
        in_banks = (np.where(words % banks == bank, words, _NOTHING) for bank in range(banks))
        return np.max(np.stack([_count_distinct(some) for some in in_banks]), axis=0)

    return _measure_sub_groups(access, parameters, bank_width_bytes, sub_group_size, measure)


def _measure_sub_groups(
    access: AccessAnalysis,
    parameters: Mapping[str, int],
    unit_bytes: int,
    sub_group_size: int,
    measure: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> SubGroupCounts:
    """Sort sub-group instructions by a measure of the units of memory that their items touch."""
    if unit_bytes < 1 or sub_group_size < 1:
        raise CountingError(
            f"lines of {unit_bytes} bytes and sub-groups of {sub_group_size} items; both must be "
            "at least 1"
        )
    if access.address is None or access.is_estimate:
        why = access.is_estimate or "data, from which its address is read,"
        raise CountingError(
            f"{access.label}: {why} decides which items access what together, so that no pattern "
            "is known; enumerate it with the data at hand, or leave it out"
        )
    size = access.access.bits // 8
    modulus = unit_bytes // gcd(unit_bytes, size)
    values = access.sizes.checked(parameters)
    counted: Counter[int] = Counter()
    for pattern in lane_patterns(access.scope, access.address, values, modulus):
        rows = -(-len(pattern.offsets) // sub_group_size)  # the last one is padded
        padding = (0, rows * sub_group_size - len(pattern.offsets))
        offsets = np.pad(pattern.offsets, padding).reshape(rows, sub_group_size)
        active = np.pad(pattern.active, padding).reshape(rows, sub_group_size)
        for shift, number in pattern.shifts.items():
            first = (offsets + shift) * size // unit_bytes
            last = ((offsets + shift) * size + size - 1) // unit_bytes
            width = int((last - first).max(initial=0)) + 1
            units = [
                np.where(active & (first + k <= last), first + k, _NOTHING) for k in range(width)
            ]
            measured = measure(np.concatenate(units, axis=1))[active.any(axis=1)]
            for value in measured.tolist():
                counted[value] += number * access.repeats
    return SubGroupCounts(distribution=tuple(sorted(counted.items())))


def _count_distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of distinct values of each row, nothings aside."""
    ordered = np.sort(values, axis=1)
    is_new = np.ones(ordered.shape, bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return (is_new & (ordered != _NOTHING)).sum(axis=1)
