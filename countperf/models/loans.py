"""Loans: costs of features that were never measured, taken from features like them.

A kernel may have a feature for which the fit has no weight, such as
``issue.vector.special.f64.atan`` where no measured kernel calls ``atan``. It is charged at the
weight of a feature of the same term whose name differs only in components that are of one kind,
such as the type or the function. Of several that cost something, the one with the smallest sum of
distances lends; of those at the same distance the dearest one. The prediction names each loan, and
its interval grows by what the loans may be off.

What a loan is off by follows from the kinds of components that differ (`_KINDS`): the logarithms of
their factors add in squares. The factors hold for at least 90 % of the pairs of features of which
one has to lend to the other, over the structural models of the shipped fits
(``tests/models/test_loans.py``). Nothing is lent between operations of different kinds, and nothing
for features that are formulas of several properties.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from countperf.display import ShortRepr
from countperf.features import FeatureSpec
from countperf.predictions import Verdict


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TYPE = re.compile(r"([fiu])(8|16|32|64)")
_FUNCTIONS = (
    _names("sin cos tan sincos sinpi cospi tanpi ctan ctanh"),
    _names("exp exp2 exp10 expm1 sinh cosh tanh erf erfc"),
    _names("log log2 log10 log1p logb atan atan2 asin acos asinh acosh atanh atanpi atan2pi"),
    _names("sqrt rsqrt cbrt hypot csqrt"),
    _names("fmod remainder mod fdim nextafter ldexp ilogb"),
    _names("pow pown powr rootn"),
)
"""Functions of about the same cost."""
_DEAREST = re.compile(r"(?:\w*_)?(?:l|t)?(?:bessel|hank|gamma)\w*")
"""Functions that cost at least as much as a power."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Components of names that may differ between a feature and its lender."""

    members: frozenset[str]
    distance: int
    off_by: float


_KINDS: Mapping[str, _Kind] = {
    "unit": _Kind(_names("vector scalar"), 4, 40.0),
    "form": _Kind(_names("special conditional"), 2, 2.0),
    "operation": _Kind(_names("add mul fma"), 1, 2.0),
    "link": _Kind(
        _names(
            "add arithmetic minmax div mod special pow bitwise shift select compare neg convert"
        ),
        2,
        6.0,
    ),
    "direction": _Kind(_names("load store min"), 3, 32.0),
    "step": _Kind(
        _names("same next offset shifted masked near walk data strided gather scatter")
        | _names("l1_reuse l2_reuse beyond_l2 set_conflict"),
        1,
        32.0,
    ),
    "class": _Kind(
        frozenset(
            ["uniform", "stride1", "indirect"]
            + [f"{used}of{parts}" for parts in ("2", "3", "4", "n") for used in range(1, 5)]
        ),
        1,
        32.0,
    ),
    "place": _Kind(_names("free loop sync"), 1, 32.0),
}
_OTHER_WIDTH, _OTHER_NUMBERS, _OTHER_BITS = (1, 4.0), (3, 6.0), (1, 4.0)
_LIKE_FUNCTION, _OTHER_FUNCTION = (2, 6.0), (5, 16.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan(ShortRepr):
    """Cost of a property that has no weight, taken from a feature that has one."""

    name: str  # the property
    lender: str  # the feature whose weight it is charged at
    units: Fraction  # units of the lender that one unit of the property is charged as
    off_by: float  # factor by which that may be off, upward and downward

    @property
    def text(self) -> str:
        """The loan in words, for messages."""
        times = "" if self.units == 1 else f"{float(self.units):g} times "
        return f"{self.name} at {times}the cost of {self.lender}"


@dataclass(frozen=True, slots=True)
class _Offer:
    distance: int
    log_off: float
    units: Fraction


class Lenders:
    """Loans that the weights of a fit offer."""

    def __init__(
        self, weights: Mapping[tuple[str, str], float], charging: Mapping[str, FeatureSpec]
    ) -> None:
        self._weights = weights
        self._charging = charging
        self._found: dict[str, Loan | None] = {}

    def loans(self, counts: Mapping[str, Any]) -> tuple[Loan, ...]:
        """Return loans for the properties of a kernel that have no weight, where there are any."""
        for name in counts.keys() - self._found.keys():
            self._found[name] = self._loan(name)
        return tuple(
            loan
            for name, count in sorted(counts.items())
            if (loan := self._found[name]) is not None and _is_there(count)
        )

    def _loan(self, name: str) -> Loan | None:
        charged = {
            (term, feature)
            for term, spec in self._charging.items()
            if (feature := spec.feature_of(name)) is not None
        }
        if not charged or charged & self._weights.keys():
            return None
        offers = [
            ((offer.distance, -value, there), offer)
            for (term, there), value in self._weights.items()
            for other, wanted in charged
            if term == other and (offer := _offer(wanted, there)) is not None
        ]
        if not offers:
            return None
        lending = [each for each in offers if each[0][1] < 0] or offers  # at some cost, if any does
        (_, _, lender), offer = min(lending, key=lambda each: each[0])
        return Loan(name=name, lender=lender, units=offer.units, off_by=math.exp(offer.log_off))


def _is_there(count: Any) -> bool:
    return bool(np.any(count != 0)) if isinstance(count, np.ndarray) else bool(count)


def lent(counts: Mapping[str, Any], loans: Collection[Loan], *, off: int = 0) -> dict[str, Any]:
    """Return counts in which what is borrowed counts as what lends."""
    found = dict(counts)
    for loan in loans:
        amount = found.pop(loan.name)
        units: Fraction | float = loan.units
        if off:
            units = float(units) * loan.off_by**off
        added = amount if units == 1 else amount * units
        found[loan.lender] = found[loan.lender] + added if loan.lender in found else added
    return found


def loans_verdict(loans: Collection[Loan]) -> Verdict:
    """Say what is charged at the cost of something else."""
    if not loans:
        return Verdict(name="loans", passed=True, message="no cost is borrowed")
    return Verdict(
        name="loans",
        passed=False,
        message="never measured, and charged by what is like them: "
        + "; ".join(f"{loan.text} (to a factor of {loan.off_by:.2g})" for loan in loans)
        + "; the interval is widened by that",
        remedy="measure kernels that have them, and refit",
    )


def _offer(name: str, feature: str) -> _Offer | None:
    """Return at what distance a feature lends to a property; None if it does not."""
    wanted, there = _components(name), _components(feature)
    if len(wanted) != len(there):
        return None
    distance, square, units = 0, 0.0, Fraction(1)
    for ours, theirs in zip(wanted, there, strict=True):
        if ours == theirs:
            continue
        between = _between(ours, theirs, wanted)
        if between is None:
            return None
        distance += between[0]
        square += math.log(between[1]) ** 2
        units *= between[2]
    return _Offer(distance, math.sqrt(square), units) if distance else None


def _components(name: str) -> list[str]:
    """Return the components of a name; powers are functions like others."""
    parts = name.split(".")
    if "pow" in parts[1:3] and parts[0] in ("issue", "flop"):
        place = parts.index("pow")
        parts[place] = "special"
        parts.append("pow")
    return parts


def _between(ours: str, theirs: str, name: Sequence[str]) -> tuple[int, float, Fraction] | None:
    """Return distance, factor of the error, and units of the lender between two components."""
    one, other = _TYPE.fullmatch(ours), _TYPE.fullmatch(theirs)
    if one and other:
        ratio = Fraction(int(one[2]), int(other[2]))
        units = max(ratio, Fraction(1)) if "vector" in name else Fraction(1)  # of fewer lanes
        is_alike = (one[1] == "f") == (other[1] == "f")
        return (*(_OTHER_WIDTH if is_alike else _OTHER_NUMBERS), units)
    if ours.isdigit() and theirs.isdigit():
        return (*_OTHER_BITS, max(Fraction(int(ours), int(theirs)), Fraction(1)))
    if name[-1] == ours and ("special" in name[1:3] or "conditional" in name[1:3]):
        if theirs == "pow" and _DEAREST.fullmatch(ours) is not None:
            return _LIKE_FUNCTION[0], _OTHER_FUNCTION[1], Fraction(1)
        is_like = any({ours, theirs} <= group for group in _FUNCTIONS)
        return (*(_LIKE_FUNCTION if is_like else _OTHER_FUNCTION), Fraction(1))
    for which, kind in _KINDS.items():
        if which == "link" and "chain" not in name:
            continue
        if ours in kind.members and theirs in kind.members:
            return kind.distance, kind.off_by, Fraction(1)
    return None
