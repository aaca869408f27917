"""The exact number of integer points in a parametric set, and what is known of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import combinations, product
from math import gcd
from typing import Any

import islpy as isl
from pytools import memoize_method

from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic import isl_sets, piecewise, sets
from countperf.symbolic.elimination import Polyhedron, Row, sum_weight
from countperf.symbolic.isl_sets import IntegerSet, from_isl, guards_of, names_of, to_isl
from countperf.symbolic.piecewise import Piece, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ONE, Conjunction, QuasiPolynomial

_DT = isl.dim_type
_MANY_TERMS = 14
"""Of two counts together, from which their minimum is found term by term, if they allow it."""


class Context:
    """Known constraints of the parameters; used to simplify, never to restrict."""

    def __init__(self, assumptions: IntegerSet | None) -> None:
        self.assumptions = assumptions
        self.text = isl_sets.assumptions_text(assumptions)
        self.congruences: dict[str, tuple[int, int]] = {}
        self._lower: dict[str, int] = {}
        self.lower_bounds: dict[str, int] = {}
        whole = isl.Set("{ : }") if assumptions is None else isl_sets.as_set(assumptions)
        pieces = whole.get_basic_sets()
        whole = pieces[0] if len(pieces) == 1 else whole.coalesce().simple_hull()
        names = names_of(whole, parameters=True)
        moved = sets.as_dimensions(isl.Set.from_basic_set(whole))
        for position, name in enumerate(() if moved.is_empty() else names):
            info = moved.get_stride_info(position)
            stride, offset = info.get_stride().to_python(), info.get_offset()
            if stride > 1 and offset.is_cst():
                self.congruences[name] = stride, offset.get_constant_val().to_python() % stride
        # substitutions of parameters by expressions in their quotients, and back
        self.quotients = {
            name: QuasiPolynomial.affine([(name, modulus)], remainder)
            for name, (modulus, remainder) in self.congruences.items()
        }
        self.original_parameters = {
            name: (QuasiPolynomial.name(name) - remainder) / modulus
            for name, (modulus, remainder) in self.congruences.items()
        }
        dimensions = tuple([f"_e{k}" for k in range(whole.dim(_DT.div))])
        rescaled = to_isl(self.rescale(from_isl(whole, names, dimensions)))
        basic = rescaled.project_out(_DT.set, 0, len(dimensions))
        self._hull = from_isl(basic.remove_divs(), names, ())
        for constant, *row in self._hull.inequalities:
            occurring = [(name, c) for name, c in zip(names, row, strict=True) if c]
            if len(occurring) == 1 and (c := occurring[0][1]) > 0:
                name, bound = occurring[0][0], -(constant // c)  # -k/c rounded up
                self._lower[name] = max(bound, self._lower.get(name, bound))
        for name, bound in self._lower.items():
            modulus, remainder = self.congruences.get(name, (1, 0))
            self.lower_bounds[name] = modulus * bound + remainder
        self.positive = frozenset([n for n, low in self.lower_bounds.items() if low > 0])

    def implies(self, polyhedron: Polyhedron) -> bool:
        """Return whether lower bounds alone imply all rows of a polyhedron without dimensions."""
        return not (polyhedron.dimensions or polyhedron.equalities) and all(
            self._is_implied(row, polyhedron.parameters) for row in polyhedron.inequalities
        )

    def _is_implied(self, row: Row, parameters: tuple[str, ...]) -> bool:
        """Return whether lower bounds alone show that a row without dimensions is at least zero."""
        terms = [(name, c) for name, c in zip(parameters, row[1:], strict=False) if c]
        if any(c < 0 or name not in self._lower for name, c in terms):
            return False
        return row[0] + sum(c * self._lower[name] for name, c in terms) >= 0

    def rescale(self, polyhedron: Polyhedron) -> Polyhedron:
        """Write a polyhedron in the quotients of the parameters that have congruences."""
        scales = [
            (k, *self.congruences[name])
            for k, name in enumerate(polyhedron.parameters, start=1)
            if name in self.congruences
        ]

        def scale(row: Row) -> Row:
            values = list(row)
            for k, modulus, remainder in scales:
                values[0] += row[k] * remainder
                values[k] *= modulus
            return tuple(values)

        return polyhedron.map_rows(scale) if scales else polyhedron

    @memoize_method
    def _as_set(self, parameters: tuple[str, ...], dimensions: tuple[str, ...]) -> IntegerSet:
        """Return the hull as a set in a space; parameters that it lacks are projected out."""
        hull = self._hull
        if unknown := {*hull.parameters} - {*parameters}:
            basic = isl_sets.drop_parameters(to_isl(hull), unknown)
            kept = tuple([name for name in hull.parameters if name in parameters])
            hull = from_isl(basic.remove_divs(), kept, ())
        columns = [(*hull.parameters, name).index(name) for name in (*parameters, *dimensions)]
        placed = hull.map_rows(lambda row: (row[0], *((*row[1:], 0)[k] for k in columns)))
        return to_isl(replace(placed, parameters=parameters, dimensions=dimensions))

    def simplify(self, polyhedron: Polyhedron) -> Polyhedron | None:
        """Remove rows that follow from others under the context; None for an empty set."""
        tidy = _tidy(polyhedron)
        if tidy is None:
            return None
        open_rows = tuple(
            row
            for row in tidy.inequalities
            if any(row[tidy.first :]) or not self._is_implied(row, tidy.parameters)
        )
        tidy = replace(tidy, inequalities=open_rows)
        if not tidy.equalities and (
            not open_rows or (len(tidy.dimensions) == 1 and len(open_rows) <= 2)
        ):
            return tidy  # nothing to find out: an interval may still be empty
        context = self._as_set(tidy.parameters, tidy.dimensions)
        joint = to_isl(tidy).intersect(context)
        if joint.is_empty():
            return None
        return from_isl(joint.remove_redundancies().gist(context), tidy.parameters, tidy.dimensions)


_context_of = lru_cache(256)(Context)


def _tidy(polyhedron: Polyhedron) -> Polyhedron | None:
    """Drop trivial and parallel rows, without isl."""
    tightest: dict[Row, int] = {}
    for row in polyhedron.inequalities:
        common = gcd(*row[1:])
        if not common:
            if row[0] < 0:
                return None
            continue
        if common > 1:  # integer points only: the constant is rounded down
            row = tuple(c // common for c in row)
        previous = tightest.get(row[1:])
        tightest[row[1:]] = row[0] if previous is None else min(previous, row[0])
    for direction, constant in tightest.items():
        opposite = tightest.get(tuple([-c for c in direction]))
        if opposite is not None and opposite + constant < 0:
            return None
    rows = [(constant, *direction) for direction, constant in tightest.items()]
    return replace(polyhedron, inequalities=tuple(rows))


def _refuse_set(integer_set: IntegerSet, error: UncountableSetError) -> UncountableSetError:
    return UncountableSetError(
        f"the set {integer_set} cannot be counted: {error}; fix sizes in the kernel by"
        " loopy.fix_parameters(kernel, n=1024), and count it at these"
    )


class Counter:
    """Counts points of sets under fixed assumptions, and proves signs under them."""

    def __init__(self, assumptions: IntegerSet | None = None) -> None:
        # isl's basic sets do not compare with sets
        self.context = _context_of(None if assumptions is None else isl_sets.as_set(assumptions))
        self._factors: dict[Any, PiecewiseQuasiPolynomial] = {}

    def count(
        self, integer_set: IntegerSet, weight: QuasiPolynomial = ONE
    ) -> PiecewiseQuasiPolynomial:
        """Sum a weight over the points of a set; by default, count them."""
        dimensions = names_of(integer_set, parameters=False)
        renaming = {name: QuasiPolynomial.name(f"_d{k}") for k, name in enumerate(dimensions)}
        renamed = weight if weight.is_constant else weight.substitute(renaming)
        renamed = renamed.substitute(self.context.quotients)
        terms: list[Piece] = []
        try:
            for piece in isl_sets.lift_pieces(integer_set):
                rescaled = self.context.rescale(piece)
                terms += sum_weight(rescaled, renamed, self.context.simplify)
        except UncountableSetError as error:
            raise _refuse_set(integer_set, error) from error
        return PiecewiseQuasiPolynomial(terms).substitute(self.context.original_parameters)

    def count_product(self, factors: Sequence[Polyhedron]) -> PiecewiseQuasiPolynomial:
        """Count the points of a product of polyhedra."""
        return PiecewiseQuasiPolynomial.product(map(self._count_factor, factors))

    def _count_factor(self, factor: Polyhedron) -> PiecewiseQuasiPolynomial:
        key = (factor.parameters, factor.equalities, factor.inequalities)
        if key not in self._factors:
            rescaled = self.context.rescale(factor)
            try:
                counted = (
                    piecewise.ONE_COUNT
                    if self.context.implies(rescaled)
                    else PiecewiseQuasiPolynomial(sum_weight(rescaled, ONE, self.context.simplify))
                )
            except UncountableSetError as error:
                raise _refuse_set(to_isl(factor), error) from error
            self._factors[key] = counted.substitute(self.context.original_parameters)
        return self._factors[key]

    def assumption_guards(self) -> tuple[piecewise.Guards, ...]:
        """Return the assumptions as guards, alternatives; none if there are no assumptions."""
        assumptions = self.context.assumptions
        return () if assumptions is None else guards_of(assumptions)

    def add_assumptions(self, nonnegative: Sequence[QuasiPolynomial]) -> Counter:
        """Return a counter that also assumes that affine expressions are at least zero."""
        return Counter(self._region(frozenset(), frozenset(nonnegative), frozenset()))

    def is_empty(self, nonnegative: Conjunction, zero: Conjunction) -> bool:
        """Return whether no assumed parameters satisfy the guards; False when it cannot tell."""
        if not nonnegative and not zero:
            return False
        if any(g.is_constant and g.constant_term < 0 for g in nonnegative):
            return True
        return bool(self._region(frozenset(), nonnegative, zero).is_empty())

    def _region(
        self, names: frozenset[str], nonnegative: Conjunction, zero: Conjunction
    ) -> IntegerSet:
        """Return the assumed parameters that satisfy the affine ones of the guards."""
        # in an order that is the same in every process, as the hashes of polynomials are
        affine = sorted([g for g in nonnegative if g.is_affine], key=hash)
        affine_zero = sorted([g for g in zero if g.is_affine], key=hash)
        needed = names.union(*(g.names() for g in (*affine, *affine_zero)))
        space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=sorted(needed))
        everywhere, assumed = isl.BasicSet.universe(space), self.context.assumptions
        region = sets.restrict(everywhere, nonnegative=affine, zero=affine_zero).params()
        return region if assumed is None else region.intersect(isl_sets.as_set(assumed))

    @memoize_method
    def _bounds(self, names: frozenset[str], nonnegative: Conjunction) -> isl_sets.Bounds:
        """Return the smallest and largest possible value of parameters under guards."""
        moved = sets.as_dimensions(self._region(names, nonnegative, frozenset()))
        return {} if moved.is_empty() else sets.constant_bounds(moved)

    def is_nonnegative(
        self, polynomial: QuasiPolynomial, nonnegative: Conjunction = frozenset()
    ) -> bool:
        """Return whether a quasi-polynomial is proved at least zero on the assumptions.

        Proved where no coefficient is negative in the distances of parameters from lower bounds,
        of a single parameter after its first values.
        """
        stated = self.context.lower_bounds
        # factors that are at least one do not change the sign
        polynomial = polynomial.without_common_powers(self.context.positive)
        if polynomial.is_constant:
            return polynomial.constant_term >= 0
        names = sorted(polynomial.names())
        bounds = (
            {name: (stated[name], None) for name in names}
            if not nonnegative and all(name in stated for name in names)
            else self._bounds(frozenset(names), nonnegative)
        )
        lows = {name: bounds.get(name, (None,))[0] for name in names}
        lower = {name: low for name, low in lows.items() if low is not None}
        if len(lower) < len(names):
            return False
        bound = piecewise.without_floors(polynomial)
        if bound is not None and piecewise.is_nonnegative_above(bound, lower):
            return True
        if len(names) > 1:
            return False
        ((name, low),) = lower.items()
        step, remainder = self.context.congruences.get(name, (1, 0))
        upper = bounds[name][1]
        for start in range(low, low + 64):
            if upper is not None and start > upper:
                return True
            if bound is not None and piecewise.is_nonnegative_above(bound, {name: start}):
                return True
            if start % step == remainder and polynomial.evaluate({name: start}) < 0:
                return False
        return False

    def simplify_count(self, count: PiecewiseQuasiPolynomial) -> PiecewiseQuasiPolynomial:
        """Return an equal count with floors and guards simplified under the assumptions."""
        replaced = count.substitute(self.context.quotients)
        terms: list[Piece] = []
        for term in replaced.terms:
            if not all(g.is_linear for g in (*term.nonnegative, *term.zero)):
                terms.append(term)
                continue
            names = sorted(set().union(*(g.names() for g in (*term.nonnegative, *term.zero))))
            rows = sets.rows_of(term.nonnegative, names), sets.rows_of(term.zero, names)
            polyhedron = Polyhedron(tuple(names), (), rows[1], rows[0])
            terms += sum_weight(polyhedron, term.value, self.context.simplify)
        return PiecewiseQuasiPolynomial(terms, count.approximations).substitute(
            self.context.original_parameters
        )

    def minimum(
        self, left: PiecewiseQuasiPolynomial, right: PiecewiseQuasiPolynomial
    ) -> PiecewiseQuasiPolynomial:
        """Return the minimum of two counts, which are at least zero; of too many parts, a bound."""
        is_long = len(left.terms) + len(right.terms) > _MANY_TERMS
        if is_long and (joined := self._minimum_of_parts(left, right)) is not None:
            return joined
        try:
            regions = self.regions([left, right])
        except CountingError as error:
            if (joined := self._minimum_of_parts(left, right)) is not None:
                return joined
            fewer = min(left, right, key=lambda count: len(count.terms))
            return fewer.mark_as_bound(frozenset([f"a bound of a minimum: {error}"]))
        terms = [piece for region in regions for piece in self._minimum_in_region(*region)]
        return PiecewiseQuasiPolynomial(terms, left.approximations | right.approximations)

    def _minimum_in_region(
        self, guards: Conjunction, zeros: Conjunction, values: Sequence[QuasiPolynomial]
    ) -> list[Piece]:
        a, b = values
        if a == b or self.is_nonnegative(b - a, guards):
            return [Piece(guards, zeros, a)]
        if self.is_nonnegative(a - b, guards):
            return [Piece(guards, zeros, b)]
        return [Piece(guards | {b - a}, zeros, a), Piece(guards | {a - b - 1}, zeros, b)]

    def _minimum_of_parts(
        self, left: PiecewiseQuasiPolynomial, right: PiecewiseQuasiPolynomial
    ) -> PiecewiseQuasiPolynomial | None:
        """Return a minimum as that of each two terms where both hold; None if terms overlap."""
        if not (self._has_disjoint_terms(left) and self._has_disjoint_terms(right)):
            return None
        terms: list[Piece] = []
        for a, b in product(left.terms, right.terms):
            guards, zeros = a.nonnegative | b.nonnegative, a.zero | b.zero
            if not self.is_empty(guards, zeros):
                terms += self._minimum_in_region(guards, zeros, (a.value, b.value))
        return PiecewiseQuasiPolynomial(terms, left.approximations | right.approximations)

    def _has_disjoint_terms(self, count: PiecewiseQuasiPolynomial) -> bool:
        return all(
            any(-guard - 1 in b.nonnegative for guard in a.nonnegative)
            or self.is_empty(a.nonnegative | b.nonnegative, a.zero | b.zero)
            for a, b in combinations(count.terms, 2)
        )

    def regions(self, counts: Sequence[PiecewiseQuasiPolynomial]) -> list[piecewise.Region]:
        """Split the assumed parameters so that each count is one quasi-polynomial on each part."""
        polynomials = [p for count in counts if (p := count.as_polynomial()) is not None]
        if len(polynomials) == len(counts):
            return [(frozenset(), frozenset(), tuple(polynomials))] if any(polynomials) else []
        result: list[piecewise.Region] = []
        for *region, values in piecewise.disjoint_regions(counts, self.is_empty):
            guards, zeros = region
            if plain := frozenset(g for g in guards if g.is_linear):
                # affine guards that follow from others and the assumptions are dropped
                alone = PiecewiseQuasiPolynomial([Piece(plain, frozenset(), ONE)])
                (term,) = self.simplify_count(alone).terms
                guards, zeros = (guards - plain) | term.nonnegative, zeros | term.zero
            fixed, _ = piecewise.find_fixed_parameters(zeros)
            result.append((guards, zeros, tuple(v.substitute(fixed) for v in values)))
        return result

    def as_one_piece(self, integer_set: IntegerSet) -> IntegerSet:
        """Return an equal set (on the assumptions) without existentials, if its hull is one."""
        return sets.as_one_piece(integer_set, self.context.assumptions)


def count_within(joint: IntegerSet, around: frozenset[str]) -> PiecewiseQuasiPolynomial:
    """Count the points of a set for given values of some of its dimensions, where it has any."""
    names = sorted(around)
    outside = sets.as_parameters(sets.project_onto(joint, names), names).params()
    return Counter(outside).count(sets.as_parameters(joint, names))


# Most domains of kernels are products: tiles of one axis share no constraint with those of another.
# Taken apart once, a domain is projected and counted factor by factor.


class FactoredDomain:
    """A basic set without existentials, taken apart into components of its dimensions."""

    def __init__(self, polyhedron: Polyhedron, context: Context | None = None) -> None:
        self.polyhedron = polyhedron
        self._context = context
        components = polyhedron.find_components()
        components.sort(key=lambda names: min(map(polyhedron.dimensions.index, names)))
        # the last one has the rows in parameters alone
        parts = [polyhedron.take_apart(names) for names in (*components, frozenset())]
        self._factors = [(frozenset(part.dimensions), part) for part in parts]
        self._numbers = {name: n for n, (names, _) in enumerate(self._factors) for name in names}

    @staticmethod
    def of(integer_set: IntegerSet, context: Context | None = None) -> FactoredDomain | None:
        """Take a set apart; None if it is no basic set or has existentials."""
        pieces = isl_sets.as_set(integer_set).get_basic_sets()
        if len(pieces) != 1 or pieces[0].dim(_DT.div):
            return None
        names = [names_of(integer_set, parameters=which) for which in (True, False)]
        return FactoredDomain(from_isl(pieces[0], *names), context)

    def component_of(self, name: str) -> frozenset[str]:
        """Return the dimensions that share constraints with one, directly or not."""
        return self._factors[self._numbers[name]][0]

    def onto(self, names: frozenset[str]) -> tuple[Polyhedron, ...] | None:
        """Project onto some dimensions."""
        touched = {self._numbers[name] for name in names if name in self._numbers}
        numbers = sorted(touched | self._restricting)
        result = [self._project(number, names & self._factors[number][0]) for number in numbers]
        known = [part for part in result if part is not None]
        kept = tuple(part for part in known if part.dimensions or part.rows)
        return kept if len(known) == len(result) else None

    @memoize_method
    def _project(self, number: int, kept: frozenset[str]) -> Polyhedron | None:
        dimensions, factor = self._factors[number]
        if len(kept) == len(dimensions):
            return factor
        basic = sets.project_onto(to_isl(factor), kept)
        names = names_of(basic, parameters=False)
        return None if basic.dim(_DT.div) else from_isl(basic, factor.parameters, names)

    @cached_property
    def _restricting(self) -> frozenset[int]:
        """The factors that say something of the parameters too, or may do so."""
        shadows = (self._project(number, frozenset()) for number in range(len(self._factors)))
        return frozenset(n for n, shadow in enumerate(shadows) if not self._is_implied(shadow))

    def _is_implied(self, shadow: Polyhedron | None) -> bool:
        """Return whether a projection onto the parameters is known to be everything."""
        if shadow is None or shadow.equalities or self._context is None:
            return shadow is not None and not shadow.rows
        return self._context.implies(self._context.rescale(shadow))
