"""Integer divisions that compilers turn into shifts: those by constant powers of two."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
from loopy.symbolic import WalkMapper


def is_power_of_two(expr: Any) -> bool:
    """Return whether an expression is a constant by which integers are divided by shifting them."""
    if not isinstance(expr, int | np.integer):
        return False
    number = int(expr)
    return number > 0 and number & (number - 1) == 0


def divisions_that_shift(instruction: Any) -> frozenset[str]:
    """Return which of ``div`` and ``mod`` an instruction has only by constant powers of two."""
    if not isinstance(instruction, lp.MultiAssignmentBase):
        return frozenset()
    found = _Divisions()
    found(instruction.expression)
    return frozenset(found.shifting - found.others)


class _Divisions(WalkMapper[[]]):
    """Finds the integer divisions in an expression: by constant powers of two, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.shifting: set[str] = set()
        self.others: set[str] = set()

    def map_floor_div(self, expr: p.FloorDiv) -> None:
        self._note("div", expr)
        super().map_floor_div(expr)

    def map_remainder(self, expr: p.Remainder) -> None:
        self._note("mod", expr)
        super().map_remainder(expr)

    def _note(self, kind: str, expr: Any) -> None:
        (self.shifting if is_power_of_two(expr.denominator) else self.others).add(kind)
