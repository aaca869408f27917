"""Integer sets of isl, as the rest of countperf needs them.

This module and its neighbors in this package are the only users of islpy. Sets arrive from Loopy
as opaque objects and leave as counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl

from countperf.errors import CountingError
from countperf.symbolic.isl_sets import (
    Bounds,
    IntegerSet,
    as_set,
    from_isl,
    names_of,
    to_isl,
    written_rows,
)
from countperf.symbolic.quasipolynomial import Atom, Floor, QuasiPolynomial
from countperf.symbolic.tiles import Polyhedron, Row, fuse_tiles

_DT = isl.dim_type


def project_onto(integer_set: IntegerSet, keep: Iterable[str]) -> IntegerSet:
    """Project a set onto some of its dimensions, exactly."""
    wanted = set(keep)
    for position in reversed(range(integer_set.dim(_DT.set))):
        if integer_set.get_dim_name(_DT.set, position) not in wanted:
            integer_set = integer_set.project_out(_DT.set, position, 1)
    return integer_set


def without_parameters(integer_set: IntegerSet, names: Iterable[str]) -> IntegerSet | None:
    """Return a set without some of its parameters, for any values of them at which it has points.

    None if the points depend on them.
    """
    whole = as_set(integer_set)
    wanted = set(names)
    result = whole
    for position in reversed(range(result.dim(_DT.param))):
        if result.get_dim_name(_DT.param, position) in wanted:
            result = result.project_out(_DT.param, position, 1)
    return result if whole.is_equal(result.intersect_params(whole.params())) else None


def under_assumptions(integer_set: IntegerSet, assumptions: IntegerSet | None) -> IntegerSet:
    """Return a set where its parameters are possible."""
    if assumptions is None:
        return integer_set
    return as_set(integer_set).intersect_params(as_set(assumptions))


def as_parameters(integer_set: IntegerSet, names: Iterable[str]) -> IntegerSet:
    """Turn some dimensions of a set into parameters."""
    result = as_set(integer_set)
    for name in names:
        position = names_of(result, parameters=False).index(name)
        last = result.dim(_DT.param)
        result = result.move_dims(_DT.param, last, _DT.set, position, 1)
        result = result.set_dim_name(_DT.param, last, name)
    return result


def as_aff(expression: QuasiPolynomial, space: Any) -> Any:
    """Return an affine quasi-polynomial as isl's affine function on a set space."""
    local = isl.LocalSpace.from_space(space)
    coefficients: dict[str, tuple[Any, int]] = {}
    for kind, own_kind in ((_DT.param, _DT.param), (_DT.set, _DT.in_)):
        for k in range(space.dim(kind)):
            coefficients[space.get_dim_name(kind, k)] = (own_kind, k)
    result = isl.Aff.zero_on_domain(local)
    for monomial, value in expression.terms.items():
        if not monomial:
            result = result.add_constant_val(isl.Val(str(value)))
            continue
        ((atom, exponent), *rest) = monomial
        is_known = atom in coefficients if isinstance(atom, str) else atom.is_affine
        if rest or exponent != 1 or not is_known:
            raise CountingError(f"{expression} is not affine in {sorted(coefficients)}")
        if isinstance(atom, Floor):
            inner = as_aff(atom.numerator, space)
            floor = inner.scale_down_val(isl.Val(atom.denominator)).floor()
            result = result.add(floor.scale_val(isl.Val(str(value))))
        else:
            result = result.add_coefficient_val(*coefficients[atom], isl.Val(str(value)))
    return result


def rows_of(expressions: Iterable[QuasiPolynomial], names: Sequence[str]) -> tuple[Row, ...]:
    """Return affine expressions without floors as rows of integers."""
    return tuple(
        (
            int(e.constant_term),
            *(int(e.terms.get(((name, 1),), 0)) for name in names),
        )
        for e in (expression.primitive() for expression in expressions)
    )


def with_parameters(integer_set: IntegerSet, parameters: Iterable[str]) -> IntegerSet:
    """Add parameters that a set lacks."""
    present = set(names_of(integer_set, parameters=True))
    for name in sorted(set(parameters) - present):
        count = integer_set.dim(_DT.param)
        integer_set = integer_set.add_dims(_DT.param, 1).set_dim_name(_DT.param, count, name)
    return integer_set


def restrict(
    integer_set: IntegerSet,
    *,
    nonnegative: Iterable[QuasiPolynomial] = (),
    zero: Iterable[QuasiPolynomial] = (),
) -> IntegerSet:
    """Restrict a set to where affine expressions are at least zero, or zero."""
    result = as_set(integer_set)
    conditions = [(e, False) for e in nonnegative] + [(e, True) for e in zero]
    needed = {name for e, _ in conditions for name in e.names()}
    result = with_parameters(result, needed - set(names_of(result, parameters=False)))
    for expression, equality in conditions:
        aff = as_aff(expression, result.get_space())
        constraint = (
            isl.Constraint.equality_from_aff(aff)
            if equality
            else isl.Constraint.inequality_from_aff(aff)
        )
        result = result.add_constraint(constraint)
    return result


def subtract(integer_set: IntegerSet, other: IntegerSet) -> IntegerSet:
    """Return the points of the first set that are not in the second."""
    return integer_set - other


def union(sets: Sequence[IntegerSet]) -> IntegerSet:
    """Return the union of sets of one space; their parameters are aligned."""
    result = sets[0] if isinstance(sets[0], isl.Set) else isl.Set.from_basic_set(sets[0])
    for other in sets[1:]:
        result = result | other
    return result.coalesce()


def where_holds(
    integer_set: IntegerSet, alternatives: Iterable[Iterable[QuasiPolynomial]]
) -> IntegerSet:
    """Restrict a set to where all expressions of one of some alternatives are at least zero."""
    parts = [restrict(integer_set, nonnegative=each) for each in alternatives]
    whole = union([integer_set])
    return union(parts) if parts else subtract(whole, whole)


def image(integer_set: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
    """Return the image of a set under affine functions of its dimensions, exactly.

    Tilings of which the functions see only the fused dimension are undone first, so that the image
    comes out as simple as that of the untiled loops. The dimensions of the image are ``_i0`` ...
    """
    for function in functions:
        if not function.is_affine:
            raise CountingError(f"{function} is not affine")
    needed = {name for f in functions for name in f.names()}
    integer_set = with_parameters(
        as_set(integer_set), needed - set(names_of(integer_set, parameters=False))
    )
    if any(f.floors() for f in functions):
        result = _image_with_floors(integer_set, functions)
    else:
        parts = [_image_of_piece(piece, functions) for piece in integer_set.get_basic_sets()]
        result = union(parts) if parts else _image_with_floors(integer_set, functions)
    for k in range(len(functions)):
        result = result.set_dim_name(_DT.set, k, f"_i{k}")
    return result


def _image_with_floors(integer_set: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
    space = integer_set.get_space()
    mapping = isl.MultiAff.zero(space.from_domain().add_dims(_DT.out, len(functions)))
    for k, function in enumerate(functions):
        mapping = mapping.set_aff(k, as_aff(function, space))
    return integer_set.apply(isl.Map.from_multi_aff(mapping))


def _image_of_piece(piece: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
    parameters = names_of(piece, parameters=True)
    dimensions = names_of(piece, parameters=False)
    lifted = piece.lift().flatten() if piece.dim(_DT.div) else piece
    inner = dimensions + tuple(f"_e{k}" for k in range(lifted.dim(_DT.set) - len(dimensions)))
    body = from_isl(lifted, parameters, inner)
    names = parameters + inner
    count = len(functions)
    rows: list[Row] = [row + (0,) * count for row in body.inequalities]
    rows += [tuple(-c for c in row) + (0,) * count for row in body.equalities]
    rows += [row + (0,) * count for row in body.equalities]
    for k, function in enumerate(functions):
        row = [int(function.constant_term)]
        row += [int(function.terms.get(((name, 1),), 0)) for name in names]
        row += [-1 if j == k else 0 for j in range(count)]
        rows += [tuple(row), tuple(-c for c in row)]
    targets = tuple(f"_i{k}" for k in range(count))
    fused = fuse_tiles(Polyhedron(parameters, inner + targets, (), tuple(rows)), frozenset(targets))
    return isl.Set.from_basic_set(
        to_isl(fused).project_out(_DT.set, 0, len(fused.dimensions) - count)
    )


_MAXIMUM_HULL_DIVISIONS = 2
"""Eliminating more of them may take forever."""


def as_one_piece(integer_set: IntegerSet, assumptions: IntegerSet | None) -> IntegerSet:
    """Return the hull of a set instead of the set, where both are equal on the assumptions.

    Overlapping tiles, such as those of halos, then lose their tile index.
    """
    whole = as_set(integer_set)
    assumed = whole if assumptions is None else whole.intersect_params(as_set(assumptions))
    if assumed.is_empty() or any(
        piece.dim(_DT.div) > _MAXIMUM_HULL_DIVISIONS for piece in assumed.get_basic_sets()
    ):
        return whole
    hull = isl.Set.from_basic_set(assumed.remove_divs().simple_hull())
    hull = hull.intersect(isl.Set.from_basic_set(assumed.affine_hull()))
    if assumptions is not None:
        hull = hull.intersect_params(as_set(assumptions))
    if not hull.is_subset(assumed):
        return whole
    return hull if assumptions is None else hull.gist_params(as_set(assumptions))


def is_independent(integer_set: IntegerSet, names: Iterable[str], other: str) -> bool:
    """Return whether the values of some dimensions do not depend on the value of another one."""
    kept = set(names)
    joint = as_set(project_onto(integer_set, kept | {other}))
    position = names_of(joint, parameters=False).index(other)
    alone = joint.project_out(_DT.set, position, 1).insert_dims(_DT.set, position, 1)
    line = as_set(project_onto(integer_set, {other}))
    line = line.insert_dims(_DT.set, 0, position)
    line = line.add_dims(_DT.set, len(kept) - position)
    return bool(joint.plain_is_equal(alone & line) or joint.is_equal(alone & line))


def equalities(integer_set: IntegerSet) -> IntegerSet | None:
    """Return the smallest set given by equalities that contains another one; None for all."""
    hull = integer_set.affine_hull()
    return hull if hull.n_constraint() else None


def determined(hull: IntegerSet, candidates: Sequence[str]) -> dict[str, QuasiPolynomial]:
    """Solve equalities for dimensions."""
    parameters = names_of(hull, parameters=True)
    dimensions = names_of(hull, parameters=False)
    count = len(dimensions)
    solved: dict[str, QuasiPolynomial] = {}
    for row in written_rows(hull)[0]:
        last = len(row) - 1 - len(parameters)
        if any(row[count:last]):
            continue  # holds modulo something only
        terms = zip((*dimensions, *parameters), row[:count] + row[last:-1], strict=True)
        left = QuasiPolynomial.affine(terms, row[-1]).substitute(solved).primitive()
        for name in candidates:
            factor = left.terms.get(((name, 1),), 0)
            if abs(factor) == 1:
                value = QuasiPolynomial.name(name) - left * factor
                solved = {n: v.substitute({name: value}) for n, v in solved.items()}
                solved[name] = value
                break
    return solved


def constant_bounds(integer_set: IntegerSet) -> Bounds:
    """Return the smallest and largest value of each dimension, None where there is none."""
    whole = as_set(integer_set)
    result: dict[str, tuple[int | None, int | None]] = {}
    for k, name in enumerate(names_of(whole, parameters=False)):
        line = whole.project_out(_DT.set, k + 1, whole.dim(_DT.set) - k - 1).project_out(
            _DT.set, 0, k
        )
        line = line.project_out(_DT.param, 0, line.dim(_DT.param))
        bounds: list[int | None] = []
        for value in (line.dim_min_val(0), line.dim_max_val(0)):
            bounds.append(value.to_python() if value.is_int() else None)
        result[name] = (bounds[0], bounds[1])
    return result


def resolve_floors(expression: QuasiPolynomial, bounds: Bounds) -> QuasiPolynomial:
    """Replace floors whose value the bounds of their names decide."""

    def replace(atom: Atom) -> QuasiPolynomial | None:
        if isinstance(atom, str) or not atom.denominator:
            return None
        numerator = resolve_floors(atom.numerator, bounds)
        low = high = 0
        for monomial, value in numerator.terms.items():
            if not monomial:
                low, high = low + int(value), high + int(value)
                continue
            ((inner, exponent), *rest) = monomial
            known = bounds.get(inner, (None, None)) if isinstance(inner, str) else (None, None)
            if rest or exponent != 1 or known[0] is None or known[1] is None:
                return numerator.floor_divide(atom.denominator)
            ends = (int(value) * known[0], int(value) * known[1])
            low, high = low + min(ends), high + max(ends)
        if low // atom.denominator == high // atom.denominator:
            return QuasiPolynomial.constant(low // atom.denominator)
        return numerator.floor_divide(atom.denominator)

    return expression.map_atoms(replace)


def at_values(integer_set: IntegerSet, values: Mapping[str, int]) -> IntegerSet:
    """Fix parameters and dimensions and project them out; names that the set lacks don't matter."""
    result = union([integer_set])
    for kind in (_DT.param, _DT.set):
        for position in reversed(range(result.dim(kind))):
            value = values.get(result.get_dim_name(kind, position))
            if value is not None:
                result = result.fix_val(kind, position, isl.Val(int(value)))
                result = result.project_out(kind, position, 1)
    return result


# --- Sets taken apart: by the values of a quotient, into products


_MAXIMUM_QUOTIENTS = 8


def quotients(
    integer_set: IntegerSet,
    numerator: QuasiPolynomial,
    divisor: QuasiPolynomial,
    assumptions: IntegerSet | None,
) -> list[tuple[int, IntegerSet]] | None:
    """Return the values of the floor of a quotient on a set, and where it has them."""
    if not (numerator.is_affine and divisor.is_affine):
        return None
    whole = restrict(under_assumptions(integer_set, assumptions), nonnegative=[divisor - 1])
    parts: list[tuple[int, IntegerSet]] = []
    for values in (range(_MAXIMUM_QUOTIENTS + 1), range(-1, -_MAXIMUM_QUOTIENTS - 2, -1)):
        for value in values:
            low = numerator - divisor * value
            beyond = low if value >= 0 else divisor - low - 1
            if restrict(whole, nonnegative=[beyond]).is_empty():
                break
            part = restrict(whole, nonnegative=[low, divisor - low - 1])
            if not part.is_empty():
                parts.append((value, part))
        else:
            return None
    return parts if len(parts) <= _MAXIMUM_QUOTIENTS else None
