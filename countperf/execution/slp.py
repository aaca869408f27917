"""Values that a loop of an item updates alike, side by side: compilers may pack them in vectors.

An update is an assignment to a private variable that reads it. Updates in the same loops are alike
if they differ only in the variable and in constants: numbers, and integers that are powers of two,
by which compilers shift. LLVM (`SLPVectorizer`, from the variables that a loop carries) packs 8 of
them, then 4 and 2 of those left; where a loop updates other values too, only those with a function
that takes long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Any

import loopy as lp
import pymbolic.primitives as p
from loopy.symbolic import IdentityMapper, get_dependencies

from countperf.counting.divisions import is_power_of_two

__all__ = ["MOST_PACKED", "SlpPacking", "packs"]

MOST_PACKED = 8
"""Values that a vector takes at most."""

SlpPacking = Mapping[int, Fraction]
"""Share of an instruction's executions that are in vectors of so many values; 1: in none."""


def packs(
    instructions: Iterable[tuple[Any, tuple[str, ...]]],
    private: Collection[str],
    slow: Collection[str],
) -> dict[str, SlpPacking]:
    """Return how updates that are alike may be packed.

    Parameters
    ----------
    instructions : iterable of (loopy.InstructionBase, tuple of str)
        Those of a device program, each with the loops around it that an item runs by itself.
    private : collection of str
        Names of private variables without axes.
    slow : collection of str
        Ids of the instructions with a function that takes long.

    Returns
    -------
    dict from str to mapping from int to Fraction
        By the id of an instruction that has others like it; shares sum to 1.
    """
    updates: defaultdict[tuple[str, ...], defaultdict[Any, list[str]]]
    updates = defaultdict(lambda: defaultdict(list))
    for instruction, loops in instructions:
        state = _updated(instruction, private) if loops else ""
        if state:
            updates[loops][_Form(state)(instruction.expression)].append(instruction.id)
    return {
        each: _shares(len(ids))
        for by_form in updates.values()
        for ids in by_form.values()
        if len(ids) > 1 and (len(by_form) == 1 or all(each in slow for each in ids))
        for each in ids
    }


def _updated(instruction: Any, private: Collection[str]) -> str:
    """Return the private variable that an instruction updates; empty if it does not."""
    if not isinstance(instruction, lp.Assignment) or instruction.predicates:
        return ""
    target = instruction.assignee
    if not isinstance(target, p.Variable) or target.name not in private:
        return ""
    return target.name if target.name in get_dependencies(instruction.expression) else ""


def _shares(number: int) -> dict[int, Fraction]:
    shares: dict[int, Fraction] = {}
    lanes, left = MOST_PACKED, number
    while left:
        packed = left // lanes * lanes
        if packed:
            shares[lanes] = Fraction(packed, number)
        left -= packed
        lanes //= 2
    return shares


class _Form(IdentityMapper[[]]):
    """Replaces what may differ in updates that are alike; elements of arrays may not."""

    def __init__(self, state: str) -> None:
        super().__init__()
        self._state = state

    def map_variable(self, expr: Any) -> Any:
        return p.Variable("state") if expr.name == self._state else expr

    def map_constant(self, expr: Any) -> Any:
        is_exact = isinstance(expr, int) and not is_power_of_two(expr)
        return expr if is_exact else p.Variable("constant")

    def map_subscript(self, expr: Any) -> Any:
        return expr
