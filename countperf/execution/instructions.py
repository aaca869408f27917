"""Instructions as executions are counted: what each does, where it stands, and its loops."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from loopy.kernel.data import LoopedIlpTag

from countperf.counting.access_analysis import AccessAnalyzer
from countperf.counting.access_counter import Tally
from countperf.counting.compiled_types import compiled_counter
from countperf.counting.domains import Domains
from countperf.counting.grid import Grid
from countperf.counting.keys import Case, FirstIteration
from countperf.counting.places import Place
from countperf.counting.regions import RegionOutline
from countperf.counting.schedule import DeviceProgram
from countperf.counting.statistics import Statistics
from countperf.counting.supplied import SuppliedCounts, reason_of, require_rule
from countperf.execution.supplied import supplied_operations
from countperf.symbolic.affine import ALWAYS
from countperf.symbolic.quasipolynomial import Number

NARROW_ROW = 8
"""Items of a row up to which compilers may unroll it."""

Conditions = tuple[Case | FirstIteration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An instruction: what it tallies, where it stands, and which of its loops are its items'."""

    loopy: Any
    predicates: tuple[Case, ...]  # conditions under which it is executed
    probability: Number  # how often conditions that data decides hold
    # what testing the predicates does, and what the instruction does where they hold
    tested: Tally
    tallied: Tally
    kinds: Mapping[str, Any]  # of the loops around it, and of axes
    place: Place  # where it is executed
    own: list[str]  # loops that each work item runs at its own pace, outer ones first
    copies: list[str]  # loops over copies that are written as loops
    # what the caller says that one execution does, by property name; operations are in `tallied`
    # too
    supplied: Mapping[str, Fraction] = field(default_factory=dict[str, Fraction])
    reason: str = ""  # why its counts are not exact, where the caller supplies them

    def conditions(self, cases: Iterable[Case | FirstIteration]) -> Conditions:
        """Return the conditions of something that it does: its own, and those of a tally."""
        return self.predicates + tuple(
            case
            for case in cases
            if isinstance(case, FirstIteration) or case.alternatives != ALWAYS
        )


class InstructionReader:
    """Reads the instructions of a kernel, which come in the order of the schedule."""

    def __init__(self, domains: Domains, statistics: Statistics, supplied: SuppliedCounts) -> None:
        self.kernel = domains.kernel
        self._supplied = supplied
        self._domains = domains
        self._tallies = compiled_counter(domains, statistics=statistics)
        self.analyzer = AccessAnalyzer(self.kernel, domains, self._tallies)
        self.looped_copies = frozenset(
            name
            for name, iname in self.kernel.inames.items()
            if any(isinstance(tag, LoopedIlpTag) for tag in iname.tags)
        )

    def read(
        self, program: DeviceProgram, outline: RegionOutline, instruction: Any, grid: Grid
    ) -> Instruction:
        """Tally an instruction."""
        predicates, probability = self._domains.predicate_conditions(instruction)
        supplied: Mapping[str, Fraction] = {}
        tested: Tally = {}
        if instruction.id in self._supplied:
            supplied = self._supplied.of(instruction.id)
            tallied: Tally = {(k, ()): n for k, n in supplied_operations(supplied).items()}
        else:
            require_rule(self.kernel, instruction)
            if instruction.predicates:
                tested = self._tallies.tally_predicates(instruction)
            tallied = self._tallies.tally(instruction)
        kinds = self.analyzer.kinds(program, outline, instruction.id)
        place = self.analyzer.place(outline, instruction, predicates, grid, kinds)
        return Instruction(
            loopy=instruction,
            predicates=predicates,
            probability=probability,
            tested=tested,
            tallied=tallied,
            kinds=kinds,
            place=place,
            own=[n for n in place.loops if kinds.get(n) == "loop" and n in place.within],
            copies=sorted(self.looped_copies & place.within),
            supplied=supplied,
            reason=reason_of(instruction.id) if supplied else "",
        )


def left_loops(conditions: Iterable[Case | FirstIteration]) -> frozenset[str]:
    """Return the loops that something has left, since it is executed once per entry of them."""
    return frozenset[str]().union(
        *(case.loops for case in conditions if isinstance(case, FirstIteration))
    )


def tells_apart(conditions: Iterable[Case | FirstIteration], items: Collection[str]) -> bool:
    """Tell whether some conditions depend on work-item indices."""
    return any(not case.names.isdisjoint(items) for case in conditions if isinstance(case, Case))


def neighbors(place: Place) -> tuple[str, ...]:
    """Return the work-item indices along the axes that vectors may take."""
    axes = (0, 1) if place.grid.items.get(0, 1) <= NARROW_ROW else (0,)
    return tuple(name for name, axis in place.lanes.items() if axis in axes)
