"""What an instruction does and under which conditions, once for all views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import loopy as lp

from countperf.counting.access_counter import Key
from countperf.counting.domains import Domains
from countperf.counting.keys import Case, FirstIteration
from countperf.counting.operations import InstructionCounter
from countperf.counting.places import Place
from countperf.counting.strides import AxisKind
from countperf.counting.supplied import require_rule
from countperf.symbolic.affine import ALWAYS
from countperf.symbolic.quasipolynomial import Number

Conditions = tuple[Case | FirstIteration, ...]


class Part(NamedTuple):
    """Operations or accesses of one kind in an instruction, under the same conditions."""

    key: Key
    conditions: Conditions
    number: Number  # in one execution under these conditions
    share: Number  # how often conditions that data decides hold

    @property
    def times(self) -> Number:
        """How many there are in one execution, whatever data decides."""
        return self.number * self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallied:
    """What an instruction does: the tests of its predicates, and itself where they hold."""

    predicates: tuple[Case, ...]  # affine conditions under which it is executed
    probability: Number  # how often conditions that data decides hold
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An instruction in its place."""

    loopy: Any
    tallied: Tallied
    kinds: Mapping[str, AxisKind]  # of the loops around it
    place: Place  # under its predicates
    supplied: Mapping[str, Fraction]  # what the caller says that one execution does, by property

    @property
    def own(self) -> list[str]:
        """Loops that each work item runs at its own pace, outer ones first."""
        names = (name for name in self.place.loops if name in self.place.within)
        return [name for name in names if self.kinds.get(name) == "loop"]


def computing(kernel: Any, instruction_ids: Iterable[str]) -> list[str]:
    """Return those of some instructions that compute something."""
    without = lp.BarrierInstruction | lp.NoOpInstruction
    return [i for i in instruction_ids if not isinstance(kernel.id_to_insn[i], without)]


def conditional(predicates: Conditions, cases: Iterable[Case | FirstIteration]) -> Conditions:
    """Return the conditions of an instruction and those of a part of it that may not hold."""
    return predicates + tuple(
        case for case in cases if isinstance(case, FirstIteration) or not _is_always(case)
    )


def _is_always(case: Case) -> bool:
    return case.alternatives == ALWAYS and case.holds


def tally(
    domains: Domains, tallies: InstructionCounter, instruction: Any, *, can_supply: bool = True
) -> Tallied:
    """Tally an instruction by the rules of a view; they may ask for the order of the schedule."""
    require_rule(domains.kernel, instruction, can_supply=can_supply)
    predicates, probability = domains.predicate_conditions(instruction)
    tested = tallies.tally_predicates(instruction) if instruction.predicates else {}
    parts = tuple(
        Part(key, conditional(predicates, cases), number, share)
        for some, share in ((tested, 1), (tallies.tally(instruction), probability))
        for (key, cases), number in some.items()
    )
    return Tallied(predicates=predicates, probability=probability, parts=parts)
