r"""Predictions of one kernel, corrected by measured runs of it.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from countperf.errors import DeviceMismatchError, ParameterError, PredictionError
from countperf.models.correction import CORRECTION
from countperf.models.cost_function import CostFunction
from countperf.models.features import vector_of
from countperf.models.predictions import ParameterValue, Prediction, Verdict, largest_first
from countperf.models.validity import LEAST_SCATTER, raise_to_launch
from countperf.sizes import given_sizes
from countperf.text import ShortRepr

if TYPE_CHECKING:
    from countperf.counting.structure.memory_hierarchy import CountedCaches
    from countperf.counting.taxonomy import View
    from countperf.counting.vector import PropertyVector
    from countperf.devices.identity import DeviceIdentity
    from countperf.measuring import Measurement, Timing
    from countperf.models.definition import ModelDefinition
    from countperf.models.function import FitQuality
    from countperf.models.validity import Level

Run = tuple[Mapping[str, int], float]
"""Parameters of a run, and its measured time, s."""

if TYPE_CHECKING:
    Anchor: TypeAlias = Run | Measurement | Timing | Path | str


class _Weights(Protocol):
    """Members of a `countperf.models.weights.WeightSet` that anchors use."""

    model: str
    definition: ModelDefinition
    device: DeviceIdentity
    view: View
    counted_caches: CountedCaches
    quality: FitQuality | None

    @property
    def shortest_launch_s(self) -> float: ...

    def counted(self, kernel: object) -> PropertyVector: ...

    def compile(self, kernel: object) -> CostFunction: ...

    @property
    def predict_counts(self) -> Callable[..., Prediction]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightsAndKernel:
    """Weights and the kernel that they predicted; the origin of a prediction."""

    weights: Any  # the weights, not anchored
    kernel: object  # the counts of the kernel
    parameters: Mapping[str, ParameterValue]  # values of the size parameters
    options: Mapping[str, Any]  # of `WeightSet.predict_counts`

    def anchored(self, *runs: Anchor) -> Prediction:
        """Return the prediction, corrected by measured runs; errors as of `WeightSet.anchored`."""
        corrected = anchor(self.weights, self.kernel, runs, **self.options)
        return corrected.predict(None, self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnchoredWeights(ShortRepr):
    """Weights for one kernel, corrected by runs of it."""

    weights: _Weights  # the weights as fitted
    vector: PropertyVector  # the kernel
    factor: float  # by what predictions are multiplied
    shrink: float  # by what the logarithmic width of intervals is multiplied, at most one
    runs: int  # measured runs
    given: object = None  # the kernel as it was given, by which timings know it
    # of `WeightSet.predict_counts`: level, incomplete_ok, device, force
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

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
        level: Level | None = None,
        **more: ParameterValue,
    ) -> Prediction:
        """Predict the time of one launch."""
        if kernel is not None:
            self._check(self.weights.counted(kernel))
        values = given_sizes(parameters, more)
        options = {**self.options, **({} if level is None else {"level": level})}
        prediction = self.weights.predict_counts(self.vector, values, shrink=self.shrink, **options)
        ends = prediction.interval_s
        time_s = raise_to_launch(self.factor * prediction.time_s, self.weights.shortest_launch_s)
        others_s = prediction.time_s - prediction.breakdown.get(CORRECTION, 0.0)
        parts = {**prediction.breakdown, CORRECTION: time_s - others_s}
        return replace(
            prediction,
            model=self.model,
            origin=WeightsAndKernel(
                weights=self.weights,
                kernel=self.vector if self.given is None else self.given,
                parameters=values,
                options=options,
            ),
            time_s=time_s,
            breakdown=largest_first(parts),
            interval_s=None if ends is None else (self.factor * ends[0], self.factor * ends[1]),
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
    weights: _Weights, kernel: object, given: Sequence[Anchor], **options: Any
) -> AnchoredWeights:
    """Correct weights by measured runs of a kernel; see `WeightSet.anchored`."""
    vector = weights.counted(kernel)
    device = options.get("device") or weights.device
    runs = [run for one in given for run in _runs(weights, kernel, one, device)]
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
    logs = [_log_ratio(weights, vector, *_run(run), options) for run in runs]
    between = max(calibration.between_kernels, LEAST_SCATTER) ** 2
    within = max(calibration.within_kernels, LEAST_SCATTER) ** 2
    shared = between / (between + within / len(logs))
    left = 1.0 / (1.0 / between + len(logs) / within)
    return AnchoredWeights(
        weights=weights,
        vector=vector,
        factor=math.exp(shared * sum(logs) / len(logs)),
        shrink=math.sqrt((left + within) / (between + within)),
        runs=len(logs),
        given=kernel,
        options=options,
    )


def _runs(
    weights: _Weights, kernel: object, given: Anchor, device: DeviceIdentity
) -> list[Run] | list[Measurement]:
    """Return the runs of a timing, if it is of the kernel and the predicted device; or a run."""
    from countperf.measuring import Timing

    if isinstance(given, Path | str):
        given = Timing.read_file(given)
    if not isinstance(given, Timing):
        return [_run(given)]
    if not device.matches(given.device):
        raise DeviceMismatchError(
            f"the timing of {given.kernel!r} is of {given.device.slug} ({given.device.name}), and"
            f" the prediction is for {device.slug} ({device.name}), which differ in"
            f" {given.device.differences_text(device)}: time the kernel there, or take"
            " weights of the timing's device"
        )
    named = weights.definition.named_transactions
    vector = vector_of(kernel, view=weights.view, transactions=named, caches=weights.counted_caches)
    return given.runs_of(vector)


def _run(run: Any) -> Run:
    if isinstance(run, tuple):
        return run
    return run.parameters, run.time_s


def _log_ratio(
    weights: _Weights,
    vector: PropertyVector,
    parameters: Mapping[str, int],
    time_s: float,
    options: Mapping[str, Any],
) -> float:
    if not (math.isfinite(time_s) and time_s > 0):
        raise ParameterError(
            f"a measured time must be positive, not {time_s} s", parameter="time_s"
        )
    predicted_s = float(weights.predict_counts(vector, parameters, **options).time_s)
    if predicted_s <= 0:
        raise PredictionError(
            f"the {weights.model} model predicts {predicted_s} s for {vector.kernel!r} at"
            f" {dict(parameters)}, which no factor corrects: use a model with weights >= 0"
        )
    return math.log(time_s / predicted_s)
