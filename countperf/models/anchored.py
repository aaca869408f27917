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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from countperf.errors import DeviceMismatchError, ParameterError, PredictionError
from countperf.models.breakdown import CORRECTION
from countperf.models.predictions import Prediction, Verdict, largest_first
from countperf.models.validity import LEAST_SCATTER, raise_to_launch

if TYPE_CHECKING:
    from countperf.counting.vector import PropertyVector
    from countperf.measuring import Measurement, Timing
    from countperf.models.function import Calibration

Run = tuple[Mapping[str, int], float]
"""Parameters of a run, and its measured time, s."""

if TYPE_CHECKING:
    Anchor: TypeAlias = Run | Measurement | Timing | Path | str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origin:
    """Weights and counts that a prediction is made from."""

    weights: Any  # a `countperf.models.weights.WeightSet`
    kernel: PropertyVector
    options: Mapping[str, Any]  # of `WeightSet.predict_counts`

    def anchor(self, prediction: Prediction, given: Sequence[Anchor]) -> Prediction:
        """Correct the prediction by measured runs of its kernel; see `Prediction.anchored`."""
        quality, device = self.weights.quality, self.weights.device
        if quality is None or quality.calibration is None:
            raise PredictionError(
                f"the weights of {device.slug} do not say how kernels scatter, which anchoring"
                " needs: fit them anew, from at least three families of kernels that share"
                " properties"
            )
        runs = [run for one in given for run in self._read_runs(one)]
        if not runs:
            raise ParameterError("anchoring needs a measured run", parameter="runs")
        sizes = [dict(at) for at, _ in runs]
        if doubled := [at for position, at in enumerate(sizes) if at in sizes[:position]]:
            listed = ", ".join(f"{name}={value}" for name, value in doubled[0].items())
            raise ParameterError(
                f"two runs have the same sizes, {listed or 'none'}: give one, the faster",
                parameter="runs",
            )
        logs = [self._log_error(*run) for run in runs]
        factor, shrink = shrink_errors(quality.calibration, logs)
        made: Prediction = self.weights.predict_counts(
            self.kernel, prediction.parameters, shrink=shrink, **self.options
        )
        ends = made.interval_s
        time_s = raise_to_launch(factor * made.time_s, self.weights.shortest_launch_s)
        others_s = made.time_s - made.breakdown.get(CORRECTION, 0.0)
        verdict = Verdict(
            name="anchor",
            passed=True,
            message=f"multiplied by {factor:.3g} after {len(runs)} measured run"
            f"{'s' if len(runs) > 1 else ''} of this kernel",
        )
        return replace(
            made,
            model=f"{made.model}, anchored",
            time_s=time_s,
            breakdown=largest_first({**made.breakdown, CORRECTION: time_s - others_s}),
            interval_s=None if ends is None else (factor * ends[0], factor * ends[1]),
            verdicts=(*made.verdicts, verdict),
        )

    def _read_runs(self, given: Anchor) -> list[Run]:
        """Return the runs of a timing, which has to be of the kernel and the device."""
        from countperf.measuring import Measurement, Timing

        if isinstance(given, tuple):
            return [given]
        if isinstance(given, Measurement):
            return [(given.parameters, given.time_s)]
        timing = Timing.read_file(given) if isinstance(given, Path | str) else given
        device = self.options["device"] or self.weights.device
        if not device.matches(timing.device):
            raise DeviceMismatchError(
                f"the timing of {timing.kernel!r} is of {timing.device.slug}"
                f" ({timing.device.name}), and the prediction is for {device.slug} ({device.name}),"
                f" which differ in {timing.device.differences_text(device)}: time the kernel there,"
                " or take weights of the timing's device"
            )
        return [(run.parameters, run.time_s) for run in timing.runs_of(self.kernel)]

    def _log_error(self, parameters: Mapping[str, int], time_s: float) -> float:
        """Return the logarithm of a measured time over the predicted one."""
        if not (math.isfinite(time_s) and time_s > 0):
            raise ParameterError(
                f"a measured time must be positive, not {time_s} s", parameter="time_s"
            )
        made = self.weights.predict_counts(self.kernel, parameters, **self.options)
        predicted_s = float(made.time_s)
        if predicted_s <= 0:
            raise PredictionError(
                f"the {made.model} model predicts {predicted_s} s for {made.kernel!r} at"
                f" {dict(parameters)}, which no factor corrects: use a model with weights >= 0"
            )
        return math.log(time_s / predicted_s)


def shrink_errors(calibration: Calibration, logs: Sequence[float]) -> tuple[float, float]:
    """Return what predictions are multiplied by, and the logarithmic width of intervals."""
    between = max(calibration.between_kernels, LEAST_SCATTER) ** 2
    within = max(calibration.within_kernels, LEAST_SCATTER) ** 2
    shared = between / (between + within / len(logs))
    left = 1.0 / (1.0 / between + len(logs) / within)
    factor = math.exp(shared * sum(logs) / len(logs))
    return factor, math.sqrt((left + within) / (between + within))
