"""Executions of accesses by how their addresses change between items, and in loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from countperf.counting.access_analysis import AccessAnalyzer
from countperf.counting.access_classes import reads_data
from countperf.counting.accesses import address_of
from countperf.counting.domains import Domains
from countperf.counting.instructions import Instruction
from countperf.counting.keys import MemoryAccess
from countperf.counting.places import Place
from countperf.counting.statistics import Statistics
from countperf.counting.strides import AxisStride, strides_of
from countperf.execution.keys import BY_DATA, Step, WorkItemStep
from countperf.execution.placement import NARROW_ROW
from countperf.execution.reuse import (
    ReuseLimits,
    reuse_path,
    sorted_by_size,
    sorted_by_step,
    step_of,
    within_line,
)
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

ALIGNMENT = 16
"""Elements; a step of one is ``shifted`` where it does not begin at a multiple of them."""
_BESIDE = frozenset({"stride1", "uniform"})
"""Patterns of accesses through data whose items stay in the same lines."""
_ZERO = QuasiPolynomial()
_ONE = QuasiPolynomial.constant(1)

Sorted = tuple[WorkItemStep, Step | None, PiecewiseQuasiPolynomial]
"""Step between items, step in the innermost loop, and executions."""


class StepSorter:
    """Sorts the executions of a kernel's accesses by steps of their addresses."""

    def __init__(
        self,
        domains: Domains,
        analyzer: AccessAnalyzer,
        statistics: Statistics,
        limits: ReuseLimits,
    ) -> None:
        self._limits = limits
        self._domains = domains
        self._analyzer = analyzer
        self._statistics = statistics
        self._found: dict[Any, tuple[Place, tuple[AxisStride, ...]]] = {}
        self.assumed: set[str] = set()

    def strides(self, access: MemoryAccess, found: Instruction) -> tuple[AxisStride, ...]:
        """Return the strides of an access along the axes and loops around it."""
        place = found.place
        key = (access, id(place))
        known = self._found.get(key)
        if known is None:
            layout = self._domains.layout_of(access)
            self.assumed |= {layout.assumed} - {""}
            address = self._domains.address(access)
            if address is None and not reads_data(access, self._domains):
                self.assumed.add(f"uneven steps of {access.text}, as if data led there")
            opaque = address or address_of(access, layout, self._analyzer.to_opaque)
            changing = self._analyzer.changing
            strides = strides_of(place, opaque, found.kinds, changing, of_most=True)
            self._found[key] = known = (place, strides)  # kept, and with it its identity
        return known[1]

    def sorted(
        self,
        access: MemoryAccess,
        found: Instruction,
        loops: Sequence[str],
        executions: PiecewiseQuasiPolynomial,
        once: Callable[[str], PiecewiseQuasiPolynomial | None],
    ) -> list[Sorted]:
        """Sort the executions of an access by its steps, which may depend on the parameters."""
        strides, bits, place = self.strides(access, found), access.bits, found.place
        lanes = [s.stride for s in strides if s.kind == "local" and s.axis == 0]
        across = self._across_rows(access, place, strides)
        path = partial(reuse_path, place, bits, strides, loops)
        among_items, along_loops = (partial(path, items_first=first) for first in (True, False))
        lane_stride = lanes[0] if lanes else _ZERO
        counter = self._domains.counter
        inside = within_line(lane_stride, bits, counter)
        result: list[Sorted] = []
        for step, part in sorted_by_step(
            lane_stride, bits, executions, among_items, once, self._limits, inside=inside
        ):
            if step in BY_DATA:
                result += self._through_data(access, strides, loops, across, part)
                continue
            between = WorkItemStep(
                self._alignment(access, place, 0) if step == "next" else step, across
            )
            if not loops:
                result.append((between, None, part))
                continue
            inner = next(s.stride for s in strides if s.iname == loops[-1])
            by_step = sorted_by_step(
                inner,
                bits,
                part,
                along_loops,
                once,
                self._limits,
                inside=within_line(inner, bits, counter),
            )
            for along, rest in self._by_size(access, by_step):
                result.append((between, along, rest))
        return result

    def _through_data(
        self,
        access: MemoryAccess,
        strides: Sequence[AxisStride],
        loops: Sequence[str],
        across: Step | None,
        executions: PiecewiseQuasiPolynomial,
    ) -> list[Sorted]:
        """Sort the executions of an access of which data decides how the items' addresses differ.

        Where it is even in a loop, the items come back to their lines.
        """
        inner = next((s.stride for s in strides if loops and s.iname == loops[-1]), None)
        if inner is not None:
            between = WorkItemStep("data", across)
            return [(between, step_of(inner, access.bits), executions)]
        return [
            (WorkItemStep(step, across), step if loops else None, part)
            for step, part in self._by_size(access, [("data", executions)])
        ]

    def _by_size(
        self, access: MemoryAccess, parts: Iterable[tuple[Step, PiecewiseQuasiPolynomial]]
    ) -> Iterator[tuple[Step, PiecewiseQuasiPolynomial]]:
        """Sort what data decides by the size of the array, unless neighbors are said to be near.

        No compiler knows the latter: each item then has an access of its own all the same.
        """
        for step, part in parts:
            if step in BY_DATA and not self.stays_beside(access):
                yield from sorted_by_size(self.extent(access), access.bits, part, self._limits)
            else:
                yield step, part

    def stays_beside(self, access: MemoryAccess) -> bool:
        """Tell whether items that data leads are said to stay in the same lines."""
        stated = self._statistics.pattern_of(access.array, access.text)
        return stated is not None and stated[0] in _BESIDE

    def extent(self, access: MemoryAccess) -> QuasiPolynomial | None:
        """Return the elements of the array of an access; None if they are not known."""
        elements = _ONE
        for extent in self._domains.layout_of(access).shape:
            if extent is None:
                return None
            elements *= extent
        return elements

    def _across_rows(
        self, access: MemoryAccess, place: Place, strides: Sequence[AxisStride]
    ) -> Step | None:
        items = place.grid.items
        if items.get(0, 1) > NARROW_ROW or items.get(1, 1) == 1:
            return None
        along = [s.stride for s in strides if s.kind == "local" and s.axis == 1]
        step = step_of(along[0] if along else _ZERO, access.bits)
        return self._alignment(access, place, 1) if step == "next" else step

    def _alignment(self, access: MemoryAccess, place: Place, axis: int) -> Step:
        """Return how neighboring accesses along an axis begin: at multiples of a vector or not."""
        if access.address_space != "local":
            return "next"
        address = self._domains.address(access)
        if address is None:
            return "next"
        lanes = {name for name, of in place.lanes.items() if of == axis}
        odd = [m for m, c in address.flat.terms.items() if c % ALIGNMENT and not _is_of(m, lanes)]
        if not odd:
            return "next"
        return "shifted" if any(odd) else "offset"


def _is_of(monomial: Any, names: set[str]) -> bool:
    return bool(QuasiPolynomial({monomial: 1}).names() & names)
