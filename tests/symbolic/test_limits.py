"""Refusals of the elimination, and what helps."""

from __future__ import annotations

import islpy as isl
import loopy as lp
import pytest

from countperf.counting.count_properties import count_kernel
from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic import isl_sets
from countperf.symbolic.cardinality import Counter
from tests.kernels import made
from tests.oracles import enumeration

EASY = "[n] -> { [i, j, k] : 0 <= i, j, k < n and j <= i }"
HARD = "[n] -> { [i, j, k] : i >= 0 and j >= 0 and k >= 0 and 31i + 52j + 73k <= n }"


def test_the_error_names_the_set_and_the_mend() -> None:
    with pytest.raises(UncountableSetError, match=r"loopy\.fix_parameters") as caught:
        Counter().count(isl.Set(HARD))
    shown = str(caught.value).removeprefix("the set ").split(" cannot be counted")[0]
    assert isl.Set(shown).is_equal(isl.Set(HARD))
    assert isinstance(caught.value, CountingError)


PARTS = "[n] -> { [i] : 0 <= i < n and i mod 3 <= 1; [i] : 2 <= i < 2n and i mod 5 <= 2 }"


@pytest.mark.parametrize(
    ("limit", "text", "said"),
    [
        ("elimination._MAXIMUM_TERMS", EASY, "more than 3 terms"),
        ("isl_sets._SPLITTING_OPERATIONS", PARTS, "splitting"),
    ],
)
def test_what_gets_too_large_ends(
    limit: str, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"countperf.symbolic.{limit}", 3)
    with pytest.raises(UncountableSetError, match=said):
        Counter().count(isl.Set(text))


def test_an_outer_limit_of_operations_holds_inside() -> None:
    with (
        pytest.raises(UncountableSetError, match="outer"),
        isl_sets.limit_operations(1, "outer"),
        isl_sets.limit_operations(10**9, "inner"),
    ):
        isl.Set(EASY).intersect(isl.Set(HARD)).is_empty()


def test_a_limit_that_is_reached_while_reading_a_number_is_told_as_such() -> None:
    for number in range(1, 30):
        with pytest.raises(UncountableSetError), isl_sets.limit_operations(number, "reading"):
            _ = [isl.Val("3/2") for _ in range(30)]
    with pytest.raises(isl.Error), isl_sets.limit_operations(10**6, "reading"):
        isl.Val("no number")


def test_what_a_limit_refuses_is_counted_at_fixed_sizes() -> None:
    arguments = "x f32 n+1; y f32 n+1,n+1,n+1; n i32"
    kernel = made(HARD[7:], "y[i, j, k] = 2.5*x[i]", arguments, assumptions="n >= 1")
    with pytest.raises(CountingError, match=r"loopy\.fix_parameters"):
        count_kernel(kernel)
    for n in (140, 1024):
        counted = count_kernel(lp.fix_parameters(kernel, n=n)).evaluate()
        assert counted["flop.mul.f32"] == enumeration.weighted_sum(HARD, {"n": n})
