"""Values of formulas: Python functions of floats or of arrays that are written from their trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from typing import Any, cast

import numpy as np
from pymbolic.mapper import Mapper

from countperf.models.expressions import Formula

Values = Mapping[str, Any]
Function = Callable[[Values], Any]


@lru_cache(maxsize=4096)
def array_function(formula: Formula) -> Function:
    """Return a function from values by name, numbers or arrays that broadcast, to the value.

    Divisions by zero and the like give infinity or NaN, without a warning: check the outcome.
    """
    source = FormulaSource(arrays=True)
    for name in formula.names:
        source.variables[name] = source.assigned(f"values[{name!r}]")
    inner = source.function(["values"], source.formula(formula))

    def evaluate(values: Values) -> Any:
        with np.errstate(all="ignore"):
            return inner(values)

    return evaluate


class FormulaSource:
    """Writes formulas as the lines of one Python function; what they share is worked out once.

    A function of floats raises ArithmeticError or ValueError where one of arrays gives infinity or
    NaN.
    """

    def __init__(self, *, arrays: bool = False) -> None:
        self.arrays = arrays
        self.variables: dict[str, str] = {}  # names of formulas, as the function calls them
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
        namespace: dict[str, Any] = dict(_ARRAY_FUNCTIONS if self.arrays else _SCALAR_FUNCTIONS)
        source = f"def evaluate({', '.join(arguments)}):\n    {body}\n"
        exec(compile(source, "<formulas>", "exec"), namespace)  # numbers and own names alone
        return namespace["evaluate"]


class _Writer(Mapper[str, []]):
    """Write a checked tree into the source of a function."""

    def __init__(self, source: FormulaSource) -> None:
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
        above, below = self.rec(expr.numerator), self.rec(expr.denominator)
        called = f"divide({above}, {below})"
        return self.source.assigned(called if self.source.arrays else f"{above} / {below}")

    def map_power(self, expr: Any) -> str:
        return self.source.assigned(f"power({self.rec(expr.base)}, {self.rec(expr.exponent)})")

    def map_call(self, expr: Any) -> str:
        name = expr.function.name
        inner = [self.rec(argument) for argument in expr.parameters]
        if name in _ORDERS and not self.source.arrays:
            return reduce(partial(self._chosen, _ORDERS[name]), inner)
        return self.source.assigned(f"{name}({', '.join(inner)})")

    def _chosen(self, order: str, a: str, b: str) -> str:
        return self.source.assigned(f"{b} if {b} {order} {a} else {a}")


def _number(value: Any) -> str:
    """Write a number as an operand."""
    number = float(value)
    return f"({number!r})" if number < 0 else repr(number)


def _power_floats(base: float, exponent: float) -> float:
    found = base**exponent
    if isinstance(found, complex):
        raise ValueError(f"{base} to the power of {exponent} is not real")
    return cast("float", found)


_ORDERS = {"min": "<", "max": ">"}

_ARRAY_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "divide": np.divide,
    "power": lambda base, exponent: np.power(np.asarray(base, np.float64), exponent),
    "min": lambda *parts: reduce(np.minimum, parts),
    "max": lambda *parts: reduce(np.maximum, parts),
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "log": np.log,
    "exp": np.exp,
}

_SCALAR_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "power": _power_floats,
    "floor": lambda value: float(math.floor(value)),
    "ceil": lambda value: float(math.ceil(value)),
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
    "isfinite": math.isfinite,
}
