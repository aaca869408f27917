"""Formulas of derived features: parsed by pymbolic's parser, checked, never passed to ``eval``.

What a formula is made of:

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

Everything else of Python's syntax is refused with its place in the text.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import pymbolic.primitives as p
from pymbolic.mapper import Mapper
from pymbolic.parser import Parser
from pytools.lex import InvalidTokenError, ParseError

from countperf.errors import ExpressionError

FUNCTIONS: Mapping[str, tuple[int, int | None]] = {
    "min": (2, None),
    "max": (2, None),
    "floor": (1, 1),
    "ceil": (1, 1),
    "sqrt": (1, 1),
    "log": (1, 1),
    "exp": (1, 1),
}
"""The functions of formulas, with their least and their greatest number of arguments."""

_DECIDED = (
    *(int, float, complex, p.Variable, p.Sum, p.Product, p.Quotient, p.Power),
    *(p.Call, p.CallWithKwargs, p.Lookup),
)
"""Nodes that `_Checker` has a handler for; bool is an int, and refused there."""

_LONGEST = 20_000
_SHOWN = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A formula that has been read."""

    text: str  # as it was written
    tree: Any  # pymbolic's
    names: tuple[str, ...]  # each once, in the order of the text

    def refuse_unknown(self, known: Sequence[str]) -> None:
        """Raise `ExpressionError` if the formula has names that are not among those known."""
        unknown = [name for name in self.names if name not in known]
        if not unknown:
            return
        listed = ", ".join(repr(name) for name in unknown)
        there = ", ".join(known) or "none"
        _refuse(
            f"unknown name{'s' if len(unknown) > 1 else ''} {listed} (known here: {there}; "
            "properties are written with underscores: gmem_load_32_stride1)",
            self.text,
            _find(self.text, unknown[0]),
            names=unknown,
        )


@lru_cache(maxsize=512)
def parse(text: str) -> Formula:
    """Read a formula; raise `ExpressionError` with the position of what is none.

    >>> parse("groups*max(0, 1 - size/all_bytes)").names
    ('groups', 'size', 'all_bytes')
    """
    if not text.strip():
        _refuse("an empty formula", text, 0)
    if len(text) > _LONGEST:
        _refuse(f"longer than {_LONGEST} characters", text, _LONGEST)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            raw = Parser()(text)
        checker = _Checker(text)
        tree = checker.rec(raw)
    except InvalidTokenError as error:
        _refuse("a character that no formula has", text, error.index)
    except ParseError as error:
        place = len(text) if error.Token is None else error.Token[2]
        _refuse(error.message, text, place)
    except (AssertionError, TypeError, ValueError, DeprecationWarning) as error:
        if isinstance(error, ExpressionError):
            raise
        _refuse(f"not a formula ({str(error) or 'malformed'})", text, None)
    except RecursionError:
        _refuse("nested too deeply", text, None)
    places = {name: _find(text, name) for name in checker.names}
    last = len(text)
    names = sorted(places, key=lambda name: last if (at := places[name]) is None else at)
    return Formula(text=text, tree=tree, names=tuple(names))


class _Checker(Mapper[Any, []]):
    """Rebuild a tree of what formulas may have; everything else is refused by default."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.names: dict[str, None] = {}

    def rec(self, expr: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(expr, _DECIDED):
            shown = str(expr)[:_SHOWN]
            _refuse(
                f"formulas have no {type(expr).__name__} ({shown})",
                self.text,
                _find(self.text, shown),
            )
        return super().rec(expr, *args, **kwargs)

    def map_constant(self, expr: Any) -> Any:
        if isinstance(expr, bool) or not isinstance(expr, int | float):
            _refuse(f"{expr!r} is no real number", self.text, _find(self.text, str(expr)))
        try:
            value = float(expr)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            _refuse("a number beyond what floating point holds", self.text, None)
        return value

    def map_variable(self, expr: Any) -> Any:
        name = str(expr.name)
        if not name.isidentifier() or not name.isascii():
            _refuse(f"{name!r} is no name", self.text, _find(self.text, name))
        if name in FUNCTIONS:
            _refuse(f"{name} is a function: give its arguments", self.text, _find(self.text, name))
        self.names.setdefault(name)
        return expr

    def map_sum(self, expr: Any) -> Any:
        return p.Sum(tuple(self.rec(child) for child in expr.children))

    def map_product(self, expr: Any) -> Any:
        return p.Product(tuple(self.rec(child) for child in expr.children))

    def map_quotient(self, expr: Any) -> Any:
        return p.Quotient(self.rec(expr.numerator), self.rec(expr.denominator))

    def map_power(self, expr: Any) -> Any:
        return p.Power(self.rec(expr.base), self.rec(expr.exponent))

    def map_call(self, expr: Any) -> Any:
        function, arguments = expr.function, expr.parameters
        name = function.name if isinstance(function, p.Variable) else str(function)
        place = _find(self.text, name)
        if name not in FUNCTIONS:
            there = ", ".join(FUNCTIONS)
            _refuse(f"no function is named {name!r} (there are: {there})", self.text, place)
        least, most = FUNCTIONS[name]
        if len(arguments) < least or (most is not None and len(arguments) > most):
            wanted = str(least) if most == least else f"at least {least}"
            _refuse(f"{name} takes {wanted} arguments, not {len(arguments)}", self.text, place)
        return p.Call(p.Variable(name), tuple(self.rec(argument) for argument in arguments))

    def map_call_with_kwargs(self, expr: Any) -> Any:
        named = next(iter(expr.kw_parameters))
        _refuse(f"functions take no argument {named!r}", self.text, _find(self.text, named))

    def map_lookup(self, expr: Any) -> Any:
        dotted = str(expr)
        _refuse(
            f"{dotted}: write the dots of property names as underscores,"
            f" {dotted.replace('.', '_')}",
            self.text,
            _find(self.text, dotted),
        )


def _find(text: str, name: str) -> int | None:
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    return found.start() if found else None


def _refuse(
    message: str, text: str, position: int | None, *, names: Sequence[str] = ()
) -> NoReturn:
    where = "" if position is None else f" at column {position + 1} ({_near(text, position)})"
    raise ExpressionError(
        f"formula {_short(text)!r}{where}: {message}", text=text, position=position, names=names
    )


def _near(text: str, position: int) -> str:
    rest = text[position : position + _SHOWN]
    return f"before {rest!r}" if rest else "at its end"


def _short(text: str) -> str:
    return text if len(text) <= 3 * _SHOWN else text[: 3 * _SHOWN - 3] + "..."
