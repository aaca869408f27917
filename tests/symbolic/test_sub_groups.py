"""Which sub-groups execute something, against enumeration of the work items."""

from __future__ import annotations

from typing import Any

import islpy as isl
import pytest

from countperf.errors import CountingError
from countperf.symbolic.point_arrays import Membership, find_sub_groups_executing
from countperf.symbolic.sets import at_values
from tests.oracles.enumeration import points

_SIZES = {0: 6, 1: 4}  # 24 work items


@pytest.mark.parametrize("sub_group_size", [1, 4, 5, 8, 16, 24, 64])
@pytest.mark.parametrize(
    "text",
    [
        "{ [k, x, y]: 0 <= k < 3 and 0 <= x < 6 and 0 <= y < 4 }",
        "{ [k, x, y]: 0 <= k < 3 and 0 <= x < 2 and 0 <= y < 4 }",
        "{ [k, x, y]: 0 <= k < 5 and 0 <= x < 6 and 0 <= y < 4 and k <= x + y }",
        "{ [k, x, y]: 0 <= k < 4 and 0 <= x < 6 and 0 <= y < 4 and (x + y + k) mod 3 = 0 }",
        "{ [k, x, y]: 0 <= k < 4 and 0 <= x < 6 and (y = 0 or y = 3) and 0 <= y < 4 }",
    ],
)
def test_a_sub_group_executes_what_one_of_its_items_does(text: str, sub_group_size: int) -> None:
    found = find_sub_groups_executing(isl.Set(text), {0: "x", 1: "y"}, _SIZES, sub_group_size)
    expected = {(k, (x + 6 * y) // sub_group_size) for k, x, y in points(text, {})}
    assert set(points(str(found), {})) == expected


def test_items_along_an_axis_that_is_not_used_all_execute() -> None:
    executed = isl.Set("[n] -> { [k, x]: 0 <= k < n and x = 5 }")
    found = find_sub_groups_executing(executed, {0: "x"}, _SIZES, 4)
    # items 5, 11, 17 and 23
    assert set(points(str(found), {"n": 2})) == {(k, s) for k in (0, 1) for s in (1, 2, 4, 5)}


@pytest.mark.parametrize(
    "text",
    [
        "{ [i, j]: 1 <= i < 4 and 0 <= j < 3 }",
        "{ [i, j]: 0 <= j <= i < 4 }",
        "{ [i, j]: 0 <= i < 6 and 0 <= j < 3 and i mod 2 = 0 }",
        "{ [i, j]: (i = 0 and 0 <= j < 3) or (i = 4 and j = 1) }",
        "{ [i, j]: i = 0 and j = 0 and i = 1 }",
    ],
)
def test_membership_is_that_of_the_set(text: str) -> None:
    inside, found = set(points(text, {})), Membership(isl.Set(text))
    assert found.is_empty is (not inside)
    grid = [(i, j) for i in range(-1, 7) for j in range(-1, 5)]
    assert {point for point in grid if found.contains(point)} == inside


def test_membership_of_some_dimensions_alone() -> None:
    found = Membership(isl.Set("{ [i, j]: 0 <= j < 3 and 2j <= i <= 2j + 1 }")).onto(["i"])
    assert found.bounds == ((0, 5),)


def test_an_unbounded_loop_is_refused() -> None:
    with pytest.raises(CountingError, match="'i' is not bounded"):
        Membership(isl.Set("{ [i]: i >= 0 }"))


def test_fixed_names_are_projected_out() -> None:
    whole: Any = isl.Set("[n, m] -> { [i, j]: 0 <= i < n and 0 <= j < m }")
    found = at_values(whole, {"n": 3, "m": 2, "i": 1, "unrelated": 7})
    assert found.is_equal(isl.Set("{ [j]: 0 <= j < 2 }"))
