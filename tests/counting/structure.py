"""The analysis of a kernel against the interpreter that records what each work item does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import KernelAnalysis
from countperf.counting.places import Refusable
from countperf.counting.structure import RegionAnalysis
from countperf.counting.transactions import bank_conflicts, transactions
from tests.oracles.interpreter import Access
from tests.oracles.lanes import LaneRecorder, Recorded, conflict_degree, lines


def matched(
    analysis: KernelAnalysis, recorded: Recorded
) -> dict[tuple[str, Access], list[AccessAnalysis]]:
    """Sort the analyzed accesses by what the interpreter calls them."""
    result: dict[tuple[str, Access], list[AccessAnalysis]] = {p: [] for p in recorded.addresses}
    for found in analysis.accesses:
        access = Access(
            array=found.access.array,
            space=found.access.address_space,
            direction=found.access.direction,
            bits=found.access.bits,
            index=found.access.index,
            within=found.place.within,
        )
        result.setdefault((found.instruction, access), []).append(found)
    return result


def stride_mistakes(
    analysis: KernelAnalysis, recorded: Recorded, parameters: Mapping[str, int]
) -> tuple[list[str], int]:
    """Compare strides with the addresses of neighbors; return mistakes, and strides not given."""
    mistakes: list[str] = []
    uneven = 0
    for place, accesses in matched(analysis, recorded).items():
        points = recorded.points[place]
        for access in accesses:
            for stride in access.strides:
                steps = _steps(points, stride.iname) if stride.iname else {0}
                if stride.stride is None:
                    uneven += 1  # it may look even at small sizes
                elif steps and steps != {stride.stride.evaluate(parameters)}:
                    mistakes.append(f"{access.label}: {stride}, but seen {steps}")
    return mistakes, uneven


def _steps(points: Mapping[Any, int | None], iname: str) -> set[int | None]:
    steps: set[int | None] = set()
    for point, address in points.items():
        following = tuple((n, v + (n == iname)) for n, v in point)
        if following in points:
            after = points[following]
            steps.add(None if after is None or address is None else after - address)
    return steps


def transaction_mistakes(
    analysis: KernelAnalysis,
    recorded: Recorded,
    parameters: Mapping[str, int],
    *,
    line_bytes: int,
    sub_group_size: int,
) -> list[str]:
    """Compare distributions of lines with those of the recorded addresses."""
    mistakes: list[str] = []
    for place, accesses in matched(analysis, recorded).items():
        size = place[1].bits // 8
        if not recorded.is_direct(place) or any(a.address is None for a in accesses):
            assert not recorded.is_direct(place)
            assert all(a.address is None for a in accesses)
            continue
        expected = Counter(
            lines(addresses, element_bytes=size, line_bytes=line_bytes)
            for addresses in recorded.sub_groups(place, sub_group_size)
        )
        found: Counter[int] = Counter()
        executed = 0
        for access in accesses:
            result = transactions(
                access, parameters, line_bytes=line_bytes, sub_group_size=sub_group_size
            )
            found.update(dict(result.distribution))
            executed += result.accesses
            if result.accesses != access.executions.evaluate(parameters):
                mistakes.append(f"{access.label}: {result.accesses} accesses, {access.executions}")
        if found != expected:
            mistakes.append(f"{place[0]} {place[1].array}: {dict(found)}, seen {dict(expected)}")
    return mistakes


def conflict_mistakes(
    analysis: KernelAnalysis,
    recorded: Recorded,
    parameters: Mapping[str, int],
    *,
    banks: int,
    width: int,
    sub_group_size: int,
) -> list[str]:
    """Compare conflict degrees with those of the recorded addresses."""
    mistakes: list[str] = []
    for place, accesses in matched(analysis, recorded).items():
        if place[1].space != "local" or not recorded.is_direct(place):
            continue
        expected = Counter(
            conflict_degree(addresses, element_bytes=place[1].bits // 8, banks=banks, width=width)
            for addresses in recorded.sub_groups(place, sub_group_size)
        )
        found: Counter[int] = Counter()
        for access in accesses:
            result = bank_conflicts(
                access,
                parameters,
                banks=banks,
                bank_width_bytes=width,
                sub_group_size=sub_group_size,
            )
            found.update(dict(result.distribution))
        if found != expected:
            mistakes.append(f"{place[0]} {place[1].array}: {dict(found)}, seen {dict(expected)}")
    return mistakes


def slot_mistakes(
    analysis: KernelAnalysis, recorded: Recorded, parameters: Mapping[str, int]
) -> tuple[list[str], int]:
    """Compare slots and executions with recorded passes; return mistakes, and slots not given."""
    mistakes: list[str] = []
    refused = 0
    for program in analysis.programs:
        for region in program.regions:
            for instruction in region.instructions:
                name = instruction.id
                passes = len(recorded.passes[name]) * recorded.groups[name]
                expected = passes * recorded.items[name]
                executed = instruction.executions.evaluate(parameters)
                if executed != recorded.executions[name]:
                    mistakes.append(f"{name}: executed {executed}, {recorded.executions[name]}")
                if instruction.slots.count is None:
                    refused += 1
                elif instruction.slots.count.evaluate(parameters) != expected:
                    mistakes.append(f"{name}: slots {instruction.slots}, seen {expected}")
                listed = replace(instruction, slots=Refusable(count=None)).slots_at(parameters)
                if listed != expected:
                    mistakes.append(f"{name}: {listed} slots listed, seen {expected}")
    return mistakes, refused


def trip_mistakes(
    analysis: KernelAnalysis, recorder: LaneRecorder, parameters: Mapping[str, int]
) -> list[str]:
    """Compare trip counts with the values of the loop variables, wherever loops are entered."""
    mistakes: list[str] = []
    for program in analysis.programs:
        for region in program.regions:
            for loops, around, trips in _counted(region, recorder):
                if trips.count is None:
                    mistakes.append(f"{loops}: {trips}")
                    continue
                around |= trips.count.names() - set(parameters)
                values: dict[Any, set[Any]] = {}
                for point in recorder.points(around | loops):
                    place = tuple(sorted((n, point[n]) for n in around))
                    values.setdefault(place, set()).add(tuple(point[n] for n in sorted(loops)))
                for place, seen in values.items():
                    if len(seen) != trips.count.evaluate({**parameters, **dict(place)}):
                        mistakes.append(f"{loops} at {place}: {trips}, seen {seen}")
    return mistakes


def _counted(
    region: RegionAnalysis, recorder: LaneRecorder
) -> Iterator[tuple[set[str], set[str], Refusable]]:
    """Yield loops, the loop variables around them, and their trips, for a region."""
    within = {i.id: i.place.within for i in region.instructions}
    everything = frozenset[str]().union(*within.values())
    for loop in region.around:
        groups = set[str]() if loop.kind == "launch loop" else set(recorder.group_axes)
        yield {loop.iname}, {n for n in everything if n in {*loop.around, *groups}}, loop.trips
    axes = {*recorder.local_axes, *recorder.group_axes}
    for loop in region.loops:
        names = next(w for w in within.values() if loop.iname in w)
        yield {loop.iname}, {n for n in names if n in {*axes, *loop.around}}, loop.trips
    for chain in region.chains:
        yield set(chain.loops), set(within[chain.instructions[-1]]) - set(chain.loops), chain.steps


def footprint_mistakes(
    analysis: KernelAnalysis, recorded: Recorded, parameters: Mapping[str, int]
) -> tuple[list[str], int]:
    """Compare footprints with recorded addresses; return mistakes, and footprints not given."""
    mistakes: list[str] = []
    refused = 0
    touched: dict[tuple[str, str], set[int | None]] = {}
    for (_, access), points in recorded.points.items():
        for direction in (access.direction, "any"):
            touched.setdefault((access.array, direction), set()).update(points.values())
    for footprint in analysis.footprints:
        cells = touched.get((footprint.array, footprint.direction), set())
        if None in cells:
            assert footprint.cells.count is None
            continue
        if footprint.cells.count is None:
            refused += 1
        elif footprint.cells.count.evaluate(parameters) != len(cells):
            mistakes.append(f"{footprint.array} {footprint.direction}: {footprint.cells}, {cells}")
        if replace(footprint, cells=Refusable(count=None)).cells_at(parameters) != len(cells):
            mistakes.append(f"{footprint.array} {footprint.direction}: enumerated, {cells}")
    return mistakes, refused
