"""Footprints: which cells of an array a kernel accesses, each counted once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.access_classes import FOOTPRINT_OPERATIONS, accessed_cells
from countperf.counting.accesses import Address, Layout
from countperf.counting.components import touched_addresses
from countperf.counting.domains import Domains
from countperf.counting.places import Refusable
from countperf.display import ShortRepr
from countperf.errors import CountingError
from countperf.symbolic import isl_sets
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint(ShortRepr):
    """The cells of an array that a kernel accesses."""

    # name of the array; ``global`` or ``local`` (then of one group's copy)
    array: str
    address_space: str
    direction: str  # which accesses are meant; ``any`` is their union
    element_bytes: int  # size of an element
    accesses: PiecewiseQuasiPolynomial  # executions of all of them, by all work items
    cells: Refusable  # distinct elements
    members: tuple[AccessAnalysis, ...] = field(repr=False, compare=False)

    @property
    def size_bytes(self) -> Refusable:
        """Distinct bytes."""
        if self.cells.count is None:
            return self.cells
        return Refusable(count=self.cells.count.scale(self.element_bytes), reason=self.cells.reason)

    def cells_at(self, parameters: Mapping[str, Any]) -> int:
        """Return the distinct elements at parameters; where no formula is known, by enumeration."""
        values = self.members[0].checked(parameters)
        if self.cells.count is not None:
            return int(self.cells.count.evaluate(values))
        touched = [
            touched_addresses(access.place, _direct(access), values) for access in self.members
        ]
        return len(np.unique(np.concatenate(touched)))

    def accesses_per_cell(self, parameters: Mapping[str, Any]) -> Fraction:
        """Return the ratio of accesses to footprint at parameters; zero if nothing is accessed."""
        values = self.members[0].checked(parameters)
        return Fraction(self.accesses.evaluate(values)) / (self.cells_at(values) or 1)


def _direct(access: AccessAnalysis) -> QuasiPolynomial:
    if access.address is None or access.is_estimate:
        why = access.is_estimate or "data, from which its address is read,"
        raise CountingError(
            f"{access.label}: {why} decides what is accessed, so that no footprint is known",
            where=access.label,
        )
    return access.address


def footprints_of(accesses: Sequence[AccessAnalysis], domains: Domains) -> tuple[Footprint, ...]:
    """Find the footprints of all arrays, by array and direction."""
    result: list[Footprint] = []
    for array in dict.fromkeys(access.access.array for access in accesses):
        own = [access for access in accesses if access.access.array == array]
        directions = list(dict.fromkeys(access.access.direction for access in own))
        for direction in (*directions, *(["any"] if len(directions) > 1 else [])):
            members = tuple(a for a in own if direction in ("any", a.access.direction))
            total = ZERO_COUNT
            for access in members:
                total += access.executions
            result.append(
                Footprint(
                    array=array,
                    address_space=own[0].access.address_space,
                    direction=direction,
                    element_bytes=members[0].access.bits // 8,
                    accesses=total,
                    cells=_cells(members, domains.layout_of(members[0].access), domains),
                    members=members,
                )
            )
    return tuple(result)


def _cells(members: Sequence[AccessAnalysis], layout: Layout, domains: Domains) -> Refusable:
    first = members[0]
    what = f"kernel '{first.sizes.kernel}': the footprint of array '{first.access.array}'"
    if any(access.access.component_of != first.access.component_of for access in members):
        return Refusable(count=None, reason="its vectors are accessed whole and by components")
    indirect = [access.text for access in members if access.index is None]
    if indirect:
        return Refusable(count=None, reason=f"the address of {indirect[0]} is read from data")
    estimates = [access.is_estimate for access in members if access.is_estimate]
    if estimates:
        return Refusable(count=None, reason=f"{estimates[0]} decides what is accessed")
    places = dict.fromkeys((a.index, a.place.within, a.place.cases) for a in members)
    try:
        with isl_sets.limited_operations(FOOTPRINT_OPERATIONS, what):
            cells = accessed_cells(
                ((i, w, c) for i, w, c in places if i is not None),
                domains,
                _injective_index(layout, what),
            )
            return Refusable(count=domains.counter.count(cells))
    except CountingError as error:
        return Refusable(count=None, reason=str(error))


def _injective_index(layout: Layout, what: str) -> Callable[[Address], tuple[QuasiPolynomial, ...]]:
    """Return what tells the cells of an array apart: subscripts, or the offset itself."""

    def functions(address: Address) -> tuple[QuasiPolynomial, ...]:
        if layout.is_numeric and layout.compact_order() is None:
            return (address.flat,)
        if address.is_flattened:
            if len(layout.strides) > 1:
                raise CountingError(f"{what}: it has flattened and other subscripts", where=what)
            return address.index
        return tuple(
            part for part, stride in zip(address.index, layout.strides, strict=True) if stride
        )

    return functions
