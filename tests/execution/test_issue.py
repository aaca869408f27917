"""Features that a policy issues for counts: by hand, from the rules of a row of items."""

from __future__ import annotations

from fractions import Fraction

import pytest

from countperf.execution.issue import issue
from countperf.execution.policy import ExecutionPolicy

SCALAR = ExecutionPolicy(width=1)
EIGHT = ExecutionPolicy(width=8, remainder="scalar")
FLAT = "site.free.flat.20x2"
"""Rows of 20 items: two vectors of 8, and four items."""


def test_a_row_takes_whole_vectors_and_items_that_are_left() -> None:
    name = f"{FLAT}.flop.fma.f64"
    assert dict(issue(name, EIGHT)) == {
        "issue.vector.arithmetic.f64.fma": Fraction(2, 20),
        "issue.scalar.arithmetic.f64.fma": Fraction(4, 20),
    }
    whole = EIGHT.model_copy(update={"remainder": "whole"})
    assert dict(issue(name, whole)) == {"issue.vector.arithmetic.f64.fma": Fraction(3, 20)}
    by_group = whole.model_copy(update={"along": "group"})
    assert dict(issue(name, by_group)) == {"issue.vector.arithmetic.f64.fma": Fraction(5, 40)}


def test_wide_elements_take_more_accesses() -> None:
    assert dict(issue(f"{FLAT}.gmem.load.64.next", EIGHT)) == {
        "issue.vector.gmem.load.next": Fraction(2 * 2, 20),
        "issue.scalar.gmem.load.walk": Fraction(4, 20),
    }


@pytest.mark.parametrize("policy", [SCALAR, EIGHT])
@pytest.mark.parametrize(
    ("step", "served"),
    [
        ("l1_reuse", ["l1_reuse"]),
        ("l2_reuse", ["l1_reuse", "l2_reuse"]),
        ("beyond_l2", ["l1_reuse", "l2_reuse", "beyond_l2"]),
        ("data", ["data"]),
        ("data_l2_reuse", ["data", "l2_reuse"]),
        ("data_beyond_l2", ["data", "l2_reuse", "beyond_l2"]),
    ],
)
def test_items_pass_the_nearer_caches(
    step: str, served: list[str], policy: ExecutionPolicy
) -> None:
    expected = {f"issue.scalar.gmem.load.{each}": Fraction(1) for each in served}
    assert dict(issue(f"{FLAT}.gmem.load.32.{step}", policy)) == expected


def test_set_conflicts_miss_by_grade() -> None:
    for grade, share in {1: Fraction(1, 4), 2: Fraction(5, 8), 3: Fraction(1)}.items():
        assert dict(issue(f"{FLAT}.gmem.load.32.l1_reuse_conflict{grade}", SCALAR)) == {
            "issue.scalar.gmem.load.l1_reuse": Fraction(1),
            "issue.scalar.gmem.load.set_conflict": share,
        }


def test_vectors_of_neighbors_go_on_to_other_lines() -> None:
    assert dict(issue(f"{FLAT}.gmem.load.32.next.l2_reuse", EIGHT)) == {
        "issue.vector.gmem.load.strided": Fraction(2, 20),
        "issue.vector.gmem.load.l2_reuse": Fraction(2, 20),
        "issue.scalar.gmem.load.l1_reuse": Fraction(4, 20),
        "issue.scalar.gmem.load.l2_reuse": Fraction(4, 20),
    }


@pytest.mark.parametrize(
    ("function", "alone"),
    [("exp", "special.f32.exp"), ("pow", "pow.f32"), ("fabs", "minor.f32.fabs")],
)
def test_conditional_calls_of_single_items_are_calls(function: str, alone: str) -> None:
    name = f"{FLAT}.flop.conditional.f32.{function}"
    assert dict(issue(name, SCALAR)) == {f"issue.scalar.{alone}": 1}
    if function != "fabs":
        assert dict(issue(name, EIGHT)) == {
            f"issue.vector.conditional.f32.{function}": Fraction(1, 10),
            f"issue.scalar.{alone}": Fraction(1, 5),
        }


@pytest.mark.parametrize(
    ("name", "issued"),
    [
        ("site.free.loop.16x1.chain.fma.f32", {"issue.vector.chain.f32.arithmetic": (1, 8)}),
        (f"{FLAT}.chain.fma.f32", {}),
        ("site.free.flat.16x1.carried", {}),
        ("site.sync.flat.16x1.carried", {"issue.vector.carried": (1, 8)}),
        ("site.sync.short.16x1.carried", {"issue.vector.carried": (1, 8)}),
        ("site.sync.loop.16x1.carried", {}),
        ("bytes.group.load.dense", {"bytes.group.load.dense": (1, 1)}),
    ],
)
def test_chains_and_carried_values_wait_where_they_are_in_memory(
    name: str, issued: dict[str, tuple[int, int]]
) -> None:
    assert dict(issue(name, EIGHT)) == {key: Fraction(*share) for key, share in issued.items()}


def test_regions_are_passed_by_groups_and_rows() -> None:
    assert dict(issue(f"{FLAT}.passes", SCALAR)) == {
        "issue.scalar.passes.free": 1,
        "issue.scalar.rows.free": 2,
    }
