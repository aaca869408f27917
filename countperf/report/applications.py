"""Schedules of applications as text, rows, objects and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countperf.report.drawing import BLUE, GREEN, ORANGE, new_figure, plain_ticks, scale_of
from countperf.report.numbers import format_quantity
from countperf.report.objects import picked
from countperf.report.rows import table_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from countperf.mechanistic.applications import Schedule

_COLORS = {"h2d": BLUE, "d2h": GREEN, "kernel": ORANGE}


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


def schedule_figure(*schedules: Schedule) -> Figure:
    """Draw schedules above each other: a row per engine of a device, a bar per step."""
    engines = [
        list(dict.fromkeys((each.step.device, each.step.engine) for each in found.steps))
        for found in schedules
    ]
    figure = new_figure((9, 1.2 + 0.5 * sum(map(len, engines)) + 0.6 * len(schedules)))
    panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)
    scale, unit = scale_of([found.time_s for found in schedules])
    for panel, found, rows in zip(panels[:, 0], schedules, engines, strict=True):
        for each in found.steps:
            row = rows.index((each.step.device, each.step.engine))
            start, length = each.start_s / scale, (each.end_s - each.start_s) / scale
            panel.barh(row, length, left=start, color=_COLORS[each.step.kind], edgecolor="white")
            panel.text(start + length / 2, row, each.name, ha="center", va="center", fontsize=9)
        panel.set_yticks(range(len(rows)), [f"device {d}: {engine}" for d, engine in rows])
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.set_title(schedule_head(found), fontsize=9)
    panels[-1, 0].set_xlabel(f"time, {unit}s")
    plain_ticks(panels[-1, 0].xaxis)
    return figure
