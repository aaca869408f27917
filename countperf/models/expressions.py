"""Formulas of derived features: Python's syntax, of which only this is let through.

Real numbers; names, with underscores for the dots of property names; ``+ - * /``, and ``a**b`` with
a base that is not negative; ``min`` and ``max`` of two or more; ``floor``, ``ceil``, ``sqrt``,
``log``, ``exp`` of one. Everything else is refused by name.
"""

from __future__ import annotations

import ast
import contextlib
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from types import CodeType
from typing import Any

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
_OPERATIONS: Mapping[type[ast.operator], str] = {
    **{ast.Add: "({} + {})", ast.Sub: "({} - {})", ast.Mult: "({} * {})"},
    **{ast.Div: "divide({}, {})", ast.Pow: "power({}, {})"},
}

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

_SHOWN = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFormula:
    """A formula that has been read."""

    text: str  # as it was written
    names: tuple[str, ...]  # each once, in the order of the text
    source: str  # the checked tree alone, in Python: values["groups"], divide(a, b)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Return the value at numbers or arrays by name; infinity or NaN where there is none."""
        with np.errstate(all="ignore"):
            return eval(_compile(self.source), dict(NAMESPACE), {"values": values})

    def refuse_unknown(self, known: Sequence[str]) -> None:
        """Raise `ExpressionError` if the formula has names that are not among those known."""
        unknown = [name for name in self.names if name not in known]
        if unknown:
            there = ", ".join(known) or "none"
            message = (
                f"unknown name{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
                f" (known here: {there}; properties are written with underscores:"
                " gmem_load_32_stride1)"
            )
            raise _error(message, self.text, names=tuple(unknown))


@lru_cache(maxsize=512)
def parse(text: str) -> CheckedFormula:
    """Read a formula; raise `ExpressionError` for what is none.

    >>> parse("groups*max(0, 1 - size/all_bytes)").names
    ('groups', 'size', 'all_bytes')
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # on one line, and without comments
            raw = ast.parse(" ".join(text.replace("#", "?").split()), mode="eval")
        source = _write(raw.body)
        _compile(source)
    except (RecursionError, MemoryError) as error:
        raise _error("nested too deeply", text) from error
    except SyntaxError as error:
        where = error.offset or len(text) + 1
        raise _error(f"not a formula ({error.msg} at column {where})", text) from error
    except ValueError as error:
        raise _error(f"not a formula ({error})", text) from error
    names = [node for node in ast.walk(raw) if isinstance(node, ast.Name)]
    names.sort(key=lambda name: name.col_offset)
    called = dict.fromkeys(name.id for name in names if name.id not in FUNCTIONS)
    return CheckedFormula(text=text, names=tuple(called), source=source)


@lru_cache(maxsize=512)
def _compile(source: str) -> CodeType:
    return compile(source, "<formula>", "eval")


def _write(node: ast.expr) -> str:
    """Write what formulas may have in Python; everything else is refused."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            with contextlib.suppress(OverflowError):
                if math.isfinite(value := float(number)):
                    return repr(value)
            raise ValueError("a number beyond what floating point holds")
        case ast.Name(id=name) if name not in FUNCTIONS:
            return f"values[{name!r}]"
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            return f"({'-' if isinstance(sign, ast.USub) else '+'}{_write(operand)})"
        case ast.BinOp() if (template := _OPERATIONS.get(type(node.op))) is not None:
            return template.format(_write(node.left), _write(node.right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            is_of_many = name in ("min", "max")
            if len(args) < 2 if is_of_many else len(args) != 1:
                wanted = "at least 2 arguments" if is_of_many else "1 argument"
                raise ValueError(f"{name} takes {wanted}, not {len(args)}")
            return f"{name}({', '.join(map(_write, args))})"
        case _:
            raise ValueError(
                f"{cut(ast.unparse(node), _SHOWN)} is no number, name, sum, product or power, nor"
                f" one of the functions {', '.join(FUNCTIONS)} of such; dots of property names are"
                " written as underscores: flop_add_f32"
            )


def _error(message: str, text: str, *, names: tuple[str, ...] = ()) -> ExpressionError:
    return ExpressionError(f"formula {cut(text, _SHOWN)!r}: {message}", text=text, names=names)
