"""Fits with a prior: kriging of known devices' weights, what fits minimise, residuals carried."""

from __future__ import annotations

import gzip
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from countperf import load_weights
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES
from countperf.devices.identity import DeviceIdentity, memory_hierarchy_of
from countperf.measuring import Header, MeasurementSet
from countperf.models.definition import ModelDefinition, Term
from countperf.models.fitting import design as designs
from countperf.models.fitting.design import Design, Estimate, Observation, build_design
from countperf.models.fitting.fit_model import FitResult, observations_of
from countperf.models.fitting.prior import (
    BETWEEN_PLATFORMS,
    CARRIED,
    FOLDER,
    ExpectedErrors,
    KnownDevice,
    KnownModel,
    find_factors,
    fit_with_prior,
    group_of,
    load_shipped_choice,
    load_shipped_devices,
    prior_for,
    prior_recipe,
    rescale_weights,
    split_time,
)
from countperf.models.fitting.solve import LogPrior
from countperf.models.function import NORMAL_QUANTILES, ColumnKey
from countperf.models.weights import WeightSet
from known_devices import MeasuredDevice, fit_devices
from measurement_kernels.catalog import entry
from tests.models.fitting.builders import HEADER, made_case, make_device

MODEL = ModelDefinition(
    name="made-up",
    terms={
        "launch": Term(charged=("launches",)),
        "work": Term(charged=("flop.add.f32", "flop.mul.f32", "gmem.load.32.stride1")),
    },
    residual="log",
)
COLUMNS = (
    ("launch", "launches"),
    ("work", "flop.add.f32"),
    ("work", "flop.mul.f32"),
    ("work", "gmem.load.32.stride1"),
)
WEIGHTS = dict(zip([name for _, name in COLUMNS], (1e-5, 1e-9, 2e-9, 4e-9), strict=True))


def case(
    name: str, counts: Mapping[str, int], weights: Mapping[str, float] = WEIGHTS, off: float = 1.0
) -> Observation:
    """Return a case that takes what the weights say, times a factor."""
    counts = {"launches": 1, **counts}
    time_s = off * sum(weights[key] * count for key, count in counts.items())
    return made_case(name, counts, time_s, family=name.split("/")[0])


def random_cases(number: int, *, noise: float = 0.05, seed: int = 1) -> list[Observation]:
    """Return cases with all features, off by a little."""
    random = np.random.default_rng(seed)
    return [
        case(
            f"family{i % 7}/{i}",
            {key: int(random.integers(1, 100_000)) for key in WEIGHTS if key != "launches"},
            off=float(np.exp(random.normal(0.0, noise))),
        )
        for i in range(number)
    ]


TRUE = np.log(list(WEIGHTS.values()))
LOSS_SCALE = 0.3


def fitted_to(design: Design, prior: LogPrior, *, error: float) -> Estimate:
    return designs.estimate_design(design, prior_recipe(error), prior=prior)


def logs_of(fitted: Estimate) -> np.ndarray:
    return np.log(fitted.solution.coefficients)


def test_the_minimum_is_that_of_a_general_optimizer() -> None:
    design = build_design(random_cases(12, noise=0.4), MODEL)
    mean = TRUE + 0.3 * np.array([1.0, -1.0, 1.0, -1.0])
    prior, error = LogPrior(mean=mean, covariance=np.diag(np.full(4, 0.25)) + 0.04), 0.2

    def objective(logs: np.ndarray) -> float:
        total = 0.0
        for counts, time_s in zip(design.counts, design.times_s, strict=True):
            residual = float(np.log(counts @ np.exp(logs) / time_s))
            total += 2 * LOSS_SCALE**2 * (np.sqrt(1 + (residual / LOSS_SCALE) ** 2) - 1)
        away = logs - prior.mean
        return total / error**2 + float(away @ np.linalg.solve(prior.covariance, away))

    fitted = fitted_to(design, prior, error=error)
    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 20000}
    wanted = minimize(objective, prior.mean, method="Nelder-Mead", options=options)
    cost = fitted.solution.cost * 2 / error**2
    assert cost == pytest.approx(float(wanted.fun), rel=1e-6)
    assert logs_of(fitted) == pytest.approx(wanted.x, abs=1e-3)


def test_a_weight_that_no_case_has_stays_at_its_prior() -> None:
    prior = LogPrior(mean=TRUE + 1.0, covariance=np.diag(np.full(4, 0.25)))
    cases = [case(f"a/{n}", {"flop.add.f32": 10_000 * n}) for n in (1, 10, 100)]
    one = case("b/1", {"flop.mul.f32": 1, "gmem.load.32.stride1": 1})
    design = build_design([*cases, one], MODEL)
    fitted = fitted_to(design, prior, error=0.1)
    assert logs_of(fitted)[1] == pytest.approx(TRUE[1], abs=0.2)
    assert logs_of(fitted)[2:] == pytest.approx(prior.mean[2:], abs=1e-3)


@pytest.mark.parametrize("number", [1, 2, 3, 40])
def test_a_fit_ends_with_any_number_of_cases(number: int) -> None:
    far = LogPrior(mean=TRUE + 12.0, covariance=np.diag(np.full(4, 9.0)))
    fitted = fitted_to(build_design(random_cases(number), MODEL), far, error=0.2)
    assert np.all(np.isfinite(logs_of(fitted)))
    assert np.median(np.abs(fitted.solution.residuals)) < 0.3


def test_noisy_cases_count_for_less() -> None:
    right = [case(f"a/{n}", {"flop.add.f32": 10_000 * n}) for n in (10, 20)]
    wrong = replace(case("b/1", {"flop.add.f32": 150_000}, off=3.0), noise=5.0)
    other = case("c/1", {"flop.mul.f32": 1, "gmem.load.32.stride1": 1})
    design = build_design([*right, wrong, other], MODEL)
    prior = LogPrior(mean=TRUE, covariance=np.diag(np.full(4, 1.0)))
    fitted = fitted_to(design, prior, error=0.1)
    assert logs_of(fitted)[1] == pytest.approx(TRUE[1], abs=0.02)


def test_the_covariance_is_the_inverse_curvature() -> None:
    design = build_design(random_cases(30, noise=0.0), MODEL)
    prior = LogPrior(mean=TRUE, covariance=np.diag(np.full(4, 0.3)))
    fitted = fitted_to(design, prior, error=0.2)
    slopes = design.counts * np.exp(TRUE)
    slopes = slopes / slopes.sum(axis=1, keepdims=True)
    wanted = np.linalg.inv(slopes.T @ slopes / 0.2**2 + np.linalg.inv(prior.covariance))
    assert logs_of(fitted) == pytest.approx(TRUE, abs=1e-6)
    solution = fitted.solution
    assert solution.covariance is not None
    of_logs = solution.covariance / np.outer(solution.coefficients, solution.coefficients)
    assert of_logs == pytest.approx(wanted, abs=1e-6)


POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"
CASES, MEASURED = 400, 40


def _device(slug: str, platform: str) -> DeviceIdentity:
    return make_device(slug=slug, platform=platform)


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
    members = [
        MeasuredDevice(
            device=_device(f"d{number}", platform),
            design=build_design(_cases(1.0 + 0.2 * number, number), MODEL),
            kernels=tuple(case.kernel for case in random_cases(CASES)),
        )
        for number, platform in enumerate(platforms)
    ]
    return fit_devices("structural", members, error=0.4)


def test_fits_tell_by_what_they_are_off_on_kernels() -> None:
    known = _known([POCL, POCL])
    assert known.kernels == tuple(case.kernel for case in random_cases(CASES))
    for device in known.devices:
        off = np.array(device.residuals, np.float64)
        assert np.corrcoef(off, _own())[0, 1] > 0.95
        assert off == pytest.approx(_own(), abs=0.5)


def test_a_share_of_the_mean_over_the_platform_is_carried() -> None:
    known = _known([POCL, POCL, INTEL])
    offs = [(0.2, None), (0.4, 0.1), (-1.0, -1.0)]
    devices = tuple(
        device.model_copy(update={"residuals": off})
        for device, off in zip(known.devices, offs, strict=True)
    )
    known = known.model_copy(update={"devices": devices, "kernels": ("a", "b")})
    assert known.find_residuals(_device("new", POCL)) == pytest.approx(
        {"a": CARRIED * 0.3, "b": CARRIED * 0.1}
    )


def test_two_devices_of_the_platform_are_the_prior_without_others() -> None:
    new = _device("new", POCL)
    for platforms, number in (([POCL, POCL, INTEL], 2), ([POCL, INTEL, INTEL], 3)):
        near = _known(platforms).near(new)
        assert len(near.devices) == number


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit the made-up model, with a wide prior about its true weights."""

    def prior(
        known: object, device: object, columns: Sequence[ColumnKey], guess: object
    ) -> LogPrior:
        del known, device, guess
        mean = np.log([WEIGHTS[feature] for _, feature in columns])
        return LogPrior(mean=mean, covariance=np.eye(len(columns)))

    monkeypatch.setattr(KnownModel, "definition", lambda *_: MODEL)
    monkeypatch.setattr("countperf.models.fitting.prior.prior_for", prior)


def _fitted(known: KnownModel, speed: float = 2.0, noise: float = 0.0) -> FitResult:
    new = _device("new", POCL)
    cases, header = _cases(speed, 9)[:MEASURED], HEADER.model_copy(update={"device": new})
    memory = memory_hierarchy_of(new)
    return fit_with_prior(cases, known, header, memory=memory, caches=DEFAULT_CACHES, noise=noise)


@pytest.mark.usefixtures("made_up")
def test_weights_are_nearer_to_the_truth_and_predictions_are_of_the_raw_times() -> None:
    """All devices are off by the same on each kernel: what is left of it is three tenths."""
    known = _known([POCL, POCL])
    bare = [device.model_copy(update={"residuals": ()}) for device in known.devices]
    with_them = _fitted(known)
    without = _fitted(known.model_copy(update={"devices": tuple(bare)}))
    truth = np.log([2.0 * WEIGHTS[feature] for _, feature in COLUMNS])

    def away(fit: FitResult) -> float:  # launches take next to nothing
        return float(np.linalg.norm((logs_of(fit.estimate) - truth)[1:]))

    assert away(with_them) < 0.7 * away(without)
    raw = [case.time_s for case in _cases(2.0, 9)[:MEASURED]]
    design = with_them.estimate.design
    assert design.times_s == pytest.approx(raw)
    assert with_them.estimate.predicted_s == pytest.approx(
        design.counts @ np.exp(logs_of(with_them.estimate))
    )
    assert sorted(case.measured_s for case in with_them.held_out) == pytest.approx(sorted(raw))


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("expected", [True, False])
def test_intervals_grow_with_unlikeness_and_noise(noise: float, *, expected: bool) -> None:
    sizes = {"log_error_90": 0.3, "log_error_95": 0.4, "typical_error": 0.1}
    errors = ExpectedErrors(kernels=6, typical_held_out_error=1e-4, **sizes)
    known = _known([POCL, POCL])
    known = known.model_copy(update={"errors": (errors,) if expected else ()})
    fits = [_fitted(known, noise=size).weights.quality for size in (0.0, noise)]
    before, after = (q.calibration.log_errors_90 for q in fits if q and q.calibration)
    if expected:
        assert before == pytest.approx(0.9)  # 3 times at most
    assert after == pytest.approx(math.hypot(before, NORMAL_QUANTILES[0.9] * noise))


COLUMN = ("traffic", "bytes.group.load.dense")


def _of_logs(*devices: tuple[str, str, float | None, float]) -> KnownModel:
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


def _none(column: object) -> None:
    del column


def test_the_conditional_distribution_is_that_of_the_whole_normal_one() -> None:
    known = _of_logs(("a", POCL, -20.0, 0.1), ("b", POCL, -21.0, 0.2), ("c", INTEL, -19.0, 0.05))
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


def test_a_gpu_among_processors_may_be_of_any_speed() -> None:
    known = _of_logs(("a", POCL, -20.0, 0.0), ("b", POCL, -20.1, 0.0))
    gpu = make_device(slug="n", platform="NVIDIA CUDA", device_type="gpu")
    alike = prior_for(known, _device("n", POCL), [COLUMN], _none).covariance[0, 0]
    assert prior_for(known, gpu, [COLUMN], _none).covariance[0, 0] > alike + 4.0


def test_what_no_device_knows_is_guessed() -> None:
    known = _of_logs(("a", POCL, None, 0.0))
    prior = prior_for(known, _device("n", POCL), [COLUMN, ("x", "groups")], lambda _: -17.0)
    assert prior.mean == pytest.approx([-17.0, -17.0])
    assert np.diag(prior.covariance) == pytest.approx(4.0, abs=0.1)


def test_what_ships_is_complete_and_small() -> None:
    known = load_shipped_devices()
    assert {path.stat().st_size < 300_000 for path in FOLDER.glob("*.json")} == {True}
    assert {model.kind for model in known.models} == {"compiled", "structural"}
    for model in known.models:
        typical = [errors.typical_error for errors in model.errors]
        assert typical == sorted(typical, reverse=True)
        assert all(errors.log_error_90 < errors.log_error_95 for errors in model.errors)


@pytest.mark.parametrize("known", load_shipped_devices().models, ids=lambda known: known.kind)
def test_each_column_is_a_feature_of_its_model(known: KnownModel) -> None:
    device = known.devices[0].device
    model = known.definition(device, memory_hierarchy_of(device))
    for term, feature in known.columns:
        if feature in model.derived:
            assert feature in model.terms[term].charged
        else:
            assert model.term_features[term].feature_of(feature) is not None, feature
    assert len(set(known.columns)) == len(known.columns)


def test_kernels_that_ship_can_be_measured() -> None:
    kernels = load_shipped_choice().kernels
    assert len(kernels) > 100
    assert {entry(kernel.name).purpose for kernel in kernels} == {"measurement"}
    for kernel in kernels[:40]:
        cases = [entry(kernel.name).case_at(**size.parameters) for size in kernel.sizes]
        assert [case.family for case in cases] == [kernel.family] * len(cases)
        bytes_in_all = [case.global_memory_bytes for case in cases]
        assert bytes_in_all == sorted(bytes_in_all)


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


def test_intervals_grow_with_errors(cases: list[Observation], header: Header) -> None:
    weights = load_weights("pocl-epyc-zen5", model="structural")
    noisy = [replace(c, time_s=c.time_s * 2.5 ** (n % 2 * 2 - 1)) for n, c in enumerate(cases)]
    usual, wider = (rescale_weights(weights, some, header).quality for some in (cases, noisy))
    assert usual is not None
    assert wider is not None
    assert usual.calibration is not None
    assert wider.calibration is not None
    assert wider.calibration.log_errors_90 > 1.5 * usual.calibration.log_errors_90
