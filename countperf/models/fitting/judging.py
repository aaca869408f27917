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
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field, NonNegativeInt

from countperf.counting.counts import says_group_shape
from countperf.counting.vector import PropertyVector
from countperf.documents import Document, Part
from countperf.errors import CountperfError, FitError
from countperf.measuring import PURPOSES, Measurement
from countperf.models.fitting.design import check_counting_rules
from countperf.models.metrics import EvaluatedCase, Evaluation
from countperf.models.weights import WeightSet
from countperf.steps import stepped
from countperf.text import (
    Column,
    Printed,
    Result,
    columns_of,
    format_seconds,
    picked,
    short_name,
    table_of,
)

TOP = (1, 3, 5)
"""Numbers of variants for which the regret is reported."""


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
        # by position, for the difference of two infinite times is none
        positions = np.unique(ranks, return_inverse=True)[1]
        times_s = [variant.measured_s for variant in self.variants]
        return float(cast("float", kendalltau(times_s, positions)[0]))

    def regret(self, top: int = 1) -> float:
        """Return the least time among the `top` predicted to be fastest over the least of all."""
        first = sorted(self.variants, key=lambda v: (v.rank_s, -v.measured_s))[:top]
        return min(variant.measured_s for variant in first) / self.times_s[0]


class RankingEvaluation(Document, Result):
    """Ranking quality of a model on the sets of variants measured on a device."""

    format: Literal["countperf-ranking-evaluation"] = "countperf-ranking-evaluation"
    version: Literal[1] = 1
    device: str  # slug of the device, and name of the model that predicted
    model: str
    sets: tuple[RankedSet, ...] = ()  # may be empty

    @property
    def kendall_tau(self) -> float | None:
        """Arithmetic mean over the sets that have one."""
        taus = [tau for variants in self.sets if (tau := variants.kendall_tau) is not None]
        return float(np.mean(taus)) if taus else None

    def regret(self, top: int = 1) -> float | None:
        """Return the geometric mean over the sets; None if there is none."""
        logs = [np.log(variants.regret(top)) for variants in self.sets]
        return float(np.exp(np.mean(logs))) if logs else None

    __str__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give a line for each set of variants, and one for all; regrets are over the fastest."""
        sets = [
            {
                **picked(ranked, "family", "parameters"),
                "variants": len(ranked.variants),
                "refused": sum(variant.predicted_s is None for variant in ranked.variants),
                "incomplete": sum(not variant.complete for variant in ranked.variants),
                "fastest_s": ranked.times_s[0],
                "slowest_s": ranked.times_s[-1],
            }
            for ranked in self.sets
        ]
        rows = [row | _list_figures(ranked) for row, ranked in zip(sets, self.sets, strict=True)]
        totals = {name: sum(row[name] for row in sets) for name in ("variants", "refused")}
        total = {"family": "all", **totals, **_list_figures(self)}
        incomplete = sum(row["incomplete"] for row in sets)
        left_out = f"  {incomplete} predictions leave out what has no weight"
        return Printed(
            head=[f"ranking of variants: {short_name(self.model)} model on {self.device}"],
            rows=rows,
            shown=table_of([*rows, total] if len(rows) > 1 else rows, _SET_COLUMNS),
            notes=[f"  {RANKING_NOTE}", *([left_out] if incomplete else [])],
            facts={
                **picked(self, "device", "model"),
                "sets": [
                    row | _figures(ranked) for row, ranked in zip(sets, self.sets, strict=True)
                ],
                "mean": _figures(self),
            },
        )


_SET_COLUMNS = {
    **{"family": Column("set"), **columns_of("parameters variants refused")},
    **columns_of("fastest_s slowest_s", format_seconds),
    **{"kendall_tau": Column("tau", "{:.2f}".format)},
    **{f"regret_top_{top}": Column(f"top {top}", "{:.2f}".format) for top in TOP},
}

RANKING_NOTE = (
    "tau: Kendall's; top k: time of the best of the k predicted to be fastest over the fastest;"
    " refused ones rank last; of all sets: means, of times geometric"
)


def _figures(of: RankedSet | RankingEvaluation) -> dict[str, Any]:
    return {"kendall_tau": of.kendall_tau, "regret": {str(top): of.regret(top) for top in TOP}}


def _list_figures(of: RankedSet | RankingEvaluation) -> dict[str, Any]:
    regrets = {f"regret_top_{top}": of.regret(top) for top in TOP}
    return {"kendall_tau": of.kendall_tau, **regrets}


def evaluate_ranking(weights: WeightSet, measurements: Iterable[Measurement]) -> RankingEvaluation:
    """Compare the measured order of variants with the predicted one."""
    weights.check_counting_rules()
    sets: dict[tuple[str, tuple[tuple[str, int], ...]], list[RankedVariant]] = {}
    for measurement in measurements:
        if measurement.purpose == "variant":
            key = (measurement.family, tuple(measurement.parameters.items()))
            sets.setdefault(key, []).append(_rank_variant(weights, measurement))
    return RankingEvaluation(
        device=weights.device.slug,
        model=weights.model,
        sets=tuple(
            RankedSet(family=family, parameters=dict(parameters), variants=tuple(variants))
            for (family, parameters), variants in sets.items()
        ),
    )


def _rank_variant(weights: WeightSet, measurement: Measurement) -> RankedVariant:
    """Return a measured variant with its prediction, if it has one."""
    time_s, complete = 0.0, True
    if (vector := _vector_of(measurement, weights)) is not None:
        try:
            prediction = weights.predict_counts(vector, measurement.parameters, incomplete_ok=True)
            time_s, complete = float(prediction.time_s), prediction.complete
        except CountperfError:
            pass
    return RankedVariant(
        variant=measurement.variant,
        measured_s=measurement.time_s,
        noise_s=measurement.noise_floor * measurement.time_s,
        predicted_s=time_s if 0 < time_s < np.inf else None,
        complete=complete,
    )


def _vector_of(measurement: Measurement, weights: WeightSet) -> PropertyVector | None:
    """Return the counts of a case, if it was counted, by the rules of now."""
    if (vector := measurement.property_vector()) is not None:
        check_counting_rules(measurement)
        weights.definition.check_code(measurement.code or (), f"case {measurement.case!r}")
    return vector


def evaluate(weights: WeightSet, measurements: Iterable[Measurement]) -> Evaluation:
    """Compare measured cases with their predictions."""
    cases: list[EvaluatedCase] = []
    needed = [*weights.definition.named_transactions]
    needed += ["code"] if weights.definition.reads_code else []
    for measurement in stepped(measurements, "predicting cases"):
        vector = _vector_of(measurement, weights)
        if vector is None or not all(map(vector.knows, needed)):
            continue
        if weights.definition.named_shape and not says_group_shape(vector):
            continue
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
