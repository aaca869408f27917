"""Executed instructions of a compiled kernel as formulas in its sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from countperf.errors import CountingError, ParameterError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CacheSize
from countperf.harness.compile.compiled_kernel import CompiledKernel, FollowedLaunch
from countperf.machine_code.executed_counts import CONFLICT, ROOT, missed_shares, properties_of
from countperf.machine_code.formula_search import find_formulas
from countperf.machine_code.size_formulas import (
    Key,
    Number,
    Sample,
    SizeFormulas,
    SizePolynomial,
    Sizes,
)
from countperf.machine_code.throughput import SMALLEST_SHARE, analyze, blocks_of, cycles_of
from countperf.properties.vector import Count, PropertyVector, granularity_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ZERO, QuasiPolynomial

_MANY = 10**9
_MOST_STEPS = 400_000
"""Steps after which a size is given up: code is followed at tens of them."""
_DENOMINATOR = 10**5

_LINE, _SHARE, _GROUPS = "line", "share", "groups"
"""Kinds of numbers that are followed: executions, shares that miss, groups of a launch."""


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Follows a kernel at sizes, and keeps what it saw of its blocks."""

    compiled: CompiledKernel  # the kernel's code
    vector: PropertyVector  # its counts
    statistics: Mapping[str, Any]  # as for `CompiledKernel.counts`
    launches: tuple[FollowedLaunch, ...] = ()  # those of the sizes that were followed first
    # blocks that take a share of the time at any sizes: numbers of launch and lines
    blocks: dict[tuple[int, tuple[int, ...]], None] = field(
        default_factory=dict[tuple[int, tuple[int, ...]], None]
    )

    has_conflicts: bool = False  # whether lines of a block crowd a set of a cache at any sizes

    @property
    def cache(self) -> CacheSize:
        """The first-level cache for which the kernel is counted."""
        return (self.vector.caches or DEFAULT_CACHES).code

    @property
    def is_one_launch(self) -> bool:
        """Whether the groups of the only launch are those that are counted."""
        return len(self.launches) == 1

    def allows(self, sizes: Sizes) -> bool:
        """Say whether the kernel's assumptions hold."""
        try:
            self.vector.checked_parameters(sizes, {})
        except ParameterError:
            return False
        return True

    def follow(self, sizes: Sizes) -> Sample:
        """Return how often each line of each launch is executed by a group."""
        values = self.vector.checked_parameters(sizes, {})
        launches = self.compiled.follow(values, self.statistics, _MOST_STEPS)
        self.launches = self.launches or launches
        shapes = [
            [(each.launch.kernel, each.launch.group_shape) for each in some]
            for some in (launches, self.launches)
        ]
        if shapes[0] != shapes[1]:
            raise CountingError(
                "what is launched, or the shape of its groups, depends on the sizes: there is code"
                " for each of them, and no formula"
            )
        found: dict[Key, Number] = {}
        for number, each in enumerate(launches):
            found |= self._seen(number, each)
            groups = each.launch.number_of_groups
            if not self.is_one_launch:
                found[_GROUPS, number, 0, ""] = groups
            elif self.vector["groups"].quantity.evaluate(values) != groups:
                raise CountingError(f"other groups were counted than the {groups} of the launch")
        return found

    def _seen(self, number: int, each: FollowedLaunch) -> dict[Key, Number]:
        found: dict[Key, Number] = {
            (_LINE, number, line, ""): count for line, count in each.executed.items()
        }
        shares = missed_shares(each.program, each.executed, each.accessed, self.cache)
        self.has_conflicts |= any(name.startswith(CONFLICT) for name, _ in shares)
        for (name, line), share in shares.items():
            found[_SHARE, number, line, name] = Fraction(share).limit_denominator(_DENOMINATOR)
        whole = sum(each.executed.values())
        for lines, _ in each.program.straight(each.executed):
            if each.executed[lines[0]] * len(lines) >= SMALLEST_SHARE * whole:
                self.blocks[number, lines] = None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFormulas:
    """Executed instructions of a kernel as formulas in its sizes."""

    # the kernel's counts with those of its code, for sizes at which the formulas hold
    vector: PropertyVector
    formulas: SizeFormulas  # for which these are


def code_formulas(
    compiled: CompiledKernel,
    vector: PropertyVector,
    example: Mapping[str, int],
    statistics: Mapping[str, Any] | None = None,
) -> CodeFormulas:
    """Find what compiled code executes as formulas in the sizes.

    Numbers of executed instructions are those of following the code, exactly; so are stack and
    set-conflict misses but for rounding. Cycles leave out what takes less than 0.02 % at all sizes
    that were followed, where following leaves it out at single sizes.
    """
    names = [name for name in vector.parameters if name not in vector.defaults]
    reader = _Reader(compiled=compiled, vector=vector, statistics=statistics or {})
    reader.follow(example)
    extents = {extent for each in reader.launches for extent in each.launch.group_shape}

    def find(*, for_pages: bool) -> SizeFormulas:
        return find_formulas(
            reader.follow,
            {name: example[name] for name in names},
            extents=sorted(extents),
            is_allowed=reader.allows,
            for_pages=for_pages,
        )

    try:
        found = find(for_pages=False)
    except CountingError:
        if not reader.has_conflicts:
            raise
        found = find(for_pages=True)
    counts = _summed(reader, found)
    nonnegative, zero = found.guards()
    defaults = {QuasiPolynomial.name(name) - value for name, value in vector.defaults.items()}
    guards = (nonnegative, zero | defaults)
    return CodeFormulas(
        vector=vector.with_code_formulas(counts, guards, found.domain()), formulas=found
    )


def _summed(reader: _Reader, found: SizeFormulas) -> dict[str, Count]:
    """Return counts of all groups of all launches, by property."""
    of = {key: polynomial for polynomial, keys in found.rows for key in keys}
    analyzed = reader.compiled.analyzed
    for each in reader.launches:
        analyze(blocks_of(each.program, each.executed), analyzed)
    parts: defaultdict[str, list[PiecewiseQuasiPolynomial]] = defaultdict(list)
    for number, each in enumerate(reader.launches):
        groups = (
            reader.vector["groups"].quantity
            if reader.is_one_launch
            else PiecewiseQuasiPolynomial.from_value(
                of[_GROUPS, number, 0, ""].symbolic(found.names)
            )
        )
        for name, quantity in _of_group(reader, found, number, each).items():
            parts[name].append(groups.scale(quantity))
    return {
        name: Count(
            quantity=PiecewiseQuasiPolynomial.sum(some),
            granularity=granularity_of(name),
            integral=name.startswith(f"{ROOT}.") and not name.startswith(f"{ROOT}.cycles"),
        )
        for name, some in parts.items()
    }


def _of_group(
    reader: _Reader, found: SizeFormulas, number: int, launch: FollowedLaunch
) -> dict[str, QuasiPolynomial]:
    """Return counts of a group of a launch, by property."""
    amounts = _of_lines(reader, found, number, launch)
    summed: defaultdict[str, QuasiPolynomial] = defaultdict(lambda: ZERO)
    for polynomial, keys in found.rows:
        here: defaultdict[str, Number] = defaultdict(int)
        for kind, of_launch, line, _ in keys:
            if (kind, of_launch) == (_LINE, number):
                for name, amount in amounts[line].items():
                    here[name] += amount
        if here:
            count = polynomial.symbolic(found.names)
            for name, amount in here.items():
                summed[name] = summed[name] + count * amount
    return {name: quantity for name, quantity in summed.items() if quantity}


def _of_lines(
    reader: _Reader, found: SizeFormulas, number: int, launch: FollowedLaunch
) -> defaultdict[int, defaultdict[str, Number]]:
    """Return what executing each line of a launch once counts as, by property."""
    program = launch.program
    amounts: defaultdict[int, defaultdict[str, Number]] = defaultdict(lambda: defaultdict(int))
    for polynomial, keys in found.rows:
        for kind, of_launch, line, name in keys:
            if of_launch != number:
                continue
            if kind == _LINE:
                at = program.lines[line]
                for each, amount in properties_of(at.mnemonic, at.operands):
                    amounts[line][each] += amount
            elif kind == _SHARE:
                amounts[line][name] += _constant(polynomial)
    for of_launch, lines in reader.blocks:
        if of_launch == number:
            many = dict.fromkeys(lines, _MANY)
            for name, cycles in cycles_of(program, many, reader.compiled.analyzed).items():
                amount = Fraction(cycles, _MANY).limit_denominator(_DENOMINATOR)
                amounts[lines[0]][f"{ROOT}.{name}"] += amount
    return amounts


def _constant(polynomial: SizePolynomial) -> Number:
    """Return a share that misses, which is to be the same at all sizes."""
    if any(any(exponents) for exponents in polynomial.terms):
        raise CountingError(
            "which accesses miss the first-level cache, since their lines crowd a set, depends on"
            " the sizes in no simple way"
        )
    return sum(polynomial.terms.values(), start=Fraction(0))
