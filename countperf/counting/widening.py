"""Footprints of strided accesses, and the same with the gaps along the lanes filled in."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from countperf.counting.accesses import Layout
from countperf.symbolic import coverage, isl_sets, sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.isl_sets import IntegerSet
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ZERO, Atom, Monomial, Number, QuasiPolynomial

_MANY_TERMS = 8
"""Of a widened footprint, from which a simpler form is looked for."""

Digits = tuple[QuasiPolynomial, ...]
Pair = tuple[PiecewiseQuasiPolynomial, PiecewiseQuasiPolynomial, Counter]
_Counts = tuple[PiecewiseQuasiPolynomial, PiecewiseQuasiPolynomial]


def digits_of(stride: QuasiPolynomial, layout: Layout) -> Digits | None:
    """Return how far a stride leads along each axis of an array; None if it cannot be told."""
    result = [QuasiPolynomial()] * len(layout.strides)
    nested = layout.nest_axes()
    if nested is None:
        return None
    for axis in nested[0]:
        step = layout.strides[axis]
        leading = next(iter(sorted(step.terms, key=lambda m: -sum(e for _, e in m))))
        digit = Fraction(stride.terms.get(leading, 0)) / step.terms[leading]
        if digit.denominator != 1:
            return None
        whole = QuasiPolynomial.constant(int(digit))
        result[axis] = whole
        stride = stride - step * whole
    return None if stride else tuple(result)


def by_strides(
    flats: Sequence[QuasiPolynomial], sizes: Container[str], *, constants_in_rows: bool
) -> tuple[Layout, list[Digits]] | None:
    """Write flattened addresses as subscripts of a layout whose strides are products of sizes."""
    written: list[dict[Monomial, QuasiPolynomial]] = []
    for flat in flats:
        parts: dict[Monomial, QuasiPolynomial] = {(): ZERO}
        constants: list[tuple[Monomial, Number]] = []
        for monomial, value in flat.terms.items():
            of_loops = [factor for factor in monomial if not _is_of(factor[0], sizes)]
            stride = tuple(factor for factor in monomial if _is_of(factor[0], sizes))
            if len(of_loops) > 1 or any(exponent > 1 for _, exponent in of_loops):
                return None
            if not of_loops:
                constants.append((stride, value))
                continue
            digit = QuasiPolynomial.atom(of_loops[0][0]) * value
            parts[stride] = parts.get(stride, ZERO) + digit
        for stride, value in constants:
            if constants_in_rows and stride in parts:
                parts[stride] = parts[stride] + value
            else:
                parts[()] = parts[()] + QuasiPolynomial({stride: value})
        written.append(parts)
    strides = sorted({stride for parts in written for stride in parts}, key=str)
    layout = Layout(
        strides=tuple(QuasiPolynomial({stride: 1}) for stride in strides),
        shape=(None,) * len(strides),
    )
    indices = [tuple(parts.get(stride, ZERO) for stride in strides) for parts in written]
    if not all(digit.is_affine for index in indices for digit in index):
        return None
    return layout, indices


def _is_of(atom: Atom, sizes: Container[str]) -> bool:
    names = [atom] if isinstance(atom, str) else atom.names()
    return all(name in sizes for name in names)


def is_within_rows(cells: IntegerSet, layout: Layout, counter: Counter) -> bool:
    """Return whether subscripts stay within the rows of a layout, so that cells are distinct."""
    nested = layout.nest_axes()
    if nested is None:
        return False
    names = isl_sets.names_of(cells, parameters=False)
    for axis, extent in zip(nested[0][1:], nested[1][1:], strict=True):
        index = QuasiPolynomial.name(names[axis])
        if extent is None or not extent.is_affine:
            return False
        for outside in (-index - 1, index - extent):
            beyond = sets.restrict(cells, nonnegative=[outside])
            if not sets.under_assumptions(beyond, counter.context.assumptions).is_empty():
                return False
    return True


@dataclass(frozen=True, slots=True)
class Widener:
    """Counts the cells of a footprint, and those of it with the gaps along the lanes filled in."""

    layout: Layout
    stride: QuasiPolynomial
    digits: Digits | None
    is_flattened: bool  # whether cells are offsets

    def count(self, cells: IntegerSet, counter: Counter) -> Pair | None:
        """Count both; None if there is no rule for it."""
        accessed = widened = ZERO_COUNT
        for part in [cells] if self.is_flattened else self._split_arrays(cells):
            pair = self._count_array(part, counter)
            if pair is None:
                return None
            accessed, widened, counter = accessed + pair[0], widened + pair[1], pair[2]
        return accessed, widened, counter

    def _split_arrays(self, cells: IntegerSet) -> list[IntegerSet]:
        """Return the cells of each array, where axes are implemented as several arrays."""
        layout = self.layout
        if not layout.separate:
            return [cells]
        names = isl_sets.names_of(cells, parameters=False)
        extents = [layout.shape[axis] for axis in layout.separate]
        numbers = [range(int(extent.constant_term)) for extent in extents if extent is not None]
        parts: list[IntegerSet] = []
        for values in product(*numbers):
            zero = [
                QuasiPolynomial.name(names[axis]) - value
                for axis, value in zip(layout.separate, values, strict=True)
            ]
            part = sets.restrict(cells, zero=zero)
            if not part.is_empty():
                parts.append(part)
        return parts

    def _count_array(self, cells: IntegerSet, counter: Counter) -> Pair | None:
        layout = self.layout
        if self.is_flattened or layout.is_numeric:
            if not self.stride.is_affine:
                return None
            counted = cells
            if not self.is_flattened:
                axes = [QuasiPolynomial.name(n) for n in isl_sets.names_of(cells, parameters=False)]
                flat = sum((axis * s for axis, s in zip(axes, layout.strides, strict=True)), ZERO)
                cells = sets.image(cells, [flat])
            widened = counter.as_one_piece(coverage.widen_on_line(cells, self.stride))
            return counter.count(counted), counter.count(widened), counter
        nested = layout.nest_axes()
        if nested is None or self.digits is None:
            return None
        order, extents = nested
        if any(e is None or not e.is_affine for e in extents[1:]):
            return None
        counter, padding = self._assume_no_overlaps(order, extents, counter)
        steps = [self.digits[axis] for axis in order]
        filled = coverage.widen_lexicographically(cells, order, extents, steps)
        if filled is None:
            return None
        widened = counter.count(counter.as_one_piece(filled))
        return counter.count(cells).mark_as_bound(padding), widened, counter

    def _assume_no_overlaps(
        self,
        order: Sequence[int],
        extents: Sequence[QuasiPolynomial | None],
        counter: Counter,
    ) -> tuple[Counter, frozenset[str]]:
        """Return a counter that assumes that rows do not overlap, and what it assumes."""
        gaps: list[QuasiPolynomial] = []
        for axis, extent in zip(order[1:], extents[1:], strict=True):
            shape = self.layout.shape[axis]
            if shape is None or extent is None or shape == extent:
                continue
            gap = extent - shape
            if gap.is_affine and not counter.is_nonnegative(gap):
                gaps.append(gap)
        if not gaps:
            return counter, frozenset()
        reasons = frozenset(f"rows do not overlap: {gap} >= 0 is assumed" for gap in gaps)
        return counter.assuming(gaps), reasons
