r"""Formulas that users write: parsed by pymbolic's parser, checked, never passed to ``eval``.

What a formula is made of:

=========================================  =======================================================
written                                    meaning
=========================================  =======================================================
``1.5e-6``, ``3``                          real numbers
``groups``, ``global_memory``, ``w_row``   names; dots of property names are underscores
``a + b``, ``a - b``, ``a*b``, ``a/b``     arithmetic; ``a**b`` with a base that is not negative
``min(a, b, ...)``, ``max(a, b, ...)``     smallest, largest
``floor(a)``, ``ceil(a)``                  rounding, of what does not depend on fitted values
``sqrt(a)``, ``log(a)``, ``exp(a)``        elementary functions
``overlap(a, b, ...)``                     smooth maximum, of sharpness ``sharpness``
``overlap(a, b, ..., sharpness=s)``        the same, of another name or number
=========================================  =======================================================

Everything else of Python's syntax is refused with its place in the text. The overlap is a p-norm,

.. math:: \left( \sum_i \max(a_i, 0)^s \right)^{1/s}, \quad s \ge 1

which is the sum for :math:`s = 1` (nothing overlaps) and tends to the maximum for large :math:`s`
(all but the largest is hidden). It is homogeneous: twice the parts take twice the time.
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

SHARPNESS = "sharpness"
"""Name of the sharpness of an overlap that does not name its own."""

FUNCTIONS: Mapping[str, tuple[int, int | None]] = {
    "overlap": (2, None),
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
    """A formula that has been read.

    Attributes
    ----------
    text : str
        As it was written.
    tree : object
        pymbolic's tree; the arguments of ``overlap`` are preceded by its sharpness.
    names : tuple of str
        The names in it, each once, in the order of the text; ``sharpness`` last if it is implied.
    shapes, overlapped : frozenset of str
        Those of the names that are the sharpness of an overlap, or among its parts.
    """

    text: str
    tree: Any
    names: tuple[str, ...]
    shapes: frozenset[str] = frozenset()
    overlapped: frozenset[str] = frozenset()

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
    """Read a formula.

    Parameters
    ----------
    text : str
        Such as ``launch + overlap(global_memory, on_chip)``.

    Raises
    ------
    ExpressionError
        The text is no formula; ``position`` says where, as far as that is known.

    Examples
    --------
    >>> parse("launch + w_group*groups + overlap(global_memory, on_chip)").names
    ('launch', 'w_group', 'groups', 'global_memory', 'on_chip', 'sharpness')
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
    return Formula(
        text=text,
        tree=tree,
        names=tuple(names),
        shapes=frozenset(checker.shapes),
        overlapped=frozenset(checker.overlapped),
    )


class _Checker(Mapper[Any, []]):
    """Rebuild a tree of what formulas may have; everything else is refused by default."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.names: dict[str, None] = {}
        self.shapes: set[str] = set()
        self.overlapped: set[str] = set()
        self.depth = 0

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
        if self.depth:
            self.overlapped.add(name)
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
        return self._call(expr.function, expr.parameters, {})

    def map_call_with_kwargs(self, expr: Any) -> Any:
        return self._call(expr.function, expr.parameters, dict(expr.kw_parameters))

    def _call(self, function: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        name = function.name if isinstance(function, p.Variable) else str(function)
        place = _find(self.text, name)
        if name not in FUNCTIONS:
            there = ", ".join(FUNCTIONS)
            _refuse(f"no function is named {name!r} (there are: {there})", self.text, place)
        least, most = FUNCTIONS[name]
        if len(arguments) < least or (most is not None and len(arguments) > most):
            wanted = str(least) if most == least else f"at least {least}"
            _refuse(f"{name} takes {wanted} arguments, not {len(arguments)}", self.text, place)
        self.depth += name == "overlap"
        found = tuple(self.rec(argument) for argument in arguments)
        self.depth -= name == "overlap"
        if name != "overlap":
            if named:
                _refuse(f"{name} takes no argument {next(iter(named))!r}", self.text, place)
            return p.Call(p.Variable(name), found)
        if other := [key for key in named if key != SHARPNESS]:
            _refuse(f"overlap takes no argument {other[0]!r}", self.text, place)
        return p.Call(p.Variable(name), (self._sharpness(named.get(SHARPNESS), place), *found))

    def _sharpness(self, given: Any, place: int | None) -> Any:
        sharpness = p.Variable(SHARPNESS) if given is None else given
        if isinstance(sharpness, p.Variable):
            self.shapes.add(str(sharpness.name))
            return self.rec(sharpness)
        if isinstance(sharpness, int | float) and not isinstance(sharpness, bool):
            if sharpness >= 1:
                return self.rec(sharpness)
            _refuse(f"a sharpness of {sharpness} is below 1", self.text, place)
        return _refuse("the sharpness of an overlap is a name or a number", self.text, place)

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
