"""Rankings and searches by a mechanistic model."""

from __future__ import annotations

import pytest

import countperf
from countperf.errors import ParameterError
from countperf.harness.device import Device
from countperf.tuning.points import PredictionTask, Refused, predict_points
from countperf.workflow.mechanistic import mechanistic_cost
from tests.tuning.conftest import _needs_device, device
from tests.tuning.spaces import DOUBLE

__all__ = ["_needs_device", "device"]

COST = mechanistic_cost("volkov", "nvidia-k620", registers_per_work_item=32)


def test_a_ranking_has_the_times_that_the_model_predicts() -> None:
    ranking = countperf.rank(DOUBLE, weights=COST, n=1024, workers=1)

    assert ranking.device == "nvidia-k620"
    assert ranking.predicted == 15
    for point in ranking.best[:3]:
        answers = countperf.predict_all(
            DOUBLE.build(**point.choice),
            "nvidia-k620",
            n=1024,
            models="volkov",
            profile_options={"registers_per_work_item": 32},
        )
        assert point.time_s == pytest.approx(float(answers.predictions["volkov"].time_s))


def test_variants_that_do_not_fit_are_refused_for_their_limits() -> None:
    cost = mechanistic_cost("volkov", "nvidia-k620", registers_per_work_item=400)
    task = PredictionTask(space=DOUBLE, weights=cost, sizes={"n": 1024})
    choice = next(iter(DOUBLE.choices()))

    (point,) = predict_points(task, [choice])

    assert isinstance(point, Refused)
    assert point.stage == "limits"
    assert "registers_per_work_item is 400" in point.reason


@pytest.mark.parametrize("model", ["all", "magic"])
def test_a_cost_function_is_one_model(model: str) -> None:
    with pytest.raises(ParameterError):
        mechanistic_cost(model, "nvidia-k620")


@pytest.mark.device
def test_a_search_goes_by_a_mechanistic_model(device: Device) -> None:
    cost = mechanistic_cost("roofline", "pocl-epyc-zen5")

    found = countperf.tune(
        DOUBLE, weights=cost, device=device.label, measurements=3, seconds=60, workers=1, n=4096
    )

    assert found.tried
    assert found.winner.time_s == min(each.time_s for each in found.tried)
