"""A kernel made ready once for everything that is counted in it."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple

import loopy as lp
import pymbolic.primitives as p
from loopy.kernel.data import IlpBaseTag, UnrollTag
from loopy.symbolic import get_dependencies
from pytools import memoize_method

from countperf.counting.accesses import address_of
from countperf.counting.device_programs import (
    DeviceProgram,
    ProgramSchedule,
    RegionOutline,
    schedule_of,
)
from countperf.counting.domains import Domains
from countperf.counting.expression_types import text_of
from countperf.counting.frontend.schedule import prepare_unit
from countperf.counting.keys import NOWHERE, Case, FirstIteration, Grid, MemoryAccess, Operation
from countperf.counting.operations.compiled_view import CompiledCounter
from countperf.counting.operations.scalars import Key, find_tagged_inames
from countperf.counting.operations.source_view import SourceCounter
from countperf.counting.scopes import AxisKind, Scope, barrier_passes
from countperf.counting.size_parameters import SizeParameters
from countperf.counting.statistics import Statistics, nonnegative
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    UnsupportedExpressionError,
)
from countperf.symbolic.affine import ALWAYS
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Number, QuasiPolynomial

TallyView = Literal["source", "compiled"]
Conditions = tuple[Case | FirstIteration, ...]


class InstructionPart(NamedTuple):
    """Operations or accesses of one kind in an instruction, under the same conditions."""

    key: Key | str  # the name of a property, if the caller supplies it
    conditions: Conditions
    number: Number  # in one execution under these conditions
    share: Number  # how often conditions that data decides hold

    @property
    def times(self) -> Number:
        """Number of them in one execution, whatever data decides."""
        return self.number * self.share


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction in its place, with its work: tests of predicates, and what they guard."""

    loopy: Any
    parts: tuple[InstructionPart, ...]
    probability: Number  # how often conditions that data decides hold
    kinds: Mapping[str, AxisKind]  # of the loops around it
    scope: Scope  # under its predicates
    reasons: frozenset[str]  # why its counts are not exact
    is_supplied: bool  # whether the caller says what one execution does

    @property
    def own(self) -> list[str]:
        """Loops that each work item runs at its own pace, outer ones first."""
        own = self.scope.within & self.scope.own_loops
        return [name for name in self.scope.loops if name in own]


@dataclass(frozen=True, eq=False)
class Launch:
    """A device program with its geometry and its barrier regions."""

    program: DeviceProgram
    domains: Domains
    grid: Grid
    regions: tuple[RegionOutline, ...]

    @cached_property
    def number(self) -> PiecewiseQuasiPolynomial:
        """Number of its launches."""
        return self.domains.executions(self.program.launch_loops, (), NOWHERE)

    @cached_property
    def barriers(self) -> PiecewiseQuasiPolynomial:
        """Local barriers times the work items that wait at them."""
        total = ZERO_COUNT
        for barrier, times in Multiset(self.program.barriers).items():
            passes = barrier_passes(self.domains, barrier, self.program.launch_loops, self.grid)
            total += passes.scale(times)
        return total


class KernelTally:
    """The work of instructions by the rules of a view, each read once, in order of the schedule."""

    def __init__(self, prepared: PreparedKernel, rules: SourceCounter) -> None:
        self._prepared = prepared
        self._rules = rules
        self._read: dict[str, Instruction] = {}

    def instructions(self, launch: Launch) -> list[Instruction]:
        """Return the instructions of a launch that compute something, in order."""
        return [
            self.instruction(launch, outline, instruction_id)
            for outline in launch.regions
            for instruction_id in omit_barriers(self._prepared.kernel, outline.loops)
        ]

    def instruction(
        self, launch: Launch, outline: RegionOutline, instruction_id: str
    ) -> Instruction:
        """Return an instruction in its place, tallied when it is asked for first."""
        if (known := self._read.get(instruction_id)) is not None:
            return known
        domains, given = self._prepared.domains, self._prepared.statistics
        always = Case(alternatives=ALWAYS, holds=True)
        instruction = self._prepared.kernel.id_to_insn[instruction_id]
        given.used.clear()
        supplied = self._prepared.supplied.get(instruction_id)
        if supplied is None:
            require_rule(domains.kernel, instruction, can_supply=self._prepared.can_supply)
        predicates, probability = domains.predicate_conditions(instruction)
        if supplied is not None:
            within = instruction.within_inames
            reasons = frozenset({f"the caller's counts for instruction '{instruction_id}'"})
            parts = tuple(
                InstructionPart(k, predicates, n, probability) for k, n in supplied.items()
            )
        else:
            within, reasons = self._rules.loops_around(instruction), frozenset[str]()
            tested = self._rules.tally_predicates(instruction) if instruction.predicates else {}
            parts = tuple(
                InstructionPart(
                    key, (*predicates, *(c for c in cases if c != always)), number, share
                )
                for some, share in ((tested, 1), (self._rules.tally(instruction), probability))
                for (key, cases), number in some.items()
            )
        # of each loop variable around it that is no hardware axis
        copied, hosts = self._prepared.copied, launch.program.launch_loops
        kinds: dict[str, AxisKind] = dict.fromkeys(copied, "unrolled")
        for loop in outline.around:
            kinds[loop.iname] = "launch loop" if loop.iname in hosts else "barrier loop"
        for loop in outline.loops[instruction_id]:
            kinds[loop.iname] = "unrolled" if loop.iname in copied else "loop"
        loops = tuple(loop.iname for loop in outline.nest(instruction_id))
        own = frozenset(name for name, kind in kinds.items() if kind == "loop")
        scope = Scope(domains, within, predicates, launch.grid, loops, own)
        reasons |= given.reasons(within)
        self._read[instruction_id] = Instruction(
            instruction, parts, probability, kinds, scope, reasons, supplied is not None
        )
        return self._read[instruction_id]


class PreparedKernel:
    """A scheduled kernel, its domains, and what the caller says of it; all views count in it."""

    def __init__(
        self,
        t_unit: Any,
        *,
        statistics: Mapping[str, Any] | None = None,
        instruction_counts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.kernel, self.callables = prepare_unit(t_unit)
        self.statistics = Statistics(self.kernel, statistics or {})
        counter = Counter(assumptions_of(self.kernel))
        self.domains = Domains(self.kernel, self.callables, counter, self.statistics)
        self.supplied = find_supplied_counts(self.kernel, instruction_counts or {})
        self.can_supply = instruction_counts is not None

    @classmethod
    def of(cls, kernel: Any, **options: Any) -> PreparedKernel:
        """Return a kernel that is prepared already as it is; prepare a translation unit."""
        return kernel if isinstance(kernel, PreparedKernel) else cls(kernel, **options)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Size parameters, sorted."""
        return tuple(sorted(self.domains.sizes))

    @cached_property
    def sizes(self) -> SizeParameters:
        """Size parameters, and what the kernel assumes of them."""
        return SizeParameters.of(self.kernel, self.domains.sizes, self.domains.defaults)

    @cached_property
    def copied(self) -> frozenset[str]:
        """Loop variables whose instructions are copied for each of their values."""
        return find_tagged_inames(self.kernel, IlpBaseTag, UnrollTag)

    @memoize_method
    def tally(self, view: TallyView) -> KernelTally:
        """Return the tally of what Loopy emits, or of what a compiler leaves of it."""
        rules = CompiledCounter if view == "compiled" else SourceCounter
        return KernelTally(self, rules(self.domains))

    @cached_property
    def schedule(self) -> ProgramSchedule:
        """Device programs in order of launch, and global barriers."""
        return schedule_of(self.kernel)

    @memoize_method
    def launches(self) -> tuple[Launch, ...]:
        """Return the device programs in order."""
        domains, programs = self.domains, self.schedule.programs
        grids = [domains.grid(program.instruction_ids) for program in programs]
        pairs = zip(programs, grids, strict=True)
        return tuple(Launch(program, domains, grid, program.regions()) for program, grid in pairs)

    @contextmanager
    def count_with_advice(self) -> Generator[None]:
        """Have refusals name all statistics that lack, and refuse those that nothing uses."""
        try:
            yield
        except DataDependentControlFlowError as error:
            needs = _list_needs(self.domains, self.supplied)
            if all(need.kind == "addresses in" for need in needs):
                raise
            raise _ask_for(needs, self.kernel.name) from error
        _check_statistics(self.domains, self.supplied)


def omit_barriers(kernel: Any, instruction_ids: Iterable[str]) -> list[str]:
    """Return those of some instructions that compute something."""
    without = lp.BarrierInstruction | lp.NoOpInstruction
    return [i for i in instruction_ids if not isinstance(kernel.id_to_insn[i], without)]


def find_supplied_counts(
    kernel: Any, given: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[Key | str, Fraction]]:
    """Return what the caller supplies for each instruction: operations, the rest by property."""
    counts: dict[str, dict[Key | str, Fraction]] = {}
    for instruction_id, numbers in given.items():
        if instruction_id not in kernel.id_to_insn:
            raise CountingError(
                f"kernel '{kernel.name}': counts are given for '{instruction_id}', which is no "
                f"instruction (it has: {', '.join(sorted(kernel.id_to_insn))})"
            )
        counts[instruction_id] = values = {}
        for name, number in numbers.items():
            if (value := nonnegative(number)) is None:
                raise CountingError(
                    f"kernel '{kernel.name}', instruction '{instruction_id}': the count of "
                    f"{name} is {number!r}; pass a number that is at least zero"
                )
            root, *words = name.split(".")
            key: Key | str = name
            if root in ("flop", "iop"):
                key = Operation(kind=words[0], type_name=words[1], function="".join(words[2:]))
            values[key] = value
    return counts


def require_rule(kernel: Any, instruction: Any, *, can_supply: bool) -> None:
    """Refuse an instruction that has no counting rule."""
    if isinstance(instruction, lp.Assignment | lp.CallInstruction):
        if not getattr(instruction, "atomicity", ()):
            return
        kind = "atomic updates, whose number of attempts depends on the run"
    else:
        kind = f"a {type(instruction).__name__}"
    supplying = (
        f", or pass what one execution of it does, instruction_counts={{{instruction.id!r}:"
        ' {"flop.add.f32": 1, "gmem.load.32.stride1": 1}}'
    )
    raise UnsupportedExpressionError(
        f"kernel '{kernel.name}', instruction '{instruction.id}': no counting rule for {kind}; "
        f"write it as plain assignments{supplying if can_supply else ''}"
    )


_TRIPS = 12.5
_PROBABILITY = 0.5
_ASKED = {
    "loops": "the mean trip count of each loop",
    "conditions": "the probability of each condition",
    "addresses in": "the access pattern of each array",
}


@dataclass(slots=True)
class _Need:
    """A loop, a condition or an array without a statistic."""

    kind: str  # of `_ASKED`
    name: str  # by which the statistic is given
    text: str  # of a condition; else the name
    described: str  # what data decides
    typical: Any  # a statistic for the advice
    # instructions that test a condition, in order
    instructions: dict[str, None] = field(default_factory=dict[str, None])
    is_sized: bool = False  # whether sizes and loop variables decide a condition, though not affine

    def __str__(self) -> str:
        where = ", ".join(f"'{i}'" for i in self.instructions)
        return f"{self.described} (in {where})" if where else self.described


def _ask_for(needs: Sequence[_Need], kernel: str) -> DataDependentControlFlowError:
    statistics = {need.name: need.typical for need in needs}
    by_data = [str(need) for need in needs if not need.is_sized]
    by_sizes = [str(need) for need in needs if need.is_sized]
    reasons = [f"data decides {_join(by_data)}"] if by_data else []
    if by_sizes:
        reasons.append(f"sizes decide {_join(by_sizes)}, but by no affine condition")
    asked = _join([_ASKED[kind] for kind in dict.fromkeys(need.kind for need in needs)])
    return DataDependentControlFlowError(
        f"kernel '{kernel}': {'; '.join(reasons)}; pass {asked}, such as statistics={statistics!r}",
        statistics=statistics,
    )


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _check_statistics(domains: Domains, supplied: Collection[str]) -> None:
    """Refuse statistics that were not used and would not be by any count of the kernel."""
    given = domains.statistics
    if not given.list_idle():
        return
    loops = domains.data_loops
    given.taken |= {name for name in given.numbers if name in loops and loops[name].trips is None}
    needs = _list_needs(domains, supplied)
    if unused := given.list_idle():
        listed = {kind: [n.text for n in needs if n.kind == kind] for kind in _ASKED}
        left = "; ".join(
            f"{kind} {', '.join(dict.fromkeys(texts))}" for kind, texts in listed.items() if texts
        )
        raise given.error(
            f"the statistic for '{unused[0]}' says nothing of what data decides and no other"
            f" statistic says ({left or 'nothing is left'}); name one of these, or leave it out"
        )


def _list_needs(domains: Domains, supplied: Collection[str]) -> list[_Need]:
    """Gather what lacks a statistic: loops, then conditions, then arrays."""
    kernel, given = domains.kernel, domains.statistics
    used = frozenset[str]().union(*(i.within_inames for i in kernel.instructions))
    needs: dict[str, _Need] = {}
    for name, loop in domains.data_loops.items():
        if name in used and loop.trips is None and name not in given.numbers:
            low, high = domains.value_bounds(name)
            most = 2 * _TRIPS if low is None or high is None else high - low + 1
            typical = min(_TRIPS, most / 2)
            text = f"the trip count of the loop '{name}' (its bounds read {', '.join(loop.reads)})"
            needs[name] = _Need("loops", name, name, text, typical)
    with given.note_what_lacks() as noted:
        arrays = dict.fromkeys(_yield_arrays(domains, supplied))
    for (text, instruction_id), condition in noted.items():
        while isinstance(condition, p.LogicalNot):  # named like the condition itself
            condition = condition.child
        name = text_of(condition)
        if name in given.inames or name == type(condition).__name__:
            name = instruction_id
        need = _Need("conditions", name, text, f"whether {text} holds", _PROBABILITY)
        need = needs.setdefault(name, need)
        need.instructions[instruction_id] = None
        known = (domains.inames | domains.sizes).difference(domains.data_loops)
        need.is_sized |= get_dependencies(condition) <= known
    for array in arrays:
        text = f"the addresses in '{array}' ('indirect' unless another pattern is given)"
        needs[array] = _Need("addresses in", array, array, text, "indirect")
    return list(needs.values())


def _yield_arrays(domains: Domains, supplied: Collection[str]) -> Iterator[str]:
    """Yield arrays at addresses that data decides; conditions are noted on the way."""
    counter = SourceCounter(domains)
    for instruction in domains.kernel.instructions:
        domains.predicate_conditions(instruction)
        if instruction.id in supplied or not isinstance(instruction, lp.MultiAssignmentBase):
            continue
        for tally in (counter.tally_predicates, counter.tally):
            try:
                keys = [key for key, _ in tally(instruction)]
            except CountingError:
                continue  # refused for what it is, whatever is known of the data
            for key in keys:
                if (
                    isinstance(key, MemoryAccess)
                    and key.address_space == "global"
                    and _takes_pattern(key, instruction.within_inames, domains)
                    and domains.statistics.pattern_of(key.array, key.text) is None
                ):
                    yield key.array


def _takes_pattern(access: MemoryAccess, within: frozenset[str], domains: Domains) -> bool:
    """Return whether an address, or the lines that strided accesses share, depend on data."""
    address = address_of(access, domains.layout_of(access), domains.to_polynomial)
    if address is None:
        return True
    flat = address.flat
    lane = next((name for name in within if domains.local_axes.get(name) == 0), None)
    if lane is None or not flat.names() & domains.data_loops.keys():
        return False
    step = flat.substitute({lane: QuasiPolynomial.name(lane) + 1}) - flat
    return not step.is_constant or abs(step.constant_term) not in (0, 1)
