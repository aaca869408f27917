"""Comparison of all models on one device's measurements.

Every mechanistic model stands at three levels, calibrated on the measurement kernels only:
``published`` (constants of the device's document), ``scaled`` (one factor) and ``fitted`` (all
constants that it depends on; see `countperf.fitting.device_constants`). The fitted linear model
stands beside them. Errors are those of the test kernels, which no level has seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, NonNegativeInt

from countperf.display import Drawable, Table
from countperf.documents import Document, Part
from countperf.errors import CountperfError, DeviceParameterError, FitError, ParameterError
from countperf.fitting.device_constants import (
    Calibration,
    ModelMaker,
    Observation,
    calibrate_factor,
    calibrate_fully,
    starting_device,
    times_of,
)
from countperf.fitting.fit import fit
from countperf.fitting.validation import evaluate
from countperf.hardware.parameters import DeviceParameters
from countperf.measurements import Measurement, MeasurementSet
from countperf.mechanistic.model import MechanisticModel
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.profile import ProfiledKernel
from countperf.metrics import (
    EvaluatedCase,
    MeanError,
    mape,
    mape_shape,
    mean_error,
    mean_errors_by_kernel,
    mean_of_means,
)
from countperf.steps import stepped

Level = Literal["published", "scaled", "fitted"]

LEVELS: tuple[Level, ...] = ("published", "scaled", "fitted")

_FEWEST_OCCUPANCIES = 3
_ERROR_FLOOR = 1e-3
"""Smaller errors count as this in geometric means over the measurements of a calibration: a factor
that is a median meets one of them exactly."""

_STEPS = 15
_FEW_STEPS = 5
"""Steps of the optimizer in each phase, for all models and for slow ones."""

Profiler = Callable[[Measurement], ProfiledKernel]


class ModelResult(Part):
    """One model at one level on one device."""

    model: str  # name of the model
    level: Level  # what of it was calibrated
    lacking: str = ""  # why the model predicts nothing here
    cases: tuple[EvaluatedCase, ...] = ()  # test kernels that it predicts
    # kernels that it does not cover, and why
    refusals: dict[str, str] = Field(default_factory=dict)
    # geometric mean of the relative errors on the measurement kernels, as a fraction
    in_sample: float | None = None
    shape_errors: dict[str, float] = Field(default_factory=dict)
    calibrated_on: NonNegativeInt = 0  # measurements that it was calibrated on
    factor: float = 1.0  # on all times
    # constants of the device that were fitted
    constants: dict[str, float] = Field(default_factory=dict)
    converged: bool = True  # whether the calibration ended by its own tolerances

    def by_kernel(self) -> dict[str, MeanError]:
        """Return the mean error of each test kernel over its sizes."""
        return mean_errors_by_kernel(self.cases)

    def overall(self) -> MeanError | None:
        """Return the geometric mean over the kernels' means; None without predictions."""
        return mean_of_means(self.by_kernel()) if self.cases else None

    def mape(self) -> float | None:
        """Return the arithmetic mean of the relative errors in percent; None without any."""
        if not self.cases:
            return None
        return mape([c.predicted_s for c in self.cases], [c.measured_s for c in self.cases])


class Comparison(Table, Drawable, Document):
    """All models on one device's measurements."""

    format: Literal["countperf-comparison"] = "countperf-comparison"
    version: Literal[1] = 1
    device: str  # slug of the device
    # how many cases were evaluated, and on how many the models were calibrated
    test_cases: NonNegativeInt
    measurement_cases: NonNegativeInt
    unprofiled: dict[str, str] = Field(default_factory=dict)  # kernels without a profile, and why
    models: tuple[ModelResult, ...]  # sorted by model, then level

    def with_models(self, results: Sequence[ModelResult]) -> Comparison:
        """Return the comparison with more results, in front."""
        return self.model_copy(update={"models": (*results, *self.models)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    measurement: Measurement
    kernel: ProfiledKernel


def compare_models(
    makers: Callable[[Iterable[str]], Mapping[str, ModelMaker]],
    device: DeviceParameters,
    measurements: Sequence[Measurement],
    profile: Profiler,
    *,
    models: Collection[str] = (),
    levels: Collection[Level] = LEVELS,
    purposes: Collection[str] = ("test",),
    thinned: Mapping[str, int] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Predict measured kernels by every mechanistic model at every level."""
    judging = set(purposes) - {"measurement"}
    unprofiled: dict[str, str] = {}
    cases: list[_Case] = []
    for each in stepped(measurements, "profiling kernels"):
        if each.purpose not in {"measurement", *judging}:
            continue
        try:
            cases.append(_Case(measurement=each, kernel=profile(each)))
        except CountperfError as error:
            unprofiled[each.kernel] = str(error)
    if not cases:
        raise FitError(f"none of the {len(measurements)} measured cases has a profile")
    classes = {name for case in cases for name in case.kernel.profile.alpha}
    results: list[ModelResult] = []
    asked: list[tuple[str, ModelMaker, Level]] = [
        (name, make, level)
        for name, make in makers(classes).items()
        for level in LEVELS
        if (not models or name in models) and level in levels
    ]
    for name, make, level in stepped(asked, "calibrating models"):
        progress(f"{name}, {level}")
        results.append(_result(name, level, make, device, cases, (thinned or {}).get(name, 1)))
    return Comparison(
        device=device.slug,
        test_cases=sum(m.purpose in judging for m in measurements),
        measurement_cases=sum(m.purpose == "measurement" for m in measurements),
        unprofiled=unprofiled,
        models=tuple(results),
    )


def _result(
    name: str,
    level: Level,
    make: ModelMaker,
    device: DeviceParameters,
    cases: Sequence[_Case],
    every: int,
) -> ModelResult:
    learned = [c for c in cases if c.measurement.purpose == "measurement"]
    tested = [c for c in cases if c.measurement.purpose != "measurement"]
    observations = [Observation(kernel=c.kernel, measured_s=c.measurement.time_s) for c in learned]
    calibrated_on = 0
    try:
        match level:
            case "published":
                factor, used, fitted, converged = 1.0, device, {}, True
            case "scaled":
                found = calibrate_factor(make, device, observations)
                calibrated_on = found.used
                factor, used, fitted, converged = found.factor, device, {}, True
            case "fitted":
                start = starting_device(make, device, observations)
                steps = _STEPS if every == 1 else _FEW_STEPS
                found = calibrate_fully(make, start, observations[::every], evaluations=steps)
                calibrated_on = found.used
                factor, used, converged = 1.0, found.device, found.converged
                fitted = _values(found)
    except (DeviceParameterError, FitError) as error:
        return ModelResult(model=name, level=level, lacking=str(error))
    model = make(used)
    if level == "published" and (lacking := _lacking(model, [c.kernel for c in cases])):
        return ModelResult(model=name, level=level, lacking=lacking)
    evaluated: list[EvaluatedCase] = []
    refusals: dict[str, str] = {}
    for case in tested:
        try:
            time_s = float(model.predict(case.kernel).time_s) * factor
        except (ParameterError, DeviceParameterError) as error:
            refusals[case.measurement.kernel] = str(error)
            continue
        if not math.isfinite(time_s):
            refusals[case.measurement.kernel] = f"the model gives {time_s} s, which is no time"
            continue
        evaluated.append(
            EvaluatedCase(
                kernel=case.measurement.kernel,
                parameters=dict(case.measurement.parameters),
                measured_s=case.measurement.time_s,
                predicted_s=time_s,
                purpose=case.measurement.purpose,
            )
        )
    learned_s = times_of(model, [c.kernel for c in learned], incomplete_ok=True) * factor
    errors = [
        abs(p / c.measurement.time_s - 1)
        for p, c in zip(learned_s, learned, strict=True)
        if not math.isnan(p)
    ]
    return ModelResult(
        model=name,
        level=level,
        cases=tuple(evaluated),
        refusals=refusals,
        in_sample=mean_error(errors, floor=_ERROR_FLOOR).value if errors else None,
        shape_errors=_shape_errors(learned, learned_s.tolist(), used),
        calibrated_on=calibrated_on,
        factor=factor,
        constants=fitted,
        converged=converged,
    )


def _lacking(model: MechanisticModel, kernels: Sequence[ProfiledKernel]) -> str:
    """Return why a model predicts none of the kernels; empty if it predicts one."""
    reason = ""
    for kernel in kernels:
        try:
            model.predict(kernel)
        except (ParameterError, DeviceParameterError) as error:
            reason = reason or str(error)
        else:
            return ""
    return reason


def _values(found: Calibration) -> dict[str, float]:
    return {name: value for name, (_, value) in found.constants.items()}


def _shape_errors(
    cases: Sequence[_Case], predicted_s: Sequence[float], device: DeviceParameters
) -> dict[str, float]:
    """Return MAPE_shape by family: of one variant at nearly one size in several group shapes."""
    series: dict[
        tuple[str, str, tuple[tuple[str, int], ...]], dict[float, tuple[float, float]]
    ] = {}
    for case, time_s in zip(cases, predicted_s, strict=True):
        if math.isnan(time_s):
            continue
        measured = case.measurement
        try:
            geometry = launch_geometry(case.kernel.profile, case.kernel.launch, device)
        except (ParameterError, DeviceParameterError):
            continue
        key = (
            measured.family,
            measured.variant,
            # group shapes differ in what divides sizes: nearly the same size will do
            tuple((n, round(4 * math.log2(v))) for n, v in sorted(measured.parameters.items())),
        )
        # sub-groups per second stand for the throughput
        work = geometry.total_sub_groups
        series.setdefault(key, {})[geometry.occupancy] = (work / time_s, work / measured.time_s)
    errors: dict[str, list[float]] = {}
    for (family, _, _), points in series.items():
        if len(points) >= _FEWEST_OCCUPANCIES:
            occupancies = sorted(points)
            value = mape_shape(
                [points[o][0] for o in occupancies],
                [points[o][1] for o in occupancies],
                occupancies,
            )
            errors.setdefault(family, []).append(value)
    return {family: sum(values) / len(values) for family, values in errors.items()}


def linear_results(
    measurements: MeasurementSet, purposes: Collection[str] = ("test",)
) -> tuple[ModelResult, ...]:
    """Return the fitted linear model in the shape of a mechanistic one.

    `purposes` are those of the evaluated kernels.
    """
    fitted = fit(measurements)
    judging = set(purposes) - {"measurement"}
    evaluation = evaluate(fitted.weights, (m for m in measurements if m.purpose in judging))
    quality = fitted.weights.quality
    return (
        ModelResult(
            model=fitted.weights.model,
            level="fitted",
            cases=evaluation.cases,
            in_sample=None if quality is None else quality.in_sample_error,
            constants={w.feature: w.value_s for w in fitted.weights.weights},
        ),
    )
