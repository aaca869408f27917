"""What fits of known devices are off by on a kernel, taken out of times on a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from countperf.execution.policy import ExecutionPolicy
from countperf.fitting.design import Observation, build_design
from countperf.fitting.solve import LogPrior
from countperf.fitting.transfer.calibrated import TransferFit, fit_definition
from countperf.fitting.transfer.prior import CARRIED, KnownModel
from countperf.hardware.identity import DeviceIdentity
from countperf.models.function import Column
from known_devices import MeasuredDevice, fit_devices
from tests.fitting.builders import make_device
from tests.fitting.transfer.builders import COLUMNS, MODEL, WEIGHTS, random_cases

POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"
CASES, MEASURED = 400, 40


def _device(slug: str, platform: str) -> DeviceIdentity:
    return make_device().model_copy(
        update={"slug": slug, "platform": platform, "device_type": "cpu"}
    )


def _own() -> np.ndarray:
    """By what each kernel's time differs from what the model can say, on every device."""
    return np.random.default_rng(5).normal(0.0, 0.4, CASES)


def _cases(speed: float, seed: int) -> list[Observation]:
    """Cases of one set of kernels on a device: weights times a speed, and the kernels' own part."""
    exact = random_cases(CASES, noise=0.0)
    noise = np.random.default_rng(seed).normal(0.0, 0.02, CASES)
    return [
        replace(case, time_s=case.time_s * speed * float(np.exp(own + one)))
        for case, own, one in zip(exact, _own(), noise, strict=True)
    ]


def _known(platforms: Sequence[str]) -> KnownModel:
    members: list[MeasuredDevice] = []
    for number, platform in enumerate(platforms):
        cases = _cases(1.0 + 0.2 * number, number)
        members.append(
            MeasuredDevice(
                device=_device(f"d{number}", platform),
                policy=ExecutionPolicy(width=8),
                design=build_design(cases, MODEL),
                kernels=tuple(case.kernel for case in cases),
            )
        )
    return fit_devices("structural", members, error=0.4)


def test_fits_tell_by_what_they_are_off_on_kernels() -> None:
    known = _known([POCL, POCL])

    assert known.kernels == tuple(case.kernel for case in random_cases(CASES))
    for each in known.devices:
        off = np.array(each.residuals, np.float64)
        assert np.corrcoef(off, _own())[0, 1] > 0.95
        assert off == pytest.approx(_own(), abs=0.5)


def test_a_share_of_the_mean_over_the_platform_is_carried() -> None:
    known = _known([POCL, POCL, INTEL])
    offs = [(0.2, None), (0.4, 0.1), (-1.0, -1.0)]
    devices = tuple(
        each.model_copy(update={"residuals": off})
        for each, off in zip(known.devices, offs, strict=True)
    )
    known = known.model_copy(update={"devices": devices, "kernels": ("a", "b")})
    new = _device("new", POCL)

    carried = known.carried(new)

    assert carried == pytest.approx({"a": CARRIED * 0.3, "b": CARRIED * 0.1})


def test_two_devices_of_the_platform_are_the_prior_without_others() -> None:
    new = _device("new", POCL)

    for platforms, number in (([POCL, POCL, INTEL], 2), ([POCL, INTEL, INTEL], 3)):
        near = _known(platforms).near(new)
        assert len(near.devices) == number


def _fitted(known: KnownModel | None) -> TransferFit:
    def prior(columns: Sequence[Column], guess: object) -> LogPrior:
        del guess
        mean = np.log([WEIGHTS[feature] for _, feature in columns])
        return LogPrior(mean=mean, covariance=np.eye(len(columns)))

    new = _device("new", POCL)
    return fit_definition(
        _cases(2.0, 9)[:MEASURED],
        MODEL,
        COLUMNS,
        prior,
        error=0.4,
        carried=None if known is None else known.carried(new),
    )


def test_weights_are_nearer_to_the_truth_and_predictions_are_of_the_raw_times() -> None:
    """All devices are off by the same on each kernel: what is left of it is three tenths."""
    with_them, without = _fitted(_known([POCL, POCL])), _fitted(None)
    truth = np.log([2.0 * WEIGHTS[feature] for _, feature in COLUMNS])

    def away(fit: TransferFit) -> float:
        return float(np.linalg.norm((fit.logs - truth)[1:]))  # launches take next to nothing

    assert away(with_them) < 0.7 * away(without)
    raw = [case.time_s for case in _cases(2.0, 9)[:MEASURED]]
    found = with_them.estimate
    assert found.design.times_s == pytest.approx(raw)
    assert found.predicted_s == pytest.approx(found.design.counts @ np.exp(with_them.logs))
    measured = sorted(case.measured_s for case in with_them.held_out)
    assert measured == pytest.approx(sorted(raw))
