from __future__ import annotations

import pickle
from itertools import islice

import pytest

from countperf.harness.device import Device
from countperf.harness.runner import KernelRunner
from countperf.tuning.points import Predicted, PredictionTask, predict_point
from measurement_kernels.variants import spaces
from measurement_kernels.variants.sets import variant_entries
from tests.models.builders import make_weights

NAMES = ("matmul", "stencil", "dg-differentiation", "transpose", "convolution")
WEIGHTS = make_weights({"launches": 1e-5})


def test_there_are_five_families() -> None:
    assert tuple(spaces()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_has_at_least_a_thousand_points_and_goes_to_other_processes(name: str) -> None:
    space = pickle.loads(pickle.dumps(spaces()[name]))

    assert sum(1 for _ in space.choices()) >= 1000


@pytest.mark.parametrize("name", NAMES)
def test_points_all_over_a_space_are_predicted(name: str) -> None:
    space = spaces()[name]
    question = PredictionTask(space=space, weights=WEIGHTS, sizes={}, incomplete_ok=True)

    points = [predict_point(question, space, choice) for choice in islice(space.choices(), 8)]

    assert [point for point in points if not isinstance(point, Predicted)] == []


@pytest.mark.device
@pytest.mark.parametrize("name", NAMES)
def test_variants_compute_what_the_reference_says(name: str, device: Device) -> None:
    space = spaces()[name]
    runner = KernelRunner.open(device)

    for choice in islice(space.choices(), 3):
        runner.check(space.case(choice))
    entry = variant_entries(f"variants-{name}")[0]
    runner.check(entry.case(entry.exponents[0]))
