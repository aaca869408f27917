"""From expressions of Loopy kernels to quasi-polynomials and conditions on them.

Floors of quotients by size parameters, such as that of ``i // m``, are no quasi-polynomials of a
count: they occur in addresses only, where they cancel (``m*(i // m) + i % m`` is ``i``), become
floors by constants once sizes are put in, or are told apart by their few values.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from fractions import Fraction
from functools import reduce
from itertools import product
from math import inf
from operator import mul
from typing import Any, TypeAlias

import numpy as np
import pymbolic.primitives as p
from pymbolic.mapper import Mapper

from countperf.errors import CountingError
from countperf.symbolic.quasipolynomial import (
    ZERO,
    Conjunction,
    Floor,
    Number,
    QuasiPolynomial,
    degree_first,
)


class ParametricFloor(Floor):
    """The floor of a polynomial divided by a polynomial in parameters, as an indeterminate.

    Its `denominator` is 0: no rule for floors by constants applies to it.
    """

    __slots__ = ("divisor",)

    def __init__(self, numerator: QuasiPolynomial, divisor: QuasiPolynomial) -> None:
        super().__init__(numerator, 0)
        self.divisor = divisor
        self.key = f"~floor(({numerator})/({divisor}))"
        self._hash = hash(self.key)

    @property
    def is_affine(self) -> bool:
        """False: no set of isl divides by a parameter."""
        return False

    def names(self) -> set[str]:
        """Return all names that occur."""
        return self.numerator.names() | self.divisor.names()

    def evaluate(self, values: Mapping[str, int]) -> Number:
        """Return the value at integer values of all names."""
        divisor = self.divisor.evaluate(values)
        if not divisor:
            raise _division_by_zero(self.divisor)
        return self.numerator.evaluate(values) // divisor

    def substitute(self, replacements: Mapping[str, QuasiPolynomial]) -> QuasiPolynomial | None:
        """Return the value with names replaced; None if none of them occurs."""
        numerator = self.numerator.substitute(replacements)
        divisor = self.divisor.substitute(replacements)
        if numerator is self.numerator and divisor is self.divisor:
            return None
        return floor_quotient(numerator, divisor)


def floor_quotient(numerator: QuasiPolynomial, divisor: QuasiPolynomial) -> QuasiPolynomial:
    """Return the floor of a quotient, in normal form: multiples of the divisor are taken out."""
    if divisor.is_constant:
        number = int(divisor.constant_term)
        if not number:
            raise _division_by_zero(divisor)
        return numerator.floor_divide(number) if number > 0 else (-numerator).floor_divide(-number)
    whole, rest = _divide(numerator, divisor) if divisor.is_linear else (ZERO, numerator)
    return whole + QuasiPolynomial.name(ParametricFloor(rest, divisor)) if rest else whole


def exact_quotient(numerator: QuasiPolynomial, divisor: QuasiPolynomial) -> QuasiPolynomial | None:
    """Return the quotient of polynomials without floors; None if it is none with integers."""
    if not divisor or numerator.floors() or divisor.floors():
        return None
    quotient, rest = _divide(numerator, divisor)
    return None if rest else quotient


def _divide(
    rest: QuasiPolynomial, divisor: QuasiPolynomial
) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    """Take integer multiples of the divisor's leading term out, the highest first."""
    lead = min(divisor.terms, key=degree_first)
    quotient = ZERO
    monomials = sorted(rest.terms, key=degree_first)
    while monomials:
        monomial = monomials.pop(0)
        exponents = dict(monomial)
        for atom, exponent in lead:
            exponents[atom] = exponents.get(atom, 0) - exponent
        factor = Fraction(rest.terms[monomial]) / divisor.terms[lead]
        if factor.denominator == 1 and all(e >= 0 for e in exponents.values()):
            left = tuple((atom, e) for atom, e in exponents.items() if e)
            part = QuasiPolynomial({left: factor})
            quotient, rest = quotient + part, rest - part * divisor
            monomials = sorted(rest.terms, key=degree_first)
    return quotient, rest


def _division_by_zero(divisor: QuasiPolynomial) -> CountingError:
    return CountingError(f"an address divides by {divisor}, which is zero at these sizes")


Condition: TypeAlias = frozenset[Conjunction]  # conjunctions of which at least one holds

_LOGICAL = (p.Comparison, p.LogicalAnd, p.LogicalOr, p.LogicalNot)
ALWAYS: Condition = frozenset([frozenset()])
NEVER: Condition = frozenset()


class NotAffineError(Exception):
    """An expression is no quasi-polynomial of loop variables and parameters."""

    def __init__(self, expression: object) -> None:
        super().__init__(str(expression))
        self.expression = expression


def try_affine(function: Callable[[Any], Any], expression: Any) -> Any | None:
    """Return what a function of expressions makes of one; None where it is not affine."""
    try:
        return function(expression)
    except NotAffineError:
        return None


class RefusingMapper(Mapper[Any, []]):
    """A mapper that refuses each node class for which it has no handler of its own."""

    def handle_unsupported_expression(self, expr: Any, /, *_: Any, **__: Any) -> Any:
        """Refuse an expression."""
        raise NotAffineError(expr)

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> Any:
        """Refuse what is no expression."""
        return self.handle_unsupported_expression(expr)

    def __call__(self, expr: Any, /, *_: Any, **__: Any) -> Any:
        """Map an expression."""
        try:
            return super().__call__(expr)
        except NotImplementedError:  # pymbolic's base names node classes without handling them
            return self.handle_unsupported_expression(expr)

    rec = __call__


class ToQuasiPolynomial(RefusingMapper):
    """Maps integer expressions to quasi-polynomials."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        super().__init__()
        self.is_known = is_known

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> QuasiPolynomial:
        """Python and NumPy integers are constants."""
        if isinstance(expr, int | np.integer) and not isinstance(expr, bool):
            return QuasiPolynomial.constant(int(expr))
        raise NotAffineError(expr)

    def map_variable(self, expr: Any) -> QuasiPolynomial:
        """Loop variables and parameters stand for themselves."""
        if not self.is_known(expr.name):
            raise NotAffineError(expr)
        return QuasiPolynomial.name(expr.name)

    def map_sum(self, expr: Any) -> QuasiPolynomial:
        """Add."""
        return sum(map(self.rec, expr.children), ZERO)

    def map_product(self, expr: Any) -> QuasiPolynomial:
        """Multiply."""
        return reduce(mul, map(self.rec, expr.children))

    def map_power(self, expr: Any) -> QuasiPolynomial:
        """Powers with constant exponents of at least zero are products."""
        return self.rec(expr.base) ** self._constant(expr, expr.exponent)

    def _constant(self, expr: Any, part: Any, limit: float = inf) -> int:
        value = self.rec(part)
        if not value.is_constant or not 0 <= value.constant_term < limit:
            raise NotAffineError(expr)
        return int(value.constant_term)

    def map_floor_div(self, expr: Any) -> QuasiPolynomial:
        """Division by a constant is a floor; a negative divisor changes both signs."""
        return self._floor(expr, self.rec(expr.numerator), self.rec(expr.denominator))

    def map_remainder(self, expr: Any) -> QuasiPolynomial:
        """Remainders by positive constants."""
        numerator, divisor = self.rec(expr.numerator), self.rec(expr.denominator)
        return numerator - self._floor(expr, numerator, divisor) * divisor

    def _floor(
        self, expr: Any, numerator: QuasiPolynomial, divisor: QuasiPolynomial
    ) -> QuasiPolynomial:
        if not divisor.is_constant or divisor.constant_term <= 0:
            raise NotAffineError(expr)
        return numerator.floor_divide(int(divisor.constant_term))

    def map_type_cast(self, expr: Any) -> QuasiPolynomial:
        """Casts between integer types keep values that fit."""
        if expr.type.numpy_dtype.kind not in "iu":
            raise NotAffineError(expr)
        return self.rec(expr.child)


class ToAddress(ToQuasiPolynomial):
    """Maps subscripts to quasi-polynomials in which floors of quotients by sizes may occur."""

    def __init__(
        self,
        is_known: Callable[[str], bool],
        sizes: Container[str],
        definitions: Callable[[], Mapping[str, Any]],
    ) -> None:
        super().__init__(is_known)
        self.sizes = sizes
        self.definitions = definitions

    def map_variable(self, expr: Any) -> QuasiPolynomial:
        """As everywhere; names for expressions stand for these."""
        definition = None if self.is_known(expr.name) else self.definitions().get(expr.name)
        return super().map_variable(expr) if definition is None else self.rec(definition)

    def _floor(
        self, expr: Any, numerator: QuasiPolynomial, divisor: QuasiPolynomial
    ) -> QuasiPolynomial:
        if divisor.is_constant and divisor.constant_term > 0:
            return _join_floors(numerator, int(divisor.constant_term))
        if not divisor or not all(name in self.sizes for name in divisor.names()):
            raise NotAffineError(expr)
        return floor_quotient(numerator, divisor)

    def map_left_shift(self, expr: Any) -> QuasiPolynomial:
        """A product with a power of two."""
        return self.rec(expr.shiftee) * 2 ** self._constant(expr, expr.shift, _WORD_BITS)

    def map_right_shift(self, expr: Any) -> QuasiPolynomial:
        """A floor of a quotient by a power of two."""
        shift = self._constant(expr, expr.shift, _WORD_BITS)
        return _join_floors(self.rec(expr.shiftee), 2**shift)

    def map_bitwise_and(self, expr: Any) -> QuasiPolynomial:
        """The lowest bits are the remainder by a power of two."""
        if len(expr.children) == 2:
            for value, mask in (expr.children, expr.children[::-1]):
                if isinstance(mask, int | np.integer):
                    size = self._constant(expr, mask, 2**_WORD_BITS) + 1
                    if size & (size - 1) == 0:
                        whole = self.rec(value)
                        return whole - _join_floors(whole, size) * size
        raise NotAffineError(expr)


_WORD_BITS = 63


def _join_floors(numerator: QuasiPolynomial, divisor: int) -> QuasiPolynomial:
    """Return a floor of a quotient; of the floor of another one it is a single floor."""
    inner = next(iter(numerator.floors()), None)
    if inner is not None and inner.denominator:
        rest = numerator - QuasiPolynomial.name(inner)
        if rest.is_constant:
            joined = inner.numerator + rest * inner.denominator
            return joined.floor_divide(inner.denominator * divisor)
    return numerator.floor_divide(divisor)


class ToCondition(RefusingMapper):
    """Maps logical expressions to conditions on quasi-polynomials."""

    def __init__(
        self, to_polynomial: ToQuasiPolynomial, is_decided: Callable[[str], bool] = lambda _: True
    ) -> None:
        super().__init__()
        self.to_polynomial = to_polynomial
        self.is_decided = is_decided

    def map_foreign(self, expr: Any, /, *_: Any, **__: Any) -> Condition:
        """Python's and NumPy's truth values hold always or never."""
        if isinstance(expr, bool | np.bool_ | int):
            return ALWAYS if expr else NEVER
        raise NotAffineError(expr)

    def map_comparison(self, expr: Any) -> Condition:
        """Affine integer comparisons; not-equal is two alternatives. Equality of truth values."""
        if isinstance(expr.left, _LOGICAL) and isinstance(expr.right, _LOGICAL):
            if expr.operator not in ("==", "!="):
                raise NotAffineError(expr)
            other = expr.right if expr.operator == "==" else p.LogicalNot(expr.right)
            neither = p.LogicalAnd((p.LogicalNot(expr.left), p.LogicalNot(other)))
            return self.rec(p.LogicalOr((p.LogicalAnd((expr.left, other)), neither)))
        left, right = self.to_polynomial(expr.left), self.to_polynomial(expr.right)
        gap = left - right
        if not gap.is_affine or not all(map(self.is_decided, gap.names())):
            raise NotAffineError(expr)
        above, below = gap - 1, -gap - 1
        alternatives = {
            **{">=": [[gap]], ">": [[above]], "<=": [[-gap]], "<": [[below]]},
            **{"==": [[gap, -gap]], "!=": [[above], [below]]},
        }
        return frozenset(map(frozenset, alternatives[expr.operator]))

    def map_logical_and(self, expr: Any) -> Condition:
        """Join each alternative with each."""
        alternatives = product(*map(self.rec, expr.children))
        return frozenset(frozenset[QuasiPolynomial]().union(*each) for each in alternatives)

    def map_logical_or(self, expr: Any) -> Condition:
        """Collect alternatives."""
        return frozenset(a for child in expr.children for a in self.rec(child))

    def map_logical_not(self, expr: Any) -> Condition:
        """Negate: one broken guard of each alternative."""
        return frozenset(
            frozenset(-g - 1 for g in broken) for broken in product(*self.rec(expr.child))
        )
