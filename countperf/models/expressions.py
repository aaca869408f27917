"""Formulas of derived features: Python's syntax, of which only this is let through.

=========================================  =======================================================
written                                    meaning
=========================================  =======================================================
``1.5e-6``, ``3``                          real numbers
``groups``, ``global_memory``, ``w_row``   names; dots of property names are underscores
``a + b``, ``a - b``, ``a*b``, ``a/b``     arithmetic; ``a**b`` with a base that is not negative
``min(a, b, ...)``, ``max(a, b, ...)``     smallest, largest
``floor(a)``, ``ceil(a)``                  rounding
``sqrt(a)``, ``log(a)``, ``exp(a)``        elementary functions
=========================================  =======================================================

Everything else is refused with its position in the text.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from types import CodeType
from typing import Any, NoReturn

import numpy as np

from countperf.errors import ExpressionError
from countperf.text import cut

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": lambda *parts: reduce(np.minimum, parts),
    "max": lambda *parts: reduce(np.maximum, parts),
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "log": np.log,
    "exp": np.exp,
}
_OPERATIONS: Mapping[type[ast.operator], str] = {ast.Div: "divide", ast.Pow: "power"}
_PLAIN = (ast.Add, ast.Sub, ast.Mult)
NAMESPACE: Mapping[str, Any] = {
    **FUNCTIONS,
    "divide": np.divide,
    "power": lambda base, exponent: np.power(np.asarray(base, np.float64), exponent),
}
"""Functions that sources of formulas call, for arrays; infinity or NaN where there is no value."""

SCALAR_NAMESPACE: Mapping[str, Any] = {
    **{name: getattr(math, name) for name in FUNCTIONS if hasattr(math, name)},
    "min": min,
    "max": max,
    "divide": operator.truediv,
    "power": math.pow,
}
"""The same for floats, with ArithmeticError or ValueError where there is no value."""

_LONGEST = 20_000
_SHOWN = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFormula:
    """A formula that has been read."""

    text: str  # as it was written
    positions: tuple[tuple[str, int], ...]  # names, each once in the order of the text, and where
    source: str  # the checked tree alone, in Python: values["groups"], divide(a, b)
    code: CodeType  # the same

    @property
    def names(self) -> tuple[str, ...]:
        """The names, each once, in the order of the text."""
        return tuple(name for name, _ in self.positions)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Return the value at numbers or arrays by name; infinity or NaN where there is none."""
        with np.errstate(all="ignore"):
            return self.value(values)

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the same, with what NumPy says of numbers as the caller has it."""
        return eval(self.code, dict(NAMESPACE), {"values": values})

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (self.text,)  # code objects cannot be pickled

    def refuse_unknown(self, known: Sequence[str]) -> None:
        """Raise `ExpressionError` if the formula has names that are not among those known."""
        unknown = [name for name in self.names if name not in known]
        if not unknown:
            return
        listed = ", ".join(repr(name) for name in unknown)
        there = ", ".join(known) or "none"
        position = dict(self.positions)[unknown[0]]
        _refuse(
            f"unknown name{'s' if len(unknown) > 1 else ''} {listed} (known here: {there}; "
            "properties are written with underscores: gmem_load_32_stride1)",
            self.text,
            position,
            names=unknown,
        )


@lru_cache(maxsize=512)
def parse(text: str) -> CheckedFormula:
    """Read a formula; raise `ExpressionError` with the position of what is none.

    >>> parse("groups*max(0, 1 - size/all_bytes)").names
    ('groups', 'size', 'all_bytes')
    """
    if not text.strip():
        _refuse("an empty formula", text, 0)
    if len(text) > _LONGEST:
        _refuse(f"longer than {_LONGEST} characters", text, _LONGEST)
    line = text.translate(_ONE_LINE)
    checker = _Checker(text, blanks=len(line) - len(line.lstrip()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raw = ast.parse(line.lstrip(), mode="eval")
        tree = ast.Expression(checker.visit(raw.body))
        code = compile(ast.fix_missing_locations(tree), "<formula>", "eval")
    except SyntaxError as error:
        position = checker.blanks + error.offset - 1 if error.offset else len(text)
        _refuse(f"not a formula ({error.msg})", text, position)
    except (RecursionError, MemoryError):
        _refuse("nested too deeply", text, None)
    except ValueError as error:
        if isinstance(error, ExpressionError):
            raise
        _refuse(f"not a formula ({error})", text, None)
    positions = sorted(checker.positions.items(), key=lambda item: item[1])
    return CheckedFormula(
        text=text, positions=tuple(positions), source=ast.unparse(tree), code=code
    )


_ONE_LINE = {ord(blank): " " for blank in "\n\r\t\f"} | {ord("#"): "?"}
"""A formula is one expression without comments."""


class _Checker(ast.NodeTransformer):
    """Rebuild a tree of what formulas may have; everything else is refused by default."""

    def __init__(self, text: str, blanks: int) -> None:
        self.text = text
        self.blanks = blanks  # before the first character
        self.positions: dict[str, int] = {}

    def generic_visit(self, node: ast.AST) -> NoReturn:
        self._refuse(f"formulas have no {type(node).__name__}", node)

    def _refuse(self, message: str, node: ast.AST) -> NoReturn:
        _refuse(message, self.text, self.blanks + getattr(node, "col_offset", 0))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            self._refuse(f"{node.value!r} is no real number", node)
        try:
            value = float(node.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self._refuse("a number beyond what floating point holds", node)
        return ast.Constant(value)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not node.id.isascii():
            self._refuse(f"{node.id!r} is no name", node)
        if node.id in FUNCTIONS:
            self._refuse(f"{node.id} is a function: give its arguments", node)
        self.positions.setdefault(node.id, self.blanks + node.col_offset)
        return ast.Subscript(_name("values"), ast.Constant(node.id), ast.Load())

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if not isinstance(node.op, ast.USub | ast.UAdd):
            self.generic_visit(node.op)
        return ast.UnaryOp(node.op, self.visit(node.operand))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, _PLAIN):
            return ast.BinOp(left, node.op, right)
        if (called := _OPERATIONS.get(type(node.op))) is None:
            self._refuse(f"formulas have no {type(node.op).__name__}", node)
        return ast.Call(_name(called), [left, right], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        if name not in FUNCTIONS:
            self._refuse(f"no function is named {name!r} (there are: {', '.join(FUNCTIONS)})", node)
        if node.keywords:
            self._refuse(f"functions take no argument {node.keywords[0].arg!r}", node.keywords[0])
        is_right = len(node.args) >= 2 if name in ("min", "max") else len(node.args) == 1
        if not is_right:
            wanted = "at least 2" if name in ("min", "max") else "1"
            self._refuse(f"{name} takes {wanted} arguments, not {len(node.args)}", node)
        return ast.Call(_name(name), [self.visit(arg) for arg in node.args], [])

    def visit_Attribute(self, node: ast.Attribute) -> NoReturn:
        dotted = ast.unparse(node)
        under = dotted.replace(".", "_")
        self._refuse(f"{dotted}: write the dots of property names as underscores, {under}", node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _refuse(
    message: str, text: str, position: int | None, *, names: Sequence[str] = ()
) -> NoReturn:
    where = "" if position is None else f" at column {position + 1} ({_near(text, position)})"
    said = f"formula {cut(text, 3 * _SHOWN)!r}{where}: {message}"
    raise ExpressionError(said, text=text, position=position, names=names)


def _near(text: str, position: int) -> str:
    rest = text[position : position + _SHOWN]
    return f"before {rest!r}" if rest else "at its end"
