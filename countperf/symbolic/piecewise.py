"""Piecewise quasi-polynomials as sums of guarded terms.

A count is a sum of terms; each is a quasi-polynomial that counts where all its guards hold and is
zero elsewhere. Guards may overlap, so that adding counts is joining their terms, and guards may be
polynomial, so that minima and classes that depend on parameters are the same kind of value.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, TypeAlias

from countperf.errors import CountingError
from countperf.symbolic.quasipolynomial import ONE, ZERO, Number, QuasiPolynomial, parse_polynomial
from countperf.text import Formula


@dataclass(frozen=True, slots=True)
class Piece:
    """A quasi-polynomial that counts where its guards hold, and is zero elsewhere."""

    # guards: each member is at least zero, or equals zero, where the term counts
    nonnegative: _Guards
    zero: _Guards
    value: QuasiPolynomial  # what it counts there

    def __str__(self) -> str:
        guards = [f"{g} >= 0" for g in sorted(map(str, self.nonnegative))]
        guards += [f"{g} = 0" for g in sorted(map(str, self.zero))]
        return f"{self.value} : {' and '.join(guards)}" if guards else str(self.value)


def multiply_terms(left: Sequence[Piece], right: Sequence[Piece]) -> tuple[Piece, ...]:
    """Multiply two sums of terms."""
    return tuple(
        Piece(a.nonnegative | b.nonnegative, a.zero | b.zero, a.value * b.value)
        for a in left
        for b in right
    )


def is_nonnegative_above(polynomial: QuasiPolynomial, lower: Mapping[str, int]) -> bool:
    """Return whether, in the distances of names from lower bounds, no coefficient is negative."""
    distances = {name: QuasiPolynomial.name(name) + value for name, value in lower.items()}
    return all(value >= 0 for value in polynomial.substitute(distances).terms.values())


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


_Guards: TypeAlias = frozenset[QuasiPolynomial]
Guards: TypeAlias = tuple[_Guards, _Guards]
"""Polynomials that are at least zero, and polynomials that equal zero."""

_NONE: _Guards = frozenset()
_MAXIMUM_REGIONS = 2048
_MAXIMUM_TESTS = 12_000  # of parts that may be empty: a second or so


class PiecewiseQuasiPolynomial(Formula):
    """A sum of guarded quasi-polynomials in the parameters; immutable."""

    __slots__ = ("approximations", "terms")

    def __init__(
        self, terms: Iterable[Piece] = (), approximations: frozenset[str] = frozenset()
    ) -> None:
        self.approximations = approximations
        self.terms = _merge(normal for term in terms if (normal := _normalize(term)) is not None)

    @staticmethod
    def sum(counts: Iterable[PiecewiseQuasiPolynomial]) -> PiecewiseQuasiPolynomial:
        """Return the sum of counts, in time proportional to the number of their terms."""
        counts = tuple(counts)
        reasons = frozenset[str]().union(*(count.approximations for count in counts))
        return _from_normal(_merge(t for count in counts for t in count.terms), reasons)

    @staticmethod
    def product(counts: Iterable[PiecewiseQuasiPolynomial]) -> PiecewiseQuasiPolynomial:
        """Return the product of counts."""
        return reduce(operator.mul, counts, ONE_COUNT)

    @staticmethod
    def from_value(value: QuasiPolynomial | Number) -> PiecewiseQuasiPolynomial:
        """Return an unguarded quasi-polynomial or number."""
        return PiecewiseQuasiPolynomial([Piece(_NONE, _NONE, ZERO + value)])

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
        return PiecewiseQuasiPolynomial(multiply_terms(self.terms, other.terms), reasons)

    def scale(self, factor: QuasiPolynomial | Number) -> PiecewiseQuasiPolynomial:
        """Return this times a number, or a quasi-polynomial without guards."""
        return self if factor == 1 else self * PiecewiseQuasiPolynomial.from_value(factor)

    def substitute(self, replacements: Mapping[str, QuasiPolynomial]) -> PiecewiseQuasiPolynomial:
        """Replace parameters, in guards too."""
        if not replacements:
            return self
        return PiecewiseQuasiPolynomial(
            (_substitute(term, replacements) for term in self.terms), self.approximations
        )

    def restrict_to(
        self, nonnegative: Iterable[QuasiPolynomial], zero: Iterable[QuasiPolynomial] = ()
    ) -> PiecewiseQuasiPolynomial:
        """Return this where the given guards hold too, zero elsewhere."""
        more, more_zero = frozenset(nonnegative), frozenset(zero)
        if not more and not more_zero:
            return self
        terms = [
            Piece(_strongest(t.nonnegative | more), t.zero | more_zero, t.value) for t in self.terms
        ]
        return PiecewiseQuasiPolynomial(terms, self.approximations)

    def mark_as_bound(self, reasons: frozenset[str]) -> PiecewiseQuasiPolynomial:
        """Return this as no more than an upper bound, for further reasons."""
        return _from_normal(self.terms, self.approximations | reasons)

    def names(self) -> set[str]:
        """Return the parameters that occur."""
        polynomials = (p for t in self.terms for p in (t.value, *t.nonnegative, *t.zero))
        return set[str]().union(*(p.names() for p in polynomials))

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
                (entry["value"], *(tuple(entry.get(kind, ())) for kind in ("nonnegative", "zero")))
                for entry in document
            )
        )

    def __str__(self) -> str:
        parts = [str(term) for term in self.terms]
        return " + ".join(f"({part})" if " : " in part else part for part in parts) or "0"


def _from_normal(
    terms: tuple[Piece, ...], approximations: frozenset[str]
) -> PiecewiseQuasiPolynomial:
    """Return a count of terms with normal, distinct guards and values other than zero."""
    result = PiecewiseQuasiPolynomial.__new__(PiecewiseQuasiPolynomial)
    result.terms = terms
    result.approximations = approximations
    return result


def _merge(terms: Iterable[Piece]) -> tuple[Piece, ...]:
    """Add the values of terms with the same guards, and leave out those that are zero."""
    merged: dict[Guards, Any] = {}
    for term in terms:
        guards = (term.nonnegative, term.zero)
        merged[guards] = merged.get(guards, ZERO) + term.value
    return tuple(Piece(*guards, value) for guards, value in merged.items() if value)


def _substitute(term: Piece, replacements: Mapping[str, QuasiPolynomial]) -> Piece:
    return Piece(
        frozenset(guard.substitute(replacements) for guard in term.nonnegative),
        frozenset(guard.substitute(replacements) for guard in term.zero),
        term.value.substitute(replacements),
    )


def _normalize(term: Piece) -> Piece | None:
    """Write guards in normal form, without those that always hold; None if one never holds."""
    if not term.nonnegative and not term.zero:
        return term
    fixed, kept = find_fixed_parameters(term.zero)
    if fixed:
        term = _substitute(replace(term, zero=term.zero - kept), fixed)
        term = replace(term, zero=term.zero | kept)
    if any(g.is_constant and g.constant_term < 0 for g in term.nonnegative) or any(
        g.is_constant and g for g in term.zero
    ):
        return None
    return Piece(
        frozenset(g.primitive() for g in term.nonnegative if not g.is_constant),
        frozenset(g.primitive() for g in term.zero if not g.is_constant),
        term.value,
    )


def find_fixed_parameters(zero: _Guards) -> tuple[dict[str, QuasiPolynomial], _Guards]:
    """Return the parameters whose values guards fix, and the guards that do so."""
    fixed: dict[str, QuasiPolynomial] = {}
    kept: set[QuasiPolynomial] = set()
    for guard in zero:
        (name, *more) = guard.names() or {""}
        coefficient = guard.coefficient_of(name)
        if not more and guard.is_linear and name not in fixed and coefficient in (1, -1):
            fixed[name] = QuasiPolynomial.constant(-guard.constant_term * coefficient)
            kept.add(guard)
    return fixed, frozenset(kept)


Region = tuple[_Guards, _Guards, tuple[QuasiPolynomial, ...]]
EmptinessTest = Callable[[_Guards, _Guards], bool]


def disjoint_regions(
    counts: Sequence[PiecewiseQuasiPolynomial], is_empty: EmptinessTest
) -> list[Region]:
    """Split the parameter space so that each count is one quasi-polynomial on each part."""
    calls = itertools.count()

    def is_possible(nonnegative: _Guards, zero: _Guards) -> bool:
        """Tell whether guards may hold; give up after as many calls on every machine."""
        if next(calls) >= _MAXIMUM_TESTS:
            raise _too_many_parts(_MAXIMUM_TESTS)
        return not is_empty(nonnegative, zero)

    by_guards: dict[Guards, list[QuasiPolynomial]] = {}
    for index, count in enumerate(counts):
        for term in count.terms:
            values = by_guards.setdefault((term.nonnegative, term.zero), [ZERO] * len(counts))
            values[index] = values[index] + term.value
    regions: list[Region] = [(_NONE, _NONE, (ZERO,) * len(counts))]
    for guards, values in by_guards.items():
        regions = [
            part for region in regions for part in _split(region, guards, values, is_possible)
        ]
        if len(regions) > _MAXIMUM_REGIONS:
            raise _too_many_parts(_MAXIMUM_REGIONS)
    return [r for r in regions if any(r[2])]


def _too_many_parts(number: int) -> CountingError:
    return CountingError(
        f"a minimum or class splits into more than {number} parts; state more assumptions on the "
        "parameters (such as divisibility by the tile sizes)"
    )


def _split(
    region: Region, added: Guards, values: Sequence[QuasiPolynomial], is_possible: EmptinessTest
) -> Iterator[Region]:
    """Split a region where more guards hold, with more values, from where one is broken."""
    guards, zeros, previous = region
    for guard in sorted(added[0] - guards, key=str):
        if is_possible(broken := guards | {-guard - 1}, zeros):
            yield broken, zeros, previous
        guards = guards | {guard}
    for guard in sorted(added[1] - zeros, key=str):
        for strict in (guard - 1, -guard - 1):
            if is_possible(broken := guards | {strict}, zeros):
                yield broken, zeros, previous
        zeros = zeros | {guard}
    if is_possible(guards, zeros):
        yield guards, zeros, tuple(a + b for a, b in zip(previous, values, strict=True))


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


def _strongest(guards: _Guards) -> _Guards:
    """Leave out guards that differ from others by a constant, and follow from them."""
    least: dict[QuasiPolynomial, QuasiPolynomial] = {}
    for guard in guards:
        slope = guard - guard.constant_term
        if guard.constant_term <= least.get(slope, guard).constant_term:
            least[slope] = guard
    return frozenset(least.values())


ZERO_COUNT = PiecewiseQuasiPolynomial()
ONE_COUNT = PiecewiseQuasiPolynomial.from_value(ONE)
