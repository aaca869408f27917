"""Ranking quality as text and as a JSON-able object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from countperf.fitting.ranking import TOP
from countperf.models.library import short_name
from countperf.report.numbers import format_percent
from countperf.report.objects import picked
from countperf.report.rows import Table, table_of

if TYPE_CHECKING:
    from countperf.fitting.ranking import RankedSet, RankingEvaluation

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
