"""Counts of properties, symbolic in the sizes, with what one unit of each is executed by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from countperf.counting.keys import Granularity
from countperf.display import shortened
from countperf.errors import GranularityError
from countperf.properties.group_shape import GROUP_SHAPE
from countperf.symbolic.isl_counts import to_isl_text
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count of one property, symbolic in the parameters.

    Counts of one granularity add up, by ``+`` and by ``sum``; an integer times a count is a
    count of the same granularity.

    Attributes
    ----------
    quantity : PiecewiseQuasiPolynomial
        The count.
    granularity : Granularity
        What one unit is executed by.
    exact : bool
        Whether the count is what is executed; else it rests on what the caller passed.
    reason : str
        Why it is not exact; empty if it is.
    integral : bool
        Whether its values are integers; not where it was scaled by a fraction.

    Raises
    ------
    GranularityError
        The granularity is no `Granularity`, or counts of different granularities are added.

    Examples
    --------
    >>> three = Count(quantity=PiecewiseQuasiPolynomial.from_value(3))
    >>> str(sum([three, 2 * three]))
    '{ 9 }'
    """

    quantity: PiecewiseQuasiPolynomial
    granularity: Granularity = Granularity.WORK_ITEM
    exact: bool = True
    reason: str = ""
    integral: bool = True

    def __post_init__(self) -> None:
        if type(self.granularity) is not Granularity:
            listed = ", ".join(str(member) for member in Granularity)
            raise GranularityError(
                f"{self.granularity!r} is no granularity of a count; pass a member of Granularity "
                f"({listed})"
            )

    def __add__(self, other: Count) -> Count:
        if self.granularity is not other.granularity:
            raise GranularityError(
                f"counts per {self.granularity.value} and per {other.granularity.value} cannot be "
                "added; keep them apart, or evaluate them and convert explicitly"
            )
        reasons = {r for part in (self.reason, other.reason) for r in part.split("; ") if r}
        return Count(
            quantity=self.quantity + other.quantity,
            granularity=self.granularity,
            exact=self.exact and other.exact,
            reason="; ".join(sorted(reasons)),
            integral=self.integral and other.integral,
        )

    def __radd__(self, other: int) -> Count:
        """Let ``sum`` start at its 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: int | Fraction) -> Count:
        integral = self.integral and factor == int(factor)
        return replace(self, quantity=self.quantity.scale(factor), integral=integral)

    __rmul__ = __mul__

    def __str__(self) -> str:
        """Return isl's piecewise quasi-polynomial; our own notation where guards are not affine."""
        return to_isl_text(self.quantity) or str(self.quantity)

    def __repr__(self) -> str:
        exact = "" if self.exact else ", not exact"
        return shortened(f"Count({self}, each by a {self.granularity.value}{exact})")


_GRANULARITIES = {
    **dict.fromkeys(("groups", *GROUP_SHAPE), Granularity.WORK_GROUP),
    "launches": Granularity.LAUNCH,
}


def granularity_of(name: str) -> Granularity:
    """Return what one unit of a property is executed by."""
    return _GRANULARITIES.get(name, Granularity.WORK_ITEM)
