"""Errors of predictions: their scatter, and fits held against measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from countperf.errors import FitError
from countperf.fitting.design import check_counting_rules
from countperf.fitting.estimate import NORMAL_MEDIAN
from countperf.measurements import PURPOSES, Measurement
from countperf.metrics import EvaluatedCase, Evaluation
from countperf.models.validity import WORST_LOG_RATIO
from countperf.models.weights import WeightSet
from countperf.properties.counts import says_group_shape
from countperf.steps import stepped


def log_scatter(predicted_s: Sequence[float], measured_s: Sequence[float]) -> float | None:
    """Return the robust standard deviation of log(predicted / measured) about zero.

    It is the median of the absolute values over that of the standard normal distribution. A time
    that is not positive, or off by more than a factor of 1000, counts as off by that factor.
    """
    if len(predicted_s) == 0:
        return None
    ratios = np.asarray(predicted_s, np.float64) / np.asarray(measured_s, np.float64)
    logs = np.full(ratios.shape, WORST_LOG_RATIO)
    positive = ratios > 0
    logs[positive] = np.minimum(np.abs(np.log(ratios[positive])), WORST_LOG_RATIO)
    return float(np.median(logs) / NORMAL_MEDIAN)


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
