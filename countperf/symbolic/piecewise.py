"""Piecewise quasi-polynomials as sums of guarded terms.

A count is a sum of terms; each is a quasi-polynomial that counts where all its guards hold and is
zero elsewhere. Guards may overlap, so that adding counts is joining their terms, and guards may be
polynomial, so that minima and classes that depend on parameters are the same kind of value.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, TypeAlias

from countperf.errors import CountingError
from countperf.symbolic.quasipolynomial import ONE, ZERO, Number, QuasiPolynomial, parse_polynomial
from countperf.text import Formula


@dataclass(frozen=True, slots=True)
class Piece:
    """A quasi-polynomial that counts where its guards hold, and is zero elsewhere."""

    # guards: each member is at least zero, or equals zero, where the term counts
    nonnegative: frozenset[QuasiPolynomial]
    zero: frozenset[QuasiPolynomial]
    value: QuasiPolynomial  # what it counts there


def multiply_terms(left: Sequence[Piece], right: Sequence[Piece]) -> tuple[Piece, ...]:
    """Multiply two sums of terms."""
    return tuple(
        Piece(a.nonnegative | b.nonnegative, a.zero | b.zero, a.value * b.value)
        for a in left
        for b in right
    )


def contradict(left: Piece, right: Piece) -> bool:
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


Guards: TypeAlias = tuple[frozenset[QuasiPolynomial], frozenset[QuasiPolynomial]]
"""Polynomials that are at least zero, and polynomials that equal zero."""

_NONE: frozenset[QuasiPolynomial] = frozenset()
_MAXIMUM_REGIONS = 2048
_MAXIMUM_TESTS = 12_000
"""Of parts that may be empty: a second or so."""


class PiecewiseQuasiPolynomial(Formula):
    """A sum of guarded quasi-polynomials in the parameters; immutable."""

    __slots__ = ("approximations", "terms")

    def __init__(
        self, terms: Iterable[Piece] = (), approximations: frozenset[str] = frozenset()
    ) -> None:
        self.approximations = approximations
        merged: dict[Guards, Any] = {}
        for given in terms:
            term = _with_fixed_parameters(given) if given.zero else given
            guards = _normal_guards(term)
            if guards is not None:
                merged[guards] = merged.get(guards, ZERO) + term.value
        self.terms: tuple[Piece, ...] = tuple(
            Piece(nonnegative, zero, value)
            for (nonnegative, zero), value in merged.items()
            if value
        )

    @staticmethod
    def sum(counts: Iterable[PiecewiseQuasiPolynomial]) -> PiecewiseQuasiPolynomial:
        """Return the sum of counts, in time proportional to the number of their terms."""
        counts = tuple(counts)
        if len(counts) == 1:
            return counts[0]
        merged: dict[Guards, Any] = {}
        reasons = frozenset[str]()
        for count in counts:
            reasons |= count.approximations
            for term in count.terms:
                guards = (term.nonnegative, term.zero)
                merged[guards] = merged.get(guards, ZERO) + term.value
        return _normalize_terms(
            (Piece(*guards, value) for guards, value in merged.items() if value), reasons
        )

    @staticmethod
    def product(counts: Iterable[PiecewiseQuasiPolynomial]) -> PiecewiseQuasiPolynomial:
        """Return the product of counts."""
        return reduce(operator.mul, counts, one_count())

    @staticmethod
    def from_value(value: QuasiPolynomial | Number) -> PiecewiseQuasiPolynomial:
        """Return an unguarded quasi-polynomial or number."""
        polynomial = (
            value if isinstance(value, QuasiPolynomial) else QuasiPolynomial.constant(value)
        )
        return _normalize_terms([Piece(_NONE, _NONE, polynomial)] if polynomial else [])

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PiecewiseQuasiPolynomial) and set(self.terms) == set(other.terms)

    def __hash__(self) -> int:
        return hash(frozenset(self.terms))

    def __add__(self, other: PiecewiseQuasiPolynomial) -> PiecewiseQuasiPolynomial:
        return PiecewiseQuasiPolynomial.sum((self, other))

    def __mul__(self, other: PiecewiseQuasiPolynomial) -> PiecewiseQuasiPolynomial:
        reasons = self.approximations | other.approximations
        left, right = self.as_polynomial(), other.as_polynomial()
        if left is not None and right is not None:
            return PiecewiseQuasiPolynomial.from_value(left * right).mark_as_bound(reasons)
        if right is not None:
            return self.scale(right).mark_as_bound(reasons)
        if left is not None:
            return other.scale(left).mark_as_bound(reasons)
        return PiecewiseQuasiPolynomial(multiply_terms(self.terms, other.terms), reasons)

    def scale(self, factor: QuasiPolynomial | Number) -> PiecewiseQuasiPolynomial:
        """Return this times a number, or a quasi-polynomial without guards."""
        if factor == 1 or factor == ONE:
            return self
        products = ((t.nonnegative, t.zero, t.value * factor) for t in self.terms)
        return _normalize_terms(
            (Piece(*product) for product in products if product[-1]), self.approximations
        )

    def substitute(self, replacements: Mapping[str, QuasiPolynomial]) -> PiecewiseQuasiPolynomial:
        """Replace parameters, in guards too."""
        if not replacements:
            return self
        polynomial = self.as_polynomial()
        if polynomial is not None:
            return PiecewiseQuasiPolynomial.from_value(
                polynomial.substitute(replacements)
            ).mark_as_bound(self.approximations)
        return PiecewiseQuasiPolynomial(
            (
                Piece(
                    frozenset(g.substitute(replacements) for g in t.nonnegative),
                    frozenset(g.substitute(replacements) for g in t.zero),
                    t.value.substitute(replacements),
                )
                for t in self.terms
            ),
            self.approximations,
        )

    def restrict_to(
        self, nonnegative: Iterable[QuasiPolynomial], zero: Iterable[QuasiPolynomial] = ()
    ) -> PiecewiseQuasiPolynomial:
        """Return this where the given guards hold too, zero elsewhere."""
        more, more_zero = frozenset(nonnegative), frozenset(zero)
        if not more and not more_zero:
            return self
        return PiecewiseQuasiPolynomial(
            (
                Piece(_strongest(t.nonnegative | more), t.zero | more_zero, t.value)
                for t in self.terms
            ),
            self.approximations,
        )

    def mark_as_bound(self, reasons: frozenset[str]) -> PiecewiseQuasiPolynomial:
        """Return this as no more than an upper bound, for further reasons."""
        if reasons <= self.approximations:
            return self
        return _normalize_terms(self.terms, self.approximations | reasons)

    def names(self) -> set[str]:
        """Return the parameters that occur."""
        names: set[str] = set()
        for term in self.terms:
            for polynomial in (term.value, *term.nonnegative, *term.zero):
                names |= polynomial.names()
        return names

    def evaluate(self, values: Mapping[str, int]) -> Number:
        """Return the value at integer parameters, exactly."""
        total: Number = 0
        for term in self.terms:
            if all(g.evaluate(values) >= 0 for g in term.nonnegative) and all(
                g.evaluate(values) == 0 for g in term.zero
            ):
                total += term.value.evaluate(values)
        return total

    def as_polynomial(self) -> QuasiPolynomial | None:
        """Return the value if it has no guards, else None."""
        if not self.terms:
            return ZERO
        if len(self.terms) == 1 and not self.terms[0].nonnegative and not self.terms[0].zero:
            return self.terms[0].value
        return None

    def to_document(self) -> list[dict[str, Any]]:
        """Return the terms as JSON-able texts."""
        return [
            {
                "value": str(t.value),
                **({"nonnegative": sorted(map(str, t.nonnegative))} if t.nonnegative else {}),
                **({"zero": sorted(map(str, t.zero))} if t.zero else {}),
            }
            for t in self.terms
        ]

    @staticmethod
    def from_document(document: Sequence[Mapping[str, Any]]) -> PiecewiseQuasiPolynomial:
        """Read back what `to_document` wrote."""
        return _from_texts(
            tuple(
                (entry["value"], tuple(entry.get("nonnegative", ())), tuple(entry.get("zero", ())))
                for entry in document
            )
        )

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for term in self.terms:
            guards = [f"{g} >= 0" for g in sorted(map(str, term.nonnegative))]
            guards += [f"{g} = 0" for g in sorted(map(str, term.zero))]
            value = str(term.value)
            parts.append(f"({value} : {' and '.join(guards)})" if guards else value)
        return " + ".join(parts)


def _normalize_terms(
    terms: Iterable[Piece], approximations: frozenset[str] = frozenset()
) -> PiecewiseQuasiPolynomial:
    """Return a count of terms with normal, distinct guards and values other than zero."""
    result = PiecewiseQuasiPolynomial.__new__(PiecewiseQuasiPolynomial)
    result.terms = tuple(terms)
    result.approximations = approximations
    return result


ZERO_COUNT = PiecewiseQuasiPolynomial()


def _with_fixed_parameters(term: Piece) -> Piece:
    """Put in the values of parameters that a guard fixes, such as ``n - 3 = 0``."""
    fixed, kept = find_fixed_parameters(term.zero)
    if not fixed:
        return term
    return Piece(
        frozenset(g.substitute(fixed) for g in term.nonnegative),
        frozenset(g.substitute(fixed) for g in term.zero - kept) | kept,
        term.value.substitute(fixed),
    )


def find_fixed_parameters(
    zero: frozenset[QuasiPolynomial],
) -> tuple[dict[str, QuasiPolynomial], frozenset[QuasiPolynomial]]:
    """Return the parameters whose values guards fix, and the guards that do so."""
    fixed: dict[str, QuasiPolynomial] = {}
    kept: set[QuasiPolynomial] = set()
    for guard in zero:
        names = guard.names()
        (name, *more) = names or {""}
        if more or not guard.is_linear or name in fixed or not names:
            continue
        coefficient = guard.terms[((name, 1),)]
        if coefficient in (1, -1):
            fixed[name] = QuasiPolynomial.constant(-guard.constant_term * coefficient)
            kept.add(guard)
    return fixed, frozenset(kept)


def _normal_guards(
    term: Piece,
) -> Guards | None:
    if not term.nonnegative and not term.zero:
        return _NONE, _NONE
    guards: set[QuasiPolynomial] = set()
    for guard in term.nonnegative:
        if guard.is_constant:
            if guard.constant_term < 0:
                return None
        else:
            guards.add(guard.primitive())
    zeros: set[QuasiPolynomial] = set()
    for guard in term.zero:
        if guard.is_constant:
            if guard.constant_term:
                return None
        else:
            zeros.add(guard.primitive())
    return frozenset(guards), frozenset(zeros)


Region = tuple[frozenset[QuasiPolynomial], frozenset[QuasiPolynomial], tuple[QuasiPolynomial, ...]]
EmptinessTest = Callable[[frozenset[QuasiPolynomial], frozenset[QuasiPolynomial]], bool]


def disjoint_regions(
    counts: Sequence[PiecewiseQuasiPolynomial], is_empty: EmptinessTest
) -> list[Region]:
    """Split the parameter space so that each count is one quasi-polynomial on each part."""
    is_empty = _limit_calls(is_empty)
    by_guards: dict[Guards, Any] = {}
    for index, count in enumerate(counts):
        for term in count.terms:
            values = by_guards.setdefault((term.nonnegative, term.zero), [ZERO] * len(counts))
            values[index] = values[index] + term.value
    regions: list[Region] = [(_NONE, _NONE, (ZERO,) * len(counts))]
    for (nonnegative, zero), values in by_guards.items():
        split: list[Region] = []
        for region in regions:
            split += _split_region(region, nonnegative, zero, tuple(values), is_empty)
        regions = split
        if len(regions) > _MAXIMUM_REGIONS:
            raise _too_many_parts(_MAXIMUM_REGIONS)
    return [r for r in regions if any(r[2])]


def _too_many_parts(number: int) -> CountingError:
    return CountingError(
        f"a minimum or class splits into more than {number} parts; state more assumptions on the "
        "parameters (such as divisibility by the tile sizes)"
    )


@lru_cache(16384)
def _from_texts(
    terms: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...],
) -> PiecewiseQuasiPolynomial:
    """Parse terms of value and guards; of stored measurements, one in six counts is a new one."""
    return PiecewiseQuasiPolynomial(
        Piece(
            frozenset(map(parse_polynomial, nonnegative)),
            frozenset(map(parse_polynomial, zero)),
            parse_polynomial(value),
        )
        for value, nonnegative, zero in terms
    )


def _limit_calls(is_empty: EmptinessTest) -> EmptinessTest:
    """Return a test that gives up after a number of calls, the same on every machine."""
    calls = itertools.count()

    def limited(nonnegative: frozenset[QuasiPolynomial], zero: frozenset[QuasiPolynomial]) -> bool:
        if next(calls) >= _MAXIMUM_TESTS:
            raise _too_many_parts(_MAXIMUM_TESTS)
        return is_empty(nonnegative, zero)

    return limited


def _split_region(
    region: Region,
    nonnegative: frozenset[QuasiPolynomial],
    zero: frozenset[QuasiPolynomial],
    values: tuple[QuasiPolynomial, ...],
    is_empty: EmptinessTest,
) -> list[Region]:
    guards, zeros, previous = region
    parts: list[Region] = []
    inside_guards, inside_zeros = guards, zeros
    for guard in sorted(nonnegative - guards, key=str):
        outside = inside_guards | {-guard - 1}
        if not is_empty(outside, inside_zeros):
            parts.append((outside, inside_zeros, previous))
        inside_guards = inside_guards | {guard}
    for guard in sorted(zero - zeros, key=str):
        for strict in (guard - 1, -guard - 1):
            outside = inside_guards | {strict}
            if not is_empty(outside, inside_zeros):
                parts.append((outside, inside_zeros, previous))
        inside_zeros = inside_zeros | {guard}
    if not is_empty(inside_guards, inside_zeros):
        total = tuple(a + b for a, b in zip(previous, values, strict=True))
        parts.append((inside_guards, inside_zeros, total))
    return parts


def one_count() -> PiecewiseQuasiPolynomial:
    """Return the count that is one everywhere."""
    return PiecewiseQuasiPolynomial.from_value(ONE)


def _strongest(guards: frozenset[QuasiPolynomial]) -> frozenset[QuasiPolynomial]:
    """Leave out guards that differ from others by a constant, and follow from them."""
    if len(guards) < 2:
        return guards
    least: dict[QuasiPolynomial, QuasiPolynomial] = {}
    for guard in guards:
        slope = guard - guard.constant_term
        other = least.get(slope)
        if other is None or guard.constant_term < other.constant_term:
            least[slope] = guard
    return frozenset(least.values())
