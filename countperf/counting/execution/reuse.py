"""Reuse of cache lines: steps of an address between items or iterations, and reuse distances.

An access whose steps lead to other lines *walks*: along copies, items, loops, groups, in the order
in which a processor runs them, until a step along one of them leads it back to the first line.

- Its level is that of the nearest cache that keeps the lines of the walk (`CountedCaches`).
- Where lines share sets of a first-level cache, at least ``1 - kept / lines`` of the accesses miss,
  however lines are replaced. Measured times follow these shares; LRU would miss all.
- Of copies within the same pair of lines, one after the other, only the first leads to another
  line. Copies on lines of their own are further lines of the walk, but may have sets of their own.
- Of accesses at constant distances in the text, such as members of a structure, those less than a
  line from one before them are ``near`` it.
- A second-level cache hashes addresses: of lines that share sets it keeps about as many as it has
  sets, and twice as many. Walks of more are ``beyond_l2`` with set conflict 3, and those that a
  first-level cache of that size would not keep either ``l2_reuse`` with set conflict 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Literal, NamedTuple, TypeVar

from countperf.counting.access_classes import reads_data
from countperf.counting.keys import MemoryAccess
from countperf.counting.preparation import Instruction, PreparedKernel
from countperf.counting.scopes import AxisStride, Scope, strides_of
from countperf.counting.structure.memory_hierarchy import LINE_BYTES, CountedCaches
from countperf.counting.structure.site_keys import (
    BY_DATA,
    CacheLevel,
    Grade,
    StepName,
    WorkItemStep,
    by_data,
    to_other_lines,
)
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ONE, ZERO, QuasiPolynomial

NARROW_ROW = 8  # items of a row up to which compilers may unroll it

ALIGNMENT = 16
"""Elements; a step of one is ``shifted`` where it does not begin at a multiple of them."""

_BESIDE = frozenset({"stride1", "uniform"})
"""Patterns of accesses through data whose items stay in the same lines."""

_Key = TypeVar("_Key", bound=Hashable)
_PAIR_BYTES = 2 * LINE_BYTES  # processors fetch lines in pairs
_ENDLESS = 2**62
_Conflict = Grade | Literal["beyond_l2"]
"""Grade of lines that share sets of a first-level cache; or a second-level one has too many."""
_ELSEWHERE: StepName = "l1_reuse"


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


class _Copies(NamedTuple):
    """An unrolled loop, how many copies it makes of an access, and on how many pairs of lines."""

    loop: str
    number: int
    pairs: int


class _WalkedStep(NamedTuple):
    """Distance between lines along an axis or a loop, in elements, and their number."""

    stride: QuasiPolynomial
    number: QuasiPolynomial
    of_copies: bool  # which may have sets of their own; in a loop their misses overlap


class _ReusePath(NamedTuple):
    """A way through other lines."""

    # how many it goes through until it comes back to the first; None if that is not known
    lines: QuasiPolynomial | None
    steps: Sequence[_WalkedStep]  # the axes and loops that it goes along
    # copies of the access, one after the other, that are on the same pairs of lines
    copies: _Copies | None


def _find_reuse_path(
    scope: Scope, bits: int, strides: Sequence[AxisStride], own: Sequence[str], *, items_first: bool
) -> _ReusePath:
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
    lines, steps = ONE, list[_WalkedStep]()
    copies: _Copies | None = None
    for stride in order:
        extent = find_extent(scope, stride)
        if extent == ONE:
            continue
        if extent is None or stride.stride is None:
            return _ReusePath(None, steps, copies)
        is_copied = stride.kind == "unrolled"
        beside = _on_pairs(stride.iname, stride.stride, extent, bits) if is_copied else None
        if beside and (not copies or beside.pairs * copies.number < copies.pairs * beside.number):
            copies = beside
        if step_of(stride.stride, bits) == _ELSEWHERE:
            lines *= extent
            steps.append(_WalkedStep(stride.stride, extent, is_copied and items_first))
        elif not is_copied:
            break
    return _ReusePath(lines, steps, copies)


def _on_pairs(
    loop: str | None, stride: QuasiPolynomial, extent: QuasiPolynomial, bits: int
) -> _Copies | None:
    """Return the copies that an unrolled loop makes, if several are on the same pair of lines."""
    if not loop or not (extent.is_constant and stride.is_constant and stride):
        return None
    number, step = int(extent.constant_term), abs(int(stride.constant_term)) * bits // 8
    pairs = -(-number * step // _PAIR_BYTES)
    return _Copies(loop, number, pairs) if step < _PAIR_BYTES else None


def find_extent(scope: Scope, along: AxisStride) -> QuasiPolynomial | None:
    """Return how long an axis or a loop is at most; None where data decides."""
    if along.axis is None:
        return scope.domains.find_length(along.iname or "")
    if along.kind == "local":
        return QuasiPolynomial.constant(scope.grid.items[along.axis])
    return scope.grid.groups[along.axis].as_polynomial()


def step_of(stride: QuasiPolynomial | None, bits: int) -> StepName:
    """Return the step of an address that changes by so many elements."""
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


def _share_sets(
    path: _ReusePath, elements: int, executions: PiecewiseQuasiPolynomial
) -> tuple[QuasiPolynomial, PiecewiseQuasiPolynomial]:
    """Return how many lines of a walk share sets, and the executions for which they do."""
    lines, zero = ONE, list[QuasiPolynomial]()
    for step in path.steps:
        remainder = step.stride.modulo(elements)
        if remainder and step.stride.is_constant:
            if not step.of_copies:  # lines of each copy share sets of their own
                return lines, ZERO_COUNT
            continue
        lines *= step.number
        zero += [remainder] if remainder else []
    return lines, executions.restrict_to((), zero) if lines != ONE else ZERO_COUNT


def _sort_by_lines(
    lines: QuasiPolynomial | None, executions: PiecewiseQuasiPolynomial, limits: dict[_Key, int]
) -> Iterator[tuple[_Key, PiecewiseQuasiPolynomial]]:
    """Sort executions by the first limit that some lines keep to; the last where unknown."""
    if not executions:
        return
    if lines is None:
        yield next(reversed(limits)), executions
        return
    left = executions
    for key, limit in limits.items():
        beyond = ZERO_COUNT
        if lines.is_constant:
            beyond = left if lines.constant_term > limit else ZERO_COUNT
        elif limit != _ENDLESS:
            beyond = executions.restrict_to((lines - (limit + 1),))
        if part := left + beyond.scale(-1):
            yield key, part
        left = beyond


# --- Executions of accesses by how their addresses change between items, and in loops


SortedPart = tuple[WorkItemStep, StepName | None, PiecewiseQuasiPolynomial]
"""Step between items, step in the innermost loop, and executions."""
_StepPart = tuple[StepName, PiecewiseQuasiPolynomial]


def _find_local_stride(strides: Sequence[AxisStride], axis: int) -> QuasiPolynomial | None:
    return next((s.stride for s in strides if (s.kind, s.axis) == ("local", axis)), ZERO)


class StepSorter:
    """Sorts the executions of a kernel's accesses by steps of their addresses."""

    def __init__(self, prepared: PreparedKernel, caches: CountedCaches) -> None:
        self._limits = ReuseLimits.of(caches)
        self._domains = prepared.domains
        self._statistics = prepared.statistics
        self._found: dict[Any, tuple[Scope, tuple[AxisStride, ...]]] = {}
        self.assumed: set[str] = set()

    def strides(self, access: MemoryAccess, instruction: Instruction) -> tuple[AxisStride, ...]:
        """Return the strides of an access along the axes and loops around it."""
        scope = instruction.scope
        key = (access, id(scope))
        if key not in self._found:
            self.assumed |= {self._domains.layout_of(access).assumed} - {""}
            if self._domains.address(access) is None and not reads_data(access, self._domains):
                self.assumed.add(f"uneven steps of {access.text}, as if data led there")
            strides = strides_of(scope, access, instruction.kinds, of_most=True)
            self._found[key] = scope, strides  # kept, and with it its identity
        return self._found[key][1]

    def sort(
        self,
        access: MemoryAccess,
        instruction: Instruction,
        loops: Sequence[str],
        executions: PiecewiseQuasiPolynomial,
        once: Callable[[str], PiecewiseQuasiPolynomial | None],
        *,
        is_near: bool = False,  # less than a line from another access
    ) -> Iterator[SortedPart]:
        """Sort the executions of an access by its steps, which may depend on the parameters."""
        strides, bits, scope = self.strides(access, instruction), access.bits, instruction.scope
        across = self._find_step_across_rows(access, scope, strides)
        walk = partial(_find_reuse_path, scope, bits, strides, loops)
        ways = (partial(walk, items_first=first) for first in (True, False))
        by_items, by_loops = (None, None) if is_near else ways
        inner = next((s.stride for s in strides if loops and s.iname == loops[-1]), None)
        lanes = _find_local_stride(strides, 0)
        for step, part in self._sort_by_step(lanes, bits, executions, by_items, once):
            if step in BY_DATA and inner is not None:  # items come back to their lines
                yield WorkItemStep("data", across), step_of(inner, bits), part
            elif step in BY_DATA:
                for size, some in self._sort_by_size(access, [("data", part)]):
                    yield WorkItemStep(size, across), size if loops else None, some
            else:
                alignment = self._find_alignment(access, scope, 0) if step == "next" else step
                between = WorkItemStep(alignment, across)
                if not loops:
                    yield between, None, part
                    continue
                by_step = self._sort_by_step(inner, bits, part, by_loops, once)
                for along, some in self._sort_by_size(access, by_step):
                    yield between, along, some

    def _sort_by_step(
        self,
        stride: QuasiPolynomial | None,
        bits: int,
        executions: PiecewiseQuasiPolynomial,
        walk: Callable[[], _ReusePath] | None,
        once: Callable[[str], PiecewiseQuasiPolynomial | None],
    ) -> list[_StepPart]:
        """Sort executions by a step that may depend on the sizes; ``near`` without a walk."""
        step = step_of(stride, bits)
        if step != _ELSEWHERE or stride is None:
            return [(step, executions)]
        if walk is None:
            return [("near", executions)]
        path = walk()
        levels = self._limits.levels
        parts: defaultdict[StepName, PiecewiseQuasiPolynomial] = defaultdict(lambda: ZERO_COUNT)
        inside = within_line(stride, bits, self._domains.counter)
        outside: tuple[QuasiPolynomial, ...] = ()
        if inside is not None:
            outside = (-inside - 1,)
            parts["near"] = executions.restrict_to((inside,))
            executions = executions.restrict_to(outside)
        own = executions
        if path.copies is not None:
            copy = once(path.copies.loop)
            copy = None if copy is None else copy.restrict_to(outside)
            if copy is not None and copy.scale(path.copies.number) == executions:
                own = copy.scale(path.copies.pairs)
        left = own
        for pitch, limits in self._limits.sharing.items() if path.lines is not None else ():
            shared, on_pitch = _share_sets(path, pitch * 8 // bits, left)
            left += on_pitch.scale(-1)
            for grade, some in _sort_by_lines(shared, on_pitch, limits):
                for level, part in _sort_by_lines(path.lines, some, levels):
                    if grade == "beyond_l2":
                        parts[to_other_lines("beyond_l2", 3)] += part
                    else:
                        is_far = grade and level != "l1_reuse"
                        parts[to_other_lines(level, 3 if is_far else grade)] += part
        for level, part in _sort_by_lines(path.lines, left, levels):
            parts[level] += part
        if own is not executions:
            parts[_ELSEWHERE] += executions + own.scale(-1)
        return [(step, part) for step, part in parts.items() if part]

    def _sort_by_size(
        self, access: MemoryAccess, parts: Iterable[_StepPart]
    ) -> Iterator[_StepPart]:
        """Sort what data decides by the size of the array, unless neighbors are said to be near."""
        for step, part in parts:
            if step in BY_DATA and not self.stays_beside(access):
                line = LINE_BYTES * 8 // access.bits
                most: dict[CacheLevel, int] = {
                    level: limit if limit == _ENDLESS else limit * line
                    for level, limit in self._limits.levels.items()
                }
                for level, some in _sort_by_lines(self.extent(access), part, most):
                    yield by_data(level), some
            else:
                yield step, part

    def stays_beside(self, access: MemoryAccess) -> bool:
        """Tell whether items that data leads are said to stay in the same lines."""
        stated = self._statistics.pattern_of(access.array, access.text)
        return stated is not None and stated[0] in _BESIDE

    def extent(self, access: MemoryAccess) -> QuasiPolynomial | None:
        """Return the elements of the array of an access; None if they are not known."""
        shape = self._domains.layout_of(access).shape
        extents = [extent for extent in shape if extent is not None]
        return prod(extents, start=ONE) if len(extents) == len(shape) else None

    def _find_step_across_rows(
        self, access: MemoryAccess, scope: Scope, strides: Sequence[AxisStride]
    ) -> StepName | None:
        items = scope.grid.items
        if items.get(0, 1) > NARROW_ROW or items.get(1, 1) == 1:
            return None
        step = step_of(_find_local_stride(strides, 1), access.bits)
        return self._find_alignment(access, scope, 1) if step == "next" else step

    def _find_alignment(self, access: MemoryAccess, scope: Scope, axis: int) -> StepName:
        """Return how neighboring accesses along an axis begin: at multiples of a vector or not."""
        address = self._domains.address(access)
        if access.address_space != "local" or address is None:
            return "next"
        lanes = {name for name, of in scope.lanes.items() if of == axis}
        odd = [
            monomial
            for monomial, c in address.flat.terms.items()
            if c % ALIGNMENT and not QuasiPolynomial({monomial: 1}).names() & lanes
        ]
        if not odd:
            return "next"
        return "shifted" if any(odd) else "offset"
