r"""Numbers of executed instructions as polynomials in the sizes.

What is followed at sizes :math:`x = b + s \cdot k` is a polynomial of the integers :math:`k` where
loops run from and to what is affine in the sizes: with steps :math:`s` that are multiples of vector
widths, unroll factors and extents of groups, remainders stay as they are. Its coefficients in
:math:`\prod_i \binom{k_i}{a_i}`, :math:`|a| \le d`, are the forward differences at the base, which
are exact. `countperf.machine_code.formula_search` finds and checks them.

Source of the basis: Newton's forward differences; Ehrhart (1967) for the form of such counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from countperf.symbolic.quasipolynomial import ZERO, QuasiPolynomial

Number = int | Fraction
Key = tuple[str, int, int, str]
"""Meaning of a number: its kind, numbers of a launch and a line, and a property."""

Sample = Mapping[Key, Number]
"""Numbers by what they are of; those that are not there are zero."""

Sizes = Mapping[str, int]
Exponents = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SizePolynomial:
    """A polynomial of sizes on a lattice."""

    base: tuple[int, ...]  # where the lattice begins, and its distances, by size
    steps: tuple[int, ...]
    # coefficients of products of binomials, by their lower numbers
    terms: Mapping[Exponents, Number]

    def at(self, sizes: Sequence[int]) -> Number:
        """Return the value at sizes."""
        places = [
            Fraction(size - base, step)
            for size, base, step in zip(sizes, self.base, self.steps, strict=True)
        ]
        return sum(
            (
                value * math.prod(map(_binomial, places, exponents), start=Fraction(1))
                for exponents, value in self.terms.items()
            ),
            start=Fraction(0),
        )

    def symbolic(self, names: Sequence[str]) -> QuasiPolynomial:
        """Return it as a polynomial of named sizes."""
        places = [
            (QuasiPolynomial.name(name) - base) * Fraction(1, step)
            for name, base, step in zip(names, self.base, self.steps, strict=True)
        ]
        found = ZERO
        for exponents, value in self.terms.items():
            term = QuasiPolynomial.constant(value)
            for place, exponent in zip(places, exponents, strict=True):
                for below in range(exponent):
                    term = term * (place - below) * Fraction(1, below + 1)
            found = found + term
        return found


def _binomial(place: Fraction, number: int) -> Fraction:
    found = Fraction(1)
    for below in range(number):
        found *= (place - below) / (below + 1)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFormulas:
    """Numbers as polynomials in the sizes, and for which sizes."""

    names: tuple[str, ...]  # the sizes
    base: tuple[int, ...]  # they hold for sizes that differ from `base` by multiples of `moduli`
    moduli: tuple[int, ...]
    low: tuple[int, ...]  # and for sizes from these to those
    high: tuple[int, ...]
    rows: tuple[tuple[SizePolynomial, tuple[Key, ...]], ...]  # each polynomial, and what it is of
    followed: int  # at how many sizes code was followed to find and to check them

    def covers(self, sizes: Sizes) -> bool:
        """Say whether they hold at some sizes."""
        values = [sizes[name] for name in self.names]
        return self.covers_remainders(values) and all(
            low <= value <= high
            for value, low, high in zip(values, self.low, self.high, strict=True)
        )

    def covers_remainders(self, values: Sequence[int]) -> bool:
        """Say whether sizes, in order, have the remainders that they hold for."""
        return all(
            is_multiple(value - base, modulus)
            for value, base, modulus in zip(values, self.base, self.moduli, strict=True)
        )

    def at(self, sizes: Sizes) -> dict[Key, Number]:
        """Return what the formulas say at sizes, but for zeros."""
        values = [sizes[name] for name in self.names]
        found: dict[Key, Number] = {}
        for polynomial, keys in self.rows:
            value = polynomial.at(values)
            if value:
                found.update(dict.fromkeys(keys, value))
        return found

    def guards(self) -> tuple[frozenset[QuasiPolynomial], frozenset[QuasiPolynomial]]:
        """Return for which sizes they hold: what is at least zero then, and what is zero."""
        positive: set[QuasiPolynomial] = set()
        zero: set[QuasiPolynomial] = set()
        for name, base, modulus, low, high in zip(
            self.names, self.base, self.moduli, self.low, self.high, strict=True
        ):
            size = QuasiPolynomial.name(name)
            if modulus == 0:
                zero.add(size - base)
                continue
            positive |= {size - low, high - size}
            if modulus > 1:
                zero.add((size - base % modulus).modulo(modulus))
        return frozenset(positive), frozenset(zero)

    def ends(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the smallest and the largest sizes for which they hold."""
        low, high = (dict(zip(self.names, some, strict=True)) for some in (self.low, self.high))
        return low, high

    def domain(self) -> str:
        """Say in words for which sizes they hold."""
        parts: list[str] = []
        for name, base, modulus, low, high in zip(
            self.names, self.base, self.moduli, self.low, self.high, strict=True
        ):
            if modulus == 0:
                parts.append(f"{name} = {base}")
                continue
            parts.append(f"{low} <= {name} <= {high}")
            if modulus > 1:
                rest = base % modulus
                parts.append(
                    f"{name} mod {modulus} = {rest}" if rest else f"multiples of {modulus}"
                )
        return ", ".join(parts)


def is_multiple(distance: int, modulus: int) -> bool:
    """Return whether a distance is a multiple of a modulus; of 0, only 0 is."""
    return distance % modulus == 0 if modulus else distance == 0
