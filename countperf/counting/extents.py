"""Elements of its arrays that a kernel addresses at given sizes.

Only what a launch has to know before it begins: the smallest and the largest subscript. Conditions
of instructions and of ``if`` expressions are taken into account where they are affine. A condition
or a loop bound that depends on data is left out; the range then is one that the kernel stays
within, and is marked as not exact. A subscript that is read from data has no range here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import loopy as lp
from loopy.diagnostic import LoopyError
from loopy.symbolic import SubstitutionMapper, WalkMapper
from pymbolic.mapper.substitutor import make_subst_func

from countperf.counting.frontend.callees import inline_callees
from countperf.counting.frontend.copies import preprocessed
from countperf.counting.frontend.loopy_patches import unattended
from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import NotAffineError, ToCondition, ToQuasiPolynomial
from countperf.symbolic.kernel_sets import domain_of
from countperf.symbolic.quasipolynomial import ZERO, QuasiPolynomial

_OPERATIONS = 500_000
"""Of isl for one access, a second or so; beyond, its range is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """Smallest and largest value of a combination of subscripts."""

    # both are included
    low: int
    high: int
    is_exact: bool  # whether both are reached; else the values lie between them
    access: str  # the access with the largest value, for messages: ``store b[i]``


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayAccess:
    """An access to an array, as it is written in a preprocessed kernel."""

    # name of the array, ``load`` or ``store``, id of the instruction
    array: str
    direction: str
    instruction: str
    index: tuple[Any, ...]  # one for each axis
    # whether `index` is one subscript of the memory instead, without the array's offset
    is_flat: bool
    within: frozenset[str]  # loop variables around it
    conditions: tuple[tuple[Any, bool], ...]  # what must hold where it is executed, or must not

    @property
    def text(self) -> str:
        """The access in words: ``store b[i]``."""
        index = ", ".join(map(str, self.index)).replace("\u0332", "")  # Loopy underlines functions
        return f"{self.direction} {self.array}[{index}]"


def accesses_of(kernel: Any, opaque: set[str] | None = None) -> list[ArrayAccess]:
    """Return the accesses of a preprocessed kernel, those of equal text once."""
    accesses: dict[ArrayAccess, None] = {}
    for instruction in kernel.instructions:
        try:
            _Accesses(instruction, accesses).collect()
        except CountingError:
            if opaque is not None:
                opaque |= set(instruction.dependency_names())
    return list(accesses)


@dataclass
class AddressedElements:
    """Ranges of the subscripts of a kernel's arrays."""

    t_unit: Any

    @cached_property
    def kernel(self) -> Any:
        """The kernel, preprocessed, with its callees in it; None if Loopy does not do that."""
        try:
            with unattended():
                unit = inline_callees(self.t_unit)
                kernel = unit.default_entrypoint
                if kernel.state < lp.KernelState.PREPROCESSED:
                    kernel = preprocessed(unit).default_entrypoint
        except CountingError:
            return None
        return kernel

    @cached_property
    def copied_bounds(self) -> tuple[str, ...]:
        """Private variables that bound loops and that Loopy copies, for which its code is wrong.

        It compares the loop variable with the address of the copies (inducer/loopy issue 77).
        """
        if self.kernel is None:
            return ()
        variables = self.kernel.temporary_variables
        return tuple(
            sorted(n for n in self.kernel.all_params() if n in variables and variables[n].shape)
        )

    @cached_property
    def _collected(self) -> tuple[dict[str, list[ArrayAccess]], frozenset[str]]:
        """All accesses by array, and arrays with accesses of which nothing can be read."""
        opaque: set[str] = set()
        by_array: dict[str, list[ArrayAccess]] = {}
        for access in accesses_of(self.kernel, opaque):
            by_array.setdefault(access.array, []).append(access)
        return by_array, frozenset(opaque)

    def ranges(
        self,
        array: str,
        weights: Sequence[Sequence[int]],
        values: Mapping[str, int],
        *,
        fixed: Mapping[int, int] | None = None,
        offset: int = 0,
    ) -> tuple[IndexRange, ...] | None:
        """Find the ranges of weighted sums of an array's subscripts."""
        if self.kernel is None or array in self._collected[1]:
            return None
        parts: list[tuple[IndexRange, ...]] = []
        for access in self._collected[0].get(array, []):
            try:
                with isl_sets.limit_operations(_OPERATIONS, f"the subscript of {access.text}"):
                    part = self._of_access(access, weights, values, fixed or {}, offset)
            except (NotAffineError, CountingError):
                return None
            if part is not None:
                parts.append(part)
        return tuple(_join_terms(some) for some in zip(*parts, strict=True))

    def unproved(
        self, shapes: Mapping[str, Sequence[int]], values: Mapping[str, int]
    ) -> list[ArrayAccess]:
        """Return the accesses that are not shown to stay in their arrays without data."""
        unproved: list[ArrayAccess] = []
        by_array = {} if self.kernel is None else self._collected[0]
        for array, accesses in by_array.items():
            shape = shapes.get(array)
            if shape is None:
                continue
            unit = [
                [int(axis == other) for other in range(len(shape))] for axis in range(len(shape))
            ]
            flat = [one for one in accesses if one.is_flat or len(one.index) != len(shape)]
            known = None if flat else self.ranges(array, unit, values)
            if known is not None and all(one.is_exact for one in known):
                continue  # compared with the buffer
            unproved += [
                access
                for access in accesses
                if access not in flat and not self._is_inside(access, unit, shape, values)
            ]
        return unproved

    def _is_inside(
        self,
        access: ArrayAccess,
        unit: Sequence[Sequence[int]],
        shape: Sequence[int],
        values: Mapping[str, int],
    ) -> bool:
        try:
            with isl_sets.limit_operations(_OPERATIONS, f"the subscript of {access.text}"):
                ranges = self._of_access(access, unit, values, {}, 0)
        except (NotAffineError, CountingError):
            return False
        return ranges is None or all(
            index_range.low >= 0 and index_range.high < extent
            for index_range, extent in zip(ranges, shape, strict=True)
        )

    def _of_access(
        self,
        access: ArrayAccess,
        weights: Sequence[Sequence[int]],
        values: Mapping[str, int],
        fixed: Mapping[int, int],
        offset: int,
    ) -> tuple[IndexRange, ...] | None:
        points, is_exact = self._points(access.within, access.conditions, values)
        to_polynomial = ToQuasiPolynomial(lambda name: name in self._inames)
        index = [to_polynomial(_at_sizes(part, values)) for part in access.index]
        if access.is_flat:
            if fixed:
                raise CountingError(f"{access.text} does not tell its axes apart")
            sums = [index[0] for _ in weights]
        else:
            for axis, position in fixed.items():
                points = sets.restrict(points, zero=[index[axis] - position])
            sums = [_weigh_terms(index, some) for some in weights]
        ends = sets.extremes(points, sums)
        if ends is None:
            return None
        return tuple(
            IndexRange(low=low + offset, high=high + offset, is_exact=is_exact, access=access.text)
            for low, high in ends
        )

    @cached_property
    def _inames(self) -> frozenset[str]:
        return self.kernel.all_inames()

    def _points(
        self,
        within: frozenset[str],
        conditions: Sequence[tuple[Any, bool]],
        values: Mapping[str, int],
    ) -> tuple[Any, bool]:
        """Return where something is executed, and whether that is exact."""
        try:
            domain = domain_of(self.kernel, within)
        except LoopyError as error:
            raise CountingError(f"there is no domain of {', '.join(sorted(within))}") from error
        domain, unknown = sets.fix_parameters(sets.project_onto(domain, within), values)
        is_exact = not unknown
        to_condition = ToCondition(ToQuasiPolynomial(lambda name: name in within))
        for expression, holds in conditions:
            try:
                alternatives = to_condition(_at_sizes(expression, values))
                holding = sets.where_holds(domain, alternatives)
            except (NotAffineError, CountingError):
                is_exact = False
                continue
            domain = holding if holds else domain - holding
        return domain, is_exact


def _at_sizes(expression: Any, values: Mapping[str, int]) -> Any:
    return SubstitutionMapper(make_subst_func(dict(values)))(expression)


def _weigh_terms(index: Sequence[QuasiPolynomial], weights: Sequence[int]) -> QuasiPolynomial:
    return sum((part * weight for part, weight in zip(index, weights, strict=True) if weight), ZERO)


def _join_terms(parts: Sequence[IndexRange]) -> IndexRange:
    highest = max(parts, key=lambda part: part.high)
    lowest = min(parts, key=lambda part: part.low)
    return IndexRange(
        low=lowest.low,
        high=highest.high,
        is_exact=lowest.is_exact and highest.is_exact,
        access=lowest.access if lowest.low < 0 else highest.access,
    )


class _Accesses(WalkMapper[[]]):
    """Collects the accesses of an instruction, each with the conditions around it."""

    def __init__(self, instruction: Any, accesses: dict[ArrayAccess, None]) -> None:
        super().__init__()
        self._instruction = instruction
        self._accesses = accesses
        self._conditions: tuple[tuple[Any, bool], ...] = ()
        self._target: Any = None

    def collect(self) -> None:
        """Walk through predicates, subscripts, the right-hand side and the stores."""
        instruction = self._instruction
        for predicate in sorted(instruction.predicates, key=str):
            self.rec(predicate)
        if isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction):
            return
        if not isinstance(instruction, lp.MultiAssignmentBase):
            raise CountingError(f"instruction {instruction.id!r} is not written in expressions")
        self._conditions = tuple((test, True) for test in sorted(instruction.predicates, key=str))
        self.rec(instruction.expression)
        for assignee in instruction.assignees:
            self._target = assignee
            self.rec(assignee)
            self._target = None

    def _note(self, array: str, index: tuple[Any, ...], expr: Any, *, is_flat: bool) -> None:
        access = ArrayAccess(
            array=array,
            direction="store" if expr is self._target else "load",
            instruction=self._instruction.id,
            index=index,
            is_flat=is_flat,
            within=self._instruction.within_inames,
            conditions=self._conditions,
        )
        self._accesses[access] = None

    def map_subscript(self, expr: Any) -> None:
        self._note(expr.aggregate.name, expr.index_tuple, expr, is_flat=False)
        for part in expr.index_tuple:
            self.rec(part)

    def map_linear_subscript(self, expr: Any) -> None:
        self._note(expr.aggregate.name, (expr.index,), expr, is_flat=True)
        self.rec(expr.index)

    def map_variable(self, expr: Any) -> None:
        self._note(expr.name, (), expr, is_flat=False)

    def map_if(self, expr: Any) -> None:
        """Go through both sides with the condition, or its opposite."""
        self.rec(expr.condition)
        outer = self._conditions
        for side, holds in ((expr.then, True), (expr.else_, False)):
            self._conditions = (*outer, (expr.condition, holds))
            self.rec(side)
        self._conditions = outer

    def map_sub_array_ref(self, expr: Any) -> None:
        """Refuse: what is passed to a function that is not inlined cannot be followed."""
        raise CountingError(f"{expr} is passed to a function")
