"""Schedules of applications as text, rows and objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countperf.report.numbers import format_quantity
from countperf.report.objects import picked
from countperf.report.rows import table_of

if TYPE_CHECKING:
    from countperf.mechanistic.applications import Schedule


def schedule_head(found: Schedule) -> str:
    """Return source, time and what overlapping saves, in a line."""
    saved = 1 - found.time_s / found.serial_s if found.serial_s else 0.0
    return (
        f"{found.source}: {format_quantity(found.time_s, 's')}; one after the other"
        f" {format_quantity(found.serial_s, 's')} (overlap saves {100 * saved:.0f} %)"
    )


def schedule_rows(found: Schedule) -> list[dict[str, Any]]:
    """Return a row per step."""
    return [
        {
            "step": each.name,
            "kind": each.step.kind,
            "device": each.step.device,
            "stream": each.step.stream,
            "start_s": each.start_s,
            "end_s": each.end_s,
            "duration_s": each.end_s - each.start_s,
        }
        for each in found.steps
    ]


def schedule_text(found: Schedule) -> str:
    """Write a row per step."""
    columns = {"step": "step", "device": "device", "stream": "stream"}
    table = table_of(schedule_rows(found), columns | {"start_s": "start", "duration_s": "takes"})
    return "\n".join([schedule_head(found), *table.lines()])


def schedule_object(found: Schedule) -> dict[str, Any]:
    """Return ``{"source", "time_s", "serial_s", "steps": [rows of `schedule_rows`]}``."""
    return {**picked(found, "source", "time_s", "serial_s"), "steps": schedule_rows(found)}
