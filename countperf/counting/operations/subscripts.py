"""Subscripts, and minima, maxima, absolute values and conditions in them, which choose.

``a[min(i + 1, n - 1)]`` is ``a[i + 1]`` where ``i + 1 <= n - 1``, and ``a[n - 1]`` elsewhere: two
accesses under affine conditions, which count each on its own part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymbolic.primitives as p
from loopy.symbolic import IdentityMapper, LinearSubscript

from countperf.counting.expression_types import list_nodes, name_of
from countperf.counting.keys import Case
from countperf.symbolic.affine import ToCondition, try_affine


def list_subscripts(expr: Any) -> tuple[Any, ...]:
    """Return the parts of a subscript; that of the flattened array is one `LinearSubscript`."""
    if isinstance(expr, LinearSubscript):
        return (LinearSubscript(0, expr.index),)
    return expr.index_tuple if isinstance(expr, p.Subscript) else ()


def strip_linear(part: Any) -> Any:
    """Return the expression of a part of a subscript."""
    return part.index if isinstance(part, LinearSubscript) else part


Choice = tuple[tuple[Any, ...], tuple[Case, ...]]
"""A subscript without choices, and the conditions under which it is accessed."""

_MAX_CHOICES = 32
_CHOOSING = (p.If, p.Min, p.Max, p.Call)
_EXTREMA = {"min": p.Min, "fmin": p.Min, "max": p.Max, "fmax": p.Max}


def list_choices(index: tuple[Any, ...], to_condition: ToCondition) -> list[Choice]:
    """Return the subscripts that an access chooses from."""
    choices: list[Choice] = []
    open_ones: list[Choice] = [(index, ())]
    while open_ones:
        parts, cases = open_ones.pop()
        nodes = [n for part in map(strip_linear, parts) for n in list_nodes(part, *_CHOOSING)]
        found = [(node, branches) for node in nodes for branches in _list_branches(node)]
        if not found:
            choices.append((parts, cases))
            continue
        node, (test, taken, other) = found[-1]  # there are none inside it
        condition = try_affine(to_condition, test)
        if condition is None or len(choices) + len(open_ones) + 2 > _MAX_CHOICES:
            return [(index, ())]
        for branch, holds in ((other, False), (taken, True)):
            replaced = tuple(map(_Replacer(node, branch), parts))
            case = Case(alternatives=condition, holds=holds)
            open_ones.append((replaced, (*cases, case)))
    return choices


def _list_branches(expr: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield condition, what a node chooses where it holds, and what elsewhere, if it chooses."""
    operands, kind = (), type(expr)
    if isinstance(expr, p.If):
        yield expr.condition, expr.then, expr.else_
    elif isinstance(expr, p.Min | p.Max):
        operands = expr.children
    elif isinstance(expr, p.Call):
        name = name_of(expr.function)
        if name in ("abs", "fabs") and len(expr.parameters) == 1:
            value: Any = expr.parameters[0]
            yield p.Comparison(value, ">=", 0), value, -value
        elif name in _EXTREMA and len(expr.parameters) == 2:
            operands, kind = expr.parameters, _EXTREMA[name]
    if operands:
        first, second, *rest = operands
        taken, other = (kind((side, *rest)) if rest else side for side in (first, second))
        yield p.Comparison(first, "<=" if kind is p.Min else ">=", second), taken, other


class _Replacer(IdentityMapper[[]]):
    """Replaces each node that equals a given one."""

    def __init__(self, node: Any, branch: Any) -> None:
        super().__init__()
        self.node, self.branch = node, branch

    def rec(self, expr: Any, *_: Any, **__: Any) -> Any:
        return self.branch if expr == self.node else super().rec(expr)

    __call__ = rec
