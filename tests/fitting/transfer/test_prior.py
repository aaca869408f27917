"""The prior of a new device: kriging of known devices' weights."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.execution.policy import ExecutionPolicy
from countperf.fitting.transfer.prior import (
    BETWEEN_PLATFORMS,
    KnownDevice,
    KnownModel,
    prior_for,
    shipped_devices,
)
from countperf.hardware.identity import DeviceIdentity
from tests.models.builders import make_device

COLUMN = ("traffic", "bytes.group.load.dense")


def _device(slug: str, platform: str) -> DeviceIdentity:
    return make_device().model_copy(
        update={"slug": slug, "platform": platform, "device_type": "cpu"}
    )


def _known(*devices: tuple[str, str, float | None, float]) -> KnownModel:
    return KnownModel(
        kind="structural",
        columns=(COLUMN,),
        error=0.3,
        devices=tuple(
            KnownDevice(
                device=_device(slug, platform),
                policy=ExecutionPolicy(width=8),
                logs=(log,),
                variances=(None if log is None else variance,),
            )
            for slug, platform, log, variance in devices
        ),
    )


POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"


def _none(column: object) -> None:
    del column


def test_the_conditional_distribution_is_that_of_the_whole_normal_one() -> None:
    known = _known(("a", POCL, -20.0, 0.1), ("b", POCL, -21.0, 0.2), ("c", INTEL, -19.0, 0.05))

    prior = prior_for(known, _device("new", POCL), [COLUMN], _none)

    # by hand: spread s of the two of PoCL, then a flat mean as one of huge variance
    trust = 0.25 / (0.25 + np.array([0.1, 0.2]))
    mean = np.average([-20.0, -21.0], weights=trust)
    squares = 4 * 0.25 + np.sum(trust * (np.array([-20.0, -21.0]) - mean) ** 2)
    spread = np.sqrt(squares / 5)
    between = (BETWEEN_PLATFORMS * spread) ** 2
    flat = 1e6
    is_pocl = np.array([1.0, 1.0, 0.0, 1.0])  # the last one is new
    whole = flat + between * (is_pocl[:, None] == is_pocl) + np.diag(np.full(4, spread**2))
    whole[:3, :3] += np.diag([0.1, 0.2, 0.05])
    gain = whole[3, :3] @ np.linalg.inv(whole[:3, :3])
    wanted_mean = gain @ np.array([-20.0, -21.0, -19.0])
    wanted_variance = whole[3, 3] - gain @ whole[:3, 3]
    assert prior.mean[0] == pytest.approx(wanted_mean, abs=1e-3)
    assert prior.covariance[0, 0] == pytest.approx(wanted_variance + 2 * 0.2**2, rel=1e-3)


def test_devices_of_the_platform_come_before_others() -> None:
    known = _known(("a", POCL, -20.0, 0.0), ("b", INTEL, -18.0, 0.0))

    assert prior_for(known, _device("n", POCL), [COLUMN], _none).mean[0] < -19.0
    assert prior_for(known, _device("n", INTEL), [COLUMN], _none).mean[0] > -19.0


def test_a_gpu_among_processors_may_be_of_any_speed() -> None:
    known = _known(("a", POCL, -20.0, 0.0), ("b", POCL, -20.1, 0.0))
    gpu = _device("n", "NVIDIA CUDA").model_copy(update={"device_type": "gpu"})

    alike = prior_for(known, _device("n", POCL), [COLUMN], _none).covariance[0, 0]

    assert prior_for(known, gpu, [COLUMN], _none).covariance[0, 0] > alike + 4.0


def test_what_no_device_knows_is_guessed() -> None:
    known = _known(("a", POCL, None, 0.0))

    prior = prior_for(known, _device("n", POCL), [COLUMN, ("x", "groups")], lambda _: -17.0)

    assert prior.mean == pytest.approx([-17.0, -17.0])
    assert np.diag(prior.covariance) == pytest.approx(4.0, abs=0.1)


def test_what_ships_is_complete_and_small() -> None:
    from pathlib import Path

    from countperf.fitting.transfer import prior

    known = shipped_devices()

    path = Path(prior.__file__).parent / "known-devices.json"
    assert path.stat().st_size < 300_000
    assert {model.kind for model in known.models} == {"compiled", "structural"}
    for model in known.models:
        errors = [each.typical_error for each in model.errors]
        assert errors == sorted(errors, reverse=True)
        assert all(each.log_error_90 < each.log_error_95 for each in model.errors)
