"""Many counts at many parameter values: one Python function, compiled from the counts.

The function works on Python integers, where it is exact at any size, or on NumPy arrays. For
arrays an upper bound of every intermediate value is evaluated first; where it might exceed 63 bits,
arrays of Python integers are used instead, so that nothing ever wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import ParameterError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Atom, QuasiPolynomial
from countperf.text import FieldsAlone

_SAFE = float(2**62)
_LONGEST_SUM = 200
BLOCK = 8192
"""Points that are evaluated together: few enough that intermediate values stay in the cache."""


@dataclass(frozen=True, eq=False)
class CompiledCounts(FieldsAlone):
    """Counts as a function of parameters; picklable."""

    parameters: Sequence[str]
    counts: Sequence[tuple[PiecewiseQuasiPolynomial, bool]]  # with whether they are integers

    @cached_property
    def _function(self) -> Callable[..., Any]:
        source = CountSource(self.parameters, self.counts, arrays=True)
        return source.define_function(source.numbers())

    def at(self, values: Mapping[str, int]) -> list[int | Fraction]:
        """Return the counts at integer parameters, exactly."""
        numbers: list[int | Fraction] = []
        for count, integral in self.counts:
            number = count.evaluate(values)
            if integral and number.denominator != 1:
                raise ParameterError(
                    f"a count at {dict(values)} is no integer: the parameters violate the "
                    "assumptions under which it holds"
                )
            numbers.append(number.numerator if number.denominator == 1 else number)
        return numbers

    def at_arrays(self, values: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the counts at arrays of parameters of one shape."""
        arguments, shape, wanted = self.safe_arrays(values)
        lines = [np.broadcast_to(a, shape).ravel() for a in arguments]
        types = [wanted if integral else np.float64 for _, integral in self.counts]
        result = [np.empty(shape, kind) for kind in types]
        targets = [array.reshape(-1) for array in result]
        for start in range(0, prod(shape), BLOCK):
            block = slice(start, start + BLOCK)
            for target, counts in zip(
                targets, self._function(*(line[block] for line in lines)), strict=True
            ):
                target[block] = counts
        return result

    def safe_arrays(
        self, values: Mapping[str, Any]
    ) -> tuple[list[NDArray[Any]], tuple[int, ...], type]:
        """Return parameters of a type in which nothing wraps, their common shape, and the type."""
        arguments = [np.asarray(values[name]) for name in self.parameters]
        shape = np.broadcast_shapes(*(a.shape for a in arguments)) if arguments else ()
        largest = _largest(dict(zip(self.parameters, arguments, strict=True)))
        is_safe = all(nothing_wraps(_scale_terms(count), largest) for count, _ in self.counts)
        wanted = np.int64 if is_safe else object
        return [a.astype(wanted, copy=False) for a in arguments], shape, wanted


def _largest(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the largest magnitude of each parameter, a number or an array."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return {n: max(-int(a.min()), int(a.max())) if a.size else 0 for n, a in arrays.items()}


def _scale_terms(count: PiecewiseQuasiPolynomial) -> list[QuasiPolynomial]:
    """Return all polynomials of a count, the values times their denominator."""
    denominator = _denominator(count)
    values = [term.value * denominator for term in count.terms]
    return [*values, *(g for term in count.terms for g in (*term.nonnegative, *term.zero))]


def nothing_wraps(polynomials: Iterable[QuasiPolynomial], values: Mapping[str, Any]) -> bool:
    """Return whether no intermediate value of a sum exceeds 63 bits at parameters."""
    try:
        largest = {name: float(value) for name, value in _largest(values).items()}
        return sum(_largest_value(p, largest) for p in polynomials) + 1.0 < _SAFE
    except OverflowError:  # not even a float holds it
        return False


def _largest_value(polynomial: QuasiPolynomial, largest: Mapping[str, float]) -> float:
    """Bound a polynomial, and whatever comes up on the way to its value."""
    total = 0.0
    for monomial, coefficient in polynomial.terms.items():
        product = float(abs(coefficient))
        for atom, exponent in monomial:
            if isinstance(atom, str):
                base = largest[atom]
            else:
                base = _largest_value(atom.numerator, largest) + 1.0
            product *= base**exponent
        total += product
    return total


def _denominator(count: PiecewiseQuasiPolynomial) -> int:
    """Return the common denominator of all coefficients of a count."""
    return lcm(*(c.denominator for term in count.terms for c in term.value.terms.values()), 1)


class CountSource:
    """Writes the source of the functions; shared floors and powers are computed once."""

    def __init__(
        self,
        parameters: Sequence[str],
        counts: Sequence[tuple[PiecewiseQuasiPolynomial, bool]],
        *,
        arrays: bool,
    ) -> None:
        self.parameters = parameters
        self.counts = counts
        self.arrays = arrays
        self.variables = {name: f"v{k}" for k, name in enumerate(parameters)}
        self.lines: list[str] = []
        self.names: dict[str, str] = {}

    def numbers(self) -> list[str]:
        """Return an expression for each count."""
        results: list[str] = []
        for count, integral in self.counts:
            denominator = _denominator(count)
            parts: list[str] = []
            for term in count.terms:
                value = self._polynomial(term.value, denominator)
                guards = self.guards(term.nonnegative, term.zero)
                if guards and self.arrays:
                    mask = " & ".join(f"np.asarray({guard}, dtype=bool)" for guard in guards)
                    value = f"np.where({mask}, {value}, 0)"
                elif guards:
                    value = f"({value} if {' and '.join(guards)} else 0)"
                parts.append(value)
            total = self._write_sum(parts) or "0"
            whole = "integer" if integral else "number"
            results.append(total if denominator == 1 else f"{whole}({total}, {denominator})")
        return results

    def guards(
        self, nonnegative: Iterable[QuasiPolynomial], zero: Iterable[QuasiPolynomial]
    ) -> list[str]:
        """Return the conditions that polynomials are at least zero, or zero."""
        guards = [f"{self._polynomial(guard, 1)} >= 0" for guard in nonnegative]
        return guards + [f"{self._polynomial(guard, 1)} == 0" for guard in zero]

    def define_function(
        self, results: Sequence[str], names: Mapping[str, Any] | None = None
    ) -> Callable[..., list[Any]]:
        """Define the function of the lines and results, numbers and own names alone."""
        body = "\n    ".join([*self.lines, f"return [{', '.join(results)}]"])
        source = f"def counts({', '.join(self.variables.values())}):\n    {body}\n"
        divide = _ARRAY_DIVISIONS if self.arrays else _DIVISIONS
        namespace: dict[str, Any] = {"np": np, **divide, **(names or {})}
        exec(compile(source, "<counts>", "exec"), namespace)
        return namespace["counts"]

    def _polynomial(self, polynomial: QuasiPolynomial, scale: int) -> str:
        terms: list[str] = []
        for monomial, value in polynomial.terms.items():
            coefficient = int(value * scale)
            factors = [self._power(atom, exponent) for atom, exponent in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient) if coefficient >= 0 else f"({coefficient})")
            terms.append("*".join(factors))
        return f"({self._write_sum(terms)})" if terms else "0"

    def _write_sum(self, terms: list[str]) -> str:
        """Return a sum; Python compiles none of thousands of terms at once."""
        while len(terms) > _LONGEST_SUM:
            sums: list[str] = []
            for start in range(0, len(terms), _LONGEST_SUM):
                sums.append(f"u{len(self.lines)}")
                part = " + ".join(terms[start : start + _LONGEST_SUM])
                self.lines.append(f"{sums[-1]} = {part}")
            terms = sums
        return " + ".join(terms)

    def _power(self, atom: Atom, exponent: int) -> str:
        if exponent > 1:
            return self.name_expression(f"{self._power(atom, exponent - 1)}*{self._power(atom, 1)}")
        if isinstance(atom, str):
            return self.variables[atom]
        return self.name_expression(f"{self._polynomial(atom.numerator, 1)} // {atom.denominator}")

    def name_expression(self, text: str) -> str:
        """Return the variable that has the value of an expression, the same for the same text."""
        if text.isidentifier() or text.isdecimal():
            return text
        if text not in self.names:
            self.names[text] = f"t{len(self.names)}"
            self.lines.append(f"{self.names[text]} = {text}")
        return self.names[text]


def _integer(total: int, denominator: int) -> int:
    """Divide a count by its denominator, which has to divide it."""
    quotient, remainder = divmod(total, denominator)
    if remainder:
        raise ArithmeticError("a count is no integer")
    return quotient


def _integers(totals: Any, denominator: int) -> NDArray[Any]:
    """Divide counts by their denominator, which has to divide them."""
    quotients = np.asarray(totals) // denominator
    if np.any(quotients * denominator != totals):
        raise ParameterError(
            "a count is no integer at some of the parameters: they violate the assumptions under "
            "which it holds"
        )
    return quotients


_DIVISIONS = {"integer": _integer, "number": Fraction}
_ARRAY_DIVISIONS = {
    "integer": _integers,
    "number": lambda total, denominator: np.asarray(total, dtype=float) / denominator,
}
