r"""Predictions held against measurements: relative errors, and the order of variants of a kernel.

The geometric mean of relative errors is the figure of Stevens & Klöckner (2016): per kernel over
its sizes, per device over its kernels, per kernel over devices. An error of exactly zero makes it
zero; a `MeanError` therefore says how many errors were zero.

Kendall's tau-b compares the order of measured with that of predicted times of variants. The regret
of the top k is the measured time of the fastest among the k variants that are predicted to be
fastest, over that of the fastest of all. Variants without a prediction rank last, all alike; of
variants with equal predictions the slowest counts as first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, NonNegativeInt

from countperf import text
from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.counting.vector import PropertyVector, says_group_shape
from countperf.documents import Document, Interval, Part
from countperf.errors import CountperfError, FitError, ParameterError
from countperf.measuring import PURPOSES as ALL_PURPOSES
from countperf.measuring import Measurement
from countperf.measuring.cases import NOISE_DEVIATIONS
from countperf.models.weights import WeightSet
from countperf.steps import step_through

PURPOSES = {"test": "test kernels", "application": "applications", "variant": "variants"}
"""Plural names of the purposes of kernels that judge fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanError:
    """Geometric mean of relative errors."""

    value: float  # the mean, as a fraction (0.3 is 30 %)
    count: int  # number of errors, and how many of them were exactly zero
    zero_errors: int


def factor_between(predicted_s: float, measured_s: float) -> float:
    """Return ``max(predicted/measured, measured/predicted)``; infinite for times below zero."""
    if predicted_s <= 0:
        return math.inf
    return max(predicted_s / measured_s, measured_s / predicted_s)


def mape(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Return the arithmetic mean of relative errors, as a fraction (Lemeire et al., 6.3)."""
    m = _check_measured(measured)
    return float(np.mean(np.abs(np.subtract(predicted, m)) / m))


def _check_measured(measured: ArrayLike) -> NDArray[np.float64]:
    """Return what errors are relative to; a value that is not positive has none."""
    values = np.asarray(measured, np.float64)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if not values.size or wrong.size:
        what = f"value {wrong[0]} is {values.flat[wrong[0]]}" if wrong.size else "there is none"
        message = f"errors are relative to measured values, which must be positive; {what}"
        raise ParameterError(message, parameter="measured")
    return values


def mape_shape(predicted: ArrayLike, measured: ArrayLike, occupancy: ArrayLike) -> float:
    r"""Return the error of the shape of throughputs over occupancies, as a fraction.

    :math:`\frac{1}{n}\sum_i |d_i - l(o_i)| / m_i`, where :math:`d_i = p_i - m_i` and :math:`l` is
    the least-squares line of :math:`d` over the occupancy :math:`o` (Lemeire et al., section 6.3;
    :math:`m_i`, printed outside of the sum, is read as inside).

    Examples
    --------
    >>> f"{mape_shape([2.0, 3.0, 4.0], [1.0, 1.0, 1.0], [1, 2, 3]):.3f}"  # off by a line
    '0.000'
    """
    p, o = (np.asarray(values, np.float64) for values in (predicted, occupancy))
    m = _check_measured(measured)
    line = np.polyval(np.polyfit(o, p - m, 1), o)
    return float(np.mean(np.abs(p - m - line) / m))


def mean_error(errors: ArrayLike, *, floor: float = 0.0) -> MeanError:
    """Take the geometric mean of relative errors, or of means of them."""
    values = np.asarray(errors, dtype=np.float64)
    zeros = int(np.count_nonzero(values == 0))
    raised = np.maximum(values, floor)
    value = 0.0 if np.any(raised == 0) else float(np.exp(np.mean(np.log(raised))))
    return MeanError(value=value, count=values.size, zero_errors=zeros)


class EvaluatedCase(Part):
    """One case that was both measured and predicted."""

    kernel: str  # name of the kernel
    parameters: dict[str, NonNegativeInt]  # size parameters
    measured_s: float = Field(gt=0)  # times, s
    predicted_s: float
    complete: bool = True  # whether the prediction knows the cost of every property of the kernel
    purpose: str = "test"  # what the kernel is for: ``test``, ``application``, ``variant``
    # how well the measured time repeats: standard deviation of its logarithm
    noise: float | None = Field(default=None, ge=0)
    # where the prediction expects the time in 90 of 100 cases, s
    interval_s: Interval | None = None

    @property
    def within_noise(self) -> bool:
        """True if the factor is no larger than `NOISE_DEVIATIONS` of the measurement's noise."""
        factor = factor_between(self.predicted_s, self.measured_s)
        return self.noise is not None and factor <= math.exp(NOISE_DEVIATIONS * self.noise)

    @property
    def is_covered(self) -> bool | None:
        """True if the interval holds the measured time; None without an interval."""
        ends = self.interval_s
        return None if ends is None else ends[0] <= self.measured_s <= ends[1]

    @property
    def relative_error(self) -> float:
        """``|predicted - measured| / measured``."""
        return abs(self.predicted_s - self.measured_s) / self.measured_s


def mean_errors_by_kernel(cases: Iterable[EvaluatedCase]) -> dict[str, MeanError]:
    """Return the mean error of each kernel over its sizes, in the order of the cases."""
    errors: dict[str, list[float]] = {}
    for case in cases:
        errors.setdefault(case.kernel, []).append(case.relative_error)
    return {kernel: mean_error(values) for kernel, values in errors.items()}


class Evaluation(Document, text.Result):
    """Predicted against measured times on one device."""

    format: Literal["countperf-evaluation"] = "countperf-evaluation"
    version: Literal[1] = 1
    device: str  # slug of the device, and name of the model that predicted
    model: str
    cases: tuple[EvaluatedCase, ...] = Field(min_length=1)  # at least one
    # how the model was chosen, and what it does not predict; not in the document
    remarks: tuple[str, ...] = Field(default=(), exclude=True)

    def by_kernel(self) -> dict[str, MeanError]:
        """Return the mean error of each kernel over its sizes, in the order of the cases."""
        return mean_errors_by_kernel(self.cases)

    def worst_factors(self) -> dict[str, float]:
        """Return the largest factor between predicted and measured times of each kernel."""
        worst: dict[str, float] = {}
        for case in self.cases:
            factor = factor_between(case.predicted_s, case.measured_s)
            worst[case.kernel] = max(factor, worst.get(case.kernel, 1.0))
        return worst

    def by_purpose(self) -> dict[str, Evaluation]:
        """Split by what kernels are for, in the order of the cases."""
        purposes = dict.fromkeys(case.purpose for case in self.cases)
        cases = {p: tuple(c for c in self.cases if c.purpose == p) for p in purposes}
        return {p: self.model_copy(update={"cases": some}) for p, some in cases.items()}

    def overall(self) -> MeanError:
        """Return the device's mean error: the geometric mean of the means of its kernels."""
        return mean_of_means(self.by_kernel())

    def mean_factor(self) -> float:
        """Return the geometric mean of the factors between predicted and measured times."""
        factors = [factor_between(case.predicted_s, case.measured_s) for case in self.cases]
        return float(np.exp(np.mean(np.log(factors))))

    def coverage(self) -> tuple[int, int]:
        """Return how many of the cases' 90 % intervals hold the time, and of how many."""
        coverage = [case.is_covered for case in self.cases if case.is_covered is not None]
        return sum(coverage), len(coverage)

    def interval_factor(self) -> float | None:
        """Return by which factor ends of 90 % intervals lie from their middle, in the median."""
        ends = [case.interval_s for case in self.cases if case.interval_s is not None]
        if not ends:
            return None
        return median(math.sqrt(high / low) if low > 0 else math.inf for low, high in ends)

    @property
    def summary(self) -> str:
        """The mean error, and how many times are within their intervals, in words."""
        overall, kernels, (held, intervals) = self.overall(), len(self.by_kernel()), self.coverage()
        zeros = f", {overall.zero_errors} of them zero" if overall.zero_errors else ""
        said = (
            f"predicted {text.format_percent(overall.value)} off (geometric mean over {kernels}"
            f" kernel{'s' if kernels > 1 else ''}, {overall.count} cases{zeros})"
        )
        factor = self.interval_factor()
        width = "" if factor is None else f" of {text.width_text(factor)}"
        return f"{said}; {held} of {intervals} within 90 % intervals{width}" if intervals else said

    __str__ = text.Result.__str__

    def lay_out(self) -> text.Printed:
        """Give predicted against measured times for each purpose of kernels, mean errors first."""
        covered, cases = self.coverage()
        factor = self.interval_factor()
        parts = self.by_purpose()
        width = {"median_factor": None if factor is None or math.isinf(factor) else factor}
        return text.Printed(
            head=[f"{text.short_name(self.model)} model on {self.device}"],
            rows=[text.extract(case, *_ROW) for case in self.cases],
            parts=[one for purpose, part in parts.items() for one in _of_purpose(purpose, part)],
            notes=self.remarks,
            facts={
                **{"device": self.device, "model": text.short_name(self.model)},
                **{"remarks": self.remarks, "geometric_mean": _means(self)},
                "by_purpose": {purpose: _means(part) for purpose, part in parts.items()},
                "coverage": {"level": 0.9, "covered": covered, "cases": cases, **width},
            },
            name="cases",
        )


def mean_of_means(means: Mapping[str, MeanError]) -> MeanError:
    """Take the geometric mean of mean errors; counts and zero errors add up."""
    return MeanError(
        value=mean_error([mean.value for mean in means.values()]).value,
        count=sum(mean.count for mean in means.values()),
        zero_errors=sum(mean.zero_errors for mean in means.values()),
    )


_CASE = ("kernel", "parameters", "measured_s", "predicted_s", "relative_error", "noise")
_ROW = ("kernel", "purpose", *_CASE[1:], "within_noise", "interval_s", "complete")
_ERROR = text.Column("error", text.format_percent)
_CASE_COLUMNS = {
    **text.columns_of("kernel parameters"),
    **text.columns_of("measured_s predicted_s", text.format_seconds),
    **{"relative_error": _ERROR, "noise": text.Column("noise", text.format_percent)},
    "": text.Column("remark"),
}
_WORST = text.Column("worst factor")
_KERNEL_COLUMNS = {**text.columns_of("kernel"), "error": _ERROR, "worst": _WORST}


def _means(of: Evaluation) -> dict[str, Any]:
    overall, worst = of.overall(), of.worst_factors()
    return {
        "overall": overall.value,
        "by_kernel": {kernel: mean.value for kernel, mean in of.by_kernel().items()},
        "worst_factor": {k: f if math.isfinite(f) else None for k, f in worst.items()},
        "cases": overall.count,
        "zero_errors": overall.zero_errors,
    }


def _of_purpose(purpose: str, of: Evaluation) -> list[text.Printed]:
    worst, means = of.worst_factors(), of.by_kernel()
    kernels = "variants of kernels" if purpose == "variant" else PURPOSES.get(purpose, purpose)
    rows: list[dict[str, Any]] = []
    for case in of.cases:
        said = {"incomplete": not case.complete, "within noise": case.within_noise}
        said |= {"outside its interval": case.is_covered is False}
        remarks = ", ".join(remark for remark, applies in said.items() if applies)
        rows.append({**text.extract(case, *_CASE), "noise": case.noise or None, "": remarks})
    head = ["  per kernel: geometric mean of relative errors, and the worst factor"]
    by_kernel = [{"kernel": k, "error": m.value, "worst": worst[k]} for k, m in means.items()]
    return [
        text.Printed(head=[f"{kernels}: {of.summary}"], rows=rows, columns=_CASE_COLUMNS),
        text.Printed(head=head, rows=by_kernel, columns=_KERNEL_COLUMNS),
    ]


def check_counting_rules(measurement: Measurement) -> None:
    """Raise `FitError` if a measurement was counted by other rules than those of now."""
    rules = (measurement.properties or {}).get("counting_rules")
    if rules != COUNTING_RULES_VERSION:
        raise FitError(
            f"case {measurement.case!r} was counted under counting rules {rules}, and kernels are"
            f" now counted under {COUNTING_RULES_VERSION}: count the measured kernels again"
            " (countperf.api.evaluation.recount does that for kernels of the catalogue)"
        )


def _read_counts(measurement: Measurement, weights: WeightSet) -> PropertyVector | None:
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
    for measurement in step_through(measurements, "predicting cases"):
        vector = _read_counts(measurement, weights)
        if vector is None or not all(map(vector.knows, needed)):
            continue
        if weights.definition.named_shape and not says_group_shape(vector):
            continue
        made = weights.predict_counts(vector, measurement.parameters, incomplete_ok=True, level=0.9)
        low_high = made.interval_s
        cases.append(
            EvaluatedCase(
                kernel=measurement.kernel,
                parameters=measurement.parameters,
                measured_s=measurement.time_s,
                predicted_s=float(made.time_s),
                complete=made.complete,
                purpose=measurement.purpose,
                noise=measurement.noise,
                interval_s=None if low_high is None else (float(low_high[0]), float(low_high[1])),
            )
        )
    order = {kernel: k for k, kernel in enumerate(dict.fromkeys(case.kernel for case in cases))}
    cases.sort(key=lambda c: (ALL_PURPOSES.index(c.purpose), order[c.kernel], c.measured_s))
    if not cases:
        raise FitError("no counted measurement to evaluate; measure test kernels or applications")
    return Evaluation(device=weights.device.slug, model=weights.model, cases=tuple(cases))


TOP = (1, 3, 5)  # numbers of variants for which the regret is reported


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


class RankingEvaluation(Document, text.Result):
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

    __str__ = text.Result.__str__

    def lay_out(self) -> text.Printed:
        """Give a line for each set of variants, and one for all; regrets are over the fastest."""
        sets = [
            {
                **text.extract(ranked, "family", "parameters"),
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
        return text.Printed(
            head=[f"ranking of variants: {text.short_name(self.model)} model on {self.device}"],
            rows=rows,
            shown=text.table_of([*rows, total] if len(rows) > 1 else rows, _SET_COLUMNS),
            notes=[f"  {RANKING_NOTE}", *([left_out] if incomplete else [])],
            facts={
                **text.extract(self, "device", "model"),
                "sets": [row | _figures(one) for row, one in zip(sets, self.sets, strict=True)],
                "mean": _figures(self),
            },
        )


_SET_COLUMNS = {
    **{"family": text.Column("set"), **text.columns_of("parameters variants refused")},
    **text.columns_of("fastest_s slowest_s", text.format_seconds),
    **{"kendall_tau": text.Column("tau", "{:.2f}".format)},
    **{f"regret_top_{top}": text.Column(f"top {top}", "{:.2f}".format) for top in TOP},
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
    made = ((key, tuple(variants)) for key, variants in sets.items())
    return RankingEvaluation(
        device=weights.device.slug,
        model=weights.model,
        sets=tuple(RankedSet(family=f, parameters=dict(p), variants=v) for (f, p), v in made),
    )


def _rank_variant(weights: WeightSet, measurement: Measurement) -> RankedVariant:
    time_s, complete = 0.0, True
    if (vector := _read_counts(measurement, weights)) is not None:
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
