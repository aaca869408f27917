"""Known constraints of the size parameters, by which polyhedra are simplified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd
from typing import Any

import islpy as isl
from pytools import memoize_method

from countperf.symbolic.isl_sets import IntegerSet, assumptions_text, from_isl, names_of, to_isl
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.tiles import Polyhedron, Row

_DT = isl.dim_type


class Context:
    """Known constraints of the parameters; used to simplify, never to restrict."""

    def __init__(self, assumptions: IntegerSet | None) -> None:
        self.assumptions = assumptions
        self.text = assumptions_text(assumptions)
        self.congruences: dict[str, tuple[int, int]] = {}
        self._lower: dict[str, int] = {}
        self.lower_bounds: dict[str, int] = {}
        whole = isl.BasicSet("{ : }") if assumptions is None else assumptions
        if isinstance(whole, isl.Set):
            whole = whole.coalesce().simple_hull()
        names = names_of(whole, parameters=True)
        self._find_congruences(whole, names)
        dimensions = tuple([f"_e{k}" for k in range(whole.dim(_DT.div))])
        rescaled = to_isl(self.rescale(from_isl(whole, names, dimensions)))
        basic = rescaled.project_out(_DT.set, 0, len(dimensions))
        self._hull = from_isl(basic.remove_divs(), names, ())
        for row in self._hull.inequalities:
            occurring = [k for k, c in enumerate(row) if k and c]
            if len(occurring) == 1 and row[occurring[0]] > 0:
                name = names[occurring[0] - 1]
                bound = -(row[0] // row[occurring[0]])  # -k/c rounded up
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
        smallest = row[0]
        for name, c in zip(parameters, row[1:], strict=False):
            if c:
                bound = self._lower.get(name)
                if c < 0 or bound is None:
                    return False
                smallest += c * bound
        return smallest >= 0

    def _find_congruences(self, hull: Any, names: tuple[str, ...]) -> None:
        moved = isl.Set.from_basic_set(hull)
        if moved.is_params():
            moved = moved.from_params()
        moved = moved.move_dims(_DT.set, 0, _DT.param, 0, len(names))
        if moved.is_empty():
            return
        for position, name in enumerate(names):
            info = moved.get_stride_info(position)
            stride = info.get_stride().to_python()
            offset = info.get_offset()
            if stride > 1 and offset.is_cst():
                remainder = offset.get_constant_val().to_python() % stride
                self.congruences[name] = (stride, remainder)

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

    @cached_property
    def original_parameters(self) -> Mapping[str, QuasiPolynomial]:
        """Substitution of the quotients that gives back the parameters."""
        return {
            name: QuasiPolynomial.affine(
                [(name, Fraction(1, modulus))], Fraction(-remainder, modulus)
            )
            for name, (modulus, remainder) in self.congruences.items()
        }

    @cached_property
    def quotients(self) -> Mapping[str, QuasiPolynomial]:
        """Substitution of the parameters by expressions in their quotients."""
        return {
            name: QuasiPolynomial.affine([(name, modulus)], remainder)
            for name, (modulus, remainder) in self.congruences.items()
        }

    @memoize_method
    def _as_set(self, parameters: tuple[str, ...], dimensions: tuple[str, ...]) -> IntegerSet:
        """Return the hull as a set in a space; parameters that it lacks are projected out."""
        hull = self._hull
        unknown = [k for k, name in enumerate(hull.parameters) if name not in parameters]
        if unknown:
            basic = to_isl(hull)
            for k in reversed(unknown):
                basic = basic.project_out(_DT.param, k, 1)
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


@lru_cache(256)
def context_of(assumptions: IntegerSet | None) -> Context:
    """Return what is known of parameters; found once in a process for equal assumptions."""
    return Context(assumptions)


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
