"""Sets of array cells, each widened to the cells up to the next step of a stride."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from countperf.symbolic.isl_sets import IntegerSet, as_set
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import restrict, union, with_parameters

_DT = isl.dim_type


def widened_on_line(cells: IntegerSet, step: QuasiPolynomial) -> IntegerSet:
    """Widen each point x of a one-dimensional set to the points from x to x + |step| - 1."""
    name = "_x"
    points = with_parameters(as_set(cells).set_dim_name(_DT.set, 0, name), step.names())
    points = points.add_dims(_DT.set, 1).set_dim_name(_DT.set, 1, "_y")
    x, y = QuasiPolynomial.name(name), QuasiPolynomial.name("_y")
    forward = restrict(points, nonnegative=[y - x, x + step - y - 1])
    backward = restrict(points, nonnegative=[y - x, x - step - y - 1])
    return union([forward, backward]).project_out(_DT.set, 0, 1).coalesce()


def widened_lexicographically(
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
