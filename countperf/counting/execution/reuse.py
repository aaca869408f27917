"""Reuse of cache lines: steps of an address between items or iterations, and reuse distances.

An access whose steps lead to other lines *walks*: along copies, items, loops, groups, in the order
in which a processor runs them, until a step along one of them leads it back to the first line (to
the same element, or to a neighbor of it). Whether a cache still keeps that line depends on how many
lines lie between, and on how many of them share a set.

The caches are those of the device that a kernel is counted for
(`countperf.counting.structure.memory_hierarchy.CountedCaches`); numbers below are those of
`countperf.counting.structure.memory_hierarchy.DEFAULT_CACHES`, 48 KiB of 12 ways and 1 MiB of 16
ways.

- Level ``l1_reuse`` has walks of lines that the first-level cache keeps (at most 768), ``l2_reuse``
  those that the second-level one keeps (at most 16384), ``beyond_l2`` the others.
- Lines at multiples of 4096 bytes share one of the 64 sets of the first-level cache, which keeps 12
  of them; at multiples of 2048 bytes, two sets keep 24. Of longer walks, at least ``1 - kept /
  lines`` of the accesses miss, however lines are replaced: about a quarter of up to twice as many
  lines (set conflict 1), five eighths of up to four times as many (2), nearly all of more (3).
  Measured times of such walks follow these shares, not those of LRU, which misses all.
- Of copies of an access within the same pair of lines, one after the other, only the first leads to
  another line; the others are of level ``l1_reuse`` whatever the walk. Copies on lines of their own
  are further lines of the walk, but may have sets of their own.
- A second-level cache spreads its lines better, since it hashes addresses: of such lines it keeps
  about as many as it has sets (1024), and twice as many. Walks of more are ``beyond_l2`` with set
  conflict 3, and those that a first-level cache of that size would not keep either are
  ``l2_reuse`` with set conflict 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from countperf.counting.domains import Domains
from countperf.counting.scopes import AxisStride, Scope
from countperf.counting.structure.memory_hierarchy import LINE_BYTES, CountedCaches
from countperf.counting.structure.site_keys import (
    CacheLevel,
    Grade,
    StepName,
    by_data,
    to_other_lines,
)
from countperf.symbolic import sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

_Key = TypeVar("_Key", bound=Hashable)
_PAIR_BYTES = 2 * LINE_BYTES
"""Processors fetch lines in pairs."""
_ENDLESS = 2**62
_Conflict = Grade | Literal["beyond_l2"]
"""Grade of lines that share sets of a first-level cache; or a second-level one has too many."""
_ELSEWHERE: StepName = "l1_reuse"
_ONE = QuasiPolynomial.constant(1)


@dataclass(frozen=True, slots=True)
class ReuseLimits:
    """Numbers of lines of a walk that caches keep."""

    # the most lines of walks, and of arrays that data leads anywhere in, that a cache keeps
    levels: dict[CacheLevel, int]
    # largest number of lines at multiples of a set's span, in bytes, by grade
    sharing: dict[int, dict[_Conflict, int]]

    @classmethod
    def of(cls, caches: CountedCaches) -> ReuseLimits:
        """Return the limits of caches."""
        first, second = caches.first, caches.second
        return cls(
            levels={"l1_reuse": first.lines, "l2_reuse": second.lines, "beyond_l2": _ENDLESS},
            sharing={
                first.set_stride_bytes // number: {
                    0: number * first.ways,
                    1: 2 * number * first.ways,
                    2: 4 * number * first.ways,
                    3: number * second.sets,
                    "beyond_l2": _ENDLESS,
                }
                for number in (1, 2)
            },
        )


@dataclass(frozen=True, slots=True)
class Copies:
    """An unrolled loop, how many copies it makes of an access, and on how many pairs of lines."""

    loop: str
    number: int
    pairs: int


@dataclass(frozen=True, slots=True)
class WalkedStep:
    """Distance between lines along an axis or a loop, in elements, and their number.

    Copies may have sets of their own where items come first; in a loop their misses overlap.
    """

    stride: QuasiPolynomial
    number: QuasiPolynomial
    of_copies: bool


@dataclass(frozen=True, slots=True)
class ReusePath:
    """A way through other lines."""

    # how many it goes through until it comes back to the first; None if that is not known
    lines: QuasiPolynomial | None
    steps: tuple[WalkedStep, ...]  # the axes and loops that it goes along
    # copies of the access, one after the other, that are on the same pairs of lines
    copies: Copies | None = None


def reuse_path(
    scope: Scope,
    bits: int,
    strides: Sequence[AxisStride],
    own: Sequence[str],
    *,
    items_first: bool,
) -> ReusePath:
    """Find how far an access goes until it comes back."""
    of_kind: defaultdict[str, list[AxisStride]] = defaultdict(list)
    for stride in strides:
        of_kind[stride.kind].append(stride)
    items = of_kind["local"]
    loops = [stride for stride in reversed(strides) if stride.iname in own]
    order = [
        *of_kind["unrolled"],
        *([*items, *loops] if items_first else [*loops, *items]),
        *reversed(of_kind["barrier loop"]),
        *of_kind["group"],
    ]
    lines, steps = _ONE, list[WalkedStep]()
    copies: Copies | None = None
    for stride in order:
        extent = _extent(scope, stride)
        if extent == _ONE:
            continue
        if extent is None or stride.stride is None:
            return ReusePath(None, tuple(steps), copies)
        is_copied = stride.kind == "unrolled"
        beside = _on_pairs(stride, extent, bits) if is_copied else None
        if beside and (not copies or beside.pairs * copies.number < copies.pairs * beside.number):
            copies = beside
        if step_of(stride.stride, bits) == _ELSEWHERE:
            lines *= extent
            steps.append(WalkedStep(stride.stride, extent, is_copied and items_first))
        elif not is_copied:
            break
    return ReusePath(lines, tuple(steps), copies)


def _on_pairs(along: AxisStride, extent: QuasiPolynomial, bits: int) -> Copies | None:
    """Return the copies that an unrolled loop makes, if several are on the same pair of lines."""
    if along.iname is None or along.stride is None:
        return None
    if not (extent.is_constant and along.stride.is_constant and along.stride):
        return None
    number, step = int(extent.constant_term), abs(int(along.stride.constant_term)) * bits // 8
    pairs = -(-number * step // _PAIR_BYTES)
    return Copies(along.iname, number, pairs) if step < _PAIR_BYTES else None


def _extent(scope: Scope, along: AxisStride) -> QuasiPolynomial | None:
    """Return how long an axis or a loop is at most; None where data decides."""
    if along.kind == "local" and along.axis is not None:
        return QuasiPolynomial.constant(scope.grid.items[along.axis])
    if along.kind == "group" and along.axis is not None:
        return scope.grid.groups[along.axis].as_polynomial()
    key = ("extent", along.iname)
    if key not in scope.memo:
        assert along.iname is not None  # of a loop
        scope.memo[key] = _length(scope.domains, along.iname)
    return scope.memo[key]


def _length(domains: Domains, loop: str) -> QuasiPolynomial | None:
    counted, _ = domains.trip_statistics(frozenset([loop]))
    if not counted:
        return None
    terms = domains.counter.count(domains.domain(counted)).terms
    if len(terms) == 1:
        return terms[0].value  # where it is not empty
    low, high = sets.constant_bounds(domains.domain(counted))[loop]
    return None if low is None or high is None else QuasiPolynomial.constant(high - low + 1)


def step_of(stride: QuasiPolynomial | None, bits: int) -> StepName:
    """Return the step of an address that changes by so many elements; other lines if by a symbol.

    Where such a symbol is small is told apart when executions are sorted (`sorted_by_step`).
    """
    if stride is None:
        return "data"
    if not stride.is_constant:
        return _ELSEWHERE
    size = abs(stride.constant_term)
    if size == 0:
        return "same"
    if size == 1:
        return "next"
    return "near" if size < max(LINE_BYTES * 8 // bits, 1) else _ELSEWHERE


def within_line(
    stride: QuasiPolynomial | None, bits: int, counter: Counter
) -> QuasiPolynomial | None:
    """Return what is at least zero where a step by a symbol stays in a line; None if nowhere."""
    if stride is None or stride.is_constant:
        return None
    line = LINE_BYTES * 8 // bits
    for step in (stride, -stride):
        if counter.is_nonnegative(step - 1):
            return None if counter.is_nonnegative(step - line) else line - 1 - step
    return None


def sorted_by_step(
    stride: QuasiPolynomial | None,
    bits: int,
    executions: PiecewiseQuasiPolynomial,
    walk: Callable[[], ReusePath],
    without: Callable[[str], PiecewiseQuasiPolynomial | None],
    limits: ReuseLimits,
    *,
    inside: QuasiPolynomial | None = None,
) -> list[tuple[StepName, PiecewiseQuasiPolynomial]]:
    """Sort executions of an access by its step, which may depend on the parameters."""
    step = step_of(stride, bits)
    if step != _ELSEWHERE or stride is None:
        return [(step, executions)]
    path = walk()
    parts: defaultdict[StepName, PiecewiseQuasiPolynomial] = defaultdict(lambda: ZERO_COUNT)
    outside: tuple[QuasiPolynomial, ...] = ()
    if inside is not None:
        outside = (-inside - 1,)
        parts["near"] = executions.restrict_to((inside,))
        executions = executions.restrict_to(outside)
    own = executions
    if path.copies is not None:
        once = without(path.copies.loop)
        once = None if once is None else once.restrict_to(outside)
        if once is not None and once.scale(path.copies.number) == executions:
            own = once.scale(path.copies.pairs)
    left = own
    for pitch, shared_limits in limits.sharing.items() if path.lines is not None else ():
        shared, on_pitch = _on_pitch(path, pitch * 8 // bits, left)
        left += on_pitch.scale(-1)
        for grade, some in _by_lines(shared, on_pitch, shared_limits) if on_pitch else ():
            for level, part in _by_lines(path.lines, some, limits.levels) if some else ():
                parts[_with_conflict(level, grade)] += part
    for level, part in _by_lines(path.lines, left, limits.levels) if left else ():
        parts[level] += part
    if own is not executions:
        parts[_ELSEWHERE] += executions + own.scale(-1)
    return [(step, part) for step, part in parts.items() if part]


def _with_conflict(level: CacheLevel, grade: _Conflict) -> StepName:
    """Return the step of a walk by its lines, and by those that share sets."""
    if grade == "beyond_l2":
        return to_other_lines("beyond_l2", 3)
    if level == "l1_reuse":
        return to_other_lines(level, grade)
    return to_other_lines(level, 3 if grade else 0)


def sort_by_size(
    elements: QuasiPolynomial | None,
    bits: int,
    executions: PiecewiseQuasiPolynomial,
    limits: ReuseLimits,
) -> list[tuple[StepName, PiecewiseQuasiPolynomial]]:
    """Sort executions of an access that data leads anywhere in an array."""
    if elements is None:
        return [(by_data("beyond_l2"), executions)]
    line = LINE_BYTES * 8 // bits
    most: dict[CacheLevel, int] = {
        level: limit if limit == _ENDLESS else limit * line
        for level, limit in limits.levels.items()
    }
    return [(by_data(level), part) for level, part in _by_lines(elements, executions, most) if part]


def _on_pitch(
    path: ReusePath, elements: int, executions: PiecewiseQuasiPolynomial
) -> tuple[QuasiPolynomial, PiecewiseQuasiPolynomial]:
    """Return how many lines of a walk share sets, and the executions for which they do.

    They do if all its steps are multiples of some elements, but for those between copies: the lines
    of each copy share sets of their own.
    """
    lines, zero = _ONE, list[QuasiPolynomial]()
    for step in path.steps:
        remainder = step.stride.modulo(elements)
        if remainder and step.stride.is_constant:
            if not step.of_copies:
                return lines, ZERO_COUNT
            continue
        lines *= step.number
        zero += [remainder] if remainder else []
    return lines, executions.restrict_to((), zero) if lines != _ONE else ZERO_COUNT


def _by_lines(
    lines: QuasiPolynomial | None,
    executions: PiecewiseQuasiPolynomial,
    limits: dict[_Key, int],
) -> Iterator[tuple[_Key, PiecewiseQuasiPolynomial]]:
    """Sort executions by the first limit that some lines keep to; the last where unknown."""
    if lines is None:
        yield next(reversed(limits)), executions
        return
    left = executions
    for key, limit in limits.items():
        if limit == _ENDLESS:
            beyond = ZERO_COUNT
        elif lines.is_constant:
            beyond = left if lines.constant_term > limit else ZERO_COUNT
        else:
            beyond = executions.restrict_to((lines - (limit + 1),))
        yield key, left + beyond.scale(-1)
        left = beyond
