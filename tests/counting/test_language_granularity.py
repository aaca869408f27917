"""Granularities of counts are typed, and counts of different ones never meet."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.counting.keys import Granularity
from countperf.errors import CountingError
from countperf.properties.counts import Count
from countperf.properties.vector import PropertyVector
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial


def _count(value: int, granularity: Granularity = Granularity.WORK_ITEM, **more: Any) -> Count:
    return Count(
        quantity=PiecewiseQuasiPolynomial.from_value(value), granularity=granularity, **more
    )


def _value(count: Count) -> Any:
    return count.quantity.evaluate({})


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("other", Granularity)
def test_counts_add_within_one_granularity_only(
    granularity: Granularity, other: Granularity
) -> None:
    first, second = _count(2, granularity), _count(3, other)
    if granularity is other:
        assert _value(first + second) == 5
        assert (first + second).granularity is granularity
        return
    with pytest.raises(CountingError, match=f"per {granularity.value} and per {other.value}"):
        _ = first + second


def test_sums_keep_the_granularity() -> None:
    total = sum([_count(n, Granularity.LAUNCH) for n in range(5)], _count(0, Granularity.LAUNCH))
    assert (_value(total), total.granularity) == (10, Granularity.LAUNCH)
    from_zero = sum([_count(1), _count(2)])
    assert isinstance(from_zero, Count)
    assert _value(from_zero) == 3
    with pytest.raises(CountingError):
        sum([_count(1), _count(1, Granularity.WORK_GROUP)])


def test_scaled_counts_keep_the_granularity_and_do_not_mix() -> None:
    scaled = 3 * _count(2, Granularity.WORK_GROUP)
    assert (_value(scaled), scaled.granularity) == (6, Granularity.WORK_GROUP)
    assert _value(_count(2) * 4) == 8
    with pytest.raises(CountingError):
        _ = scaled + 2 * _count(2)


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
