"""Kinds of work groups of a kernel at given sizes: what its domains say that each group executes.

A condition on data is left out, as if it held everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from loopy import MultiAssignmentBase
from loopy.schedule.tools import get_subkernel_arg_info
from numpy.typing import NDArray
from pytools import memoize_method

from countperf.counting.accesses import Conditions, SideWalker
from countperf.counting.domains import Domains
from countperf.counting.keys import Case, FirstIteration
from countperf.counting.preparation import PreparedKernel
from countperf.errors import DataDependentControlFlowError, UncountableSetError
from countperf.sizes import Sizes
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import NotAffineError, ToCondition
from countperf.symbolic.point_arrays import (
    MAX_KINDS,
    Kind,
    Point,
    kinds_in_order,
    kinds_of_points,
    parts_by_place,
    place_in_box,
    typical_point,
)
from countperf.symbolic.quasipolynomial import QuasiPolynomial

_LIMIT = "which work groups execute the same", 4  # beyond, they are sorted by place alone
_MOST_IN_ORDER = 4096  # groups up to which the kind of each is told

Executed = tuple[frozenset[str], tuple[Case | FirstIteration, ...]]  # loops, and conditions


@dataclass(frozen=True, slots=True, eq=False)
class GroupKinds:
    """The work groups of a launch, sorted by what they execute."""

    kinds: tuple[Kind, ...]
    order: NDArray[np.intp] | None  # the kind of each group, first axis fastest, unless too many
    is_known: bool = True  # whether sizes alone decide it

    @classmethod
    def of_each(cls, groups: Sequence[int]) -> GroupKinds:
        """Take each group for a kind of its own."""
        kinds = tuple(Kind(number[::-1], 1) for number in product(*map(range, reversed(groups))))
        return cls(kinds, np.arange(len(kinds)))


class WorkGroups:
    """Sorts the work groups of a kernel's launches."""

    def __init__(self, t_unit: Any) -> None:
        self._t_unit = t_unit

    @cached_property
    def _prepared(self) -> PreparedKernel:
        return PreparedKernel(self._t_unit)

    def kinds(
        self,
        program: str,
        groups: Sequence[int],
        sizes: Mapping[str, int],
        arguments: Sequence[int | None] = (),
        *,
        most: int = MAX_KINDS,
    ) -> GroupKinds:
        """Sort the groups of a launch of a device program into so many kinds, or by place."""
        executed, is_known = self._list_executions(program)
        values = self._find_values(program, sizes, arguments)
        try:
            with self._prepared.domains.limit(*_LIMIT):
                parts = [*_by_group(self._prepared.domains, executed, len(groups), values)]
                kinds = kinds_of_points(groups, parts, most)
        except UncountableSetError:
            kinds, parts = [*parts_by_place(groups)], []
        is_known &= len(parts) == len(executed)
        return GroupKinds(tuple(kinds), kinds_in_order(kinds, groups, _MOST_IN_ORDER), is_known)

    def typical(
        self,
        program: str,
        groups: Sequence[int],
        sizes: Mapping[str, int],
        arguments: Sequence[int | None] = (),
    ) -> Point:
        """Return the number of a group of the kind that executes the most, the middle if it may."""
        values = self._find_values(program, sizes, arguments)
        executed, _ = self._list_executions(program)
        return typical_group(self._prepared.domains, executed, groups, values)

    def _find_values(
        self, program: str, sizes: Mapping[str, int], arguments: Sequence[int | None]
    ) -> dict[str, int]:
        names = get_subkernel_arg_info(self._prepared.kernel, program).passed_names
        loops = self._prepared.domains.inames
        passed = zip(names, arguments, strict=False)
        return {**sizes, **{n: v for n, v in passed if n in loops and v is not None}}

    @memoize_method
    def _list_executions(self, name: str) -> tuple[list[Executed], bool]:
        """Return what a device program executes, and whether no data decides it."""
        domains = self._prepared.domains
        to_condition = ToCondition(domains.to_address, lambda n: n not in domains.data_loops)

        def find_cases(tests: Iterable[tuple[Any, bool]]) -> Iterator[Case]:
            for test, holds in tests:
                with suppress(NotAffineError):  # data decides
                    yield Case(alternatives=to_condition(test), holds=holds)

        (program,) = (p for p in self._prepared.schedule.programs if p.name == name)
        executed: dict[Executed, None] = {}
        is_known = True
        for instruction in map(domains.kernel.id_to_insn.__getitem__, program.instruction_ids):
            predicates = sorted(instruction.predicates, key=str)
            known = tuple(find_cases((test, True) for test in predicates))
            is_known &= len(known) == len(predicates)
            sides = _Sides()
            if isinstance(instruction, MultiAssignmentBase):
                sides.rec(instruction.expression)
            for tests in sides.found or ((),):
                executed[instruction.within_inames, (*known, *find_cases(tests))] = None
        return list(executed), is_known


def typical_group(
    domains: Domains, executed: Collection[Executed], groups: Sequence[int], values: Sizes
) -> Point:
    """Return the number of a group of the kind that executes the most, the middle if it may."""
    try:
        with domains.limit(*_LIMIT):
            return typical_point(groups, [*_by_group(domains, executed, len(groups), values)])
    except UncountableSetError:
        return tuple(extent // 2 for extent in groups)


def _by_group(
    domains: Domains, executed: Collection[Executed], number: int, values: Mapping[str, int]
) -> Iterator[Any]:
    """Yield what is executed, by the numbers of groups; what data decides is left out."""
    for within, cases in executed:
        try:
            points = domains.find_points(within.difference(domains.data_loops), cases)
        except DataDependentControlFlowError:
            continue
        points, _ = sets.fix_parameters(sets.at_values(points, values), {})
        names = isl_sets.names_of(points, parameters=False)
        axes = {domains.group_axes[name]: name for name in names if name in domains.group_axes}
        functions: list[QuasiPolynomial] = []
        for axis in sorted(axes):
            line, _ = sets.fix_parameters(domains.domain(frozenset([axes[axis]])), values)
            first = sets.constant_bounds(line)[axes[axis]][0] or 0
            functions.append(QuasiPolynomial.name(axes[axis]) - first)
        functions += [QuasiPolynomial.name(name) for name in names if name not in axes.values()]
        yield place_in_box(sets.image(points, functions), sorted(axes), number)


class _Sides(SideWalker):
    """Collects the conditions under which parts of an expression are evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Conditions, None] = {}

    def rec(self, expr: Any, /, *_: Any, **__: Any) -> None:
        self.found[self.conditions] = None
        super().rec(expr)
