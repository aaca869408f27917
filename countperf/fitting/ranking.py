r"""Ranking quality of a model: the order in which it puts variants of a kernel.

A *set* is variants of one kernel, measured at the same sizes. Of its pairs, those whose measured
times differ by no more than the larger of their noise floors are ties: which of the two is faster
is not known, and no order of them is wrong.

- Kendall's tau: :math:`\sum a b / \sqrt{\sum a^2 \sum b^2}` over pairs, where a and b are the signs
  of the differences of measured and of predicted times, 0 for ties. It is tau-b where ties are
  transitive, and Kendall's general coefficient where those of noise are not.
- Pairwise accuracy: the share of the pairs, ties left out, that are predicted in the right order; a
  pair with equal predictions counts half.
- Regret of the top k: the measured time of the fastest among the k variants that are predicted to
  be fastest, over that of the fastest of all. It is what is lost by measuring only those k.

Variants without a prediction rank last, all alike. Of variants with equal predictions the slowest
counts as first, so that a model gains nothing by not telling them apart.

Source: Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945),
doi:10.1093/biomet/33.3.239, for tau; that the ties are those of noise is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from countperf.display import Table
from countperf.documents import Document, Part
from countperf.errors import CountperfError
from countperf.fitting.design import check_counting_rules
from countperf.measurements import Measurement
from countperf.models.weights import WeightSet

TOP = (1, 3, 5)
"""Numbers of variants for which the regret is reported."""


class RankedVariant(Part):
    """A variant with its measured and its predicted time."""

    variant: str  # its parameters
    measured_s: float = Field(gt=0)  # measured time and its noise floor, s
    noise_s: float = Field(default=0.0, ge=0)
    predicted_s: float | None = Field(default=None, gt=0)  # predicted time, s
    complete: bool = True  # whether the prediction knows the cost of every property of the kernel


class RankedSet(Part):
    """Variants of one kernel at the same sizes."""

    family: str  # name of the set
    parameters: dict[str, NonNegativeInt]  # sizes
    variants: tuple[RankedVariant, ...] = Field(min_length=1)  # as they were measured

    @property
    def refused(self) -> int:
        """Number of variants without a prediction."""
        return sum(variant.predicted_s is None for variant in self.variants)

    @property
    def incomplete(self) -> int:
        """Number of predictions that leave out properties without a weight."""
        return sum(
            variant.predicted_s is not None and not variant.complete for variant in self.variants
        )

    @property
    def fastest_s(self) -> float:
        """Shortest measured time, s."""
        return min(variant.measured_s for variant in self.variants)

    @property
    def slowest_s(self) -> float:
        """Longest measured time, s."""
        return max(variant.measured_s for variant in self.variants)

    @property
    def pairs(self) -> int:
        """Number of pairs that are no ties."""
        return int(np.count_nonzero(self._signs()[0]))

    @property
    def tied_pairs(self) -> int:
        """Number of pairs whose order noise hides."""
        return len(self.variants) * (len(self.variants) - 1) // 2 - self.pairs

    @property
    def kendall_tau(self) -> float | None:
        """Kendall's tau, -1 to 1; 0 if all predictions are equal, None if all pairs are ties."""
        measured, predicted = self._signs()
        if not measured.any():
            return None
        norm = np.sqrt(np.sum(measured**2) * np.sum(predicted**2))
        return float(np.sum(measured * predicted) / norm) if norm else 0.0

    @property
    def pairwise_accuracy(self) -> float | None:
        """Share of the pairs in the right order; None if all pairs are ties."""
        measured, predicted = self._signs()
        known = measured != 0
        return float(np.mean((measured * predicted)[known] + 1) / 2) if known.any() else None

    def regret(self, top: int = 1) -> float:
        """Return the least time among the `top` predicted to be fastest over the least of all."""
        first = sorted(self.variants, key=lambda each: (_rank(each), -each.measured_s))[:top]
        return min(each.measured_s for each in first) / self.fastest_s

    def _signs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the signs of measured and of predicted differences of all pairs."""
        measured = np.array([variant.measured_s for variant in self.variants])
        noise = np.array([variant.noise_s for variant in self.variants])
        # by place, since the difference of two infinite times is none
        predicted = np.unique([_rank(variant) for variant in self.variants], return_inverse=True)[1]
        i, j = np.triu_indices(len(self.variants), 1)
        difference = measured[j] - measured[i]
        tied = np.abs(difference) <= np.maximum(noise[i], noise[j])
        return (
            np.where(tied, 0.0, np.sign(difference)),
            np.sign(predicted[j] - predicted[i]).astype(np.float64),
        )


def _rank(variant: RankedVariant) -> float:
    return float("inf") if variant.predicted_s is None else variant.predicted_s


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
        return _mean(each.kendall_tau for each in self.sets)

    @property
    def pairwise_accuracy(self) -> float | None:
        """Arithmetic mean over the sets that have one."""
        return _mean(each.pairwise_accuracy for each in self.sets)

    def regret(self, top: int = 1) -> float | None:
        """Return the geometric mean over the sets; None if there is none."""
        logs = _mean(float(np.log(each.regret(top))) for each in self.sets)
        return None if logs is None else float(np.exp(logs))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


Predict = Callable[[Measurement], "tuple[float, bool] | None"]


def evaluate_ranking(weights: WeightSet, measurements: Iterable[Measurement]) -> RankingEvaluation:
    """Compare the measured order of variants with the predicted one."""
    weights.check_counting_rules()
    variants = [measurement for measurement in measurements if measurement.purpose == "variant"]
    return RankingEvaluation(
        device=weights.device.slug,
        model=weights.model,
        sets=ranked_sets(variants, lambda measurement: _predicted(weights, measurement)),
    )


def ranked_sets(measurements: Sequence[Measurement], predict: Predict) -> tuple[RankedSet, ...]:
    """Sort measured variants into sets, with the predictions of any model."""
    sets: dict[tuple[str, tuple[tuple[str, int], ...]], list[RankedVariant]] = {}
    for measurement in measurements:
        found = predict(measurement)
        time_s, complete = (None, True) if found is None else found
        sets.setdefault((measurement.family, tuple(measurement.parameters.items())), []).append(
            RankedVariant(
                variant=measurement.variant,
                measured_s=measurement.time_s,
                noise_s=measurement.noise_floor * measurement.time_s,
                predicted_s=time_s if time_s is not None and 0 < time_s < float("inf") else None,
                complete=complete,
            )
        )
    return tuple(
        RankedSet(family=family, parameters=dict(parameters), variants=tuple(found))
        for (family, parameters), found in sets.items()
    )


def _predicted(weights: WeightSet, measurement: Measurement) -> tuple[float, bool] | None:
    vector = measurement.property_vector()
    if vector is None:
        return None
    check_counting_rules(measurement)
    try:
        prediction = weights.predict_counts(vector, measurement.parameters, incomplete_ok=True)
    except CountperfError:
        return None
    return float(prediction.time_s), prediction.complete
