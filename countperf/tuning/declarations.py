"""Parameters of a space from a function's signature, and constraints written as text.

Constraints are arithmetic and comparisons of parameters, and nothing else.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from countperf.errors import SearchSpaceError

_HOW = (
    "annotate it with its values, tile: Literal[8, 16, 32], or with bool, or give the values as its"
    " default, tile=(8, 16, 32) or unroll=range(1, 9)"
)


def parameters_of(function: Callable[..., Any]) -> dict[str, Sequence[Any]]:
    """Return the values of each argument of a function, by name, in the order of its signature.

    Values are those of a ``Literal`` annotation, both truth values of ``bool``, or a default that
    is a list, a tuple or a range. Arguments with any other default are left to the function.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        hints = get_type_hints(function)
        signature = inspect.signature(function)
    except (NameError, TypeError, AttributeError, ValueError) as error:
        raise SearchSpaceError(
            f"the signature of '{name}' cannot be read: {error}; pass a function of Python, and"
            " import what its annotations name"
        ) from error
    parameters: dict[str, Sequence[Any]] = {}
    for argument in signature.parameters.values():
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        values = _values(hints.get(argument.name), argument.default)
        if values is not None:
            parameters[argument.name] = values
        elif argument.default is argument.empty:
            raise SearchSpaceError(f"argument {argument.name} of '{name}' has no values: {_HOW}")
    if not parameters:
        raise SearchSpaceError(f"'{name}' has no argument with values: {_HOW}")
    return parameters


def _values(hint: object, default: object) -> Sequence[Any] | None:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if isinstance(default, list | tuple | range):
        return default
    return (False, True) if hint is bool else None


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.UAdd,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.Load,
    ast.Name,
    ast.Constant,
)


def check_expression(text: str, names: Collection[str]) -> None:
    """Refuse a constraint that is not arithmetic and comparisons of the parameters."""

    def refuse(what: str) -> SearchSpaceError:
        return SearchSpaceError(f'constraint "{text}": {what}')

    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise refuse(f"no expression: {error}") from error
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
                pass
            case ast.Call():
                there = ", ".join(sorted(_FUNCTIONS))
                name = ast.unparse(node.func)
                raise refuse(f"{name} is no function here; there are {there}")
            case ast.Name(id=name) if id(node) not in called and name not in names:
                raise refuse(f"no parameter is called {name}; there are {', '.join(names)}")
            case _ if not isinstance(node, _NODES):
                raise refuse(f"{type(node).__name__} is not allowed; or pass a function instead")
            case _:
                pass


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    return compile(text, "<constraint>", "eval")


def holds(text: str, choice: Mapping[str, Any]) -> bool:
    """Evaluate a constraint that `check_expression` passed."""
    try:
        return bool(eval(_compiled(text), {"__builtins__": {}, **_FUNCTIONS}, dict(choice)))
    except (TypeError, ValueError, ArithmeticError, MemoryError, RecursionError) as error:
        raise SearchSpaceError(f'constraint "{text}" fails at {dict(choice)}: {error}') from error
