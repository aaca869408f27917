"""Comparison of all models on one device's measurements, as published and scaled by a factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from pydantic import Field, NonNegativeInt

from countperf import text
from countperf.devices.parameters import DeviceParameters
from countperf.documents import Document, Part
from countperf.errors import CountperfError, DeviceParameterError, FitError, ParameterError
from countperf.measuring import Measurement
from countperf.mechanistic.classes import with_known_classes
from countperf.mechanistic.predict_all import build_models, model_names
from countperf.mechanistic.profile import MechanisticModel, ProfiledKernel
from countperf.models import metrics
from countperf.models.definition import Unread
from countperf.models.metrics import evaluate
from countperf.models.weights import WeightSet
from countperf.steps import step_through

CalibrationLevel = Literal["published", "scaled", "fitted"]

LEVELS: tuple[CalibrationLevel, ...] = ("published", "scaled")
"""Levels of mechanistic models; only the linear model is fitted."""

_ERROR_FLOOR = 1e-3
"""Smaller errors count as this in geometric means over the measurements of a calibration: a factor
that is a median meets one of them exactly."""

_TRUSTED = 0.5  # error of a model from which on it is not to be trusted for a kernel
_LEAST_NOISE = 0.01  # errors that differ by less are alike
_LEVELS = {
    **{"published": "as published", "scaled": "scaled by the other sizes"},
    **{"fitted": "with its weights"},
}

FITTED = "fitted:"
"""Before the name of a model with weights, among models' times."""

Profiler = Callable[[Measurement], ProfiledKernel]
_Predicted = tuple[Measurement, float | str]


class ModelResult(Part):
    """One model at one level on one device."""

    model: str  # name of the model
    level: CalibrationLevel  # what of it was calibrated
    lacking: str = ""  # why the model predicts nothing here
    cases: tuple[metrics.EvaluatedCase, ...] = ()  # test kernels that it predicts
    # kernels that it does not cover, and why
    refusals: dict[str, str] = Field(default_factory=dict)
    # geometric mean of the relative errors on the measurement kernels, as a fraction
    in_sample: float | None = None
    shape_errors: Unread = Field(default=(), exclude=True)
    calibrated_on: NonNegativeInt = 0  # measurements that it was calibrated on
    factor: float = 1.0  # on all times
    constants: dict[str, float] = Field(default_factory=dict)  # the weights of a fitted model
    converged: Unread = Field(default=(), exclude=True)

    def by_kernel(self) -> dict[str, metrics.MeanError]:
        """Return the mean error of each test kernel over its sizes."""
        return metrics.mean_errors_by_kernel(self.cases)

    def overall_error(self) -> float | None:
        """Return the geometric mean over the kernels' means; None without predictions."""
        return metrics.mean_of_means(self.by_kernel()).value if self.cases else None


class Comparison(Document, text.Result):
    """All models on one device's measurements."""

    format: Literal["countperf-comparison"] = "countperf-comparison"
    version: Literal[1] = 1
    device: str  # slug of the device
    # how many cases were evaluated, and on how many the models were calibrated
    test_cases: NonNegativeInt
    measurement_cases: NonNegativeInt
    unprofiled: dict[str, str] = Field(default_factory=dict)  # kernels without a profile, and why
    models: tuple[ModelResult, ...]  # sorted by model, then level; of an own kernel by error
    # of a kernel of the user's, judged by its times alone: how far these repeat, as a fraction
    noise: float | None = None

    __str__ = text.Result.__str__

    def lay_out(self) -> text.Printed:
        """Give a row per model and level: errors overall and by kernel, then what is lacking."""
        rows: list[dict[str, Any]] = [
            {
                "model": model.model,
                "constants": model.level,
                "error": model.overall_error(),
                "in_sample": model.in_sample,
                **{f"{k.split('/')[0]}:error": mean.value for k, mean in model.by_kernel().items()},
                "cases": len(model.cases),
                "lacking": model.lacking,
            }
            for model in self.models
        ]
        kernels = {name: None for row in rows for name in row if name.endswith(":error")}
        head = [
            f"{self.device}: {self.test_cases} cases of test kernels, calibrated on "
            f"{self.measurement_cases} cases of measurement kernels"
        ]
        if self.noise is not None:
            head, kernels = self._say_trust(self.noise), {}
        return text.Printed(
            head=head,
            rows=rows,
            columns=text.columns_of("model constants")
            | {"error": text.Column("overall", text.format_percent)}
            | text.columns_of("in_sample", text.format_percent)
            | {k: text.Column(k.removesuffix(":error"), text.format_percent) for k in kernels},
            notes=_gaps(self),
            facts={
                **self.to_object(),
                "geometric_mean": [
                    {
                        **text.extract(model, "model", "level"),
                        "overall": model.overall_error(),
                        "by_kernel": {k: e.value for k, e in model.by_kernel().items()},
                    }
                    for model in self.models
                ],
            },
        )

    def _say_trust(self, noise: float) -> list[str]:
        """Say which model to trust for a kernel, and which cannot be told from it."""
        best, least = self.models[0], self.models[0].overall_error() or 0.0
        names = [
            f"{of.model} {_LEVELS[of.level]}"
            for of in self.models
            if len(of.cases) == len(best.cases) and (of.overall_error() or 0.0) <= least + noise
        ]
        said = f"{'trust' if least < _TRUSTED else 'trust none: the best is'} {names[0]}, off by"
        said += f" {text.format_percent(least)} over {len(best.cases)} of {self.test_cases} sizes"
        said += f" of {best.cases[0].kernel} on {self.device}"
        told = f"alike within {text.format_percent(noise)}: {text.some_of(names[1:], most=4)}"
        few = "of one size: more of them tell constants from growth"
        lines = [said, told if names[1:] else "", few if self.test_cases == 1 else ""]
        return [text.wrap_note(line, "") for line in lines if line]


def compare_models(
    device: DeviceParameters,
    measurements: Sequence[Measurement],
    profile: Profiler,
    *,
    models: Collection[str] = (),
    levels: Collection[CalibrationLevel] = LEVELS,
    purposes: Collection[str] = ("test",),
) -> Comparison:
    """Predict measured kernels by every mechanistic model at every level."""
    judging = set(purposes) - {"measurement"}
    learning = {"measurement"} if "scaled" in levels else set[str]()
    names = [name for name in model_names() if not models or name in models]
    unprofiled: dict[str, str] = {}
    cases: list[tuple[Measurement, ProfiledKernel]] = []

    def add(purposes: Collection[str]) -> None:
        chosen = [m for m in measurements if m.purpose in purposes]
        for measurement in step_through(chosen, "profiling kernels"):
            try:
                cases.append((measurement, profile(measurement)))
            except CountperfError as error:
                unprofiled[measurement.kernel] = str(error)

    def build() -> list[MechanisticModel]:
        classes = {name for _, kernel in cases for name in kernel.profile.alpha}
        return build_models(names, with_known_classes(device, classes)[0])

    add(judging)
    add(learning)
    if not cases:
        raise FitError(
            f"none of the {len(measurements)} measured cases has a profile: "
            + next(iter(unprofiled.values()), "there are none for this purpose")
        )
    asked: list[tuple[MechanisticModel, CalibrationLevel]] = [
        (model, level) for model in build() for level in LEVELS if level in levels
    ]
    results: list[ModelResult] = []
    for model, level in step_through(asked, "calibrating models"):
        of_purpose: dict[bool, list[_Predicted]] = {True: [], False: []}
        for measurement, kernel in cases:
            is_learned = measurement.purpose == "measurement"
            of_purpose[is_learned].append((measurement, time_of(model, kernel)))
        results.append(_judge(model.model, level, of_purpose[False], of_purpose[True]))
    return Comparison(
        device=device.slug,
        test_cases=sum(m.purpose in judging for m in measurements),
        measurement_cases=sum(m.purpose in learning for m in measurements),
        unprofiled=unprofiled,
        models=tuple(results),
    )


def _judge(
    model: str, level: CalibrationLevel, judged: Sequence[_Predicted], learned: Sequence[_Predicted]
) -> ModelResult:
    """Judge a model; where it is scaled, a case by the median factor of the others learned."""
    factors = {m.case: m.time_s / t for m, t in learned if isinstance(t, float)}
    known = [(m, t) for m, t in judged if isinstance(t, float)]
    is_scaled = level == "scaled"
    if not (factors if is_scaled else factors or known):
        none = f"{model} covers none of the {len(learned)} measurements of its device"
        lacking = next((str(t) for _, t in [*learned, *judged] if isinstance(t, str)), none)
        return ModelResult(model=model, level=level, lacking=lacking)

    def find_factor(case: str = "") -> float:
        others = [math.log(factor) for name, factor in factors.items() if name != case]
        return math.exp(median(others)) if is_scaled else 1.0

    whole = find_factor()
    errors = [abs(whole / factor - 1) for factor in factors.values()]
    return ModelResult(
        model=model,
        level=level,
        cases=tuple(
            metrics.EvaluatedCase(
                kernel=m.kernel,
                parameters=dict(m.parameters),
                measured_s=m.time_s,
                predicted_s=time_s * (find_factor(m.case) if m.case in factors else whole),
                purpose=m.purpose,
            )
            for m, time_s in known
        ),
        refusals={m.kernel: reason for m, reason in judged if isinstance(reason, str)},
        in_sample=metrics.mean_error(errors, floor=_ERROR_FLOOR).value if errors else None,
        calibrated_on=len(factors) if is_scaled else 0,
        factor=whole,
    )


def compare_own(
    device: str, timed: Sequence[Measurement], times: Mapping[str, Sequence[float | str]]
) -> Comparison:
    """Compare models on the times of one kernel, given by name their predictions, s, or refusals.

    A size is scaled by the median factor of the others; models with weights (`FITTED`) are not.
    """
    results: list[ModelResult] = []
    for name, predicted in times.items():
        model, pairs = name.removeprefix(FITTED), [*zip(timed, predicted, strict=True)]
        several = sum(isinstance(time_s, float) for time_s in predicted) > 1
        results.append(_judge(model, "published" if model == name else "fitted", pairs, ()))
        results += [_judge(model, "scaled", pairs, pairs)] if several and model == name else []
    results.sort(key=lambda of: (-len(of.cases), of.overall_error() or 0.0))
    if not results[0].cases:
        reasons = dict.fromkeys(of.lacking for of in results)
        raise FitError(f"no model predicts the kernel on {device}: {'; '.join([*reasons][:2])}")
    noise = max(_LEAST_NOISE, median(m.noise for m in timed))
    given: Any = {"device": device, "test_cases": len(timed), "measurement_cases": 0}
    return Comparison(**given, noise=noise, models=tuple(results))


def time_of(model: MechanisticModel, kernel: ProfiledKernel) -> float | str:
    """Return the predicted time of a kernel, s; or why there is none."""
    try:
        time_s = float(model.predict(kernel).time_s)
    except (ParameterError, DeviceParameterError) as error:
        return str(error)
    return time_s if math.isfinite(time_s) else f"the model gives {time_s} s, which is no time"


def linear_result(
    weights: WeightSet, measurements: Iterable[Measurement], purposes: Collection[str]
) -> ModelResult:
    """Return the fitted linear model in the shape of a mechanistic one, judged by purposes."""
    judging = set(purposes) - {"measurement"}
    return ModelResult(
        model=weights.model,
        level="fitted",
        cases=evaluate(weights, (m for m in measurements if m.purpose in judging)).cases,
        in_sample=None if weights.quality is None else weights.quality.in_sample_error,
        constants={w.feature: w.value_s for w in weights.weights},
    )


def _gaps(of: Comparison) -> list[str]:
    """Say once for each reason which models and kernels have no prediction."""
    gaps: dict[str, dict[str, None]] = {}
    for model in of.models:
        who = f"{model.model} ({model.level})"
        if model.lacking:
            gaps.setdefault(f"no prediction: {model.lacking}", {})[who] = None
        for kernel, reason in model.refusals.items():
            gaps.setdefault(f"no prediction of {kernel.split('/')[0]}: {reason}", {})[who] = None
    for kernel, reason in of.unprofiled.items():
        gaps.setdefault(f"no profile: {reason}", {})[kernel] = None
    return [f"{', '.join(who)}: {what}" for what, who in gaps.items()]
