"""The analysis of a kernel against the interpreter that records what each work item does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from countperf.counting.access_analysis import AccessAnalysis, bank_conflicts, transactions
from countperf.counting.analysis import KernelAnalysis, footprints_of
from countperf.counting.scopes import slots_of
from tests.oracles.interpreter import Access
from tests.oracles.lanes import LaneRecorder, Recorded, conflict_degree, lines


def matched(
    analysis: KernelAnalysis, recorded: Recorded
) -> dict[tuple[str, Access], list[AccessAnalysis]]:
    """Sort the analyzed accesses by what the interpreter calls them."""
    result: dict[tuple[str, Access], list[AccessAnalysis]] = {p: [] for p in recorded.addresses}
    for analyzed in analysis.accesses:
        access = Access(
            array=analyzed.access.array,
            space=analyzed.access.address_space,
            direction=analyzed.access.direction,
            bits=analyzed.access.bits,
            index=analyzed.access.index,
            within=analyzed.scope.within,
        )
        result.setdefault((analyzed.instruction, access), []).append(analyzed)
    return result


def stride_mistakes(
    analysis: KernelAnalysis, recorded: Recorded, parameters: Mapping[str, int]
) -> tuple[list[str], int]:
    """Compare strides with the addresses of neighbors; return mistakes, and strides not given."""
    mistakes: list[str] = []
    uneven = 0
    for scope, accesses in matched(analysis, recorded).items():
        points = recorded.points[scope]
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
    for scope, accesses in matched(analysis, recorded).items():
        size = scope[1].bits // 8
        if not recorded.is_direct(scope) or any(a.address is None for a in accesses):
            assert not recorded.is_direct(scope)
            assert all(a.address is None for a in accesses)
            continue
        expected = Counter(
            lines(addresses, element_bytes=size, line_bytes=line_bytes)
            for addresses in recorded.sub_groups(scope, sub_group_size)
        )
        found: Counter[int] = Counter()
        for access in accesses:
            result = transactions(
                access, parameters, line_bytes=line_bytes, sub_group_size=sub_group_size
            )
            found.update(dict(result.distribution))
            if result.accesses != access.executions.evaluate(parameters):
                mistakes.append(f"{access.label}: {result.accesses} accesses, {access.executions}")
        if found != expected:
            mistakes.append(f"{scope[0]} {scope[1].array}: {dict(found)}, seen {dict(expected)}")
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
    for scope, accesses in matched(analysis, recorded).items():
        if scope[1].space != "local" or not recorded.is_direct(scope):
            continue
        expected = Counter(
            conflict_degree(addresses, element_bytes=scope[1].bits // 8, banks=banks, width=width)
            for addresses in recorded.sub_groups(scope, sub_group_size)
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
            mistakes.append(f"{scope[0]} {scope[1].array}: {dict(found)}, seen {dict(expected)}")
    return mistakes


def slot_mistakes(
    analysis: KernelAnalysis, recorded: Recorded, parameters: Mapping[str, int]
) -> list[str]:
    """Compare slots and executions with recorded passes."""
    mistakes: list[str] = []
    for program in analysis.programs:
        for instruction in program.instructions:
            name = instruction.id
            passes = len(recorded.passes[name]) * recorded.groups[name]
            expected = passes * recorded.items[name]
            executed = instruction.executions.evaluate(parameters)
            if executed != recorded.executions[name]:
                mistakes.append(f"{name}: executed {executed}, {recorded.executions[name]}")
            slots = slots_of(instruction.scope)
            if slots is not None and slots.evaluate(parameters) != expected:
                mistakes.append(f"{name}: slots {slots}, seen {expected}")
    return mistakes


def step_mistakes(
    analysis: KernelAnalysis, recorder: LaneRecorder, parameters: Mapping[str, int]
) -> list[str]:
    """Compare the steps of chains with the values of the loop variables that carry them."""
    mistakes: list[str] = []
    for program in analysis.programs:
        within = {i.id: i.scope.within for i in program.instructions}
        for chain in (chain for region in program.regions for chain in region.chains):
            if chain.steps is None:
                mistakes.append(f"{chain.loops}: {chain.steps}")
                continue
            around = within[chain.instructions[-1]] - set(chain.loops)
            values: dict[Any, set[Any]] = {}
            for point in recorder.points({*around, *chain.loops}):
                scope = tuple(sorted((n, point[n]) for n in around))
                values.setdefault(scope, set()).add(tuple(point[n] for n in chain.loops))
            for scope, seen in values.items():
                if len(seen) != chain.steps.evaluate({**parameters, **dict(scope)}):
                    mistakes.append(f"{chain.loops} at {scope}: {chain.steps}, seen {seen}")
    return mistakes


def footprint_mistakes(
    analysis: KernelAnalysis, recorded: Recorded, parameters: Mapping[str, int]
) -> list[str]:
    """Compare footprints with recorded addresses."""
    mistakes: list[str] = []
    touched: dict[tuple[str, str], set[int | None]] = {}
    for (_, access), points in recorded.points.items():
        touched.setdefault((access.array, access.direction), set()).update(points.values())
    for space in ("global", "local"):
        for footprint in footprints_of(analysis.accesses, space):
            cells = touched.get((footprint.array, footprint.direction), set())
            if None in cells:
                assert footprint.cells is None
                continue
            for known in (footprint, replace(footprint, cells=None)):
                if known.cells_at(parameters) != len(cells):
                    mistakes.append(f"{known.array} {known.direction}: {known.cells}, {cells}")
    return mistakes
