"""Comparison of all models on one device's measurements.

Every mechanistic model stands at two levels: ``published`` (constants of the device's document) and
``scaled`` (all times by one factor, the median ratio on the measurement kernels). The fitted linear
model stands beside them. Errors are those of the test kernels, which no level has seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from countperf.display import Table
from countperf.documents import Document, Part
from countperf.errors import (
    CountperfError,
    DeviceParameterError,
    FitError,
    ModelNotApplicableError,
    ParameterError,
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

LEVELS: tuple[Level, ...] = ("published", "scaled")
"""Levels of mechanistic models; only the linear model is fitted."""

_FEWEST_OCCUPANCIES = 3
_ERROR_FLOOR = 1e-3
"""Smaller errors count as this in geometric means over the measurements of a calibration: a factor
that is a median meets one of them exactly."""

ModelMaker = Callable[[DeviceParameters], MechanisticModel]
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
    constants: dict[str, float] = Field(default_factory=dict)  # the weights of a fitted model
    converged: bool = True  # whether the fit ended by its own tolerances

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


class Comparison(Table, Document):
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
        results.append(_result(name, level, make(device), device, cases))
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
    model: MechanisticModel,
    device: DeviceParameters,
    cases: Sequence[_Case],
) -> ModelResult:
    learned = [c for c in cases if c.measurement.purpose == "measurement"]
    tested = [c for c in cases if c.measurement.purpose != "measurement"]
    times_s = times_of(model, [c.kernel for c in learned])
    calibrated_on, factor = 0, 1.0
    if level == "scaled":
        measured_s = np.array([c.measurement.time_s for c in learned])
        covered = ~np.isnan(times_s)
        calibrated_on = int(covered.sum())
        if calibrated_on:
            factor = math.exp(float(np.median(np.log((measured_s / times_s)[covered]))))
    lacking = _lacking(model, [c.kernel for c in (cases if level == "published" else learned)])
    if lacking or (level == "scaled" and not calibrated_on):
        none = f"{model.model} covers none of the {len(learned)} measurements of {device.slug}"
        return ModelResult(model=name, level=level, lacking=lacking or none)
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
    learned_s = times_s * factor
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
        shape_errors=_shape_errors(learned, learned_s.tolist(), device),
        calibrated_on=calibrated_on,
        factor=factor,
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


def times_of(model: MechanisticModel, kernels: Iterable[ProfiledKernel]) -> NDArray[np.float64]:
    """Return the predicted times of kernels, s; NaN where the model gives no finite one."""
    times: list[float] = []
    for kernel in kernels:
        try:
            time_s = float(model.predict(kernel).time_s)
            times.append(time_s if math.isfinite(time_s) else math.nan)
        except (DeviceParameterError, ModelNotApplicableError, ParameterError):
            times.append(math.nan)
    return np.array(times, dtype=np.float64)


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
