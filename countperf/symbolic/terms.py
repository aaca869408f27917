"""Guarded terms: quasi-polynomials, each with conditions on the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
