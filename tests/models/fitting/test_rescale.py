"""Weights that ship for a device, rescaled to kernels that a calibration measured on it."""

import gzip
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from countperf import load_weights
from countperf.measuring import Header, MeasurementSet
from countperf.models.fitting.fit_model import Observation, observations_of
from countperf.models.fitting.prior import find_factors, group_of, rescale_weights, split_time
from countperf.models.weights import WeightSet

FITS = Path(__file__).parents[3] / "fits"


@pytest.mark.parametrize(
    ("feature", "group"),
    [
        ("launches", None),
        ("code.cycles_operations", "core"),
        ("cycles_loop_in_l2", "core"),
        ("bytes.group.load.dense", "core"),
        ("load_bytes", "core"),
        ("load_segments_beyond_l2", "far"),
        ("store_lines_out_of_reach", "far"),
        ("load_beyond_llc", "memory"),
        ("load_memory_lines_out_of_reach", "memory"),
    ],
)
def test_features_are_core_or_memory(feature: str, group: str | None) -> None:
    assert group_of(feature) == group


@pytest.mark.parametrize("clock", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("memory", [0.4, 1.0, 2.5])
def test_factors_come_back_from_times_that_they_made(clock: float, memory: float) -> None:
    shares = np.array([(1.0, 0.0, 0.0), (0.6, 0.4, 0.0), (0.1, 0.1, 0.8)])
    expected, true = np.array([1e-3, 2e-3, 3e-3]), np.array([1 / clock, memory, memory])
    found = find_factors(expected, shares, expected * (shares @ true), 0.1)
    assert found.tolist() == pytest.approx(true.tolist(), rel=0.05)


@pytest.fixture(scope="module")
def header() -> Header:
    with gzip.open(FITS / "pocl-epyc-zen5" / "measurements.jsonl.gz", "rt") as file:
        return Header.model_validate_json(file.readline())


@pytest.fixture(scope="module")
def cases() -> list[Observation]:
    measured = MeasurementSet.read_file(FITS / "pocl-epyc-zen5" / "measurements.jsonl.gz")
    numbered = itertools.count()
    some = measured.select(lambda m: m.purpose == "measurement" and next(numbered) % 20 == 0)
    return [*observations_of(some)]


def _change_times(
    weights: WeightSet, cases: list[Observation], memory: float, clock: float
) -> list[Observation]:
    """Simulate a device whose clock and memory have changed since the fit."""
    true = np.array([1 / clock, memory, memory])
    shares = [np.array(split_time(weights, case)[1]) for case in cases]
    return [
        replace(case, time_s=case.time_s * float(1 + some @ (true - 1)))
        for case, some in zip(cases, shares, strict=True)
    ]


def _mean_factor(weights: WeightSet, cases: list[Observation]) -> float:
    logs = [math.log(split_time(weights, case)[0] / case.time_s) for case in cases]
    return float(np.exp(np.mean(np.abs(logs))))


@pytest.mark.parametrize("model", ["structural", "compiled"])
@pytest.mark.parametrize(("memory", "clock"), [(0.4, 1.3), (1.0, 1.0), (2.5, 0.7)])
def test_a_calibration_is_not_worse_than_what_ships_for_the_device(
    model: str, memory: float, clock: float, cases: list[Observation], header: Header
) -> None:
    weights = load_weights("pocl-epyc-zen5", model=model)
    known = [c for c in cases if c.has_code or model == "structural"]
    changed = _change_times(weights, known, memory, clock)
    measured, others = changed[::4], [case for n, case in enumerate(changed) if n % 4]
    calibrated = rescale_weights(weights, measured, header)
    reached = _mean_factor(calibrated, others)
    assert reached <= 1.05 * _mean_factor(weights, known)
    assert reached <= 1.01 * _mean_factor(weights, others)
    assert calibrated.correction == weights.correction
    assert calibrated.source is not None
    assert calibrated.source.cases == len(measured)


def test_intervals_of_a_calibration_grow_with_its_errors(
    cases: list[Observation], header: Header
) -> None:
    weights = load_weights("pocl-epyc-zen5", model="structural")
    noisy = [replace(c, time_s=c.time_s * 2.5 ** (n % 2 * 2 - 1)) for n, c in enumerate(cases)]
    usual, wider = (rescale_weights(weights, some, header).quality for some in (cases, noisy))
    assert usual is not None
    assert wider is not None
    assert usual.calibration is not None
    assert wider.calibration is not None
    assert wider.calibration.log_errors_90 > 1.5 * usual.calibration.log_errors_90
