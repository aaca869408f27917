"""Causes of idle cycles in simulations, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from countperf.errors import ParameterError
from countperf.mechanistic.profile import InstructionGraph
from countperf.mechanistic.simulation import simulate
from countperf.mechanistic.stalls import StallReport, find_stalls
from countperf.mechanistic.workload import Workload
from tests.mechanistic.builders import EXAMPLE_CLASSES, EXAMPLE_GRAPH, make_class

EXAMPLE = Workload(programs=(EXAMPLE_GRAPH,), classes=EXAMPLE_CLASSES)


def stalls(workload: Workload, subsystem: str | None = None) -> StallReport:
    return find_stalls(simulate(workload, record=True), workload, subsystem)


def nonzero(report: StallReport) -> dict[str, float]:
    return {cause: cycles for cause, cycles in report.by_cause.items() if cycles}


def test_one_sub_group_waits_for_computations_and_memory() -> None:
    found = stalls(EXAMPLE, "compute")

    # C at 0, 4; M at 8; C at 14, 15; M at 19, done at 25
    assert found.cycles == 25
    assert found.busy == 4
    assert nonzero(found) == {"dependency": 3 + 3, "memory": 6, "drain": 9}
    assert [tuple(each) for each in found.stalls] == [
        (1, 4, "dependency"),
        (5, 8, "dependency"),
        (8, 14, "memory"),
        (16, 25, "drain"),
    ]


def test_before_its_first_instruction_a_subsystem_fills() -> None:
    found = stalls(EXAMPLE, "memory")

    # M from 8 to 10 and from 19 to 21; its result at 14, and the computations from then to 19
    assert found.busy == 4
    assert nonzero(found) == {"fill": 8, "memory": 4, "dependency": 5, "drain": 4}


def test_with_ten_sub_groups_nothing_is_idle_but_for_fill_and_drain() -> None:
    # Lemeire et al., Fig. 9
    workload = replace(EXAMPLE, concurrent_groups=10)

    for subsystem in ("compute", "memory"):
        assert set(nonzero(stalls(workload, subsystem))) <= {"fill", "drain"}


def test_a_closed_valve() -> None:
    fma = make_class("F", "alu", 1, 1)
    workload = Workload(
        programs=(InstructionGraph("FF"),), classes={"F": fma}, concurrent_groups=2, issue_limit=0.5
    )

    # four starts at 0, 2, 4, 6
    assert nonzero(stalls(workload)) == {"issue": 3}


def test_the_last_sub_group_at_a_barrier() -> None:
    classes = {
        "F": make_class("F", "alu", 2, 4),
        "B": make_class("B", "barrier", 1, 10, "barrier"),
    }
    workload = Workload(
        programs=(InstructionGraph("FBF"),), classes=classes, sub_groups_per_group=2
    )

    found = stalls(workload, "alu")

    # F at 0 and 2; the barriers wait for their results at 4 and 6 and are complete at 16;
    # F at 16 and 18, done at 22
    assert found.cycles == 22
    assert nonzero(found) == {"dependency": 2, "barrier": 10, "drain": 2}


def test_groups_that_follow_others_wait_for_their_ends() -> None:
    fma = make_class("F", "alu", 1, 5)
    workload = Workload(programs=(InstructionGraph("F"),), classes={"F": fma}, total_groups=3)

    # one group at a time: F at 0, 5, 10
    assert nonzero(stalls(workload)) == {"drain": 4 * 3}


@pytest.mark.parametrize("limit", [None, 0.75, 2.0])
@pytest.mark.parametrize("concurrent", [1, 2, 3, 7])
@pytest.mark.parametrize("scheduler", ["rr", "gto", "oldest"])
def test_busy_and_idle_cycles_are_all_cycles(
    limit: float | None, concurrent: int, scheduler: Any
) -> None:
    workload = replace(
        EXAMPLE,
        concurrent_groups=concurrent,
        total_groups=9,
        sub_groups_per_group=2,
        issue_limit=limit,
        scheduler=scheduler,
    )

    for subsystem in ("compute", "memory"):
        found = stalls(workload, subsystem)
        assert found.busy + sum(found.by_cause.values()) == pytest.approx(found.cycles)
        ends = [0.0, *(end for _, end, _ in found.stalls)]
        assert all(
            stall.start >= end - 1e-9 for stall, end in zip(found.stalls, ends, strict=False)
        )


def test_what_cannot_be_found_is_refused() -> None:
    with pytest.raises(ParameterError, match="record=True"):
        find_stalls(simulate(EXAMPLE), EXAMPLE)
    any_order = replace(EXAMPLE, issue_order="any")
    with pytest.raises(ParameterError, match="in_order"):
        find_stalls(simulate(any_order, record=True), any_order)
    with pytest.raises(ParameterError, match="there are compute, memory"):
        stalls(EXAMPLE, "texture")
