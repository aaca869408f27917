r"""Values and derivatives of formulas: functions made from their trees, and symbolic derivatives.

Of arrays, a formula is closures within closures; of numbers, a function in Python's own code
(`ScalarSource`), in which what several formulas have in common is worked out once.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce
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


# --- derivatives


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
        The name is inside ``floor`` or ``ceil``, or constants divide by zero or are too large.
    """
    mapper = _Differentiator(p.Variable(name), formula)
    try:
        tree = mapper(formula.tree)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(
            f"formula {formula.text!r} cannot be differentiated by {name}: {error}",
            text=formula.text,
            position=None,
        ) from error
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


# --- values


@lru_cache(maxsize=4096)
def array_function(formula: Formula) -> Function:
    """Return a function from values by name, numbers or arrays that broadcast, to the value.

    Divisions by zero and the like give infinity or NaN, without a warning: check the outcome.
    """
    inner = _Closures()(formula.tree)

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
    source = ScalarSource()
    for name in formula.names:
        source.variables[name] = source.assigned(f"values[{name!r}]")
    return source.function(["values"], source.formula(formula))


class ScalarSource:
    """Writes formulas as the lines of one Python function of floats.

    Attributes
    ----------
    variables : dict from str to str
        What the names of formulas are called in the function; to be filled before they are used.
    lines : list of str
        The statements.
    """

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self.lines: list[str] = []
        self._assigned: dict[str, str] = {}

    def formula(self, formula: Formula) -> str:
        """Write a formula, and return the name or the number of its value."""
        return _Writer(self)(formula.tree)

    def assigned(self, text: str) -> str:
        """Return the name of an expression's value, the same for the same text."""
        found = self._assigned.get(text)
        if found is None:
            found = self._assigned[text] = f"t{len(self._assigned)}"
            self.lines.append(f"{found} = {text}")
        return found

    def weighted_sum(self, weights: Iterable[float], variables: Iterable[str]) -> str:
        """Return the name of a sum of variables times numbers; those times zero are left out."""
        addends = [
            variable if weight == 1 else f"{_number(weight)} * {variable}"
            for weight, variable in zip(weights, variables, strict=True)
            if weight
        ]
        if len(addends) > 1 or " " in "".join(addends):
            return self.assigned(" + ".join(addends))
        return "".join(addends) or "0.0"

    def give_up_if(self, condition: str) -> None:
        """Have the function return None where a condition holds."""
        self.lines.append(f"if {condition}: return None")

    def function(self, arguments: Sequence[str], result: str) -> Callable[..., Any]:
        """Return the function of all that was written."""
        body = "\n    ".join([*self.lines, f"return {result}"])
        namespace: dict[str, Any] = dict(_SCALAR_FUNCTIONS)
        source = f"def evaluate({', '.join(arguments)}):\n    {body}\n"
        exec(compile(source, "<formulas>", "exec"), namespace)  # numbers and own names alone
        return namespace["evaluate"]


class _Writer(Mapper[str, []]):
    """Write a checked tree into the source of a function."""

    def __init__(self, source: ScalarSource) -> None:
        super().__init__()
        self.source = source

    def map_constant(self, expr: Any) -> str:
        return _number(expr)

    def map_variable(self, expr: Any) -> str:
        return self.source.variables[expr.name]

    def map_sum(self, expr: Any) -> str:
        return self.source.assigned(" + ".join(self.rec(child) for child in expr.children))

    def map_product(self, expr: Any) -> str:
        return self.source.assigned(" * ".join(self.rec(child) for child in expr.children))

    def map_quotient(self, expr: Any) -> str:
        return self.source.assigned(f"{self.rec(expr.numerator)} / {self.rec(expr.denominator)}")

    def map_power(self, expr: Any) -> str:
        return self.source.assigned(f"power({self.rec(expr.base)}, {self.rec(expr.exponent)})")

    def map_call(self, expr: Any) -> str:
        name = expr.function.name
        if name == _PART:
            place, *rest = expr.parameters
            return self._part(int(place), *map(self.rec, rest))
        inner = [self.rec(argument) for argument in expr.parameters]
        if name == "overlap":
            return self._overlap(*inner)
        if name in _ORDERS:
            return reduce(partial(self._chosen, _ORDERS[name]), inner)
        called = name.replace("-", "_")
        if called not in _SCALAR_FUNCTIONS:
            raise KeyError(name)
        return self.source.assigned(f"{called}({', '.join(inner)})")

    def _chosen(self, order: str, a: str, b: str) -> str:
        return self.source.assigned(f"{b} if {b} {order} {a} else {a}")

    def _ratios(self, sharpness: str, parts: Sequence[str]) -> tuple[str, list[str], str]:
        """Write the largest part, the ratios of all to it, and the sum of their powers."""
        largest = self.source.assigned(f"max({', '.join(parts)}, 0.0)")
        ratios = [
            self.source.assigned(
                f"({a} / {largest} if {a} > 0.0 else 0.0) if {largest} > 0.0 else 1.0"
            )
            for a in parts
        ]
        powers = [self.source.assigned(f"{ratio} ** {sharpness}") for ratio in ratios]
        return largest, ratios, self.source.assigned(" + ".join(powers))

    def _overlap(self, sharpness: str, *parts: str) -> str:
        largest, _, total = self._ratios(sharpness, parts)
        return self.source.assigned(f"{largest} * {total} ** (1.0 / {sharpness})")

    def _part(self, place: int, sharpness: str, *parts: str) -> str:
        _, ratios, total = self._ratios(sharpness, parts)
        by_total = self.source.assigned(f"{total} ** (1.0 / {sharpness} - 1.0)")
        by_part = f"{ratios[place]} ** ({sharpness} - 1.0)"
        return self.source.assigned(f"0.0 if {parts[place]} < 0.0 else {by_part} * {by_total}")


def _number(value: Any) -> str:
    """Write a number as an operand."""
    number = float(value)
    return f"({number!r})" if number < 0 else repr(number)


class _Closures(Mapper[Function, []]):
    """Turn a checked tree into nested functions of arrays by name."""

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
        divide = _ARRAY_FUNCTIONS["divide"]
        return lambda values: divide(a(values), b(values))

    def map_power(self, expr: Any) -> Function:
        a, b = self.rec(expr.base), self.rec(expr.exponent)
        power = _ARRAY_FUNCTIONS["power"]
        return lambda values: power(a(values), b(values))

    def map_call(self, expr: Any) -> Function:
        function = _ARRAY_FUNCTIONS[expr.function.name]
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


def _chosen_floats(choose: Callable[..., float]) -> Callable[..., float]:
    return lambda place, *parts: 1.0 if parts.index(choose(parts)) == int(place) else 0.0


def _power_log_floats(base: float, exponent: float) -> float:
    return 0.0 if base == 0 else base**exponent * math.log(base)


def _power_floats(base: float, exponent: float) -> float:
    found = base**exponent
    if isinstance(found, complex):
        raise ValueError(f"{base} to the power of {exponent} is not real")
    return cast("float", found)


_ORDERS = {"min": "<", "max": ">"}

_SCALAR_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "power": _power_floats,
    "floor": lambda value: float(math.floor(value)),
    "ceil": lambda value: float(math.ceil(value)),
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
    "isfinite": math.isfinite,
    "min_part": _chosen_floats(min),
    "max_part": _chosen_floats(max),
    "power_log": _power_log_floats,
}
