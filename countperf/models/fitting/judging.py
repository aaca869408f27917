"""Weights held against measurements: errors of cases, and the order of variants of a kernel.

A *set* is variants of one kernel, measured at the same sizes. Kendall's tau-b compares the order of
measured with that of predicted times. The regret of the top k is the measured time of the fastest
among the k variants that are predicted to be fastest, over that of the fastest of all: what is lost
by measuring only those k. Variants without a prediction rank last, all alike. Of variants with
equal predictions the slowest counts as first, so that a model gains nothing by not telling them
apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field, NonNegativeInt

from countperf.counting.counts import says_group_shape
from countperf.counting.structure.memory_hierarchy import (
    ASSUMED,
    UNKNOWN,
    CountedCaches,
    MemoryHierarchy,
)
from countperf.counting.vector import PropertyVector
from countperf.documents import Document, Part
from countperf.errors import CountperfError, FitError
from countperf.measuring import PURPOSES, Measurement
from countperf.models.fitting.design import Design, Diagnosis, Observation, check_counting_rules
from countperf.models.fitting.leaving_out import HeldOutCase
from countperf.models.fitting.solve import Vector
from countperf.models.function import Coverage
from countperf.models.metrics import EvaluatedCase, Evaluation, mean_error
from countperf.models.predictions import Verdict
from countperf.models.weights import WeightSet
from countperf.steps import stepped
from countperf.text import (
    Column,
    Printed,
    Result,
    Row,
    columns_of,
    format_seconds,
    picked,
    short_name,
    table_of,
)


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
                **_figures(ranked),
            }
            for ranked in self.sets
        ]
        shown = [_name_cases(ranked) for ranked in sets]
        if len(sets) > 1:
            totals = {name: sum(row[name] for row in sets) for name in ("variants", "refused")}
            shown.append({"family": "all", **totals, **_name_cases(_figures(self))})
        incomplete = sum(row["incomplete"] for row in sets)
        return Printed(
            head=[f"ranking of variants: {short_name(self.model)} model on {self.device}"],
            rows=[_name_cases(ranked) for ranked in sets],
            shown=table_of(shown, _SET_COLUMNS),
            notes=[
                f"  {RANKING_NOTE}",
                *(
                    [f"  {incomplete} predictions leave out what has no weight"]
                    if incomplete
                    else []
                ),
            ],
            facts={**picked(self, "device", "model"), "sets": sets, "mean": _figures(self)},
        )


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


ERROR_LIMIT = 0.2
"""In-sample error above which a fit does not describe its own measurements."""

HELD_OUT_LIMIT = 0.5
"""Error over families left out above which predictions of new kernels mean little."""

COVERAGE_ERRORS = 2.0
"""Standard errors by which coverage may lie below its level, with families as single draws."""

_WORST = 3


def check(name: str, problem: str, otherwise: str, remedy: str) -> Verdict:
    """Return a verdict that passes where there is no problem."""
    if not problem:
        return Verdict(name=name, passed=True, message=otherwise)
    return Verdict(name=name, passed=False, message=problem, remedy=remedy)


def rank_verdict(diagnosis: Diagnosis, features: int) -> Verdict:
    """Name the features that the measurements cannot tell apart."""
    groups = "; ".join(" and ".join(group.features) for group in diagnosis.groups)
    problem = (
        f"{diagnosis.rank} of {features}: the measurements cannot tell apart {groups}; each"
        " group shares its cost in proportion"
    )
    return check(
        "rank",
        problem if groups else "",
        f"full: {features} weights are all determined",
        "measure kernels that have these properties in other proportions; until then trust"
        " only kernels that have them in the same proportion",
    )


def exercise_verdict(design: Design) -> Verdict:
    """Name properties that get no weight, or that the model has no rule for."""
    lacking = [f"never exercised: {', '.join(design.unexercised)}"] if design.unexercised else []
    if design.unknown:
        lacking.append(f"the model has no rule for: {', '.join(design.unknown)}")
    return check(
        "exercise",
        "; ".join(lacking),
        "every property of the kernels is exercised",
        "these get no weight; measure kernels that exercise them at other parameters",
    )


def error_verdict(
    observations: Sequence[Observation],
    errors: Vector,
    held_out: Sequence[HeldOutCase],
    coverage: Coverage | None,
) -> Verdict:
    """Say how well each family is predicted from the others, and where the fit does worst."""
    own = mean_error(errors)
    worst = ", ".join(
        f"{observations[i].name} {100 * errors[i]:.0f} %" for i in np.argsort(-errors)[:_WORST]
    )
    message = f"{100 * own.value:.1f} % on the {own.count} cases of the fit (worst: {worst})"
    left_out = [error for case in held_out if (error := case.relative_error) is not None]
    if not left_out or coverage is None:
        return Verdict(
            name="errors",
            passed=False,
            message=f"{message}; too few families of kernels are predicted from the others",
            remedy="measure more families",
        )
    mean = mean_error(left_out)
    message += f", {100 * mean.value:.0f} % on {mean.count} cases predicted without their family"
    if left := len(held_out) - len(left_out):
        message += f" ({left} are not determined by other families)"
    message += (
        f"; intervals of 90 % hold for {100 * coverage.share_90:.0f} % of {coverage.cases} cases of"
        f" {coverage.families} families, each left out of what they are made from"
    )
    slack = COVERAGE_ERRORS * (0.9 * 0.1 / coverage.families) ** 0.5
    is_good = own.value <= ERROR_LIMIT and mean.value <= HELD_OUT_LIMIT
    passed = is_good and coverage.share_90 >= 0.9 - slack
    return Verdict(
        name="errors",
        passed=passed,
        message=message,
        remedy=""
        if passed
        else "expect such errors for kernels unlike those measured; measure more families",
    )


def memory_verdict(memory: MemoryHierarchy, caches: CountedCaches | None = None) -> Verdict:
    """Say whose caches a model of an execution policy has, and its kernels were counted for."""
    if memory.name != UNKNOWN:
        problem = ""
        if caches is not None and not memory.counted.counts_alike(caches):
            problem = (
                f"kernels were counted for caches of {caches.text}, and {memory.name} has"
                f" {memory.counted.text}"
            )
        return check(
            "memory",
            problem,
            f"caches are those of {memory.name}",
            "count the measured kernels again: countperf.api.evaluation.recount",
        )
    return Verdict(
        name="memory",
        passed=False,
        message=f"the caches of this device are not known; those of {ASSUMED} are assumed",
        remedy="fit on the device itself, if it is a processor whose system reports its caches, or"
        " in Python pass model=load_fitted_model('structural', device, MemoryHierarchy(...)) of"
        " countperf.models.shipped",
    )


def cases_verdict(
    observations: Sequence[Observation],
    uncounted: Sequence[str],
    lacking: Sequence[str],
) -> Verdict:
    """Name cases whose samples spread too far, and kernels that are not in the fit, with why."""
    unstable = [case.name for case in observations if not case.stable]
    caveats = [
        (f"the samples of {len(unstable)} of {len(observations)} cases spread too far", unstable),
        ("measured but not counted, so not in the fit", list(uncounted)),
        ("without what the model names, so not in the fit", list(dict.fromkeys(lacking))),
    ]
    told = [
        f"{what}: {', '.join(names[:_WORST])}"
        + (f" and {len(names) - _WORST} more" if len(names) > _WORST else "")
        for what, names in caveats
        if names
    ]
    return check(
        "cases",
        "; ".join(told),
        f"all {len(observations)} cases repeat and are in the fit",
        "measure these again on a quiet machine; see with countperf count why one is not counted",
    )


TOP = (1, 3, 5)
"""Numbers of variants for which the regret is reported."""

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


def _name_cases(figures: Row) -> dict[str, Any]:
    regrets = {f"regret_top_{top}": value for top, value in figures["regret"].items()}
    return {**{name: value for name, value in figures.items() if name != "regret"}, **regrets}


def _figures(of: RankedSet | RankingEvaluation) -> dict[str, Any]:
    return {"kendall_tau": of.kendall_tau, "regret": {str(top): of.regret(top) for top in TOP}}
