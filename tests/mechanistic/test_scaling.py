"""The factor from estimates to measured times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import ParameterError
from countperf.mechanistic.scaling import fit_scale

_times = st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), min_size=1, max_size=6)


@given(_times, st.floats(-0.5, 0.5))
def test_no_other_factor_has_a_smaller_sum_of_squared_relative_errors(
    times: list[tuple[float, float]], step: float
) -> None:
    factor = fit_scale([e for e, _ in times], [m for _, m in times])

    def objective(x: float) -> float:
        return sum((1 - x * e / m) ** 2 for e, m in times)

    assert objective(factor) <= objective(factor * (1 + step)) * (1 + 1e-12) + 1e-12


def test_an_overhead_is_not_scaled() -> None:
    assert fit_scale([1.0, 2.0], [3.5, 6.5], overhead_s=0.5) == pytest.approx(3, rel=1e-14)


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        pytest.param(lambda: fit_scale([], []), "estimated_s", id="empty"),
        pytest.param(lambda: fit_scale([1], [0]), "measured_s", id="no time"),
        pytest.param(lambda: fit_scale([float("nan")], [1]), "estimated_s", id="NaN"),
        pytest.param(lambda: fit_scale([1, 2], [1]), "measured_s", id="lengths"),
        pytest.param(lambda: fit_scale([1], [1], overhead_s=-1), "overhead_s", id="overhead"),
        pytest.param(lambda: fit_scale([1], [1], overhead_s=1), "measured_s", id="too short"),
    ],
)
def test_refused_input(call: Callable[[], object], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()

    assert caught.value.parameter == parameter
