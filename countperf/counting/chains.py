"""Carried chains: recurrences through private variables, which no parallelism shortens.

A read of a private variable in a loop is *carried* if what it reads was written in an earlier
iteration: no instruction before it in the body of the loop writes the element. Instructions that
feed each other in a cycle with one carried read form a chain, of those that share instructions the
longest: the recurrence that bounds the time of an iteration from below (B. R. Rau, Iterative modulo
scheduling, MICRO 1994, section 2.2). Its length is what lies on the way from read to write: of two
operands, the one that belongs to the chain. Ways that come back after several iterations only are
no chains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import loopy as lp
import numpy as np
import pymbolic.primitives as p
from loopy.library.reduction import ArgExtOp
from loopy.symbolic import TypeCast, get_dependencies

from countperf.counting.expression_types import flattened_operands, name_of

Operations = tuple[tuple[str, int], ...]
"""Kinds of operations and how many, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstruction:
    """An instruction in its place."""

    instruction: Any
    loops: tuple[str, ...]  # all sequential loops around it, outermost first, those of the host too
    entries: tuple[int, ...]  # for each of the loops, which of the loops of the schedule it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A cycle of instructions that a loop carries."""

    instructions: tuple[str, ...]  # ids in order of the schedule
    variables: tuple[str, ...]  # private variables through which it runs, sorted
    loops: tuple[str, ...]  # loops that carry it, outermost first
    # operations on the chain in an iteration of the innermost of the loops, by kind and type:
    # ``fma.f32`` where an addition and a multiplication can be contracted
    operations: Operations
    # loop variables in the subscripts of the variables: each of their values has a chain
    subscripts: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Edge:
    source: int
    target: int
    is_carried: bool
    reference: Any
    operations: Counter[str]


_Cycle: TypeAlias = list[_Edge]


def recurrences(
    kernel: Any, steps: Sequence[PlacedInstruction], type_names: Mapping[str, str]
) -> list[Recurrence]:
    """Find the carried chains of a device program."""
    inames: frozenset[str] = kernel.all_inames()
    loops = sorted(
        {(entry, name) for s in steps for entry, name in zip(s.entries, s.loops, strict=True)}
    )
    cycles_by_key: dict[tuple[Any, Any], list[tuple[str, _Cycle, frozenset[str]]]] = {}
    for entry, loop in loops:
        body = [s for s in steps if entry in s.entries]
        for cycle in _cycles(_edges(body, loop, type_names)):
            members = sorted({edge.target for edge in cycle})
            variables = tuple(sorted({_name_of(edge.reference) for edge in cycle}))
            subscripts = frozenset[str]().union(
                *(get_dependencies(edge.reference) & inames for edge in cycle)
            )
            key = (tuple(body[k].instruction.id for k in members), variables)
            cycles_by_key.setdefault(key, []).append((loop, cycle, subscripts))
    return [
        Recurrence(
            instructions=instructions,
            variables=variables,
            loops=tuple(loop for loop, _, _ in cycles),
            operations=_join_chains(cycles[-1][1]),
            subscripts=cycles[-1][2],
        )
        for (instructions, variables), cycles in cycles_by_key.items()
    ]


def _join_chains(cycle: _Cycle) -> Operations:
    return tuple(sorted(sum((edge.operations for edge in cycle), Counter()).items()))


def _name_of(reference: Any) -> str:
    named: Any = reference.aggregate if isinstance(reference, p.Subscript) else reference
    return named.name


# --- dependences


def _edges(
    body: Sequence[PlacedInstruction], loop: str, type_names: Mapping[str, str]
) -> list[_Edge]:
    """Return which write each read of a private variable sees, and what lies in between."""
    writes: list[tuple[int, Any]] = [
        (number, target)
        for number, step in enumerate(body)
        for target in step.instruction.assignees
        if isinstance(target, p.Variable | p.Subscript) and _name_of(target) in type_names
    ]
    result: list[_Edge] = []
    for number, step in enumerate(body):
        for reference in _references(step.instruction.expression, type_names):
            if loop in get_dependencies(reference):
                continue
            same = [w for w, target in writes if _may_be_same(target, reference)]
            before = [w for w in same if w < number]
            source = max(before) if before else max(same, default=None)
            if source is None:
                continue
            kind = type_names[_find_assigned_variable(step.instruction, type_names)]
            operations = operations_between(step.instruction.expression, reference, kind)
            result.append(_Edge(source, number, not before, reference, operations))
    return result


def _find_assigned_variable(instruction: Any, type_names: Mapping[str, str]) -> str:
    """Return the private variable that an instruction writes; any of them if it writes several."""
    for target in instruction.assignees:
        name = _name_of(target)
        if name in type_names:
            return name
    return next(iter(type_names))


def _may_be_same(left: Any, right: Any) -> bool:
    """Return whether two references may be one element; constants in subscripts tell some apart."""
    if _name_of(left) != _name_of(right):
        return False
    if isinstance(left, p.Subscript) and isinstance(right, p.Subscript):
        return not any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(left.index_tuple, right.index_tuple, strict=True)
        )
    return True


def _references(expression: Any, names: Mapping[str, str]) -> set[Any]:
    """Return the private variables, subscripted or not, that an expression reads."""
    references: set[Any] = set()

    def visit(expr: Any) -> None:
        if isinstance(expr, p.Variable | p.Subscript) and _name_of(expr) in names:
            references.add(expr)
        else:
            for child, _ in _children(expr):
                visit(child)

    visit(expression)
    return references


# --- operations on the way


def operations_between(expression: Any, reference: Any, type_name: str) -> Counter[str]:
    """Return the operations on the longest way from a reference to the value of an expression."""
    ways = list(_ways(expression, reference, type_name))
    best = max(ways, key=len, default=[])
    return Counter(f"{kind}.{type_name}" if "." not in kind else kind for kind in best)


def _ways(expr: Any, reference: Any, type_name: str) -> Iterator[list[str]]:
    """Yield the operations on each way, innermost first."""
    if expr == reference:
        yield []
        return
    if isinstance(expr, p.Sum):
        yield from _ways_through_sum(expr, reference, type_name)
        return
    for child, kinds in _children(expr):
        for way in _ways(child, reference, type_name):
            yield [*way, *kinds]


def _ways_through_sum(expr: Any, reference: Any, type_name: str) -> Iterator[list[str]]:
    """Add from left to right; an addition of a product contracts with it."""
    terms = flattened_operands(expr, p.Sum)
    if len(terms) == 1:
        yield from _ways(terms[0], reference, type_name)
        return
    for position, term in enumerate(terms):
        for way in _ways(term, reference, type_name):
            steps = [terms[1]] if position == 0 else [terms[0] if position == 1 else None]
            steps += list(terms[max(position, 1) + 1 :])
            result = list(way)
            for number, other in enumerate(steps):
                own_product = number == 0 and result[-1:] == ["mul"] and _is_product(term)
                if own_product:
                    result[-1] = "fma"
                else:
                    result.append("fma" if _is_product(other) else "add")
            yield result


def _is_product(expr: Any) -> bool:
    """Return whether an expression multiplies, negations aside."""
    if not isinstance(expr, p.Product):
        return isinstance(expr, p.Power) and expr.exponent == 2
    factors = [f for f in flattened_operands(expr, p.Product) if f != -1]
    return len(factors) > 1 or any(_is_product(f) for f in factors)


def _children(expr: Any) -> list[tuple[Any, list[str]]]:
    """Return the parts of an expression, each with the operations from it to the whole."""
    match expr:
        case p.Sum():
            return [(child, ["add"]) for child in expr.children]
        case p.Product():
            factors = flattened_operands(expr, p.Product)
            real = [f for f in factors if f != -1]
            return [(f, ["mul"] * (len(real) - max(k, 1))) for k, f in enumerate(real)]
        case p.Quotient():
            return [(expr.numerator, ["div"]), (expr.denominator, ["div"])]
        case p.FloorDiv() | p.Remainder():
            kind = "div" if isinstance(expr, p.FloorDiv) else "mod"
            kind = "shift" if is_power_of_two(expr.denominator) else kind
            return [(expr.numerator, [kind]), (expr.denominator, [kind])]
        case p.Power():
            kind = "mul" if expr.exponent == 2 else "pow"
            return [(expr.base, [kind]), (expr.exponent, ["pow"])]
        case p.Min() | p.Max():
            last = len(expr.children) - 1
            return [(c, ["minmax"] * min(k + 1, last)) for k, c in enumerate(expr.children)]
        case p.If():
            return [(c, ["select"]) for c in (expr.condition, expr.then, expr.else_)]
        case p.Comparison():
            return [(expr.left, ["compare"]), (expr.right, ["compare"])]
        case p.LogicalAnd() | p.LogicalOr():
            return [(child, []) for child in expr.children]
        case p.LogicalNot():
            return [(expr.child, [])]
        case p.BitwiseAnd() | p.BitwiseOr() | p.BitwiseXor():
            return [(child, ["bitwise"]) for child in expr.children]
        case p.BitwiseNot():
            return [(expr.child, ["bitwise"])]
        case p.LeftShift() | p.RightShift():
            return [(expr.shiftee, ["shift"]), (expr.shift, ["shift"])]
        case TypeCast():
            return [(expr.child, ["convert"])]
        case p.Subscript():
            return [(part, ["load"]) for part in expr.index_tuple]
        case p.Call():
            return [(child, [_function_kind(expr.function)]) for child in expr.parameters]
        case _:
            return []


def _function_kind(function: Any) -> str:
    if isinstance(getattr(function, "name", None), ArgExtOp):
        return "minmax"  # a comparison and the selection by it
    name = name_of(function)
    if name in {"min", "max", "fmin", "fmax"}:
        return "minmax"
    return "fma" if name in {"fma", "mad"} else "pow" if name == "pow" else "special"


# --- cycles


def _cycles(edges: Sequence[_Edge]) -> list[_Cycle]:
    """Return the longest cycles that are carried once, no two through one instruction."""
    forward = sorted(
        [edge for edge in edges if not edge.is_carried], key=lambda e: (e.target, e.source)
    )
    cycles: list[_Cycle] = []
    for first in edges:
        if not first.is_carried:
            continue
        longest: dict[int, list[_Edge]] = {first.target: [first]}
        for edge in forward:
            way = [*longest.get(edge.source, ()), edge]
            if len(way) > 1 and _weight(way) > _weight(longest.get(edge.target, ())):
                longest[edge.target] = way
        if first.source in longest:
            cycles.append(longest[first.source])
    result: list[_Cycle] = []
    for cycle in sorted(cycles, key=_weight, reverse=True):
        members = {edge.target for edge in cycle}
        if not any(members & {edge.target for edge in other} for other in result):
            result.append(cycle)
    return result


def _weight(edges: Sequence[_Edge]) -> int:
    """Return how many operations lie on edges; fewer than any if there are no edges."""
    return sum(e.operations.total() for e in edges) if edges else -1


# --- Integer divisions that compilers turn into shifts: those by constant powers of two


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
    shifting: set[str] = set()
    others: set[str] = set()
    waiting = [instruction.expression]
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, p.FloorDiv | p.Remainder):
            kind = "div" if isinstance(expr, p.FloorDiv) else "mod"
            (shifting if is_power_of_two(expr.denominator) else others).add(kind)
        waiting += [child for child, _ in _children(expr)]
    return frozenset(shifting - others)
