"""Floors of quotients by size parameters, such as those of ``i // m`` and ``(i + 3) % n``.

They are no quasi-polynomials of a count: they occur in addresses only, where they cancel
(``m*(i // m) + i % m`` is ``i``), become floors by constants once sizes are put in, or are told
apart by their few values.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from countperf.errors import CountingError
from countperf.symbolic.quasipolynomial import Floor, Monomial, Number, QuasiPolynomial


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
    whole, rest = _divided(numerator, divisor)
    return whole + QuasiPolynomial.atom(ParametricFloor(rest, divisor)) if rest else whole


def exact_quotient(numerator: QuasiPolynomial, divisor: QuasiPolynomial) -> QuasiPolynomial | None:
    """Return the quotient of polynomials without floors; None if it is none with integers."""
    if not divisor or numerator.floors() or divisor.floors():
        return None
    quotient = QuasiPolynomial()
    lead = min(divisor.terms, key=_degree_first)
    while numerator:
        terms = dict(min(numerator.terms, key=_degree_first))
        for atom, exponent in lead:
            terms[atom] = terms.get(atom, 0) - exponent
        value = Fraction(numerator.terms[min(numerator.terms, key=_degree_first)])
        value /= divisor.terms[lead]
        if value.denominator != 1 or any(exponent < 0 for exponent in terms.values()):
            return None
        monomial = tuple((atom, exponent) for atom, exponent in terms.items() if exponent)
        part = QuasiPolynomial({monomial: int(value)})
        quotient, numerator = quotient + part, numerator - part * divisor
    return quotient


def _degree_first(monomial: Monomial) -> tuple[int, list[tuple[str, int]]]:
    """Order monomials by their degree, the highest first, then by their names."""
    return -sum(e for _, e in monomial), [(str(atom), -e) for atom, e in monomial]


def _divided(
    numerator: QuasiPolynomial, divisor: QuasiPolynomial
) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    """Divide by a polynomial of degree one in one of its names; return quotient and rest."""
    whole = QuasiPolynomial()
    leading = _leading_name(divisor)
    if leading is None:
        return whole, numerator
    name, factor = leading
    while True:
        parts = numerator.coefficients_in(name)
        degree = max(parts, default=0)
        if degree == 0:
            return whole, numerator
        part = parts[degree] * Fraction(1, factor)
        if any(c.denominator != 1 for c in part.terms.values()):
            return whole, numerator
        part = part * QuasiPolynomial.name(name) ** (degree - 1)
        whole, numerator = whole + part, numerator - part * divisor


def _leading_name(divisor: QuasiPolynomial) -> tuple[str, int] | None:
    """Return a name by whose degree polynomials can be divided, and its coefficient."""
    if not divisor.is_linear:
        return None
    for monomial, coefficient in sorted(divisor.terms.items(), key=lambda term: str(term[0])):
        if monomial and isinstance(monomial[0][0], str):
            return monomial[0][0], int(coefficient)
    return None


def _division_by_zero(divisor: QuasiPolynomial) -> CountingError:
    return CountingError(f"an address divides by {divisor}, which is zero at these sizes")
