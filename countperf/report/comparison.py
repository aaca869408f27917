"""Comparisons of models and rankings of variants, against measured times, as text and objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from countperf.fitting.ranking import TOP
from countperf.models.library import short_name
from countperf.report.numbers import format_percent
from countperf.report.objects import picked
from countperf.report.rows import Table, table_of

if TYPE_CHECKING:
    from countperf.fitting.comparison import Comparison, ModelResult
    from countperf.fitting.ranking import RankedSet, RankingEvaluation


def comparison_text(comparison: Comparison) -> str:
    """Write one row per model and level: errors overall and by test kernel, then what is lacking.

    Errors are geometric means of relative errors over the sizes of each test kernel; MAPE is the
    arithmetic mean; MAPE_shape that of the shape of throughput over occupancy, a mean over the
    families of measurement kernels that were measured at three or more occupancies. An
    empty cell: the model does not predict the kernel.
    """
    rows = [
        {
            "model": result.model,
            "constants": result.level,
            "overall:error": overall.value,
            "MAPE:error": None if (mape := result.mape()) is None else mape / 100,
            "in_sample": result.in_sample,
            "shape_error": sum(shapes) / len(shapes) / 100
            if (shapes := list(result.shape_errors.values()))
            else None,
            **{f"{_short(k)}:error": mean.value for k, mean in result.by_kernel().items()},
        }
        for result in comparison.models
        if (overall := result.overall()) is not None
    ]
    titles = {"in_sample": "in sample", "shape_error": "MAPE_shape"}
    table = table_of(
        rows, {name: titles.get(name, name.removesuffix(":error")) for row in rows for name in row}
    )
    parts = [
        f"{comparison.device}: {comparison.test_cases} cases of test kernels, calibrated on "
        f"{comparison.measurement_cases} cases of measurement kernels",
        *(table.lines() if rows else []),
    ]
    parts += _gaps(comparison)
    return "\n".join(parts)


def _gaps(comparison: Comparison) -> list[str]:
    """Say once for each reason which models and kernels have no prediction."""
    found: dict[str, dict[str, None]] = {}
    for m in comparison.models:
        if m.lacking:
            found.setdefault(m.lacking, {})[f"{m.model} ({m.level})"] = None
    lines = [f"no predictions of {', '.join(who)}: {reason}" for reason, who in found.items()]
    found = {}
    for m in comparison.models:
        for kernel, reason in m.refusals.items():
            found.setdefault(f"of {_short(kernel)}: {reason}", {})[f"{m.model} ({m.level})"] = None
    lines += [f"{', '.join(who)}: no prediction {what}" for what, who in found.items()]
    found = {}
    for kernel, reason in comparison.unprofiled.items():
        found.setdefault(reason, {})[kernel] = None
    lines += [f"no profile of {', '.join(which)}: {reason}" for reason, which in found.items()]
    return lines


def _short(kernel: str) -> str:
    return kernel.split("/")[0]


def comparison_object(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return ``{"comparisons": [...]}``: each device's document, with the means of each model."""
    return {
        "comparisons": [
            {
                **comparison.to_object(),
                "geometric_mean": [
                    {
                        "model": result.model,
                        "level": result.level,
                        "overall": _value(result),
                        "mape_percent": result.mape(),
                        "by_kernel": {k: e.value for k, e in result.by_kernel().items()},
                    }
                    for result in comparison.models
                ],
            }
            for comparison in comparisons
        ]
    }


def _value(result: ModelResult) -> float | None:
    overall = result.overall()
    return None if overall is None else overall.value


_COLUMNS = {
    **{"family": "set", "parameters": "parameters", "variants": "variants", "refused": "refused"},
    **{"fastest_s": "fastest", "slowest_s": "slowest", "ties": "ties", "kendall_tau": "tau"},
    **{"pairwise_accuracy": "pairs right", **{f"regret_top_{top}": f"top {top}" for top in TOP}},
}


RANKING_NOTE = (
    "tau: Kendall's, with noise as ties; top k: time of the best of the k predicted to be fastest"
    " over the fastest; refused ones rank last; of all sets: means, of times geometric"
)


def ranking_evaluation_object(evaluation: RankingEvaluation) -> dict[str, Any]:
    """Return each set's figures, and their means.

    The shape is ``{"device", "model", "sets": [{"family", "parameters", "variants", "refused",
    "incomplete", "pairs", "tied_pairs", "fastest_s", "slowest_s", "kendall_tau",
    "pairwise_accuracy", "regret": {"1", "3", "5"}}], "mean": {"kendall_tau", "pairwise_accuracy",
    "regret": {"1", "3", "5"}}}``; regrets are times relative to the fastest variant's.
    """
    return {
        "device": evaluation.device,
        "model": evaluation.model,
        "sets": [
            {
                **picked(each, "family", "parameters"),
                "variants": len(each.variants),
                **picked(each, "refused", "incomplete", "pairs", "tied_pairs"),
                **picked(each, "fastest_s", "slowest_s"),
                **_figures(each),
            }
            for each in evaluation.sets
        ],
        "mean": _figures(evaluation),
    }


def ranking_evaluation_rows(evaluation: RankingEvaluation) -> list[dict[str, Any]]:
    """Return a row for each set of variants: its sizes and figures, with times in s."""
    return [
        {"family": each.pop("family"), **each.pop("parameters"), **_named(each)}
        for each in ranking_evaluation_object(evaluation)["sets"]
    ]


def _named(figures: dict[str, Any]) -> dict[str, Any]:
    regrets = figures.pop("regret")
    return {**figures, **{f"regret_top_{top}": value for top, value in regrets.items()}}


def _figures(of: RankedSet | RankingEvaluation) -> dict[str, Any]:
    return {
        "kendall_tau": of.kendall_tau,
        "pairwise_accuracy": of.pairwise_accuracy,
        "regret": {str(top): of.regret(top) for top in TOP},
    }


def ranking_table(evaluation: RankingEvaluation) -> Table:
    """Return a table with a row for each set, and one for all."""
    rows = ranking_evaluation_rows(evaluation)
    for row, each in zip(rows, evaluation.sets, strict=True):
        row |= {
            "parameters": each.parameters,
            "ties": each.tied_pairs / max(1, each.pairs + each.tied_pairs),
        }
    if len(rows) > 1:
        totals = {name: sum(row[name] for row in rows) for name in ("variants", "refused")}
        rows.append({"family": "all", **totals, **_named(_figures(evaluation))})
    return table_of(rows, _COLUMNS)


def ranking_evaluation_text(evaluation: RankingEvaluation) -> str:
    """Write a line for each set, and one for all."""
    incomplete = sum(each.incomplete for each in evaluation.sets)
    return "\n".join(
        [
            f"ranking of variants: {short_name(evaluation.model)} model on {evaluation.device}",
            *ranking_table(evaluation).lines(),
            f"  {RANKING_NOTE}",
            *([f"  {incomplete} predictions leave out what has no weight"] if incomplete else []),
        ]
    )


def ranking_cells(of: RankedSet | RankingEvaluation, tops: Sequence[int]) -> list[str]:
    """Return Kendall's tau, pairs in the right order and the regret of the best few, as text."""
    tau, accuracy = of.kendall_tau, of.pairwise_accuracy
    regrets = [of.regret(top) for top in tops]
    return [
        "" if tau is None else f"{tau:.2f}",
        "" if accuracy is None else format_percent(accuracy),
        *("" if regret is None else f"{regret:.2f}" for regret in regrets),
    ]
