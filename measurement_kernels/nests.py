"""Loop nests as generators of kernels hand them out: untransformed, or one loop in groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from loopy import TranslationUnit

from countperf.measuring import Purpose
from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.entry import CatalogEntry, Collection
from measurement_kernels.programs import (
    Divided,
    Formula,
    Program,
    Recurrence,
    Shape,
    build,
    program_entry,
)

_POINTS = 150_000
"""Innermost iterations of a nest at its smallest size: about a tenth of a millisecond."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops around assignments to arrays; the size n scales."""

    loops: str  # loops with their extents, separated by blanks: ``e:n i:10 j:10``
    arrays: str  # as `measurement_kernels.arguments.arrays` reads it
    assignments: tuple[tuple[str, str] | Recurrence, ...]  # targets and values
    items: tuple[tuple[str, int], ...] = ()
    groups: str = ""  # loops of which each iteration is a group, separated by blanks
    element_type: str = "f64"  # type of the arrays
    base: int = 0  # smallest value of n

    def program(self, name: str) -> Program:
        """Return the computation."""
        extents = dict(loop.split(":") for loop in self.loops.split())
        points = 1
        for extent in extents.values():
            points *= int(extent) if extent.isdecimal() else 1
        return Program(
            name,
            tuple((n, int(to) if to.isdecimal() else to) for n, to in extents.items()),
            tuple(
                each if isinstance(each, Recurrence) else _formula(*each)
                for each in self.assignments
            ),
            (SizeParameter("n", base=self.base or max(3, _POINTS // points)),),
            arrays(self.arrays),
            self.element_type,
        )

    def entry(
        self,
        family: str,
        variant: str,
        *,
        steps: tuple[int, ...] = (0, 3),
        collection: Collection = "extended",
        purpose: Purpose = "measurement",
    ) -> CatalogEntry:
        """Return the catalogue's entry; parameters are those of `program_entry`."""
        program = self.program(f"{family}_{variant}".replace("-", "_"))
        divided = tuple(
            Divided(loop, axis, number) for axis, (loop, number) in enumerate(self.items)
        )
        shape = Shape(divided, groups=tuple(self.groups.split()))
        return program_entry(
            program,
            shape,
            family,
            variant,
            steps,
            collection=collection,
            purpose=purpose,
            builder=partial(build, program, shape) if divided else partial(_untransformed, program),
        )


def operator_nest(
    points: int,
    items: tuple[tuple[str, int], ...] = (),
    groups: str = "",
    *,
    element_type: str = "f64",
    result: str = "r",
) -> Nest:
    """Return the product of a square matrix and the values of each element at its points."""
    return Nest(
        f"e:n i:{points} j:{points}",
        f"m[{points}, {points}], u[n, {points}], output {result}[n, {points}]",
        ((f"{result}[e, i]", "sum j: m[i, j] * u[e, j]"),),
        items,
        groups,
        element_type,
    )


def _formula(target: str, value: str) -> Formula:
    head, colon, term = value.partition(": ")
    if not colon:
        return Formula(target, (value,))
    return Formula(target, (term,), summed=tuple(head.removeprefix("sum ").split()))


@cache
def _untransformed(program: Program) -> TranslationUnit:
    return program.unit()
