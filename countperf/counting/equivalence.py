"""Kernels that differ in nothing but whether loops are written out, which scheduling ignores.

Loopy's ``unr`` and ``ilp`` tell the code generator to write the copies of a loop's body one after
the other; scheduling and the source view's counts are those of the loop. The structure view tells
copies from loops, but takes the same schedule. This holds where

1. the loop variable occurs in subscripts only, and in none that is read from data: outside of them
   an unrolled variable is a number in each copy, which takes part in what is folded;
2. a loop tagged ``ilp`` or ``ilp.seq`` is none of a reduction, which Loopy refuses for one of them;
3. the unit is a single kernel of assignments: what C code does, nobody knows.
"""

from __future__ import annotations

from typing import Any

from loopy import Assignment, CallInstruction, TranslationUnit
from loopy.kernel.data import LoopedIlpTag, UnrolledIlpTag, UnrollTag
from loopy.kernel.function_interface import CallableKernel
from loopy.kernel.instruction import BarrierInstruction, NoOpInstruction
from loopy.symbolic import UncachedWalkMapper
from pymbolic.mapper import Mapper


def with_loops_as_loops(t_unit: TranslationUnit) -> TranslationUnit:
    """Return a unit of the same source-view counts, whose loops are not written out."""
    kernels = [c for c in t_unit.callables_table.values() if isinstance(c, CallableKernel)]
    if len(kernels) != 1 or len(t_unit.entrypoints) != 1:
        return t_unit
    kernel = t_unit.default_entrypoint
    tagged = {
        name: iname
        for name, iname in kernel.inames.items()
        if any(isinstance(tag, UnrollTag | UnrolledIlpTag) for tag in iname.tags)
    }
    if not tagged:
        return t_unit
    uses = _Uses()
    for instruction in kernel.instructions:
        if isinstance(instruction, BarrierInstruction | NoOpInstruction):
            continue
        if not isinstance(instruction, Assignment | CallInstruction):
            return t_unit
        uses(instruction.expression)
        for part in (*instruction.assignees, *instruction.predicates):
            uses(part)
    for rule in kernel.substitutions.values():
        uses(rule.expression)
    inames = {
        name: iname.copy(tags=frozenset(map(_as_loop, iname.tags)) - {None})
        for name, iname in tagged.items()
        if name not in uses.values
        and not (name in uses.reduced and iname.tags_of_type(UnrolledIlpTag))
    }
    return t_unit.with_kernel(kernel.copy(inames={**kernel.inames, **inames}))


def with_tags_of(scheduled: TranslationUnit, t_unit: TranslationUnit) -> TranslationUnit:
    """Return the schedule of a unit, made of that of another one."""
    wanted = t_unit.default_entrypoint.inames
    kernel = scheduled.default_entrypoint
    inames = {
        name: iname.copy(tags=wanted[name].tags) if name in wanted else iname
        for name, iname in kernel.inames.items()
    }
    return scheduled.with_kernel(kernel.copy(inames=inames))


def _as_loop(tag: Any) -> Any:
    if isinstance(tag, UnrollTag):
        return None
    return LoopedIlpTag() if isinstance(tag, UnrolledIlpTag) else tag


class _Uses(UncachedWalkMapper[[]]):
    """Collects variables that are used as more than plain subscripts, and those of reductions."""

    # Loopy's class of that name does cache, and would see a variable in a subscript only once
    __call__ = Mapper.__call__
    rec = Mapper.__call__

    def __init__(self) -> None:
        super().__init__()
        self.values: set[str] = set()
        self.reduced: set[str] = set()
        self._index: set[str] | None = None  # variables of the subscript at hand
        self._is_plain = True

    def map_variable(self, expr: Any) -> None:
        (self.values if self._index is None else self._index).add(expr.name)

    map_tagged_variable = map_variable

    def map_subscript(self, expr: Any) -> None:
        if self._index is not None:
            self._is_plain = False
            self.rec(expr.index)
            return
        self._index, self._is_plain = set(), True
        self.rec(expr.index)
        if not self._is_plain:
            self.values |= self._index
        self._index = None

    def map_linear_subscript(self, expr: Any) -> None:
        self._is_plain = False
        super().map_linear_subscript(expr)

    def map_call(self, expr: Any) -> None:
        self._is_plain = False
        super().map_call(expr)

    def map_call_with_kwargs(self, expr: Any) -> None:
        self._is_plain = False
        super().map_call_with_kwargs(expr)

    def map_reduction(self, expr: Any) -> None:
        self.reduced.update(expr.inames)
        super().map_reduction(expr)
