"""The structure of kernels against an interpreter that records what each work item does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import loopy as lp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.counting.access_analysis import (
    AccessAnalysis,
    SubGroupCounts,
    bank_conflicts,
    count_lines,
    transactions,
)
from countperf.counting.analysis import KernelAnalysis, analyze_kernel, footprints_of
from countperf.counting.scopes import slots_of
from countperf.errors import CountperfError
from measurement_kernels.catalog import entry
from tests.counting import applications, structure_kernels
from tests.counting.random_kernels import DISTINCT
from tests.oracles.interpreter import Access, NotInterpretedError
from tests.oracles.lanes import LaneRecorder, Recorded, conflict_degree, lines
from tests.strategies import LOOPY_REFUSALS, KernelCase, generated, kernels, staged_tiles

EXAMPLES = DISTINCT * 3 // 5
LINES = ((16, 4), (32, 8), (128, 32), (12, 3))
"""Bytes of a line, and items of a sub-group."""

BANKS = ((4, 4, 4), (8, 4, 8), (32, 4, 32), (3, 2, 5), (4, 8, 16))
"""Banks, bytes of a word, and items of a sub-group."""


class _Comparison:
    """Statements on a kernel, against what its work items do at some sizes."""

    def __init__(
        self, analysis: KernelAnalysis, recorder: LaneRecorder, sizes: Mapping[str, int]
    ) -> None:
        self.analysis = analysis
        self.recorder = recorder
        self.sizes = sizes
        self.recorded: Recorded = recorder.record(sizes)
        # the analyzed accesses by what the interpreter calls them
        self.accesses: dict[tuple[str, Access], list[AccessAnalysis]] = {
            place: [] for place in self.recorded.addresses
        }
        for analyzed in analysis.accesses:
            access = Access(
                array=analyzed.access.array,
                space=analyzed.access.address_space,
                direction=analyzed.access.direction,
                bits=analyzed.access.bits,
                index=analyzed.access.index,
                within=analyzed.scope.within,
            )
            self.accesses.setdefault((analyzed.instruction, access), []).append(analyzed)

    def strides(self) -> Iterator[str]:
        """Compare strides, where there are any, with the addresses of neighbors."""
        for place, accesses in self.accesses.items():
            points = self.recorded.points[place]
            for access in accesses:
                for stride in access.strides:
                    steps = _steps(points, stride.iname) if stride.iname else {0}
                    given = stride.stride
                    if given is not None and steps and steps != {given.evaluate(self.sizes)}:
                        yield f"{access.label}: {stride}, but seen {steps}"

    def sub_groups(
        self,
        size: int,
        measure: Callable[[AccessAnalysis], SubGroupCounts],
        see: Callable[[Any, Access], int],
        space: str = "",
    ) -> Iterator[str]:
        """Compare distributions of lines, or passes over banks, with the recorded addresses."""
        for place, accesses in self.accesses.items():
            if space not in ("", place[1].space):
                continue
            if not self.recorded.is_direct(place):
                assert all(access.address is None for access in accesses)
                continue
            groups = self.recorded.sub_groups(place, size)
            expected = Counter(see(addresses, place[1]) for addresses in groups)
            found: Counter[int] = Counter()
            for access in accesses:
                found.update(dict(measure(access).distribution))
            if found != expected:
                yield f"{place[0]} {place[1].array}: {dict(found)}, seen {dict(expected)}"

    def slots(self) -> Iterator[str]:
        """Compare slots and executions with recorded passes."""
        for program in self.analysis.programs:
            for instruction in program.instructions:
                name = instruction.id
                passes = len(self.recorded.passes[name]) * self.recorded.groups[name]
                executed = instruction.executions.evaluate(self.sizes)
                if executed != self.recorded.executions[name]:
                    yield f"{name}: executed {executed}, {self.recorded.executions[name]}"
                slots = slots_of(instruction.scope)
                expected = passes * self.recorded.items[name]
                if slots is not None and slots.evaluate(self.sizes) != expected:
                    yield f"{name}: slots {slots}, seen {expected}"

    def chains(self) -> Iterator[str]:
        """Compare the steps of chains with the values of the loop variables that carry them."""
        for program in self.analysis.programs:
            within = {i.id: i.scope.within for i in program.instructions}
            for chain in (chain for region in program.regions for chain in region.chains):
                around = within[chain.instructions[-1]] - set(chain.loops)
                values: dict[Any, set[Any]] = {}
                for point in self.recorder.points({*around, *chain.loops}):
                    scope = tuple(sorted((n, point[n]) for n in around))
                    values.setdefault(scope, set()).add(tuple(point[n] for n in chain.loops))
                for scope, seen in values.items():
                    at = {**self.sizes, **dict(scope)}
                    if chain.steps is None or len(seen) != chain.steps.evaluate(at):
                        yield f"{chain.loops} at {scope}: {chain.steps}, seen {seen}"

    def footprints(self) -> Iterator[str]:
        """Compare footprints, counted and listed, with recorded addresses."""
        touched: dict[tuple[str, str], set[int | None]] = {}
        for (_, access), points in self.recorded.points.items():
            touched.setdefault((access.array, access.direction), set()).update(points.values())
        for known in footprints_of(self.analysis.accesses):
            cells = touched.get((known.array, known.direction), set())
            if None in cells:
                assert known.cells is None
                continue
            for each in (known, replace(known, cells=None)):
                if each.cells_at(self.sizes) != len(cells):
                    yield f"{each.array} {each.direction}: {each.cells}, {cells}"


def _steps(points: Mapping[Any, int | None], iname: str) -> set[int | None]:
    steps: set[int | None] = set()
    for point, address in points.items():
        following = tuple((n, v + (n == iname)) for n, v in point)
        if following in points:
            after = points[following]
            steps.add(None if after is None or address is None else after - address)
    return steps


def mistakes_at(analysis: Any, recorder: LaneRecorder, sizes: Mapping[str, int]) -> list[str]:
    """Compare everything at given sizes."""
    of = _Comparison(analysis, recorder, sizes)
    found = [*of.strides(), *of.chains(), *of.slots(), *of.footprints()]
    for line_bytes, size in LINES:
        found += of.sub_groups(
            size,
            partial(transactions, parameters=sizes, line_bytes=line_bytes, sub_group_size=size),
            lambda addresses, access, line_bytes=line_bytes: lines(
                addresses, element_bytes=access.bits // 8, line_bytes=line_bytes
            ),
        )
    for banks, width, size in BANKS:
        memory = {"banks": banks, "bank_width_bytes": width}
        found += of.sub_groups(
            size,
            partial(bank_conflicts, parameters=sizes, sub_group_size=size, **memory),
            lambda addresses, access, banks=banks, width=width: conflict_degree(
                addresses, element_bytes=access.bits // 8, banks=banks, width=width
            ),
            "local",
        )
    return found


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (partial(structure_kernels.tiled_matmul, 2), [{"n": 2}, {"n": 6}]),
        (partial(structure_kernels.register_blocked_matmul, 2), [{"n": 8}]),
        (partial(structure_kernels.stencil, 4), [{"n": 4}, {"n": 12}]),
        (partial(structure_kernels.transpose, 4), [{"m": 3}]),
        (partial(structure_kernels.transpose, 4, 1), [{"m": 3}]),
        (structure_kernels.naive_transpose, [{"n": 9, "m": 8}, {"n": 16, "m": 19}]),
        (structure_kernels.tiled_layout, [{"n": 8}, {"n": 20}]),
        (structure_kernels.late_loops, [{"n": 8}, {"n": 13}]),
        (structure_kernels.guarded, [{"n": 8, "m": 3}, {"n": 11, "m": 5}]),
        (structure_kernels.small_elements, [{"n": 1}, {"n": 7}]),
        (applications.trmm, [{"n": 9, "m": 6}, {"n": 12, "m": 7}]),
        (applications.syrk, [{"n": 9, "m": 3}]),
        (applications.conv2d, [{"n": 8, "m": 4}]),
        (applications.fdtd_2d, [{"n": 9, "m": 6}]),
        (applications.covariance, [{"n": 6, "m": 9}]),
    ],
)
def test_structure_is_what_work_items_do(
    build: Callable[[], Any], sizes: list[dict[str, int]]
) -> None:
    recorder = LaneRecorder(build())
    analysis = analyze_kernel(recorder.scheduled)
    for parameters in sizes:
        assert mistakes_at(analysis, recorder, parameters) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy on newer islpy
def test_structure_of_generated_kernels_is_what_work_items_do() -> None:
    compared: set[KernelCase] = set()
    refused: set[KernelCase] = set()

    @generated(EXAMPLES)
    @given(st.one_of(kernels(), staged_tiles()))
    def check(case: KernelCase) -> None:
        with lp.CacheMode(False), suppress(NotInterpretedError):
            try:
                t_unit = case.build()
                recorder = LaneRecorder(t_unit)
                sizes = min(case.parameters(t_unit), key=lambda p: sum(p.values()))
                recorder.record(sizes)
            except LOOPY_REFUSALS:
                return
            try:
                analysis = analyze_kernel(recorder.scheduled)
            except CountperfError:
                refused.add(case)
                return
            assert mistakes_at(analysis, recorder, sizes) == []
            compared.add(case)

    check()
    assert len(compared) >= EXAMPLES // 2
    assert len(refused) <= len(compared) // 20


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (partial(structure_kernels.tiled_matmul, 2), {"n": 6}),
        (partial(structure_kernels.stencil, 4), {"n": 12}),
        (structure_kernels.naive_transpose, {"n": 16, "m": 19}),
        (structure_kernels.guarded, {"n": 11, "m": 5}),
        (structure_kernels.late_loops, {"n": 13}),
        (applications.trmm, {"n": 12, "m": 7}),
    ],
)
def test_full_groups_split_off_leave_everything_as_it_is(
    build: Callable[[], Any], sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countperf.counting.access_analysis._SPLIT_FROM", 0)
    recorder = LaneRecorder(build())
    assert mistakes_at(analyze_kernel(recorder.scheduled), recorder, sizes) == []


def test_transactions_of_many_groups_are_not_listed_one_by_one() -> None:
    analysis = analyze_kernel(entry("vector-scale-add/stride1/256x1").build())
    n = 2**28 + 256
    found = count_lines(analysis.accesses, {"n": n}, line_bytes=64, sub_group_size=16)
    assert found == {"load": 2 * n // 16, "store": n // 16}
