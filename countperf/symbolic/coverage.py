"""Sets that cover others, extremes on a set, and cells widened to the next step of a stride."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl

from countperf.errors import CountingError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.isl_sets import IntegerSet, as_set
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import restrict, union, with_parameters


def is_all_or_nothing(part: isl_sets.IntegerSet, whole: isl_sets.IntegerSet, name: str) -> bool:
    """Return whether a set has all values of a dimension that another has, at any other values."""
    names = isl_sets.names_of(whole, parameters=False)
    order = [QuasiPolynomial.name(n) for n in names]
    covered, everything = (sets.image(domain, order) for domain in (part, whole))
    position = names.index(name)
    shadow = covered.project_out(isl.dim_type.set, position, 1).insert_dims(
        isl.dim_type.set, position, 1
    )
    shadow = shadow.set_dim_name(isl.dim_type.set, position, f"_i{position}")
    return bool((everything & shadow).is_subset(covered))


def widened_along(
    integer_set: isl_sets.IntegerSet, ranges: Mapping[str, tuple[int, int]]
) -> isl_sets.IntegerSet:
    """Let some dimensions take all values of constant ranges, where they take any value."""
    result = sets.union([integer_set])
    for name, (low, high) in ranges.items():
        position = isl_sets.names_of(result, parameters=False).index(name)
        result = result.project_out(isl.dim_type.set, position, 1).insert_dims(
            isl.dim_type.set, position, 1
        )
        result = result.set_dim_name(isl.dim_type.set, position, name)
        result = result.lower_bound_val(isl.dim_type.set, position, isl.Val(low))
        result = result.upper_bound_val(isl.dim_type.set, position, isl.Val(high))
    return result


def contains(
    integer_set: isl_sets.IntegerSet,
    part: isl_sets.IntegerSet,
    assumptions: isl_sets.IntegerSet | None,
) -> bool:
    """Return whether a set contains another one of the same dimensions, on the assumptions."""
    order = [QuasiPolynomial.name(n) for n in isl_sets.names_of(part, parameters=False)]
    whole, inside = (sets.image(domain, order) for domain in (integer_set, part))
    if assumptions is not None:
        inside = inside.intersect_params(sets.union([assumptions]).params())
    return bool(inside.is_subset(whole))


# --- Smallest and largest values of integer expressions over sets of isl


_DT = isl.dim_type


def at_values(
    integer_set: isl_sets.IntegerSet, values: Mapping[str, int]
) -> tuple[isl_sets.IntegerSet, tuple[str, ...]]:
    """Fix the parameters of a set whose values are known, and eliminate the others."""
    names = isl_sets.names_of(integer_set, parameters=True)
    result = sets.at_values(integer_set, {name: values[name] for name in names if name in values})
    unknown = isl_sets.names_of(result, parameters=True)
    eliminated = tuple(
        name for k, name in enumerate(unknown) if result.involves_dims(_DT.param, k, 1)
    )
    return result.project_out(_DT.param, 0, len(unknown)), eliminated


def contains_values(parameter_set: isl_sets.IntegerSet | None, values: Mapping[str, int]) -> bool:
    """Return whether parameters may have these values, whatever those of the others are."""
    if parameter_set is None:
        return True
    return not at_values(parameter_set, values)[0].is_empty()


def ends_along(
    integer_set: isl_sets.IntegerSet, name: str, known: Iterable[str]
) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a dimension where others have known values."""
    names = list(known)
    line = sets.as_parameters(sets.project_onto(integer_set, [*names, name]), names)
    try:
        return line.dim_min(0).coalesce(), line.dim_max(0).coalesce()
    except isl.Error as error:
        raise CountingError(f"{name} has no bounds") from error


def extremes(
    integer_set: isl_sets.IntegerSet, expressions: Sequence[QuasiPolynomial]
) -> tuple[tuple[int, int], ...] | None:
    """Find the smallest and the largest value of affine expressions over a set, exactly."""
    if integer_set.is_empty():
        return None
    pairs: list[tuple[int, int]] = []
    for expression in expressions:
        aff = sets.as_aff(expression, integer_set.get_space())
        bounds = (integer_set.min_val(aff), integer_set.max_val(aff))
        if not all(bound.is_int() for bound in bounds):
            raise CountingError(f"{expression} has no bounds")
        pairs.append((bounds[0].to_python(), bounds[1].to_python()))
    return tuple(pairs)


def widen_on_line(cells: IntegerSet, step: QuasiPolynomial) -> IntegerSet:
    """Widen each point x of a one-dimensional set to the points from x to x + |step| - 1."""
    name = "_x"
    points = with_parameters(as_set(cells).set_dim_name(_DT.set, 0, name), step.names())
    points = points.add_dims(_DT.set, 1).set_dim_name(_DT.set, 1, "_y")
    x, y = QuasiPolynomial.name(name), QuasiPolynomial.name("_y")
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
    if not all(s.is_constant for s in steps):
        return None
    values = [int(s.constant_term) for s in steps]
    if all(v <= 0 for v in values):
        values = [-v for v in values]
    if any(v < 0 for v in values):
        return None
    count = len(order)
    points = as_set(cells)
    needed = {name for e in extents if e is not None for name in e.names()}
    points = with_parameters(points, needed)
    space = points.get_space()
    reorder = isl.MultiAff.zero(space.from_domain().add_dims(_DT.out, count))
    local = isl.LocalSpace.from_space(space)
    for digit, axis in enumerate(order):
        reorder = reorder.set_aff(digit, isl.Aff.var_on_domain(local, _DT.set, axis))
    points = points.apply(isl.Map.from_multi_aff(reorder))
    for digit in range(count):
        points = points.set_dim_name(_DT.set, digit, f"_x{digit}")
    # pairs (cell, target): the target is the cell one step further, digits carried
    pairs = points.add_dims(_DT.set, 2 * count)
    for digit in range(count):
        pairs = pairs.set_dim_name(_DT.set, count + digit, f"_t{digit}")
        pairs = pairs.set_dim_name(_DT.set, 2 * count + digit, f"_z{digit}")
    name = QuasiPolynomial.name
    carries: list[tuple[IntegerSet, QuasiPolynomial]] = [(pairs, QuasiPolynomial())]
    for digit in reversed(range(count)):
        extent = extents[digit]
        following: list[tuple[IntegerSet, QuasiPolynomial]] = []
        for region, carry in carries:
            total = name(f"_x{digit}") + values[digit] + carry
            target = name(f"_t{digit}")
            if digit == 0:
                following.append((restrict(region, zero=[target - total]), QuasiPolynomial()))
                continue
            assert extent is not None
            following.append(
                (
                    restrict(region, zero=[target - total], nonnegative=[extent - total - 1]),
                    QuasiPolynomial(),
                )
            )
            over = restrict(
                region,
                zero=[target - total + extent],
                nonnegative=[total - extent, extent * 2 - total - 1],
            )
            following.append((over, QuasiPolynomial.constant(1)))
        carries = [(r, c) for r, c in following if not r.is_empty()]
    inside = union([region for region, _ in carries])
    for digit in range(1, count):
        extent = extents[digit]
        assert extent is not None
        z = name(f"_z{digit}")
        inside = restrict(inside, nonnegative=[z, extent - z - 1])
    x, t, z = ([name(f"_{letter}{d}") for d in range(count)] for letter in "xtz")
    inside = _lexicographic(inside, x, z, strict=False)
    inside = _lexicographic(inside, z, t, strict=True)
    return inside.project_out(_DT.set, 0, 2 * count).coalesce()


def _lexicographic(
    integer_set: IntegerSet,
    left: Sequence[QuasiPolynomial],
    right: Sequence[QuasiPolynomial],
    *,
    strict: bool,
) -> IntegerSet:
    """Restrict a set to where one tuple comes before (or equals) another."""
    parts: list[IntegerSet] = []
    for k in range(len(left)):
        equal = [a - b for a, b in zip(left[:k], right[:k], strict=True)]
        parts.append(restrict(integer_set, zero=equal, nonnegative=[right[k] - left[k] - 1]))
    if not strict:
        equal = [a - b for a, b in zip(left, right, strict=True)]
        parts.append(restrict(integer_set, zero=equal))
    return union(parts)
