"""Work of an instruction and the conditions on it, found once for all views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import loopy as lp

from countperf.counting.keys import Case, FirstIteration, Operation
from countperf.counting.operations.access_counter import Key
from countperf.counting.scopes import AxisKind, Scope
from countperf.counting.statistics import nonnegative
from countperf.errors import CountingError, UnsupportedExpressionError
from countperf.symbolic.affine import ALWAYS
from countperf.symbolic.quasipolynomial import Number

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        names = (name for name in self.scope.loops if name in self.scope.within)
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


# --- Counts of instructions that have no counting rule, supplied by the caller


HOW_TO_SUPPLY = (
    'pass what one execution of it does, instruction_counts={{{id!r}: {{"flop.add.f32": 1, '
    '"gmem.load.32.stride1": 1}}}}'
)


def supplied_counts(
    kernel: Any, given: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Fraction]]:
    """Return what the caller supplies for one execution of each instruction, by property."""
    counts: dict[str, dict[str, Fraction]] = {}
    for instruction_id, numbers in given.items():
        if instruction_id not in kernel.id_to_insn:
            raise CountingError(
                f"kernel '{kernel.name}': counts are given for '{instruction_id}', which is no "
                f"instruction (it has: {', '.join(sorted(kernel.id_to_insn))})"
            )
        counts[instruction_id] = {}
        for name, number in numbers.items():
            value = nonnegative(number)
            if value is None:
                raise CountingError(
                    f"kernel '{kernel.name}', instruction '{instruction_id}': the count of "
                    f"{name} is {number!r}; pass a number that is at least zero"
                )
            counts[instruction_id][name] = value
    return counts


def supplied_parts(
    numbers: Mapping[str, Fraction], predicates: Conditions, probability: Number
) -> tuple[InstructionPart, ...]:
    """Return what a caller supplies as parts: operations as such, the rest by property name."""
    parts: list[InstructionPart] = []
    for name, number in numbers.items():
        root, *words = name.split(".")
        key: Key | str = name
        if root in ("flop", "iop"):
            kind, type_name, *function = words
            key = Operation(kind=kind, type_name=type_name, function="".join(function))
        parts.append(InstructionPart(key, predicates, number, probability))
    return tuple(parts)


def reason_of(instruction_id: str) -> str:
    """Return why counts that hold supplied ones are not exact."""
    return f"the caller's counts for instruction '{instruction_id}'"


def require_rule(kernel: Any, instruction: Any, *, can_supply: bool = True) -> None:
    """Refuse an instruction that has no counting rule."""
    if isinstance(instruction, lp.Assignment | lp.CallInstruction):
        if not getattr(instruction, "atomicity", ()):
            return
        kind = "atomic updates, whose number of attempts depends on the run"
    else:
        kind = f"a {type(instruction).__name__}"
    supplying = f", or {HOW_TO_SUPPLY.format(id=instruction.id)}" if can_supply else ""
    raise UnsupportedExpressionError(
        f"kernel '{kernel.name}', instruction '{instruction.id}': no counting rule for {kind}; "
        f"write it as plain assignments{supplying}"
    )


def find_touched_arrays(instruction: Any) -> frozenset[tuple[str, str]]:
    """Return the arrays that an instruction may access, with the direction."""
    return frozenset(
        [(name, "load") for name in instruction.read_dependency_names()]
        + [(name, "store") for name in instruction.write_dependency_names()]
    )
