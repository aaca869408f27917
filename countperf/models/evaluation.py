r"""Values and derivatives of formulas: closures built from their trees, and symbolic derivatives.

A derivative with respect to a name is a tree again, by pymbolic's differentiation with rules for
the functions of formulas. For :math:`M = \left( \sum_i a_i^s \right)^{1/s}`, with
:math:`r_i = a_i / \max_j a_j` and :math:`R = \sum_i r_i^s`, so that nothing overflows:

.. math::

   M &= \max_j a_j \cdot R^{1/s} \\
   \partial M / \partial a_i &= r_i^{s-1} R^{1/s - 1} \\
   \partial M / \partial s &= M \left( \frac{\sum_i r_i^s \ln r_i}{s R} - \frac{\ln R}{s^2} \right)

At the origin, where the p-norm has no derivative, all :math:`r_i` are taken as one; the derivative
of a part that is negative, and counts as zero, is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import Any, cast

import numpy as np
import pymbolic.primitives as p
from numpy.typing import NDArray
from pymbolic.mapper import Mapper
from pymbolic.mapper.differentiator import DifferentiationMapper

from countperf.errors import ExpressionError
from countperf.models.expressions import Formula

Values = Mapping[str, Any]
Function = Callable[[Values], Any]

_PART = "overlap-part"
_SLOPE = "overlap-slope"
_CHOSEN = {"min": "min-part", "max": "max-part"}
_POWER_LOG = "power-log"


# {{{ derivatives


@lru_cache(maxsize=4096)
def derivative(formula: Formula, name: str) -> Formula:
    """Differentiate a formula with respect to a name.

    Returns
    -------
    Formula
        Its tree has functions that cannot be written in formulas; its text is for messages only.

    Raises
    ------
    ExpressionError
        The name is inside ``floor`` or ``ceil``.
    """
    mapper = _Differentiator(p.Variable(name), formula)
    tree = mapper(formula.tree)
    found = _Names()
    found(tree)
    return Formula(
        text=f"d({formula.text})/d({name})",
        tree=tree,
        names=tuple(found.names),
    )


def multiplied_with(formula: Formula, name: str) -> str | None:
    """Return the one name that a name of a formula is multiplied with, and nothing else.

    Returns
    -------
    str or None
        Empty for a name that is an addend, an argument or the whole formula; None where it is used
        in any other way, or more than once.

    Examples
    --------
    >>> from countperf.models.expressions import parse
    >>> formula = parse("work/rate + overlap(w_group*groups, memory, sharpness=4)")
    >>> [multiplied_with(formula, n) for n in ("w_group", "memory", "rate")]
    ['groups', '', None]
    """
    found: list[str | None] = []
    _find_partners(formula.tree, name, "", found)
    return found[0] if len(found) == 1 else None


def _find_partners(tree: Any, name: str, partner: str | None, found: list[str | None]) -> None:
    match tree:
        case p.Variable():
            if tree.name == name:
                found.append(partner)
        case p.Sum():
            for child in tree.children:
                _find_partners(child, name, partner, found)
        case p.Product():
            for i, child in enumerate(tree.children):
                rest: list[Any] = [other for j, other in enumerate(tree.children) if j != i]
                alone = len(rest) == 1 and isinstance(rest[0], p.Variable) and partner == ""
                _find_partners(child, name, str(rest[0].name) if alone else None, found)
        case p.Quotient():
            _find_partners(tree.numerator, name, None, found)
            _find_partners(tree.denominator, name, None, found)
        case p.Power():
            _find_partners(tree.base, name, None, found)
            _find_partners(tree.exponent, name, None, found)
        case p.Call():
            function: Any = tree.function
            homogeneous = str(function.name) in ("overlap", "min", "max")
            for child in tree.parameters:
                _find_partners(child, name, partner if homogeneous else None, found)
        case _:
            pass


class _Differentiator(DifferentiationMapper):
    """pymbolic's rules, and those of the functions of formulas."""

    def __init__(self, variable: Any, formula: Formula) -> None:
        super().__init__(variable, self._of_function, allowed_nonsmoothness="continuous")
        self.formula = formula

    def map_constant(self, expr: Any, *args: Any) -> Any:
        del expr, args
        return 0.0

    def map_power(self, expr: Any, *args: Any) -> Any:
        base, exponent = expr.base, expr.exponent
        by_base, by_exponent = self.rec(base, *args), self.rec(exponent, *args)
        total: Any = 0.0
        if not p.is_zero(by_base):
            total = exponent * p.Power(base, exponent - 1.0) * by_base
        if not p.is_zero(by_exponent):
            total = total + p.Call(p.Variable(_POWER_LOG), (base, exponent)) * by_exponent
        return total

    def map_call(self, expr: Any, *args: Any) -> Any:
        total: Any = 0.0
        for i, argument in enumerate(expr.parameters):
            inner = self.rec(argument, *args)
            if not p.is_zero(inner):
                total = total + self._of_function(i, expr.function, expr.parameters) * inner
        return total

    def _of_function(self, place: int, function: Any, arguments: tuple[Any, ...]) -> Any:
        name = function.name
        if name == "overlap":
            if place == 0:
                return p.Call(p.Variable(_SLOPE), arguments)
            return p.Call(p.Variable(_PART), (float(place - 1), *arguments))
        if name in _CHOSEN:
            return p.Call(p.Variable(_CHOSEN[name]), (float(place), *arguments))
        if name == "sqrt":
            return 0.5 / p.Call(function, arguments)
        if name == "log":
            return 1.0 / arguments[0]
        if name == "exp":
            return p.Call(function, arguments)
        message = (
            f"formula {self.formula.text!r}: {self.variable.name} is fitted, and {name} of it"
            " has no derivative; round only what is counted"
        )
        raise ExpressionError(message, text=self.formula.text, names=(self.variable.name,))


class _Names(Mapper[None, []]):
    """Collect the names in a checked tree."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def map_constant(self, expr: Any) -> None:
        del expr

    def map_variable(self, expr: Any) -> None:
        self.names.setdefault(expr.name)

    def map_sum(self, expr: Any) -> None:
        for child in expr.children:
            self.rec(child)

    map_product = map_sum

    def map_quotient(self, expr: Any) -> None:
        self.rec(expr.numerator)
        self.rec(expr.denominator)

    def map_power(self, expr: Any) -> None:
        self.rec(expr.base)
        self.rec(expr.exponent)

    def map_call(self, expr: Any) -> None:
        for child in expr.parameters:
            self.rec(child)


# }}}

# {{{ values


@lru_cache(maxsize=4096)
def array_function(formula: Formula) -> Function:
    """Return a function from values by name, numbers or arrays that broadcast, to the value.

    Divisions by zero and the like give infinity or NaN, without a warning: check the outcome.
    """
    inner = _Closures(_ARRAY_FUNCTIONS)(formula.tree)

    def evaluate(values: Values) -> Any:
        with np.errstate(all="ignore"):
            return inner(values)

    return evaluate


@lru_cache(maxsize=4096)
def scalar_function(formula: Formula) -> Function:
    """Return a function from Python floats by name to a float; faster than `array_function`.

    It raises ArithmeticError or ValueError where that gives infinity or NaN. Derivatives by a
    sharpness are functions of arrays alone.
    """
    return _Closures(_SCALAR_FUNCTIONS)(formula.tree)


class _Closures(Mapper[Function, []]):
    """Turn a checked tree into nested functions of the values by name."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = functions

    def map_constant(self, expr: Any) -> Function:
        value = float(expr)
        return lambda _: value

    def map_variable(self, expr: Any) -> Function:
        name = str(expr.name)
        return lambda values: values[name]

    def map_sum(self, expr: Any) -> Function:
        def add(a: Function, b: Function) -> Function:
            return lambda values: a(values) + b(values)

        return reduce(add, (self.rec(child) for child in expr.children))

    def map_product(self, expr: Any) -> Function:
        def multiply(a: Function, b: Function) -> Function:
            return lambda values: a(values) * b(values)

        return reduce(multiply, (self.rec(child) for child in expr.children))

    def map_quotient(self, expr: Any) -> Function:
        a, b = self.rec(expr.numerator), self.rec(expr.denominator)
        divide = self.functions["divide"]
        return lambda values: divide(a(values), b(values))

    def map_power(self, expr: Any) -> Function:
        a, b = self.rec(expr.base), self.rec(expr.exponent)
        power = self.functions["power"]
        return lambda values: power(a(values), b(values))

    def map_call(self, expr: Any) -> Function:
        function = self.functions[expr.function.name]
        inner = tuple(self.rec(argument) for argument in expr.parameters)
        if len(inner) == 1:
            (only,) = inner
            return lambda values: function(only(values))
        return lambda values: function(*[argument(values) for argument in inner])


def _ratios(parts: tuple[Any, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    stacked = np.stack(np.broadcast_arrays(*parts)).astype(np.float64)
    stacked = np.maximum(stacked, 0.0)
    largest = stacked.max(axis=0)
    ratios = np.where(largest > 0, stacked / np.where(largest > 0, largest, 1.0), 1.0)
    return ratios, largest


def _overlap_arrays(sharpness: Any, *parts: Any) -> Any:
    ratios, largest = _ratios(parts)
    return largest * np.sum(ratios**sharpness, axis=0) ** (1.0 / sharpness)


def _part_arrays(place: float, sharpness: Any, *parts: Any) -> Any:
    ratios, _ = _ratios(parts)
    total = np.sum(ratios**sharpness, axis=0)
    found = ratios[int(place)] ** (sharpness - 1.0) * total ** (1.0 / sharpness - 1.0)
    return np.where(np.asarray(parts[int(place)]) < 0, 0.0, found)


def _slope_arrays(sharpness: Any, *parts: Any) -> Any:
    ratios, largest = _ratios(parts)
    powers = ratios**sharpness
    total = np.sum(powers, axis=0)
    logs = np.log(np.where(ratios > 0, ratios, 1.0))
    inner = np.sum(powers * logs, axis=0) / (sharpness * total) - np.log(total) / sharpness**2
    return largest * total ** (1.0 / sharpness) * inner


def _chosen_arrays(
    choose: Callable[..., Any],
) -> Callable[..., Any]:
    def part(place: float, *parts: Any) -> Any:
        stacked = np.stack(np.broadcast_arrays(*parts))
        return np.where(choose(stacked, axis=0) == int(place), 1.0, 0.0)

    return part


def _power_log_arrays(base: Any, exponent: Any) -> Any:
    positive = np.where(np.asarray(base) > 0, base, 1.0)
    return np.where(
        np.asarray(base) > 0,
        np.power(positive, exponent) * np.log(positive),
        np.where(np.asarray(base) == 0, 0.0, np.nan),
    )


_ARRAY_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "divide": np.divide,
    "power": lambda base, exponent: np.power(np.asarray(base, np.float64), exponent),
    "overlap": _overlap_arrays,
    "min": lambda *parts: reduce(np.minimum, parts),
    "max": lambda *parts: reduce(np.maximum, parts),
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "log": np.log,
    "exp": np.exp,
    _PART: _part_arrays,
    _SLOPE: _slope_arrays,
    _CHOSEN["min"]: _chosen_arrays(np.argmin),
    _CHOSEN["max"]: _chosen_arrays(np.argmax),
    _POWER_LOG: _power_log_arrays,
}


def _overlap_floats(sharpness: float, *parts: float) -> float:
    largest = max(parts)
    if largest <= 0:
        return 0.0
    total = 0.0
    for part in parts:
        if part > 0:
            total += (part / largest) ** sharpness
    return largest * total ** (1.0 / sharpness)


def _part_floats(place: float, sharpness: float, *parts: float) -> float:
    largest = max(*parts, 0.0)
    ratios = [max(part, 0.0) / largest if largest > 0 else 1.0 for part in parts]
    total = sum(ratio**sharpness for ratio in ratios)
    found = ratios[int(place)] ** (sharpness - 1.0) * total ** (1.0 / sharpness - 1.0)
    return 0.0 if parts[int(place)] < 0 else found


def _chosen_floats(choose: Callable[..., float]) -> Callable[..., float]:
    return lambda place, *parts: 1.0 if parts.index(choose(parts)) == int(place) else 0.0


def _power_log_floats(base: float, exponent: float) -> float:
    return 0.0 if base == 0 else base**exponent * math.log(base)


def _power_floats(base: float, exponent: float) -> float:
    found = base**exponent
    if isinstance(found, complex):
        raise ValueError(f"{base} to the power of {exponent} is not real")
    return cast("float", found)


_SCALAR_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "divide": lambda a, b: a / b,
    "power": _power_floats,
    "overlap": _overlap_floats,
    "min": min,
    "max": max,
    "floor": lambda value: float(math.floor(value)),
    "ceil": lambda value: float(math.ceil(value)),
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
    _PART: _part_floats,
    _CHOSEN["min"]: _chosen_floats(min),
    _CHOSEN["max"]: _chosen_floats(max),
    _POWER_LOG: _power_log_floats,
}

# }}}
