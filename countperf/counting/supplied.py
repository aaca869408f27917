"""Counts of instructions that have no counting rule, supplied by the caller."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import loopy as lp

from countperf.counting.keys import Operation
from countperf.counting.statistics import nonnegative
from countperf.errors import CountingError, UnsupportedExpressionError

HOW_TO_SUPPLY = (
    'pass what one execution of it does, instruction_counts={{{id!r}: {{"flop.add.f32": 1, '
    '"gmem.load.32.stride1": 1}}}}'
)


class SuppliedCounts:
    """Counts that the caller supplies for one execution of each instruction, by property."""

    def __init__(self, kernel: Any, given: Mapping[str, Mapping[str, Any]]) -> None:
        self._counts: dict[str, dict[str, Fraction]] = {}
        for instruction_id, numbers in given.items():
            if instruction_id not in kernel.id_to_insn:
                raise CountingError(
                    f"kernel '{kernel.name}': counts are given for '{instruction_id}', which is no "
                    f"instruction (it has: {', '.join(sorted(kernel.id_to_insn))})",
                    kernel=kernel.name,
                    where=instruction_id,
                )
            values: dict[str, Fraction] = {}
            for name, number in numbers.items():
                value = nonnegative(number)
                if value is None:
                    raise CountingError(
                        f"kernel '{kernel.name}', instruction '{instruction_id}': the count of "
                        f"{name} is {number!r}; pass a number that is at least zero",
                        kernel=kernel.name,
                        where=instruction_id,
                    )
                values[name] = value
            self._counts[instruction_id] = values

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the instructions."""
        return frozenset(self._counts)

    def __contains__(self, instruction_id: str) -> bool:
        return instruction_id in self._counts

    def of(self, instruction_id: str) -> dict[str, Fraction]:
        """Return the numbers for one execution of an instruction, by property name."""
        return self._counts[instruction_id]


def supplied_operations(numbers: Mapping[str, Fraction]) -> dict[Operation, Fraction]:
    """Return the operations among supplied counts, by property name."""
    found: dict[Operation, Fraction] = {}
    for name, number in numbers.items():
        root, *parts = name.split(".")
        if root in ("flop", "iop"):
            kind, type_name, *function = parts
            key = Operation(kind=kind, type_name=type_name, function="".join(function))
            found[key] = number
    return found


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
        f"write it as plain assignments{supplying}",
        kernel=kernel.name,
        where=instruction.id,
    )


def touched_arrays(instruction: Any) -> frozenset[tuple[str, str]]:
    """Return the arrays that an instruction may access, with the direction."""
    return frozenset(
        [(name, "load") for name in instruction.read_dependency_names()]
        + [(name, "store") for name in instruction.write_dependency_names()]
    )
