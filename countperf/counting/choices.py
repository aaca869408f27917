"""Subscripts that choose: minima, maxima, absolute values and conditional expressions in them.

``a[min(i + 1, n - 1)]`` is ``a[i + 1]`` where ``i + 1 <= n - 1``, and ``a[n - 1]`` elsewhere: two
accesses under affine conditions, which count each on its own part.
"""

from __future__ import annotations

from typing import Any

import pymbolic.primitives as p
from loopy.symbolic import IdentityMapper, LinearSubscript, WalkMapper

from countperf.counting.expression_types import name_of
from countperf.counting.keys import Case
from countperf.symbolic.affine import NotAffineError, ToCondition

Alternative = tuple[tuple[Any, ...], tuple[Case, ...]]
"""A subscript without choices, and the conditions under which it is accessed."""

MAXIMUM_ALTERNATIVES = 32
_MINIMA = frozenset(["min", "fmin"])
_MAXIMA = frozenset(["max", "fmax"])
_SIZES = frozenset(["abs", "fabs"])


def alternatives(index: tuple[Any, ...], to_condition: ToCondition) -> list[Alternative]:
    """Return the subscripts that an access chooses from."""
    choices: list[Alternative] = []
    open_ones: list[Alternative] = [(index, ())]
    while open_ones:
        parts, cases = open_ones.pop()
        walker = _Finder()
        for part in parts:
            walker(part.index if isinstance(part, LinearSubscript) else part)
        if not walker.found:
            choices.append((parts, cases))
            continue
        node, (test, taken, other) = walker.found[-1]  # there are none inside it
        try:
            condition = to_condition(test)
        except NotAffineError:
            return [(index, ())]
        for branch, holds in ((other, False), (taken, True)):
            replaced = tuple(map(_Replacer(node, branch), parts))
            case = Case(alternatives=condition, holds=holds)
            open_ones.append((replaced, (*cases, case)))
        if len(choices) + len(open_ones) > MAXIMUM_ALTERNATIVES:
            return [(index, ())]
    return choices


class _Finder(WalkMapper[[]]):
    """Finds nodes that choose, each before those inside it, with what they choose from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, tuple[Any, Any, Any]]] = []

    def visit(self, expr: Any) -> bool:
        branches = _branches(expr)
        if branches is not None:
            self.found.append((expr, branches))
        return True


def _branches(expr: Any) -> tuple[Any, Any, Any] | None:
    """Return condition, what is chosen where it holds, and what elsewhere; None for other nodes."""
    match expr:
        case p.If():
            return expr.condition, expr.then, expr.else_
        case p.Min():
            return _extremum(expr.children, "<=", p.Min)
        case p.Max():
            return _extremum(expr.children, ">=", p.Max)
        case p.Call():
            name = name_of(expr.function)
            if name in _MINIMA and len(expr.parameters) == 2:
                return _extremum(expr.parameters, "<=", p.Min)
            if name in _MAXIMA and len(expr.parameters) == 2:
                return _extremum(expr.parameters, ">=", p.Max)
            if name in _SIZES and len(expr.parameters) == 1:
                value: Any = expr.parameters[0]
                return p.Comparison(value, ">=", 0), value, -value
            return None
        case _:
            return None


def _extremum(operands: Any, operator: str, kind: Any) -> tuple[Any, Any, Any]:
    first, second, *rest = operands
    taken, other = (kind((side, *rest)) if rest else side for side in (first, second))
    return p.Comparison(first, operator, second), taken, other


class _Replacer(IdentityMapper[[]]):
    """Replaces each node that equals a given one."""

    def __init__(self, node: Any, branch: Any) -> None:
        super().__init__()
        self.node = node
        self.branch = branch

    def rec(self, expr: Any, *_: Any, **__: Any) -> Any:
        return self.branch if expr == self.node else super().rec(expr)

    __call__ = rec
