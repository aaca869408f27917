"""Many counts at many parameter values: one Python function, compiled from the counts.

Compiling takes longer than a few evaluations, so that it waits until there have been some. The
function works on Python integers, where it is exact at any size, and on NumPy arrays. For
arrays an upper bound of every intermediate value is evaluated first; where it might exceed 63 bits,
arrays of Python integers are used instead, so that nothing ever wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm, prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from countperf.errors import CountingError, ParameterError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Atom, Monomial, QuasiPolynomial

_Kind = Literal["scalar", "array", "bound"]
_SAFE = float(2**62)
_LONGEST_SUM = 200
_CALLS_BEFORE_COMPILING = 4
"""Most counts of stored measurements are evaluated at two or three sizes."""
BLOCK = 8192
"""Points that are evaluated together: few enough that intermediate values stay in the cache."""


class CompiledCounts:
    """Counts as a function of parameters; picklable."""

    def __init__(
        self,
        parameters: Sequence[str],
        counts: Sequence[tuple[PiecewiseQuasiPolynomial, bool]],
    ) -> None:
        self.parameters = tuple(parameters)
        self.counts = tuple(counts)
        self._calls = 0
        self._functions: dict[_Kind, Callable[..., Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"parameters": self.parameters, "counts": self.counts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.parameters = state["parameters"]
        self.counts = state["counts"]
        self._calls = 0
        self._functions = {}

    def at(self, values: Mapping[str, int]) -> list[int | Fraction]:
        """Return the counts at integer parameters, exactly."""
        self._calls += 1
        try:
            if self._calls <= _CALLS_BEFORE_COMPILING and "scalar" not in self._functions:
                return [_value(count, values, integral) for count, integral in self.counts]
            return self._compiled("scalar")(*[values[name] for name in self.parameters])
        except _NotIntegerError:
            raise ParameterError(
                f"a count at {dict(values)} is no integer: the parameters violate the "
                "assumptions under which it holds"
            ) from None

    def at_arrays(self, values: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the counts at arrays of parameters of one shape."""
        array = self._compiled("array")
        arguments, shape, wanted = self.safe_arrays(values)
        lines = [np.broadcast_to(a, shape).ravel() for a in arguments]
        result = [
            np.empty(shape, wanted if integral else np.float64) for _, integral in self.counts
        ]
        targets = [each.reshape(-1) for each in result]
        for start in range(0, prod(shape), BLOCK):
            block = slice(start, start + BLOCK)
            for target, counts in zip(
                targets, array(*(line[block] for line in lines)), strict=True
            ):
                target[block] = counts
        return result

    def safe_arrays(
        self, values: Mapping[str, Any]
    ) -> tuple[list[NDArray[Any]], tuple[int, ...], type]:
        """Return parameters of a type in which nothing wraps, their common shape, and the type."""
        arguments = [np.asarray(values[name]) for name in self.parameters]
        shape = np.broadcast_shapes(*(a.shape for a in arguments)) if arguments else ()
        largest = [float(max(-int(a.min()), int(a.max()))) if a.size else 0.0 for a in arguments]
        wanted = np.int64 if _is_safe(self._compiled("bound"), largest) else object
        return [a.astype(wanted, copy=False) for a in arguments], shape, wanted

    def _compiled(self, kind: _Kind) -> Callable[..., Any]:
        if kind not in self._functions:
            source = CountSource(self.parameters, self.counts, arrays=kind == "array")
            self._functions[kind] = (
                source.bound() if kind == "bound" else source.defined(source.numbers())
            )
        return self._functions[kind]


def _is_safe(bound: Callable[..., float], largest: Sequence[float]) -> bool:
    """Return whether no intermediate value exceeds 63 bits."""
    try:
        return bound(*largest) < _SAFE
    except OverflowError:  # not even a float holds it
        return False


class CountSource:
    """Writes the source of the functions; shared floors and powers are computed once."""

    def __init__(
        self,
        parameters: tuple[str, ...],
        counts: Sequence[tuple[PiecewiseQuasiPolynomial, bool]],
        *,
        arrays: bool,
    ) -> None:
        for name in parameters:
            if not name.isidentifier():
                raise CountingError(f"the parameter name {name!r} is no identifier", where=name)
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
            denominator = lcm(
                *(c.denominator for t in count.terms for c in t.value.terms.values()), 1
            )
            parts: list[str] = []
            for term in count.terms:
                value = self._polynomial(term.value, denominator)
                parts.append(self._guarded(value, self.guards(term.nonnegative, term.zero)))
            total = self._added(parts) or "0"
            whole = "integer" if integral else "number"
            results.append(total if denominator == 1 else f"{whole}({total}, {denominator})")
        return results

    def guards(
        self, nonnegative: Iterable[QuasiPolynomial], zero: Iterable[QuasiPolynomial]
    ) -> list[str]:
        """Return the conditions that polynomials are at least zero, or zero."""
        guards = [f"{self._polynomial(guard, 1)} >= 0" for guard in nonnegative]
        return guards + [f"{self._polynomial(guard, 1)} == 0" for guard in zero]

    def _guarded(self, value: str, guards: list[str]) -> str:
        if not guards:
            return value
        if self.arrays:
            mask = " & ".join(f"np.asarray({guard}, dtype=bool)" for guard in guards)
            return f"np.where({mask}, {value}, 0)"
        return f"({value} if {' and '.join(guards)} else 0)"

    def defined(
        self, results: Sequence[str], names: Mapping[str, Any] | None = None
    ) -> Callable[..., list[Any]]:
        """Define the function of the lines and results, numbers and own names alone."""
        body = "\n    ".join([*self.lines, f"return [{', '.join(results)}]"])
        source = f"def counts({', '.join(self.variables.values())}):\n    {body}\n"
        divide = _ARRAY_DIVISIONS if self.arrays else _DIVISIONS
        namespace: dict[str, Any] = {"np": np, **divide, **(names or {})}
        exec(compile(source, "<counts>", "exec"), namespace)
        return namespace["counts"]

    def bound(self) -> Callable[..., float]:
        """Return a function that bounds all intermediate values, given the largest parameters."""
        parts: list[str] = []
        for count, _ in self.counts:
            denominator = lcm(
                *(c.denominator for t in count.terms for c in t.value.terms.values()), 1
            )
            total: list[str] = ["1.0"]
            for term in count.terms:
                total.append(self._absolute(term.value, denominator))
                parts += [self._absolute(g, 1) for g in (*term.nonnegative, *term.zero)]
            parts.append(self._added(total))
        bounds = self.defined(parts or ["0.0"])
        return lambda *largest: max(bounds(*largest))

    def _polynomial(self, polynomial: QuasiPolynomial, scale: int) -> str:
        terms = [
            self._product(monomial, int(value * scale))
            for monomial, value in polynomial.terms.items()
        ]
        return f"({self._added(terms)})" if terms else "0"

    def _added(self, terms: list[str]) -> str:
        """Return a sum; Python compiles none of thousands of terms at once."""
        while len(terms) > _LONGEST_SUM:
            sums: list[str] = []
            for start in range(0, len(terms), _LONGEST_SUM):
                sums.append(f"u{len(self.lines)}")
                part = " + ".join(terms[start : start + _LONGEST_SUM])
                self.lines.append(f"{sums[-1]} = {part}")
            terms = sums
        return " + ".join(terms)

    def _product(self, monomial: Monomial, coefficient: int) -> str:
        factors = [self._power(atom, exponent) for atom, exponent in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient) if coefficient >= 0 else f"({coefficient})")
        return "*".join(factors)

    def _power(self, atom: Atom, exponent: int) -> str:
        if exponent > 1:
            return self.named(f"{self._power(atom, exponent - 1)}*{self._power(atom, 1)}")
        if isinstance(atom, str):
            return self.variables[atom]
        return self.named(f"{self._polynomial(atom.numerator, 1)} // {atom.denominator}")

    def named(self, text: str) -> str:
        """Return the variable that has the value of an expression, the same for the same text."""
        if text.isidentifier() or text.isdecimal():
            return text
        if text not in self.names:
            self.names[text] = f"t{len(self.names)}"
            self.lines.append(f"{self.names[text]} = {text}")
        return self.names[text]

    def _absolute(self, polynomial: QuasiPolynomial, scale: int) -> str:
        terms: list[str] = []
        for monomial, value in polynomial.terms.items():
            factors = [str(float(abs(value * scale)))]
            for atom, exponent in monomial:
                base = (
                    self.variables[atom]
                    if isinstance(atom, str)
                    else f"({self._absolute(atom.numerator, 1)} + 1.0)"
                )
                factors.append(f"{base}**{exponent}")
            terms.append("*".join(factors))
        return f"({self._added(terms)})" if terms else "0.0"


class _NotIntegerError(ArithmeticError):
    """A count is no integer."""


def _value(
    count: PiecewiseQuasiPolynomial, values: Mapping[str, int], integral: bool
) -> int | Fraction:
    """Evaluate a count as a compiled function does."""
    total = count.evaluate(values)
    return (_integer if integral else _as_number)(total.numerator, total.denominator)


def _integer(total: int, denominator: int) -> int:
    """Divide a count by its denominator, which has to divide it."""
    quotient, remainder = divmod(total, denominator)
    if remainder:
        raise _NotIntegerError
    return quotient


def _as_number(total: int, denominator: int) -> int | Fraction:
    """Divide a count by its denominator."""
    quotient, remainder = divmod(total, denominator)
    return Fraction(total, denominator) if remainder else quotient


def _quotient(total: NDArray[Any], denominator: int) -> NDArray[Any]:
    """Divide a count by its denominator, exactly."""
    if denominator & (denominator - 1):
        quotient = total // denominator
        is_exact = bool(np.all(quotient * denominator == total))
    else:  # shifts are much faster
        quotient = total >> (denominator.bit_length() - 1)
        is_exact = not np.any(total & (denominator - 1))
    if not is_exact:
        raise ParameterError(
            "a count is no integer at some of the parameters: they violate the assumptions under "
            "which it holds"
        )
    return quotient


_DIVISIONS = {"integer": _integer, "number": _as_number}
_ARRAY_DIVISIONS = {
    "integer": lambda total, denominator: _quotient(np.asarray(total), denominator),
    "number": lambda total, denominator: np.asarray(total, dtype=float) / denominator,
}
