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

_TRUSTED = 0.5
"""Error of a model from which on it is not to be trusted for a kernel."""

Profiler = Callable[[Measurement], ProfiledKernel]


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
        best, *others = self.models
        least = best.overall_error() or 0.0
        levels = {"published": "as published", "fitted": "with its weights"}
        levels["scaled"] = "scaled by the other sizes"
        alike = [
            f"{of.model} {levels[of.level]}"
            for of in others
            if len(of.cases) == len(best.cases) and (of.overall_error() or 0.0) <= least + noise
        ]
        sizes = f"{len(best.cases)} of {self.test_cases} sizes"
        trust = "trust" if least < _TRUSTED else "trust none: the best is"
        said = (
            f"{trust} {best.model} {levels[best.level]}, off by {text.format_percent(least)} over"
        )
        said += f" {sizes} of {best.cases[0].kernel} on {self.device}"
        told = f"not told apart from it within the noise of {text.format_percent(noise)}: "
        told += text.some_of(alike)
        few = "one size does not tell constants from growth: time two more, far apart"
        return [
            text.wrap_note(said, ""),
            *([text.wrap_note(told, "")] if alike else []),
            *([few] if self.test_cases == 1 else []),
        ]


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
    results = [_judge(*each, cases) for each in step_through(asked, "calibrating models")]
    return Comparison(
        device=device.slug,
        test_cases=sum(m.purpose in judging for m in measurements),
        measurement_cases=sum(m.purpose in learning for m in measurements),
        unprofiled=unprofiled,
        models=tuple(results),
    )


def _judge(
    model: MechanisticModel,
    level: CalibrationLevel,
    cases: Sequence[tuple[Measurement, ProfiledKernel]],
) -> ModelResult:
    predicted = [(measurement, time_of(model, kernel)) for measurement, kernel in cases]
    learned = [each for each in predicted if each[0].purpose == "measurement"]
    judged = [each for each in predicted if each[0].purpose != "measurement"]
    known = [(m.time_s, time_s) for m, time_s in learned if isinstance(time_s, float)]
    needed = predicted if level == "published" else learned
    if not any(isinstance(time_s, float) for _, time_s in needed):
        none = f"{model.model} covers none of the {len(learned)} measurements of its device"
        lacking = next((str(reason) for _, reason in needed or predicted), none)
        return ModelResult(model=model.model, level=level, lacking=lacking)
    factor = 1.0
    if level == "scaled":
        factor = math.exp(median(math.log(measured / time_s) for measured, time_s in known))
    errors = [abs(time_s * factor / measured - 1) for measured, time_s in known]
    return ModelResult(
        model=model.model,
        level=level,
        cases=tuple(
            metrics.EvaluatedCase(
                kernel=m.kernel,
                parameters=dict(m.parameters),
                measured_s=m.time_s,
                predicted_s=time_s * factor,
                purpose=m.purpose,
            )
            for m, time_s in judged
            if isinstance(time_s, float)
        ),
        refusals={m.kernel: reason for m, reason in judged if isinstance(reason, str)},
        in_sample=metrics.mean_error(errors, floor=_ERROR_FLOOR).value if errors else None,
        calibrated_on=len(known) if level == "scaled" else 0,
        factor=factor,
    )


def compare_own(
    device: str, timed: Sequence[Measurement], times: Mapping[str, Sequence[float | str]]
) -> Comparison:
    """Compare models on the measured times of one kernel: as published, and scaled by a factor.

    A size is scaled by the median factor of the other ones. ``times`` has by model the predicted
    time at each size, s, or why there is none; models with weights, ``fitted:NAME``, are not
    scaled.
    """
    results: list[ModelResult] = []
    for name, predicted in times.items():
        model, is_fitted = name.removeprefix(FITTED), name.startswith(FITTED)
        known = [(m, t) for m, t in zip(timed, predicted, strict=True) if isinstance(t, float)]
        reasons = [*dict.fromkeys(t for t in predicted if isinstance(t, str))]
        ratios = [math.log(m.time_s / t) for m, t in known]
        for level in ("fitted",) if is_fitted else LEVELS if known[1:] else ("published",):
            others = [ratios[:i] + ratios[i + 1 :] for i in range(len(ratios))]
            factors = [math.exp(median(of)) if level == "scaled" else 1.0 for of in others]
            results.append(
                ModelResult(
                    model=model,
                    level=level,
                    lacking="" if known else "; ".join(reasons),
                    cases=tuple(
                        metrics.EvaluatedCase(
                            kernel=m.kernel,
                            parameters=dict(m.parameters),
                            measured_s=m.time_s,
                            predicted_s=time_s * factor,
                            purpose="application",
                        )
                        for (m, time_s), factor in zip(known, factors, strict=True)
                    ),
                    refusals={timed[0].kernel: "; ".join(reasons)} if known and reasons else {},
                    calibrated_on=len(known) - 1 if level == "scaled" else 0,
                    factor=math.exp(median(ratios)) if level == "scaled" else 1.0,
                )
            )
    results.sort(key=lambda of: (-len(of.cases), of.overall_error() or 0.0))
    if not results or not results[0].cases:
        reasons = dict.fromkeys(of.lacking for of in results)
        raise FitError(f"no model predicts the kernel on {device}: {'; '.join([*reasons][:2])}")
    return Comparison(
        device=device,
        test_cases=len(timed),
        measurement_cases=0,
        noise=median(m.noise for m in timed),
        models=tuple(results),
    )


FITTED = "fitted:"
"""Before the name of a model with weights, among models' times."""


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
