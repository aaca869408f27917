"""Counts of properties, symbolic in the sizes, with what one unit of each is executed by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, Field

from countperf.counting.keys import Granularity
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.structure.site_keys import site_key
from countperf.counting.taxonomy import (
    COUNTING_RULES_VERSION,
    CountingRules,
    View,
    validate_name,
)
from countperf.documents import Document, Part, validate
from countperf.errors import CountingError
from countperf.steps import stepped
from countperf.symbolic.isl_sets import to_isl_text
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import parse_polynomial
from countperf.text import shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count of one property, symbolic in the parameters.

    Counts of one granularity add up, by ``+`` and by ``sum``, and may be multiplied by integers.

    Examples
    --------
    >>> three = Count(quantity=PiecewiseQuasiPolynomial.from_value(3))
    >>> str(sum([three, 2 * three]))
    '{ 9 }'
    """

    quantity: PiecewiseQuasiPolynomial  # the count
    granularity: Granularity = Granularity.WORK_ITEM  # what one unit is executed by
    exact: bool = True  # whether it is what is executed; else it rests on what the caller passed
    reason: str = ""  # why it is not exact; empty if it is
    integral: bool = True  # whether values are integers; not where it was scaled by a fraction

    def __post_init__(self) -> None:
        if type(self.granularity) is not Granularity:
            listed = ", ".join(str(member) for member in Granularity)
            raise CountingError(
                f"{self.granularity!r} is no granularity of a count; pass a member of Granularity "
                f"({listed})"
            )

    def __add__(self, other: Count) -> Count:
        if self.granularity is not other.granularity:
            raise CountingError(
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


GROUP_SHAPE = ("items", "rows")
"""Names of properties that say how large work groups are."""


def says_group_shape(names: Iterable[str]) -> bool:
    """Return whether counts of these names say how large the work groups are, all alike."""
    known = set(names)
    return "groups" not in known or known.issuperset(GROUP_SHAPE) or len(_shapes_of(known)) == 1


def group_shape(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return work items and rows of all groups; nothing where no group is launched."""
    if "groups" not in counts:
        return {}
    shapes = _shapes_of(counts)
    if not shapes:
        raise CountingError(
            "these counts do not say how many items work groups have: count the kernel in the"
            " structure view, or give items and rows themselves"
        )
    if len(shapes) > 1:
        listed = ", ".join(f"{row}x{rows}" for row, rows in sorted(shapes))
        raise CountingError(
            f"work groups of several shapes are launched ({listed}), and the counts do not say how"
            " many of each: the kernel has no items and rows for a model"
        )
    ((row, rows),) = shapes
    return {"items": counts["groups"] * (row * rows), "rows": counts["groups"] * rows}


def _shapes_of(names: Iterable[str]) -> set[tuple[int, int]]:
    """Return row length and number of rows of the groups."""
    return {key.site.shape for key in map(site_key, names) if key is not None}


_GRANULARITIES = {
    **dict.fromkeys(("groups", *GROUP_SHAPE), Granularity.WORK_GROUP),
    "launches": Granularity.LAUNCH,
}


def granularity_of(name: str) -> Granularity:
    """Return what one unit of a property is executed by."""
    return _GRANULARITIES.get(name, Granularity.WORK_ITEM)


CountsAt = Callable[[Mapping[str, int]], Mapping[str, Any]]


def counts_at_sizes(counts_at: CountsAt, values: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate counts without a formula, one by one where parameters are arrays."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    if not shape:
        return dict(counts_at({name: int(value) for name, value in values.items()}))
    rows = {name: np.broadcast_to(value, shape) for name, value in values.items()}
    counts_by_index = {
        index: counts_at({name: int(row[index]) for name, row in rows.items()})
        for index in stepped(np.ndindex(shape), "counting at each size", total=int(np.prod(shape)))
    }
    names = sorted({name for counts in counts_by_index.values() for name in counts})
    rows_by_name = {name: [c.get(name, 0) for c in counts_by_index.values()] for name in names}
    return {
        name: np.array([float(n) if isinstance(n, Fraction) else n for n in row]).reshape(shape)
        for name, row in rows_by_name.items()
    }


_Read = TypeVar("_Read")


def _readable(read: Callable[[Any], object]) -> AfterValidator:
    """Make a validator of a part that a function reads."""

    def check(part: _Read) -> _Read:
        try:
            read(part)
        except CountingError as error:
            raise ValueError(str(error)) from error
        return part

    return AfterValidator(check)


_PolynomialText = Annotated[str, _readable(parse_polynomial)]


class _GuardsPart(Part):
    nonnegative: tuple[_PolynomialText, ...] = ()
    zero: tuple[_PolynomialText, ...] = ()


class _TermPart(Part):
    value: str
    nonnegative: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()


def _read_terms(terms: Iterable[_TermPart]) -> PiecewiseQuasiPolynomial:
    return PiecewiseQuasiPolynomial.from_document([vars(term) for term in terms])


class _CountPart(Part):
    terms: Annotated[tuple[_TermPart, ...], _readable(_read_terms)]
    exact: bool = True
    reason: str = ""

    def read(self, name: str) -> Count:
        """Return the count of a property."""
        return Count(
            quantity=_read_terms(self.terms),
            granularity=granularity_of(name),
            exact=self.exact,
            reason=self.reason,
        )


class VectorDocument(Document):
    """Document of a property vector."""

    remade_by: ClassVar[str] = (
        "count the kernel again (countperf count KERNEL), or measure again (countperf measure) and"
        " fit what that writes (countperf fit FILE)"
    )
    format: Literal["countperf-property-vector"] = "countperf-property-vector"
    version: Literal[2] = 2
    counting_rules: CountingRules = COUNTING_RULES_VERSION
    view: View = "source"
    caches: CountedCaches | None = None
    kernel: str
    parameters: tuple[str, ...]
    assumptions: str
    assumption_guards: tuple[_GuardsPart, ...]
    defaults: dict[str, _PolynomialText] = Field(default_factory=dict[str, str])
    counts: dict[Annotated[str, AfterValidator(validate_name)], _CountPart]


def caches_of(document: Mapping[str, Any]) -> CountedCaches:
    """Return the caches that the document of a property vector states, by default our own."""
    stated = document.get("caches")
    if stated is None:
        return DEFAULT_CACHES
    return validate(CountedCaches, stated, root="$.properties.caches")


AT_SIZES = (TRANSACTIONS, SUB_GROUPS, DISTINCT) = ("transactions", "subgroups", "distinct")
"""First parts of the names that have no formula (`countperf.counting.analysis`)."""

_ROOT = re.compile(
    rf"(?:{TRANSACTIONS}\.[1-9]\d*x[1-9]\d*|{SUB_GROUPS}\.[1-9]\d*|{DISTINCT})(?![^.])"
)


def transaction_roots(names: Iterable[str]) -> tuple[str, ...]:
    """Return what names, or patterns of them, begin with that say which transactions are meant."""
    return tuple(sorted({match.group() for match in map(_ROOT.match, names) if match}))
