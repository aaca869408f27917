"""Integer sets of isl, as the rest of countperf needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import islpy as isl

from countperf.errors import CountingError
from countperf.symbolic.elimination import Polyhedron, Row, fuse_tiles
from countperf.symbolic.isl_sets import (
    Bounds,
    IntegerSet,
    as_set,
    drop_parameters,
    from_isl,
    names_of,
    to_isl,
    write_rows,
)
from countperf.symbolic.quasipolynomial import ONE, ZERO, Atom, Floor, QuasiPolynomial

_DT = isl.dim_type


def as_dimensions(parameter_set: IntegerSet) -> IntegerSet:
    """Turn all parameters of a set of parameters into dimensions."""
    whole = parameter_set.from_params() if parameter_set.is_params() else parameter_set
    return whole.move_dims(_DT.set, 0, _DT.param, 0, whole.dim(_DT.param))


def project_onto(integer_set: IntegerSet, keep: Iterable[str]) -> IntegerSet:
    """Project a set onto some of its dimensions, exactly."""
    wanted = set(keep)
    for position in reversed(range(integer_set.dim(_DT.set))):
        if integer_set.get_dim_name(_DT.set, position) not in wanted:
            integer_set = integer_set.project_out(_DT.set, position, 1)
    return integer_set


def name_dimensions(integer_set: IntegerSet, names: Iterable[str]) -> IntegerSet:
    """Name the dimensions of a set, the first ones first."""
    for position, name in enumerate(names):
        integer_set = integer_set.set_dim_name(_DT.set, position, name)
    return integer_set


def add_dimensions(integer_set: IntegerSet, names: Sequence[str]) -> IntegerSet:
    """Add free dimensions to a set, so that it has all names in this order."""
    result = as_set(integer_set)
    known = names_of(result, parameters=False)
    for position, name in enumerate(names):
        if name not in known:
            result = result.insert_dims(_DT.set, position, 1)
            result = result.set_dim_name(_DT.set, position, name)
    return result


def without_parameters(integer_set: IntegerSet, names: Iterable[str]) -> IntegerSet | None:
    """Return a set without some of its parameters, for any values of them at which it has points.

    None if the points depend on them.
    """
    whole = as_set(integer_set)
    result = drop_parameters(whole, set(names))
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
    places = {
        space.get_dim_name(kind, k): (own_kind, k)
        for kind, own_kind in ((_DT.param, _DT.param), (_DT.set, _DT.in_))
        for k in range(space.dim(kind))
    }
    result = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    for monomial, value in expression.terms.items():
        factor = isl.Val(str(value))
        if not monomial:
            result = result.add_constant_val(factor)
            continue
        ((atom, exponent), *rest) = monomial
        is_known = atom in places if isinstance(atom, str) else atom.is_affine
        if rest or exponent != 1 or not is_known:
            raise CountingError(f"{expression} is not affine in {sorted(places)}")
        if isinstance(atom, Floor):
            inner = as_aff(atom.numerator, space).scale_down_val(isl.Val(atom.denominator))
            result = result.add(inner.floor().scale_val(factor))
        else:
            result = result.add_coefficient_val(*places[atom], factor)
    return result


def rows_of(expressions: Iterable[QuasiPolynomial], names: Sequence[str]) -> tuple[Row, ...]:
    """Return affine expressions without floors as rows of integers."""
    primitive = [expression.primitive() for expression in expressions]
    return tuple((int(e.constant_term), *map(int, map(e.coefficient_of, names))) for e in primitive)


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
    conditions = [(e, isl.Constraint.inequality_from_aff) for e in nonnegative]
    conditions += [(e, isl.Constraint.equality_from_aff) for e in zero]
    needed = {name for e, _ in conditions for name in e.names()}
    result = with_parameters(result, needed - set(names_of(result, parameters=False)))
    for expression, constrain in conditions:
        result = result.add_constraint(constrain(as_aff(expression, result.get_space())))
    return result


def union(sets: Sequence[IntegerSet]) -> IntegerSet:
    """Return the union of sets of one space; their parameters are aligned."""
    return reduce(isl.Set.union, map(as_set, sets)).coalesce()


def where_holds(
    integer_set: IntegerSet, alternatives: Iterable[Iterable[QuasiPolynomial]]
) -> IntegerSet:
    """Restrict a set to where all expressions of one of some alternatives are at least zero."""
    parts = [restrict(integer_set, nonnegative=each) for each in alternatives]
    whole = union([integer_set])
    return union(parts) if parts else whole - whole


def image(integer_set: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
    """Return the image of a set under affine functions of its dimensions, exactly.

    Tilings that the functions do not see are undone first. The new dimensions are ``_i0`` ...
    """
    for function in functions:
        if not function.is_affine:
            raise CountingError(f"{function} is not affine")
    needed = {name for f in functions for name in f.names()}
    needed -= set(names_of(integer_set, parameters=False))
    integer_set = with_parameters(as_set(integer_set), needed)
    pieces = [] if any(f.floors() for f in functions) else integer_set.get_basic_sets()
    result = (
        union([_image_of_piece(piece, functions) for piece in pieces])
        if pieces
        else _apply_functions(integer_set, functions)
    )
    return name_dimensions(result, map("_i{}".format, range(len(functions))))


def _apply_functions(integer_set: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
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
    wider = body.map_rows(lambda row: row + (0,) * count)
    rows: list[Row] = [*wider.inequalities, *(tuple(-c for c in r) for r in wider.equalities)]
    rows += wider.equalities
    for k, function in enumerate(functions):
        row = [int(c) for c in (function.constant_term, *map(function.coefficient_of, names))]
        row += [-1 if j == k else 0 for j in range(count)]
        rows += [tuple(row), tuple(-c for c in row)]
    targets = tuple(f"_i{k}" for k in range(count))
    fused = fuse_tiles(Polyhedron(parameters, inner + targets, (), tuple(rows)), frozenset(targets))
    return isl.Set.from_basic_set(
        to_isl(fused).project_out(_DT.set, 0, len(fused.dimensions) - count)
    )


_MAXIMUM_HULL_DIVISIONS = 2  # eliminating more of them may take forever


def as_one_piece(integer_set: IntegerSet, assumptions: IntegerSet | None) -> IntegerSet:
    """Return the hull of a set instead of the set, where both are equal on the assumptions.

    Overlapping tiles, such as those of halos, then lose their tile index.
    """
    whole = as_set(integer_set)
    assumed = under_assumptions(whole, assumptions)
    if assumed.is_empty() or any(
        piece.dim(_DT.div) > _MAXIMUM_HULL_DIVISIONS for piece in assumed.get_basic_sets()
    ):
        return whole
    hull = isl.Set.from_basic_set(assumed.remove_divs().simple_hull())
    hull = hull.intersect(isl.Set.from_basic_set(assumed.affine_hull()))
    hull = under_assumptions(hull, assumptions)
    if not hull.is_subset(assumed):
        return whole
    return hull if assumptions is None else hull.gist_params(as_set(assumptions))


def is_independent(integer_set: IntegerSet, names: Iterable[str], other: str) -> bool:
    """Return whether the values of some dimensions do not depend on the value of another one."""
    kept = set(names)
    joint = as_set(project_onto(integer_set, kept | {other}))
    order = names_of(joint, parameters=False)
    apart = add_dimensions(project_onto(joint, kept), order)
    apart &= add_dimensions(project_onto(joint, {other}), order)
    return bool(joint.plain_is_equal(apart) or joint.is_equal(apart))


def solve_dimensions(hull: IntegerSet, candidates: Sequence[str]) -> dict[str, QuasiPolynomial]:
    """Solve equalities for dimensions."""
    parameters = names_of(hull, parameters=True)
    dimensions = names_of(hull, parameters=False)
    count = len(dimensions)
    solved: dict[str, QuasiPolynomial] = {}
    for row in write_rows(hull)[0]:
        last = len(row) - 1 - len(parameters)
        if any(row[count:last]):
            continue  # holds modulo something only
        terms = zip((*dimensions, *parameters), row[:count] + row[last:-1], strict=True)
        left = QuasiPolynomial.affine(terms, row[-1]).substitute(solved).primitive()
        for name in candidates:
            factor = left.coefficient_of(name)
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
    for name in names_of(whole, parameters=False):
        line = project_onto(whole, [name])
        line = line.project_out(_DT.param, 0, line.dim(_DT.param))
        ends = line.dim_min_val(0), line.dim_max_val(0)
        low, high = (end.to_python() if end.is_int() else None for end in ends)
        result[name] = low, high
    return result


def resolve_floors(expression: QuasiPolynomial, bounds: Bounds) -> QuasiPolynomial:
    """Replace floors whose value the bounds of their names decide."""

    def replace(atom: Atom) -> QuasiPolynomial | None:
        if isinstance(atom, str) or not atom.denominator:
            return None
        numerator = resolve_floors(atom.numerator, bounds)
        unknown, names = numerator.floor_divide(atom.denominator), numerator.names()
        if not numerator.is_linear or any(None in bounds.get(name, (None,)) for name in names):
            return unknown
        slopes = {name: numerator.terms[(name, 1),] for name in names}
        low, high = (
            numerator.evaluate({n: bounds[n][(c < 0) ^ end] or 0 for n, c in slopes.items()})
            // atom.denominator
            for end in (False, True)
        )
        return QuasiPolynomial.constant(low) if low == high else unknown

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


def is_all_or_nothing(part: IntegerSet, whole: IntegerSet, name: str) -> bool:
    """Return whether a set has all values of a dimension that another has, at any other values."""
    names = names_of(whole, parameters=False)
    covered, everything = (
        image(domain, [*map(QuasiPolynomial.name, names)]) for domain in (part, whole)
    )
    order = names_of(covered, parameters=False)
    others = [inner for inner, outer in zip(order, names, strict=True) if outer != name]
    shadow = add_dimensions(project_onto(covered, others), order)
    return bool((everything & shadow).is_subset(covered))


def widen_along(integer_set: IntegerSet, ranges: Mapping[str, tuple[int, int]]) -> IntegerSet:
    """Let some dimensions take all values of constant ranges, where they take any value."""
    names = names_of(integer_set, parameters=False)
    result = add_dimensions(project_onto(integer_set, set(names) - ranges.keys()), names)
    dimensions = [(QuasiPolynomial.name(name), *ends) for name, ends in ranges.items()]
    within = [side for x, low, high in dimensions for side in (x - low, high - x)]
    return restrict(result, nonnegative=within)


def contains(integer_set: IntegerSet, part: IntegerSet, assumptions: IntegerSet | None) -> bool:
    """Return whether a set contains another one of the same dimensions, on the assumptions."""
    order = [*map(QuasiPolynomial.name, names_of(part, parameters=False))]
    inside = under_assumptions(image(part, order), assumptions)
    return bool(inside.is_subset(image(integer_set, order)))


def fix_parameters(
    integer_set: IntegerSet, values: Mapping[str, int]
) -> tuple[IntegerSet, tuple[str, ...]]:
    """Fix the parameters of a set whose values are known, and eliminate the others."""
    names = names_of(integer_set, parameters=True)
    result = at_values(integer_set, {name: values[name] for name in names if name in values})
    unknown = names_of(result, parameters=True)
    eliminated = tuple(
        name for k, name in enumerate(unknown) if result.involves_dims(_DT.param, k, 1)
    )
    return result.project_out(_DT.param, 0, len(unknown)), eliminated


def contains_values(parameter_set: IntegerSet | None, values: Mapping[str, int]) -> bool:
    """Return whether parameters may have these values, whatever those of the others are."""
    return parameter_set is None or not fix_parameters(parameter_set, values)[0].is_empty()


def extremes(
    integer_set: IntegerSet, expressions: Sequence[QuasiPolynomial]
) -> tuple[tuple[int, int], ...] | None:
    """Find the smallest and the largest value of affine expressions over a set, exactly."""
    if integer_set.is_empty():
        return None
    pairs: list[tuple[int, int]] = []
    for expression in expressions:
        aff = as_aff(expression, integer_set.get_space())
        low, high = integer_set.min_val(aff), integer_set.max_val(aff)
        if not (low.is_int() and high.is_int()):
            raise CountingError(f"{expression} has no bounds")
        pairs.append((low.to_python(), high.to_python()))
    return tuple(pairs)


def widen_on_line(cells: IntegerSet, step: QuasiPolynomial) -> IntegerSet:
    """Widen each point x of a one-dimensional set to the points from x to x + |step| - 1."""
    points = with_parameters(as_set(cells).add_dims(_DT.set, 1), step.names())
    points = name_dimensions(points, ("_x", "_y"))
    x, y = map(QuasiPolynomial.name, ("_x", "_y"))
    forward = restrict(points, nonnegative=[y - x, x + step - y - 1])
    backward = restrict(points, nonnegative=[y - x, x - step - y - 1])
    return union([forward, backward]).project_out(_DT.set, 0, 1).coalesce()


def widen_lexicographically(
    cells: IntegerSet,
    order: Sequence[int],
    extents: Sequence[QuasiPolynomial | None],
    steps: Sequence[QuasiPolynomial],
) -> IntegerSet | None:
    """Widen each cell of a compact array by a stride given digit by digit."""
    values = [int(s.constant_term) for s in steps]
    if all(v <= 0 for v in values):
        values = [-v for v in values]
    if any(v < 0 for v in values) or not all(s.is_constant for s in steps):
        return None
    count = len(order)
    needed = {name for e in extents if e is not None for name in e.names()}
    points = with_parameters(as_set(cells), needed)
    names = names_of(points, parameters=False)
    points = _apply_functions(points, [QuasiPolynomial.name(names[axis]) for axis in order])
    # pairs (cell, target): the target is the cell one step further, digits carried
    labels = [[f"_{letter}{digit}" for digit in range(count)] for letter in "xtz"]
    pairs = name_dimensions(points.add_dims(_DT.set, 2 * count), chain(*labels))
    x, t, z = ([*map(QuasiPolynomial.name, each)] for each in labels)
    carries: list[tuple[IntegerSet, QuasiPolynomial]] = [(pairs, ZERO)]
    for digit in reversed(range(count)):
        extent = extents[digit] if digit else None
        following: list[tuple[IntegerSet, QuasiPolynomial]] = []
        for region, carry in carries:
            total = x[digit] + values[digit] + carry
            gap = t[digit] - total
            if extent is None:
                following.append((restrict(region, zero=[gap]), ZERO))
                continue
            below, above = [extent - total - 1], [total - extent, extent * 2 - total - 1]
            following.append((restrict(region, zero=[gap], nonnegative=below), ZERO))
            following.append((restrict(region, zero=[gap + extent], nonnegative=above), ONE))
        carries = [(region, carry) for region, carry in following if not region.is_empty()]
    inside = union([region for region, _ in carries])
    for digit, extent in enumerate(extents[1:], start=1):
        assert extent is not None
        inside = restrict(inside, nonnegative=[z[digit], extent - z[digit] - 1])
    inside = _order_digits(_order_digits(inside, x, z, or_equal=True), z, t, or_equal=False)
    return inside.project_out(_DT.set, 0, 2 * count).coalesce()


def _order_digits(
    integer_set: IntegerSet,
    left: Sequence[QuasiPolynomial],
    right: Sequence[QuasiPolynomial],
    *,
    or_equal: bool,
) -> IntegerSet:
    """Restrict a set to where one tuple comes before another, or equals it."""
    gaps = [b - a for a, b in zip(left, right, strict=True)]
    parts = [
        restrict(integer_set, zero=gaps[:k], nonnegative=[gap - 1]) for k, gap in enumerate(gaps)
    ]
    return union([*parts, *[restrict(integer_set, zero=gaps)] * or_equal])
