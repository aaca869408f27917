"""Quasi-polynomials read back from the text that they print."""

from __future__ import annotations

import ast
from functools import lru_cache

from countperf.errors import CountingError
from countperf.symbolic.quasipolynomial import QuasiPolynomial


@lru_cache(4096)
def parse_polynomial(text: str) -> QuasiPolynomial:
    """Parse a quasi-polynomial such as ``(1/2)*n^2 + floor((n + 3)/4)``."""
    try:
        return _from_tree(ast.parse(text.replace("^", "**"), mode="eval").body, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # of Python's parser
        raise CountingError(f"{text!r} is no quasi-polynomial: {error}") from error


def _from_tree(node: ast.expr, text: str) -> QuasiPolynomial:
    match node:
        case ast.Constant(value=int() as value):
            return QuasiPolynomial.constant(value)
        case ast.Name(id=name):
            return QuasiPolynomial.name(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_tree(operand, text)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _from_tree(left, text) + _from_tree(right, text)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _from_tree(left, text) - _from_tree(right, text)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _from_tree(left, text) * _from_tree(right, text)
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int() as d)) if d > 0:
            return _from_tree(left, text) / d
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as e)) if e >= 0:
            return _from_tree(left, text) ** e
        case ast.Call(
            func=ast.Name(id="floor"),
            args=[ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int() as d))],
        ) if d > 0:
            return _from_tree(left, text).floor_divide(d)
        case _:
            raise CountingError(
                f"{text!r} is no quasi-polynomial: {ast.unparse(node)!r} is not allowed in one"
            )
