"""Guarded terms: quasi-polynomials, each with conditions on the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from countperf.symbolic.quasipolynomial import QuasiPolynomial


@dataclass(frozen=True, slots=True)
class Term:
    """A quasi-polynomial that counts where its guards hold, and is zero elsewhere."""

    # guards: each member is at least zero, or equals zero, where the term counts
    nonnegative: frozenset[QuasiPolynomial]
    zero: frozenset[QuasiPolynomial]
    value: QuasiPolynomial  # what it counts there


def multiply_terms(left: Sequence[Term], right: Sequence[Term]) -> tuple[Term, ...]:
    """Multiply two sums of terms."""
    return tuple(
        Term(a.nonnegative | b.nonnegative, a.zero | b.zero, a.value * b.value)
        for a in left
        for b in right
    )


# --- Signs of polynomials, as far as coefficients and lower bounds show them


def contradict(left: Term, right: Term) -> bool:
    """Return whether a guard of one term says the opposite of a guard of the other."""
    return any(-guard - 1 in right.nonnegative for guard in left.nonnegative)


def shifted(polynomial: QuasiPolynomial, lower: Mapping[str, int]) -> QuasiPolynomial:
    """Return a polynomial in the distances of its names from their lower bounds."""
    return polynomial.substitute(
        {name: QuasiPolynomial.name(name) + value for name, value in lower.items()}
    )


def is_increasing(polynomial: QuasiPolynomial, lower: Mapping[str, int]) -> bool:
    """Return whether a polynomial is smallest at the lower bounds, which are at least zero."""
    return all(low >= 0 for low in lower.values()) and all(
        not monomial or (value > 0 and all(isinstance(atom, str) for atom, _ in monomial))
        for monomial, value in polynomial.terms.items()
    )


def all_nonnegative(polynomial: QuasiPolynomial) -> bool:
    """Return whether no coefficient is negative."""
    return all(value >= 0 for value in polynomial.terms.values())


@lru_cache(4096)
def without_floors(polynomial: QuasiPolynomial) -> QuasiPolynomial | None:
    """Return a lower bound without floors, if the floors stand alone in their monomials."""
    result = QuasiPolynomial()
    for monomial, value in polynomial.terms.items():
        if all(isinstance(atom, str) for atom, _ in monomial):
            result = result + QuasiPolynomial({monomial: value})
            continue
        ((atom, exponent), *rest) = monomial
        if rest or exponent != 1 or isinstance(atom, str) or atom.numerator.floors():
            return None
        # x/d - (d - 1)/d <= floor(x/d) <= x/d
        slack = atom.denominator - 1 if value > 0 else 0
        result = result + (atom.numerator - slack) / atom.denominator * value
    return result
