r"""Predictions of one kernel, corrected by measured runs of it, and explained term by term.

A model's errors are nearly constant per kernel. With :math:`r = \log(m/p)` of measured and
predicted times, a kernel's :math:`r` scatter about a value of its own with :math:`\sigma_w` (within
kernels), and those values about zero with :math:`\sigma_b` (between kernels); both are estimated on
families that were left out. From :math:`n` runs with mean :math:`\bar r` the kernel's value is

.. math::

   \hat r = \frac{\sigma_b^2}{\sigma_b^2 + \sigma_w^2 / n} \, \bar r, \quad
   v = \left( \frac{1}{\sigma_b^2} + \frac{n}{\sigma_w^2} \right)^{-1}

Predictions are multiplied by :math:`e^{\hat r}`. Their intervals follow the calibrated quantile of
logarithms, times :math:`\sqrt{(v + \sigma_w^2) / (\sigma_b^2 + \sigma_w^2)}`. It is the
best linear estimate for two levels of scatter (Searle, Casella and McCulloch, "Variance
Components", 1992, section 3.4: the one-way random model).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.display import ShortRepr
from countperf.errors import DeviceMismatchError, ParameterError, PredictionError
from countperf.features import vector_of
from countperf.measurements.sets import TimingDocument
from countperf.models.cost_function import CostFunction
from countperf.models.function import Calibration, model_inputs
from countperf.models.validity import ExplainedPart, Explanation, Level
from countperf.models.weights import Run, WeightsAndKernel, WeightSet
from countperf.predictions import ParameterValue, Prediction, Quantity, Verdict
from countperf.sizes import given_sizes

if TYPE_CHECKING:
    from countperf.measurements import Measurement
    from countperf.properties.vector import PropertyVector

_LEAST_SCATTER = 0.01
"""No kernel's times are taken to be known better than to one percent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnchoredWeights(ShortRepr):
    """Weights for one kernel, corrected by runs of it."""

    weights: WeightSet  # the weights as fitted
    vector: PropertyVector  # the kernel
    factor: float  # by what predictions are multiplied
    shrink: float  # by what the logarithmic width of intervals is multiplied, at most one
    runs: int  # measured runs
    given: object = None  # the kernel as it was given, by which timings know it

    @property
    def model(self) -> str:
        """Name of the model, and that it is anchored."""
        return f"{self.weights.model}, anchored"

    def predict(
        self,
        kernel: object | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
        /,
        *,
        level: Level = 0.95,
        **more: ParameterValue,
    ) -> Prediction:
        """Predict the time of one launch."""
        if kernel is not None:
            self._check(self.weights.counted(kernel))
        values = given_sizes(parameters, more)
        prediction = self.weights.predict_counts(self.vector, values, level=level)
        low_high = prediction.interval_s
        return replace(
            prediction,
            model=self.model,
            origin=WeightsAndKernel(
                weights=self.weights,
                kernel=self.vector if self.given is None else self.given,
                parameters=values,
                level=level,
            ),
            time_s=self.factor * prediction.time_s,
            breakdown={name: self.factor * part for name, part in prediction.breakdown.items()},
            interval_s=None
            if low_high is None
            else (
                self._end(prediction.time_s, low_high[0]),
                self._end(prediction.time_s, low_high[1]),
            ),
            verdicts=(
                *prediction.verdicts,
                Verdict(
                    name="anchor",
                    passed=True,
                    message=f"multiplied by {self.factor:.3g} after {self.runs} measured run"
                    f"{'s' if self.runs > 1 else ''} of this kernel",
                ),
            ),
        )

    def _end(self, time_s: Quantity, end_s: Quantity) -> Quantity:
        """Move one end of an interval towards the time, in logarithms, and correct it."""
        with np.errstate(divide="ignore"):
            reach = np.log(np.asarray(end_s) / time_s)
        moved = self.factor * time_s * np.exp(self.shrink * reach)
        return moved if isinstance(time_s, np.ndarray) else float(moved)

    def compile(self, kernel: object | None = None) -> CostFunction:
        """Return the corrected time as a fast function of the parameters."""
        if kernel is not None:
            self._check(self.weights.counted(kernel))
        return replace(self.weights.compile(self.vector), factor=self.factor)

    def _check(self, other: PropertyVector) -> None:
        if other.to_document()["counts"] != self.vector.to_document()["counts"]:
            raise PredictionError(
                f"these weights are anchored on runs of {self.vector.kernel!r}, and"
                f" {other.kernel!r} has other counts: anchor the weights on a run of it"
            )


def anchor(
    weights: WeightSet, kernel: object, given: Sequence[Run | Measurement | TimingDocument]
) -> AnchoredWeights:
    """Correct weights by measured runs of a kernel; see `WeightSet.anchored`."""
    vector = weights.counted(kernel)
    runs = [run for one in given for run in _runs(weights, kernel, one)]
    calibration = None if weights.quality is None else weights.quality.calibration
    if calibration is None:
        raise PredictionError(
            f"the weights of {weights.device.slug} do not say how kernels scatter, which anchoring"
            " needs: fit them anew, from at least three families of kernels that share properties"
        )
    if not runs:
        raise ParameterError("anchoring needs a measured run", parameter="runs")
    sizes = [dict(at) for at, _ in map(_run, runs)]
    if doubled := [at for position, at in enumerate(sizes) if at in sizes[:position]]:
        listed = ", ".join(f"{name}={value}" for name, value in doubled[0].items())
        raise ParameterError(
            f"two runs have the same sizes, {listed or 'none'}: give one, the faster",
            parameter="runs",
        )
    logs = [_log_ratio(weights, vector, *_run(run)) for run in runs]
    between, within = _variances(calibration)
    shared = between / (between + within / len(logs))
    left = 1.0 / (1.0 / between + len(logs) / within)
    return AnchoredWeights(
        weights=weights,
        vector=vector,
        factor=math.exp(shared * sum(logs) / len(logs)),
        shrink=math.sqrt((left + within) / (between + within)),
        runs=len(logs),
        given=kernel,
    )


def _variances(calibration: Calibration) -> tuple[float, float]:
    return (
        max(calibration.between_kernels, _LEAST_SCATTER) ** 2,
        max(calibration.within_kernels, _LEAST_SCATTER) ** 2,
    )


def _runs(
    weights: WeightSet, kernel: object, given: Run | Measurement | TimingDocument
) -> list[Run] | list[Measurement]:
    """Return the runs of a timing, if it is of the kernel and of the weights' device; or a run."""
    if not isinstance(given, TimingDocument):
        return [_run(given)]
    if not weights.device.matches(given.device):
        raise DeviceMismatchError(
            f"the timing of {given.kernel!r} is of {given.device.slug} ({given.device.name}), and"
            f" the weights are for {weights.device.slug} ({weights.device.name}), which differ in"
            f" {given.device.differences_text(weights.device)}: time the kernel there, or take"
            " weights of the timing's device",
            expected=weights.device.slug,
            actual=given.device.slug,
        )
    named = weights.definition.named_transactions
    vector = vector_of(kernel, view=weights.view, transactions=named, caches=weights.counted_caches)
    return given.runs_of(vector)


def _run(run: Any) -> Run:
    if isinstance(run, tuple):
        return run
    return run.parameters, run.time_s


def _log_ratio(
    weights: WeightSet, vector: PropertyVector, parameters: Mapping[str, int], time_s: float
) -> float:
    if not (math.isfinite(time_s) and time_s > 0):
        raise ParameterError(
            f"a measured time must be positive, not {time_s} s", parameter="time_s"
        )
    predicted_s = float(weights.predict_counts(vector, parameters).time_s)
    if predicted_s <= 0:
        raise PredictionError(
            f"the {weights.model} model predicts {predicted_s} s for {vector.kernel!r} at"
            f" {dict(parameters)}, which no factor corrects: use a model with weights >= 0"
        )
    return math.log(time_s / predicted_s)


def explain(weights: WeightSet, vector: PropertyVector, prediction: Prediction) -> Explanation:
    """Explain a prediction of a kernel by weights."""
    if isinstance(prediction.time_s, np.ndarray):
        raise ParameterError("a prediction is explained at one size at a time, not at an array")
    counts = vector.evaluate(prediction.parameters)
    values = weights.charge(model_inputs(weights.definition, counts)).values
    by_feature = weights.by_feature
    return Explanation(
        prediction=prediction,
        expression=weights.definition.expression,
        parts=tuple(
            ExplainedPart(
                name=name,
                weight=by_feature.get(name),
                count=float(values[name]) if name in by_feature else None,
                part_s=float(np.asarray(seconds).item()),
            )
            for name, seconds in prediction.breakdown.items()
        ),
        global_bytes=_total(counts, _access_bytes),
        flops=_total(counts, _flops),
    )


def _total(counts: Mapping[str, Any], size: Any) -> float:
    return sum(size(*name.split(".")) * float(count) for name, count in counts.items())


def _access_bytes(kind: str, *rest: str) -> float:
    return int(rest[1]) / 8 if kind == "gmem" and rest[0] in ("load", "store") else 0.0


def _flops(kind: str, *rest: str) -> float:
    work = {"fma": 2.0, "add": 1.0, "mul": 1.0, "div": 1.0, "pow": 1.0, "special": 1.0}
    return work.get(rest[0], 0.0) if kind == "flop" else 0.0
