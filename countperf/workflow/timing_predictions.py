"""Predictions of a kernel that is to be timed, and digests of its counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.display import ShortRepr
from countperf.errors import CountingError, CountperfError, DeviceMismatchError, PredictionError
from countperf.hardware.parameters import some_of
from countperf.measurements import InstructionCounts, KernelCase, Statistic, counts_digest
from countperf.sizes import size_arrays
from countperf.steps import report, stepped
from countperf.workflow.kernels import counted
from countperf.workflow.prediction import Target, predict

if TYPE_CHECKING:
    from countperf.measurements.cases import MakeArguments, Reference
    from countperf.models.weights import WeightSet
    from countperf.predictions import Prediction
    from countperf.properties.taxonomy import View

_VIEWS: tuple[View, ...] = ("source", "structure", "compiled")


@dataclass(frozen=True, kw_only=True)
class KernelAtPoints(ShortRepr):
    """A kernel to time, at some points, and all that is known of it."""

    unit: Any  # the kernel
    name: str  # its name in what is reported
    points: Sequence[dict[str, int]]  # values of the size parameters
    statistics: Sequence[Mapping[str, Statistic]]  # what data decides, at each point
    make_arguments: MakeArguments | None  # as in `KernelCase`
    reference: Reference | None
    tolerance: float | None
    # what instructions without a counting rule do
    instruction_counts: InstructionCounts | None = None
    # inputs that come with the kernel
    bound_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def cases(self) -> list[KernelCase]:
        """Return a case for each point; numbers are checked at the smallest one."""
        smallest = min(self.points, key=lambda point: math.prod(max(n, 1) for n in point.values()))
        return [
            KernelCase(
                name=self.case_name(point),
                kernel=self.name,
                build=self.unit,
                parameters=point,
                check_parameters=smallest,
                make_arguments=self.make_arguments,
                reference=self.reference,
                tolerance=self.tolerance,
                statistics=known,
                purpose="application",
                bound_arguments=self.bound_arguments,
            )
            for point, known in zip(self.points, self.statistics, strict=True)
        ]

    def case_name(self, point: Mapping[str, int]) -> str:
        """Return the name of the case at a point."""
        sizes = ",".join(f"{name}={n}" for name, n in point.items())
        return f"{self.name}/{sizes}" if sizes else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTime:
    """Prediction at one point."""

    time_s: float | None = None  # the time, s
    interval_s: tuple[float, float] | None = None  # its interval, s
    reason: str = ""  # why there is no prediction, or what it is without


def predict_by_choice(
    work: KernelAtPoints, target: Target
) -> tuple[WeightSet | str, str, list[PredictedTime]]:
    """Predict all sizes by one model, which is chosen as `countperf.predict` does."""

    def predicted(weights: WeightSet, is_attempt: bool) -> tuple[WeightSet, list[PredictedTime]]:
        at = replace(target, incomplete_ok=target.incomplete_ok and not is_attempt)
        times = predict_times(work, weights, at)
        if is_attempt and (lacking := [time.reason for time in times if time.time_s is None]):
            raise PredictionError(lacking[0])
        return weights, times

    try:
        (weights, result), choice = target.by_choice(predicted)
    except DeviceMismatchError as error:
        if target.weights is not None:
            raise
        return str(error), "", predict_times(work, str(error), target)
    return weights, choice, result


def predict_times(
    kernel: KernelAtPoints,
    weights: WeightSet | str,
    target: Target,
) -> list[PredictedTime]:
    """Predict the time of a kernel at each of its points."""
    if isinstance(weights, str):
        return [PredictedTime(reason=weights)] * len(kernel.points)

    def predicted(points: Sequence[Mapping[str, int]], known: Any) -> list[PredictedTime] | str:
        columns = {name: [point[name] for point in points] for name in points[0]}
        try:
            prediction = predict(
                kernel.unit,
                size_arrays(columns),
                weights=weights,
                level=target.level,
                incomplete_ok=target.incomplete_ok,
                statistics=known or None,
                instruction_counts=kernel.instruction_counts,
            )
        except CountperfError as error:
            return str(error)
        return [predicted_time(prediction, number) for number in range(len(points))]

    shared = all(known == kernel.statistics[0] for known in kernel.statistics)
    if shared and len(kernel.points) > 1:
        report("predicting", 0)
        found = predicted(kernel.points, kernel.statistics[0])
        if not isinstance(found, str):
            return found
    # one after another, since a reason may hold for some of the points only
    each: list[PredictedTime] = []
    pairs = list(zip(kernel.points, kernel.statistics, strict=True))
    for point, known in stepped(pairs, "predicting"):
        one = predicted([point], known)
        each += [PredictedTime(reason=one)] if isinstance(one, str) else one
    return each


def predicted_time(found: Prediction, place: int = 0) -> PredictedTime:
    """Return time and interval at one of the points of a prediction."""

    def value(quantity: Any) -> float:
        several = np.ravel(quantity)
        return float(several[place if several.size > 1 else 0])

    time_s = value(found.time_s)
    if time_s <= 0:
        return PredictedTime(
            reason=f"the {found.model} model predicts {time_s:.3g} s, which is no time"
        )
    reason = "" if found.complete else f"incomplete: without the cost of {some_of(found.missing)}"
    if found.interval_s is None:
        return PredictedTime(time_s=time_s, reason=reason)
    low, high = map(value, found.interval_s)
    interval_s = (max(low, 0.0), high) if math.isfinite(high) else None
    return PredictedTime(time_s=time_s, interval_s=interval_s, reason=reason)


def count_digests(kernel: KernelAtPoints) -> list[dict[str, str]]:
    """Return digests of a kernel's counts at each point, by the views that can be counted."""
    found: list[tuple[Mapping[str, Statistic], dict[str, str]]] = []
    for statistics in kernel.statistics:
        known = next((digests for same, digests in found if same == statistics), None)
        found.append((statistics, _digests(kernel, statistics) if known is None else known))
    return [digests for _, digests in found]


def _digests(kernel: KernelAtPoints, statistics: Mapping[str, Statistic]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for view in _VIEWS:
        try:
            vector = counted(
                kernel.unit,
                statistics=statistics,
                view=view,
                instruction_counts=kernel.instruction_counts,
            )
            digests[view] = counts_digest(vector)
        except CountingError:
            continue
    return digests
