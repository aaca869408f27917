"""Cost functions: equal to predictions, picklable, as careful as they."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from countperf.errors import UnmeasuredPropertyError
from countperf.properties.vector import PropertyVector
from tests.models.builders import make_weights

WEIGHTS = make_weights({"flop.add.f32": 2e-9, "flop.special.f32": 7e-9, "launches": 1e-6})
KERNEL = PropertyVector.from_mapping(
    {
        "flop.add.f32": "[n] -> { 3 * n : n > 0 }",
        "flop.special.f32.rsqrt": "[n] -> { n^2 : n > 0 }",
        "flop.special.f32.exp": "[n] -> { n : n > 0 }",
        "iop.add.i32": "[n] -> { n : n > 0 }",
        "launches": 1,
    },
    kernel="example",
)
UNMEASURED = PropertyVector.from_mapping(
    {"launches": 1, "flop.div.f32": "[n] -> { n - 1 : n > 0 }"}, kernel="divides"
)


def test_it_gives_the_predicted_time() -> None:
    cost = WEIGHTS.compile(KERNEL)

    time_s = cost(n=100)

    assert isinstance(time_s, float)
    assert time_s == pytest.approx(float(WEIGHTS.predict(KERNEL, n=100).time_s), rel=1e-14)
    assert (cost.kernel, cost.device) == ("example", "pocl-testchip")


def test_arrays_in_arrays_out() -> None:
    sizes = np.array([[1, 2, 3], [10, 20, 30]])

    times = WEIGHTS.compile(KERNEL)(n=sizes)

    assert np.shape(times) == (2, 3)
    assert times == pytest.approx(WEIGHTS.predict(KERNEL, n=sizes).time_s)


def test_it_survives_pickling() -> None:
    cost = WEIGHTS.compile(KERNEL)

    assert pickle.loads(pickle.dumps(cost))(n=9) == cost(n=9)


def test_a_property_without_a_weight_raises_where_it_is_not_zero_also_after_pickling() -> None:
    cost = WEIGHTS.compile(UNMEASURED, suppliers=lambda name: [f"kernel for {name}"])

    assert cost(n=1) == pytest.approx(1e-6)
    for function in (cost, pickle.loads(pickle.dumps(cost))):
        with pytest.raises(UnmeasuredPropertyError) as caught:
            function(n=2)
        assert caught.value.suppliers == {"flop.div.f32": ("kernel for flop.div.f32",)}
        with pytest.raises(UnmeasuredPropertyError):
            function(n=np.array([1, 2]))


def test_on_request_it_leaves_out_what_has_no_weight() -> None:
    assert WEIGHTS.compile(UNMEASURED, incomplete_ok=True)(n=2) == pytest.approx(1e-6)
