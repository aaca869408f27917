"""A kernel's counts but for factors: one of all that are proportional to each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.symbolic.compiled import CompiledCounts
from countperf.symbolic.memory import FieldsAlone
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector


@dataclass(frozen=True, kw_only=True, eq=False)
class ProportionalCounts(ShortRepr, FieldsAlone):
    """A kernel's counts but for factors: one of all that are proportional to each other."""

    counts: CompiledCounts
    # for each alternative, how many of its guards are to be at least zero, and how many zero
    guards: tuple[tuple[int, int], ...]
    factors: NDArray[np.float64]  # how often each property has each shape

    @classmethod
    def of(cls, vector: PropertyVector) -> Self:
        """Find the shapes of a kernel's counts."""
        sizes: dict[tuple[PiecewiseQuasiPolynomial, bool], dict[int, Fraction]] = {}
        for place, name in enumerate(vector):
            quantity = vector[name].quantity
            size = Fraction(sum(map(abs, _coefficients(quantity))))
            key = quantity.scale(1 / size), vector[name].exact and vector[name].integral
            sizes.setdefault(key, {})[place] = size
        shapes: list[tuple[PiecewiseQuasiPolynomial, bool]] = []
        factors = np.zeros((len(vector), len(sizes)))
        for column, ((unit, integral), members) in enumerate(sizes.items()):
            step = _divisor(members.values() if integral else _coefficients(unit))
            shapes.append((unit.scale(step if integral else 1 / step), True))
            for place, size in members.items():
                factors[place, column] = float(size / step if integral else size * step)
        guards = [
            (PiecewiseQuasiPolynomial.from_value(guard), True)
            for nonnegative, zero in vector.assumption_guards
            for guard in (*nonnegative, *zero)
        ]
        return cls(
            counts=CompiledCounts(vector.parameters, [*guards, *shapes]),
            guards=tuple((len(a), len(b)) for a, b in vector.assumption_guards),
            factors=factors,
        )

    @property
    def guard_names(self) -> list[str]:
        """Names for the guards in functions of all counts."""
        return [f"g{place}" for place in range(sum(map(sum, self.guards)))]

    @property
    def names(self) -> list[str]:
        """Names for the shapes, which follow the guards."""
        return [f"s{place}" for place in range(self.factors.shape[1])]

    @property
    def condition(self) -> str:
        """Condition, in terms of the guards, under which the assumptions hold."""
        places = count()
        alternatives = [
            " and ".join(
                [f"g{next(places)} >= 0" for _ in range(nonnegative)]
                + [f"g{next(places)} == 0" for _ in range(zero)]
            )
            for nonnegative, zero in self.guards
        ]
        if not all(alternatives):
            return "True"
        return " or ".join(f"({each})" for each in alternatives) or "True"


def _coefficients(quantity: PiecewiseQuasiPolynomial) -> list[int | Fraction]:
    return [c for term in quantity.terms for c in term.value.terms.values()]


def _divisor(numbers: Iterable[int | Fraction]) -> Fraction:
    """Return the largest number of which all are integer multiples."""
    fractions = [Fraction(number) for number in numbers]
    common = math.lcm(*(each.denominator for each in fractions))
    return Fraction(math.gcd(*(int(each * common) for each in fractions)), common)
