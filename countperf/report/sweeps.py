"""Curves of mechanistic models as text and rows."""

from __future__ import annotations

from typing import Any

from countperf.mechanistic.answers import lacking_input
from countperf.mechanistic.model import MechanisticPrediction
from countperf.mechanistic.sweep import Sweep
from countperf.report.objects import picked
from countperf.report.rows import table_of


def sweep_head(found: Sweep) -> str:
    """Return what was swept, in a line."""
    return f"{found.kernel} on {found.device} over {found.over}"


def sweep_rows(found: Sweep) -> list[dict[str, Any]]:
    """Return a row per value and model: time, bound, throughput, roof, or what the model lacks."""
    rows: list[dict[str, Any]] = []
    for point in found.points:
        for name, answer in point.answers.items():
            is_prediction = isinstance(answer, MechanisticPrediction)
            rows.append(
                {
                    found.over: point.value,
                    "sub_groups": point.occupancy,
                    "flop_per_byte": point.intensity,
                    "model": name,
                    "time_s": float(answer.time_s) if is_prediction else None,
                    "bound": answer.bound if is_prediction else None,
                    "sub_groups_per_cycle": found.throughput(point, name),
                    "roof_sub_groups_per_cycle": min(point.roofs.values(), default=None),
                    "lacks": "" if is_prediction else lacking_input(answer),
                }
            )
    return rows


def sweep_text(found: Sweep) -> str:
    """Write a row per value and a column per model, with the time where it predicts one."""
    rows = [
        {
            found.over: point.value,
            "sub-groups": point.occupancy,
            "flop/byte": point.intensity,
            **{f"{name}_s": _time_s(point.answers[name]) for name in found.models},
        }
        for point in found.points
    ]
    table = table_of(rows)
    lacking = {
        f"{name} lacks {lacking_input(answer)}": None
        for point in found.points
        for name, answer in point.answers.items()
        if not isinstance(answer, MechanisticPrediction)
    }
    return "\n".join([sweep_head(found), *table.lines(), *lacking])


def _time_s(answer: object) -> float | None:
    return float(answer.time_s) if isinstance(answer, MechanisticPrediction) else None


def sweep_object(found: Sweep) -> dict[str, Any]:
    """Return ``{"kernel", "device", "over", "points": [rows of `sweep_rows`]}``."""
    return {**picked(found, "kernel", "device", "over"), "points": sweep_rows(found)}
