"""Sums of quasi-polynomials over intervals of a name, by Faulhaber's formula."""

from __future__ import annotations

from fractions import Fraction
from math import comb

from countperf.symbolic.memory import kept_in_process
from countperf.symbolic.quasipolynomial import ONE, ZERO, QuasiPolynomial


@kept_in_process(64)
def power_sum_coefficients(exponent: int) -> tuple[Fraction, ...]:
    r"""Return the coefficients of Faulhaber's polynomial.

    Found from :math:`(N+1)^{k+1} - 1 = \sum_j \binom{k+1}{j} S_j(N)`, Graham, Knuth, Patashnik
    (1994), Concrete Mathematics, Eq. (6.78) and section 2.5. Here :math:`S_0(N) = N`.
    """
    total = [Fraction(comb(exponent + 1, j)) for j in range(exponent + 2)]
    total[0] -= 1
    for lower in range(exponent):
        factor = comb(exponent + 1, lower)
        for j, value in enumerate(power_sum_coefficients(lower)):
            total[j] -= factor * value
    return tuple(value / (exponent + 1) for value in total)


def sum_over(
    weight: QuasiPolynomial, name: str, lower: QuasiPolynomial, upper: QuasiPolynomial
) -> QuasiPolynomial:
    """Sum a quasi-polynomial over a name from `lower` to `upper`, both included."""
    before = lower - 1
    result = ZERO
    for exponent, coefficient in weight.coefficients_in(name).items():
        if exponent == 0:
            result = result + coefficient * (upper - before)
            continue
        partial = ZERO
        upper_power = before_power = ONE
        for value in power_sum_coefficients(exponent)[1:]:
            upper_power = upper_power * upper
            before_power = before_power * before
            partial = partial + (upper_power - before_power) * value
        result = result + coefficient * partial
    return result
