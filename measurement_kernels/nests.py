"""Loop nests as generators of kernels hand them out: untransformed, or one loop in groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from math import prod

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
    assignments: str | Recurrence | tuple[str, ...]  # ``r[e, i] = sum j: m[i, j] * u[e, j]``
    items: str = ""  # loops and the items of a group, as `loops`; none: nothing is divided
    groups: str = ""  # loops of which each iteration is a group, separated by blanks
    element_type: str = "f64"  # type of the arrays
    base: int = 0  # smallest value of n

    def program(self, name: str) -> Program:
        """Return the computation."""
        loops = _pairs(self.loops)
        points = prod(extent for _, extent in loops if isinstance(extent, int))
        made = self.assignments
        return Program(
            name,
            loops,
            (made,)
            if isinstance(made, Recurrence)
            else tuple(map(_formula, (made,) if isinstance(made, str) else made)),
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
            Divided(loop, axis, int(number))
            for axis, (loop, number) in enumerate(_pairs(self.items))
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
    points: int, items: str = "", groups: str = "", *, element_type: str = "f64", result: str = "r"
) -> Nest:
    """Return the product of a square matrix and the values of each element at its points."""
    return Nest(
        f"e:n i:{points} j:{points}",
        f"m[{points}, {points}], u[n, {points}], output {result}[n, {points}]",
        f"{result}[e, i] = sum j: m[i, j] * u[e, j]",
        items,
        groups,
        element_type,
    )


def _pairs(text: str) -> tuple[tuple[str, str | int], ...]:
    """Parse loops with numbers or sizes: ``e:n i:10``."""
    pairs = (loop.split(":") for loop in text.split())
    return tuple((name, int(to) if to.isdecimal() else to) for name, to in pairs)


def _formula(assignment: str) -> Formula:
    target, _, value = assignment.partition(" = ")
    head, colon, term = value.partition(": ")
    if not colon:
        return Formula(target, (value,))
    return Formula(target, (term,), summed=tuple(head.removeprefix("sum ").split()))


@cache
def _untransformed(program: Program) -> TranslationUnit:
    return program.unit()
