"""Granularities of counts are typed, and counts of different ones never meet."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.counting.counts import Count
from countperf.counting.keys import Granularity
from countperf.counting.vector import PropertyVector
from countperf.errors import CountingError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial


def _count(value: int, granularity: Granularity = Granularity.WORK_ITEM, **more: Any) -> Count:
    return Count(
        quantity=PiecewiseQuasiPolynomial.from_value(value), granularity=granularity, **more
    )


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("other", Granularity)
def test_counts_add_within_one_granularity_only(
    granularity: Granularity, other: Granularity
) -> None:
    first, second = _count(2, granularity), 3 * _count(1, other)
    if granularity is other:
        total = sum([first, second])
        assert isinstance(total, Count)
        assert (total.quantity.evaluate({}), total.granularity) == (5, granularity)
        return
    with pytest.raises(CountingError, match=f"per {granularity.value} and per {other.value}"):
        _ = first + second


def test_reasons_of_sums_are_joined_once() -> None:
    rough = _count(1, exact=False, reason="a; b")
    total = rough + _count(1, exact=False, reason="b; c") + _count(1)
    assert (total.exact, total.reason) == (False, "a; b; c")


@pytest.mark.parametrize("granularity", ["work item", "warp", None])
def test_other_granularities_than_the_enumerated_are_refused(granularity: Any) -> None:
    with pytest.raises(CountingError, match=r"Granularity\.WORK_ITEM"):
        _count(1, granularity)


def test_a_vector_refuses_counts_of_another_granularity_than_the_property() -> None:
    with pytest.raises(CountingError, match=r"groups is counted per work group"):
        PropertyVector({"groups": _count(1)}, kernel="made")
