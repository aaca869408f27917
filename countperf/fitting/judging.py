"""Weights held against measurements: errors of cases, and the order of variants of a kernel.

A *set* is variants of one kernel, measured at the same sizes. Kendall's tau-b compares the order of
measured with that of predicted times. The regret of the top k is the measured time of the fastest
among the k variants that are predicted to be fastest, over that of the fastest of all: what is lost
by measuring only those k. Variants without a prediction rank last, all alike. Of variants with
equal predictions the slowest counts as first, so that a model gains nothing by not telling them
apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast

import numpy as np
from pydantic import Field, NonNegativeInt

from countperf.display import Table
from countperf.documents import Document, Part
from countperf.errors import CountperfError, FitError
from countperf.fitting.design import check_counting_rules
from countperf.measurements import PURPOSES, Measurement
from countperf.metrics import EvaluatedCase, Evaluation
from countperf.models.weights import WeightSet
from countperf.properties.counts import says_group_shape
from countperf.steps import stepped


class RankedVariant(Part):
    """A variant with its measured and its predicted time."""

    variant: str  # its parameters
    measured_s: float = Field(gt=0)  # measured time and its noise floor, s
    noise_s: float = Field(default=0.0, ge=0)
    predicted_s: float | None = Field(default=None, gt=0)  # predicted time, s
    complete: bool = True  # whether the prediction knows the cost of every property of the kernel

    @property
    def rank_s(self) -> float:
        """The predicted time, s; infinite without one."""
        return np.inf if self.predicted_s is None else self.predicted_s


class RankedSet(Part):
    """Variants of one kernel at the same sizes."""

    family: str  # name of the set
    parameters: dict[str, NonNegativeInt]  # sizes
    variants: tuple[RankedVariant, ...] = Field(min_length=1)  # as they were measured

    @property
    def times_s(self) -> list[float]:
        """Measured times, s, the shortest first."""
        return sorted(variant.measured_s for variant in self.variants)

    @property
    def kendall_tau(self) -> float | None:
        """Kendall's tau, -1 to 1; 0 if all predictions are equal, None if all times are."""
        from scipy.stats import kendalltau

        ranks = [variant.rank_s for variant in self.variants]
        if len({variant.measured_s for variant in self.variants}) == 1:
            return None
        if len(set(ranks)) == 1:
            return 0.0
        # by place, for the difference of two infinite times is none
        places = np.unique(ranks, return_inverse=True)[1]
        times_s = [variant.measured_s for variant in self.variants]
        return float(cast("float", kendalltau(times_s, places)[0]))

    def regret(self, top: int = 1) -> float:
        """Return the least time among the `top` predicted to be fastest over the least of all."""
        first = sorted(self.variants, key=lambda each: (each.rank_s, -each.measured_s))[:top]
        return min(each.measured_s for each in first) / self.times_s[0]


class RankingEvaluation(Table, Document):
    """Ranking quality of a model on the sets of variants measured on a device."""

    format: Literal["countperf-ranking-evaluation"] = "countperf-ranking-evaluation"
    version: Literal[1] = 1
    device: str  # slug of the device, and name of the model that predicted
    model: str
    sets: tuple[RankedSet, ...] = ()  # may be empty

    @property
    def kendall_tau(self) -> float | None:
        """Arithmetic mean over the sets that have one."""
        taus = [tau for each in self.sets if (tau := each.kendall_tau) is not None]
        return float(np.mean(taus)) if taus else None

    def regret(self, top: int = 1) -> float | None:
        """Return the geometric mean over the sets; None if there is none."""
        logs = [np.log(each.regret(top)) for each in self.sets]
        return float(np.exp(np.mean(logs))) if logs else None


def evaluate_ranking(weights: WeightSet, measurements: Iterable[Measurement]) -> RankingEvaluation:
    """Compare the measured order of variants with the predicted one."""
    weights.check_counting_rules()
    sets: dict[tuple[str, tuple[tuple[str, int], ...]], list[RankedVariant]] = {}
    for measurement in measurements:
        if measurement.purpose == "variant":
            key = (measurement.family, tuple(measurement.parameters.items()))
            sets.setdefault(key, []).append(_ranked(weights, measurement))
    return RankingEvaluation(
        device=weights.device.slug,
        model=weights.model,
        sets=tuple(
            RankedSet(family=family, parameters=dict(parameters), variants=tuple(found))
            for (family, parameters), found in sets.items()
        ),
    )


def _ranked(weights: WeightSet, measurement: Measurement) -> RankedVariant:
    """Return a measured variant with its prediction, if it has one."""
    time_s, complete = 0.0, True
    if (vector := measurement.property_vector()) is not None:
        check_counting_rules(measurement)
        try:
            found = weights.predict_counts(vector, measurement.parameters, incomplete_ok=True)
            time_s, complete = float(found.time_s), found.complete
        except CountperfError:
            pass
    return RankedVariant(
        variant=measurement.variant,
        measured_s=measurement.time_s,
        noise_s=measurement.noise_floor * measurement.time_s,
        predicted_s=time_s if 0 < time_s < np.inf else None,
        complete=complete,
    )


def evaluate(weights: WeightSet, measurements: Iterable[Measurement]) -> Evaluation:
    """Compare measured cases with their predictions."""
    cases: list[EvaluatedCase] = []
    needed = [*weights.definition.named_transactions]
    needed += ["code"] if weights.definition.reads_code else []
    for measurement in stepped(measurements, "predicting cases"):
        vector = measurement.property_vector()
        if vector is None or not all(map(vector.knows, needed)):
            continue
        if weights.definition.named_shape and not says_group_shape(vector):
            continue
        check_counting_rules(measurement)
        prediction = weights.predict_counts(
            vector, measurement.parameters, incomplete_ok=True, level=0.9
        )
        low_high = prediction.interval_s
        cases.append(
            EvaluatedCase(
                kernel=measurement.kernel,
                parameters=measurement.parameters,
                measured_s=measurement.time_s,
                predicted_s=float(prediction.time_s),
                complete=prediction.complete,
                purpose=measurement.purpose,
                noise=measurement.noise,
                interval_s=None if low_high is None else (float(low_high[0]), float(low_high[1])),
            )
        )
    order = {kernel: k for k, kernel in enumerate(dict.fromkeys(case.kernel for case in cases))}
    cases.sort(key=lambda c: (PURPOSES.index(c.purpose), order[c.kernel], c.measured_s))
    if not cases:
        raise FitError(
            "there is no counted measurement to evaluate; measure test kernels or applications"
        )
    return Evaluation(device=weights.device.slug, model=weights.model, cases=tuple(cases))
