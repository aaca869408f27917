"""Features that a policy issues for typed counts: by hand, from the rules of a row of items."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from countperf.counting.keys import Operation
from countperf.execution.issue import (
    IssuedAccess,
    IssuedChain,
    IssuedEvent,
    IssuedOperation,
    IssuedPasses,
    IssuedRows,
    Serving,
    Unit,
    issue,
)
from countperf.execution.keys import (
    AccessKey,
    ByData,
    ChainKey,
    EventKey,
    Grade,
    GroupBytesKey,
    Level,
    OperationKey,
    Site,
    Step,
    ToOtherLines,
    WorkItemStep,
)
from countperf.execution.policy import ExecutionPolicy

SCALAR = ExecutionPolicy(width=1)
EIGHT = ExecutionPolicy(width=8, remainder="scalar")
FLAT = Site("free", "flat", (20, 2))
"""Rows of 20 items: two vectors of 8, and four items."""


def _load(step: Step, in_loop: Step | None = None, *, bits: int = 32) -> AccessKey:
    return AccessKey(FLAT, "global", "load", bits, WorkItemStep(step), in_loop)


def _loaded(unit: Unit, serving: Serving) -> IssuedAccess:
    return IssuedAccess(unit, "global", "load", serving)


def test_a_row_takes_whole_vectors_and_items_that_are_left() -> None:
    key = OperationKey(FLAT, Operation(kind="fma", type_name="f64"))
    assert dict(issue(key, EIGHT)) == {
        IssuedOperation("vector", "arithmetic", "f64", "fma"): Fraction(2, 20),
        IssuedOperation("scalar", "arithmetic", "f64", "fma"): Fraction(4, 20),
    }
    whole = EIGHT.model_copy(update={"remainder": "whole"})
    assert dict(issue(key, whole)) == {
        IssuedOperation("vector", "arithmetic", "f64", "fma"): Fraction(3, 20)
    }
    by_group = whole.model_copy(update={"along": "group"})
    assert dict(issue(key, by_group)) == {
        IssuedOperation("vector", "arithmetic", "f64", "fma"): Fraction(5, 40)
    }


def test_wide_elements_take_more_accesses() -> None:
    assert dict(issue(_load("next", bits=64), EIGHT)) == {
        _loaded("vector", "next"): Fraction(2 * 2, 20),
        _loaded("scalar", "walk"): Fraction(4, 20),
    }


@pytest.mark.parametrize(
    ("level", "passed"),
    [("l1", []), ("l2", ["l2_reuse"]), ("beyond_l2", ["l2_reuse", "beyond_l2"])],
)
@pytest.mark.parametrize("policy", [SCALAR, EIGHT])
def test_items_pass_the_nearer_caches(
    level: Level, passed: list[Serving], policy: ExecutionPolicy
) -> None:
    steps: list[tuple[Step, Serving]] = [(ToOtherLines(level), "l1_reuse"), (ByData(level), "data")]
    for step, nearest in steps:
        expected = {_loaded("scalar", each): Fraction(1) for each in (nearest, *passed)}
        assert dict(issue(_load(step), policy)) == expected


def test_set_conflicts_miss_by_grade() -> None:
    shares: dict[Grade, Fraction] = {1: Fraction(1, 4), 2: Fraction(5, 8), 3: Fraction(1)}
    for grade, share in shares.items():
        found = dict(issue(_load(ToOtherLines("l1", grade)), SCALAR))
        assert found == {
            _loaded("scalar", "l1_reuse"): Fraction(1),
            _loaded("scalar", "set_conflict"): share,
        }


def test_vectors_of_neighbors_go_on_to_other_lines() -> None:
    found = dict(issue(_load("next", ToOtherLines("l2")), EIGHT))
    assert found == {
        _loaded("vector", "strided"): Fraction(2, 20),
        _loaded("vector", "l2_reuse"): Fraction(2, 20),
        _loaded("scalar", "l1_reuse"): Fraction(4, 20),
        _loaded("scalar", "l2_reuse"): Fraction(4, 20),
    }


@pytest.mark.parametrize(
    ("function", "alone"),
    [
        ("exp", IssuedOperation("scalar", "special", "f32", "exp")),
        ("pow", IssuedOperation("scalar", "pow", "f32")),
        ("fabs", IssuedOperation("scalar", "minor", "f32", "fabs")),
    ],
)
def test_conditional_calls_of_single_items_are_calls(function: str, alone: IssuedOperation) -> None:
    operation = Operation(kind="conditional", type_name="f32", function=function)
    assert dict(issue(OperationKey(FLAT, operation), SCALAR)) == {alone: 1}
    in_vectors = IssuedOperation("vector", "conditional", "f32", function)
    if function != "fabs":
        found = issue(OperationKey(FLAT, operation), EIGHT)
        assert dict(found) == {in_vectors: Fraction(1, 10), alone: Fraction(1, 5)}


def test_chains_wait_where_items_run_their_own_loops() -> None:
    site = Site("free", "loop", (16, 1))
    chain = ChainKey(site, "fma", "f32")
    assert dict(issue(chain, EIGHT)) == {IssuedChain("vector", "f32", "arithmetic"): Fraction(1, 8)}
    assert issue(ChainKey(FLAT, "fma", "f32"), EIGHT) == ()


def test_regions_are_passed_by_groups_and_rows() -> None:
    assert dict(issue(EventKey(FLAT, "passes"), SCALAR)) == {
        IssuedPasses("scalar", "free"): 1,
        IssuedRows("scalar", "free"): 2,
    }


@pytest.mark.parametrize(
    ("context", "placement", "is_issued"),
    [
        ("free", "flat", False),
        ("sync", "flat", True),
        ("sync", "short", True),
        ("sync", "loop", False),
    ],
)
def test_values_are_carried_in_memory_over_barriers_outside_loops_of_items(
    context: Any, placement: Any, is_issued: bool
) -> None:
    policy = ExecutionPolicy(width=8)
    found = issue(EventKey(Site(context, placement, (16, 1)), "carried"), policy)
    assert dict(found) == ({IssuedEvent("vector", "carried"): Fraction(1, 8)} if is_issued else {})


def test_footprints_stay() -> None:
    key = GroupBytesKey("load", "dense")
    assert issue(key, EIGHT) == ((key, Fraction(1)),)
