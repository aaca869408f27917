"""Predicted against measured times: evaluations, comparisons, rankings, measurements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from countperf.models.library import short_name
from countperf.report.rows import (
    EACH,
    PURPOSES,
    Column,
    Printed,
    Row,
    columns_of,
    format_percent,
    format_seconds,
    picked,
    table_of,
    width_text,
)

if TYPE_CHECKING:
    from countperf.measuring import MeasurementSet
    from countperf.mechanistic.comparison import Comparison
    from countperf.models.fitting.judging import RankedSet, RankingEvaluation
    from countperf.models.metrics import EvaluatedCase, Evaluation

_CASE_COLUMNS = {
    **columns_of("kernel parameters"),
    **columns_of("measured_s predicted_s", format_seconds),
    "relative_error": Column("error", format_percent),
    "noise": Column("noise", format_percent),
    "": Column(),
}
_PURPOSES = {**PURPOSES, "variant": "variants of kernels"}


def evaluation(of: Evaluation) -> Printed:
    """Give predicted against measured times for each purpose of kernels, mean errors first."""
    what = ("kernel", "purpose", "parameters", "measured_s", "predicted_s", "relative_error")
    covered, cases = of.coverage()
    factor = of.interval_factor()
    parts = of.by_purpose()
    return Printed(
        head=[f"{short_name(of.model)} model on {of.device}"],
        rows=[
            picked(case, *what, "noise", "within_noise", "interval_s", "complete")
            for case in of.cases
        ],
        parts=[shown for purpose, part in parts.items() for shown in _of_purpose(purpose, part)],
        notes=of.remarks,
        facts={
            "device": of.device,
            "model": short_name(of.model),
            "remarks": of.remarks,
            "geometric_mean": _means(of),
            "by_purpose": {purpose: _means(part) for purpose, part in parts.items()},
            "coverage": {
                "level": 0.9,
                "covered": covered,
                "cases": cases,
                "median_factor": None if factor is None or math.isinf(factor) else factor,
            },
        },
        name="cases",
    )


def _means(of: Evaluation) -> dict[str, Any]:
    overall = of.overall()
    return {
        "overall": overall.value,
        "by_kernel": {kernel: mean.value for kernel, mean in of.by_kernel().items()},
        "worst_factor": {
            kernel: factor if math.isfinite(factor) else None
            for kernel, factor in of.worst_factors().items()
        },
        "cases": overall.count,
        "zero_errors": overall.zero_errors,
    }


def _of_purpose(purpose: str, of: Evaluation) -> list[Printed]:
    overall, worst = of.overall(), of.worst_factors()
    zeros = f", {overall.zero_errors} of them zero" if overall.zero_errors else ""
    what = ("kernel", "parameters", "measured_s", "predicted_s", "relative_error")
    covered, intervals = of.coverage()
    factor = of.interval_factor()
    width = "" if factor is None else f", median half-width {width_text(factor)}"
    held = [f"  90 % intervals hold {covered} of {intervals} times{width}"] if intervals else []
    error = (
        f"{_PURPOSES.get(purpose, purpose)}: error {format_percent(overall.value)}"
        f" (geometric mean over {len(of.by_kernel())} kernels, {overall.count} cases{zeros})"
    )
    return [
        Printed(
            head=[error, *held],
            rows=[
                {**picked(case, *what), "noise": case.noise or None, "": _remarks(case)}
                for case in of.cases
            ],
            columns=_CASE_COLUMNS,
        ),
        Printed(
            head=["  per kernel: geometric mean of relative errors, and the worst factor"],
            rows=[
                {"kernel": kernel, "error": mean.value, "worst": worst[kernel]}
                for kernel, mean in of.by_kernel().items()
            ],
            columns={
                **columns_of("kernel"),
                **columns_of("error", format_percent),
                **columns_of("worst"),
            },
        ),
    ]


def _remarks(case: EvaluatedCase) -> str:
    said = {
        "incomplete": not case.complete,
        "within noise": case.within_noise,
        "outside its interval": case.is_covered is False,
    }
    return ", ".join(text for text, applies in said.items() if applies)


_MEASURED = (
    *("case", "kernel", "family", "variant", "element_type", "purpose", "time_s", "spread"),
    *("noise_floor", "noise", "stable", "settling"),
)


def measurements(of: MeasurementSet) -> Printed:
    """Give a row for each measured case."""
    return Printed(
        head=[f"{len(of)} measurements of {of.device.slug}"],
        rows=[
            {
                **picked(case, *_MEASURED),
                "group_x": case.group_shape[0],
                "group_y": case.group_shape[1],
                "runs": sum(map(len, case.samples_s)),
                "parameters": case.parameters,
            }
            for case in of
        ],
        columns={
            **columns_of("case kernel family variant element_type purpose"),
            **columns_of("time_s", format_seconds),
            **columns_of("spread noise_floor noise", format_percent),
            **columns_of("stable settling group_x group_y runs"),
            "parameters": EACH,
        },
    )


# --- comparisons of models


def comparison(of: Comparison) -> Printed:
    """Give one row per model and level: errors overall and by test kernel, then what is lacking.

    Errors are geometric means of relative errors over the sizes of each test kernel. An empty cell:
    the model does not predict the kernel.
    """
    rows: list[dict[str, Any]] = [
        {
            "model": model.model,
            "constants": model.level,
            "error": None if (overall := model.overall()) is None else overall.value,
            "in_sample": model.in_sample,
            **{f"{_short(k)}:error": mean.value for k, mean in model.by_kernel().items()},
            "cases": len(model.cases),
            "lacking": model.lacking,
        }
        for model in of.models
    ]
    kernels = {name: None for row in rows for name in row if name.endswith(":error")}
    return Printed(
        head=[
            f"{of.device}: {of.test_cases} cases of test kernels, calibrated on "
            f"{of.measurement_cases} cases of measurement kernels"
        ],
        rows=rows,
        shown=table_of(
            [row for row in rows if row["error"] is not None],
            {
                **columns_of("model constants"),
                "error": Column("overall", format_percent),
                **columns_of("in_sample", format_percent),
                **{k: Column(k.removesuffix(":error"), format_percent) for k in kernels},
            },
        ),
        notes=_gaps(of),
        facts={
            **of.to_object(),
            "geometric_mean": [
                {
                    **picked(model, "model", "level"),
                    "overall": None if (overall := model.overall()) is None else overall.value,
                    "by_kernel": {k: e.value for k, e in model.by_kernel().items()},
                }
                for model in of.models
            ],
        },
    )


def _gaps(of: Comparison) -> list[str]:
    """Say once for each reason which models and kernels have no prediction."""
    gaps: dict[str, dict[str, None]] = {}
    for model in of.models:
        who = f"{model.model} ({model.level})"
        if model.lacking:
            gaps.setdefault(f"no prediction: {model.lacking}", {})[who] = None
        for kernel, reason in model.refusals.items():
            gaps.setdefault(f"no prediction of {_short(kernel)}: {reason}", {})[who] = None
    for kernel, reason in of.unprofiled.items():
        gaps.setdefault(f"no profile: {reason}", {})[kernel] = None
    return [f"{', '.join(who)}: {what}" for what, who in gaps.items()]


def _short(kernel: str) -> str:
    return kernel.split("/")[0]


# --- rankings of variants

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


def ranking_evaluation(of: RankingEvaluation) -> Printed:
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
        for ranked in of.sets
    ]
    shown = [_named(ranked) for ranked in sets]
    if len(sets) > 1:
        totals = {name: sum(row[name] for row in sets) for name in ("variants", "refused")}
        shown.append({"family": "all", **totals, **_named(_figures(of))})
    incomplete = sum(row["incomplete"] for row in sets)
    return Printed(
        head=[f"ranking of variants: {short_name(of.model)} model on {of.device}"],
        rows=[_named(ranked) for ranked in sets],
        shown=table_of(shown, _SET_COLUMNS),
        notes=[
            f"  {RANKING_NOTE}",
            *([f"  {incomplete} predictions leave out what has no weight"] if incomplete else []),
        ],
        facts={**picked(of, "device", "model"), "sets": sets, "mean": _figures(of)},
    )


def _named(figures: Row) -> dict[str, Any]:
    regrets = {f"regret_top_{top}": value for top, value in figures["regret"].items()}
    return {**{name: value for name, value in figures.items() if name != "regret"}, **regrets}


def _figures(of: RankedSet | RankingEvaluation) -> dict[str, Any]:
    return {"kendall_tau": of.kendall_tau, "regret": {str(top): of.regret(top) for top in TOP}}
