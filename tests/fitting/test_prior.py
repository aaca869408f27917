"""The prior of a new device: kriging of known devices' weights."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.fitting.prior import (
    BETWEEN_PLATFORMS,
    FOLDER,
    KnownDevice,
    KnownModel,
    prior_for,
    shipped_choice,
    shipped_devices,
)
from countperf.hardware.identity import DeviceIdentity, memory_hierarchy_of
from measurement_kernels.catalog import entry
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
    known = shipped_devices()

    assert {path.stat().st_size < 300_000 for path in FOLDER.glob("*.json")} == {True}
    assert {model.kind for model in known.models} == {"compiled", "structural"}
    for model in known.models:
        errors = [each.typical_error for each in model.errors]
        assert errors == sorted(errors, reverse=True)
        assert all(each.log_error_90 < each.log_error_95 for each in model.errors)


@pytest.mark.parametrize("known", shipped_devices().models, ids=lambda known: known.kind)
def test_each_column_is_a_feature_of_its_model(known: KnownModel) -> None:
    device = known.devices[0].device
    model = known.definition(device, memory_hierarchy_of(device))

    strange = [
        (term, feature)
        for term, feature in known.columns
        if term not in model.terms
        or not (
            feature in model.terms[term].charged
            if feature in model.derived
            else model.term_features[term].feature_of(feature) is not None
        )
    ]

    assert strange == []
    assert len(set(known.columns)) == len(known.columns)


def test_kernels_that_ship_can_be_measured() -> None:
    kernels = shipped_choice().kernels

    assert len(kernels) > 100
    assert {entry(each.name).purpose for each in kernels} == {"measurement"}
    for each in kernels[:40]:
        cases = [entry(each.name).case_at(**size.parameters) for size in each.sizes]
        assert [case.family for case in cases] == [each.family] * len(cases)
        bytes_in_all = [case.global_memory_bytes for case in cases]
        assert bytes_in_all == sorted(bytes_in_all)
