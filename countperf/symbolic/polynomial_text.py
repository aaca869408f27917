"""Quasi-polynomials read back from the text that they print."""

from __future__ import annotations

import ast
import re
from fractions import Fraction

from countperf.errors import CountingError
from countperf.symbolic.memory import kept_in_process
from countperf.symbolic.quasipolynomial import (
    Monomial,
    Number,
    QuasiPolynomial,
)

_FACTOR = r"[A-Za-z_]\w*(?:\^\d+)?"
_TERM = rf"(?:\d+|\(\d+/[1-9]\d*\)|{_FACTOR})(?:\*{_FACTOR})*"
_PLAIN = re.compile(rf"-?{_TERM}(?: [+-] {_TERM})*", re.ASCII)
"""A sum of products as `QuasiPolynomial` writes it, without floors: most of what is read back."""


@kept_in_process(4096)
def _monomial(text: str) -> Monomial:
    """Parse a product of powers of names."""
    exponents: dict[str, int] = {}
    for factor in text.split("*") if text else ():
        name, _, exponent = factor.partition("^")
        exponents[name] = exponents.get(name, 0) + int(exponent or 1)
    return tuple(sorted((n, e) for n, e in exponents.items() if e))


def _from_plain(text: str) -> QuasiPolynomial:
    terms: dict[Monomial, Number] = {}
    for term in text.replace("- ", "-").replace("+ ", "").split(" "):
        sign = -1 if term[0] == "-" else 1
        size = term.removeprefix("-")
        number, product = "1", size
        if size[0] in "(0123456789":
            number, _, product = size.partition("*")
        value = Fraction(number[1:-1]) if number[0] == "(" else int(number)
        monomial = _monomial(product)
        terms[monomial] = terms.get(monomial, 0) + sign * value
    return QuasiPolynomial(terms)


_FLOOR = re.compile(rf"\bfloor\(\((-?{_TERM}(?: [+-] {_TERM})*)\)/([1-9]\d*)\)(?!\w)", re.ASCII)
_STAND_IN = "__floor"


def _from_written(text: str) -> QuasiPolynomial | None:
    """Parse what `QuasiPolynomial` writes; None for any other text."""
    floors: dict[str, QuasiPolynomial] = {}

    def stand_in(match: re.Match[str]) -> str:
        numerator = _from_plain(match[1]).substitute(floors)
        name = f"{_STAND_IN}{len(floors)}"
        floors[name] = numerator.floor_divide(int(match[2]))
        return name

    found = _STAND_IN not in text and "floor(" in text
    while found:  # the innermost ones first
        text, found = _FLOOR.subn(stand_in, text)
    return _from_plain(text).substitute(floors) if _PLAIN.fullmatch(text) else None


@kept_in_process(4096)
def parse_polynomial(text: str) -> QuasiPolynomial:
    """Parse a quasi-polynomial such as ``(1/2)*n^2 + floor((n + 3)/4)``."""
    try:
        written = _from_written(text)
        if written is not None:
            return written
        return _from_tree(ast.parse(text.replace("^", "**"), mode="eval").body, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # of Python's parser
        raise CountingError(f"{text!r} is no quasi-polynomial: {error}", where=text) from error


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
                f"{text!r} is no quasi-polynomial: {ast.unparse(node)!r} is not allowed in one",
                where=text,
            )
