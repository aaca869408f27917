"""Counts and guards between isl's piecewise quasi-polynomials and ours."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import islpy as isl

from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic import isl_sets
from countperf.symbolic.piecewise import Guards, Piece, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Number, QuasiPolynomial

_TEXT_OPERATIONS = 1_000_000


def to_isl_text(count: PiecewiseQuasiPolynomial) -> str | None:
    """Return isl's text of a count, pieces disjoint.

    None if a guard is not affine, or if making the pieces disjoint takes isl too long.
    """
    if not all(g.is_affine for term in count.terms for g in (*term.nonnegative, *term.zero)):
        return None
    try:
        with isl_sets.limit_operations(_TEXT_OPERATIONS, "a count"):
            return _disjoint_text(count)
    except UncountableSetError:
        return None


def _disjoint_text(count: PiecewiseQuasiPolynomial) -> str:
    names = sorted(count.names())
    head = f"[{', '.join(names)}] -> " if names else ""
    total: Any = None
    for term in count.terms:
        guards = [f"{g} >= 0" for g in sorted(map(str, term.nonnegative))]
        guards += [f"{g} = 0" for g in sorted(map(str, term.zero))]
        condition = f" : {' and '.join(guards)}" if guards else ""
        piece = isl.PwQPolynomial(f"{head}{{ {term.value}{condition} }}")
        total = piece if total is None else total.add(piece)
    return str(total.coalesce()) if total is not None else f"{head}{{ 0 }}"


_SHOWN = 200  # characters of a text, in messages


def from_isl_text(text: str) -> PiecewiseQuasiPolynomial:
    """Parse a piecewise quasi-polynomial in isl's notation."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of callers
        raise CountingError(f"{text!r} is no count; pass an integer or a text, '[n] -> {{ 2n }}'")
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    try:
        parsed = isl.PwQPolynomial(text)
        if parsed.dim(isl.dim_type.in_):
            raise CountingError(
                f"{shown!r} has dimensions besides its parameters; write '[n] -> {{ ... }}'"
            )
        return from_isl_count(parsed)
    except (isl.Error, ValueError, ArithmeticError) as error:  # not finite, or of 4300 digits
        if isinstance(error, CountingError):
            raise
        raise CountingError(
            f"{shown!r} is no piecewise quasi-polynomial in isl's notation such as "
            f"'[n] -> {{ n^2 : n > 0 }}': {error}"
        ) from error


def from_isl_count(function: Any) -> PiecewiseQuasiPolynomial:
    """Return a piecewise quasi-polynomial, or affine function, of isl in parameters as a count."""
    if isinstance(function, isl.Aff):
        function = isl.PwAff.from_aff(function)
    if isinstance(function, isl.PwAff):
        function = isl.PwQPolynomial.from_pw_aff(function.project_domain_on_params())
    terms: list[Piece] = []
    for domain, polynomial in function.get_pieces():
        value = _from_qpolynomial(polynomial)
        for nonnegative, zero in guards_of(domain):
            terms.append(Piece(nonnegative, zero, value))
    return PiecewiseQuasiPolynomial(terms)


def guards_of(parameter_set: isl_sets.IntegerSet) -> list[Guards]:
    """Return disjoint parts of a parameter set as guards, existentials as floors."""
    return list(_guards_of(isl_sets.ByText.of(parameter_set)))


@lru_cache(256)
def _guards_of(parameter_set: isl_sets.ByText) -> tuple[Guards, ...]:
    kinds = isl.dim_type
    whole = isl_sets.as_set(parameter_set.integer_set)
    result: list[Guards] = []
    pieces = whole.compute_divs().get_basic_sets()
    if len(pieces) > 1:
        pieces = whole.compute_divs().make_disjoint().compute_divs().get_basic_sets()
    for piece in pieces:
        names = isl_sets.names_of(piece, parameters=True)
        equalities, inequalities = isl_sets.written_rows(piece)
        floors: list[QuasiPolynomial] = []
        for k in range(piece.dim(kinds.div)):
            atoms = [*map(QuasiPolynomial.name, names), *floors]
            floors.append(_from_aff(piece.get_div(k), atoms))
        result.append(
            (
                _guards_of_rows(inequalities, names, floors),
                frozenset(g for g in _guards_of_rows(equalities, names, floors) if g),
            )
        )
    return tuple(result)


def _guards_of_rows(
    rows: Sequence[Sequence[int]], names: Sequence[str], floors: Sequence[QuasiPolynomial]
) -> frozenset[QuasiPolynomial]:
    """Return rows as expressions in parameters and floors, those left out that always hold."""
    guards: set[QuasiPolynomial] = set()
    for row in rows:
        terms = zip(names, row[len(floors) : -1], strict=True)
        total = QuasiPolynomial.affine([term for term in terms if term[1]], row[-1])
        for coefficient, floor in zip(row, floors, strict=False):
            if coefficient:
                total = total + floor * coefficient
        if not (total.is_constant and total.constant_term >= 0):
            guards.add(total)
    return frozenset(guards)


def _from_aff(aff: Any, atoms: list[QuasiPolynomial]) -> QuasiPolynomial:
    """Return the floor of an affine function in parameters and earlier divisions."""
    denominator = aff.get_denominator_val()
    return _numerator(aff, atoms, denominator).floor_divide(denominator.to_python())


def _numerator(aff: Any, atoms: list[QuasiPolynomial], denominator: Any) -> QuasiPolynomial:
    kinds = isl.dim_type
    parameters = aff.dim(kinds.param)
    total = QuasiPolynomial.constant(aff.get_constant_val().mul(denominator).to_python())
    for k, atom in enumerate(atoms):
        kind, position = (kinds.param, k) if k < parameters else (kinds.div, k - parameters)
        coefficient = aff.get_coefficient_val(kind, position)
        if not coefficient.is_zero():
            total = total + atom * coefficient.mul(denominator).to_python()
    return total


def _rational(value: Any) -> Number:
    return value.to_python() if value.is_int() else Fraction(str(value))


def _from_qpolynomial(polynomial: Any) -> QuasiPolynomial:
    kinds = isl.dim_type
    total = QuasiPolynomial()
    space = polynomial.get_domain_space()
    names = [space.get_dim_name(kinds.param, k) for k in range(space.dim(kinds.param))]
    for term in polynomial.get_terms():
        product = QuasiPolynomial.constant(_rational(term.get_coefficient_val()))
        for k, name in enumerate(names):
            product = product * QuasiPolynomial.name(name) ** term.get_exp(kinds.param, k)
        for k in range(term.dim(kinds.div)):
            exponent = term.get_exp(kinds.div, k)
            if exponent:
                div = term.get_div(k)
                atoms = [QuasiPolynomial.name(name) for name in names]
                for inner in range(div.dim(kinds.div)):
                    atoms.append(_from_aff(div.get_div(inner), atoms))
                product = product * _from_aff(div, atoms) ** exponent
        total = total + product
    return total
