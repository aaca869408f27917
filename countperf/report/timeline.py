"""Pictures of what happens when: in a simulated pipeline, and on the engines of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countperf.errors import ParameterError
from countperf.mechanistic.stalls import StallReport
from countperf.mechanistic.workload import Simulation
from countperf.report.drawing import (
    BLUE,
    CYCLE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    label_bars,
    new_figure,
    plain_ticks,
    scale_of,
)
from countperf.report.mechanistic import schedule_head

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from countperf.mechanistic.applications import Schedule

_STEPS = {"h2d": BLUE, "d2h": GREEN, "kernel": ORANGE}
_CAUSES = {
    "fill": SKY,
    "drain": "#999999",
    "dependency": YELLOW,
    "memory": RED,
    "barrier": PINK,
    "issue": "#000000",
}


def timeline_figure(
    simulation: Simulation, until: float | None = None, *, stalls: StallReport | None = None
) -> Figure:
    """Draw a simulated pipeline: a row per subsystem and one per sub-group, over cycles.

    Every instruction is a bar in the row of its subsystem, whose label states the share of all
    cycles for which it is occupied, and one in the row of its sub-group, in the same color.
    """
    if not simulation.issues:
        message = "the simulation did not record its starts; simulate with record=True"
        raise ParameterError(message, parameter="simulation")
    drawn = [each for each in simulation.issues if until is None or each.time < until]
    if not drawn:
        message = f"nothing starts before cycle {until}; pass a later one"
        raise ParameterError(message, parameter="until")
    subsystems = list(simulation.fill)
    colors = {name: CYCLE[place % len(CYCLE)] for place, name in enumerate(subsystems)}
    sub_groups = sorted({(each.group, each.sub_group) for each in drawn})
    labels = [f"{name}: {100 * fill:.1f} %" for name, fill in simulation.fill.items()]
    labels += [f"group {group}, sub-group {number}" for group, number in sub_groups]
    rows = {
        "subsystem": [subsystems.index(each.subsystem) for each in drawn],
        "sub-group": [
            len(subsystems) + sub_groups.index((each.group, each.sub_group)) for each in drawn
        ],
    }
    figure = new_figure((10, 1 + 0.22 * len(labels)))
    panel = figure.subplots()
    for kind, places in rows.items():
        panel.barh(
            places,
            [each.cpi for each in drawn],
            left=[each.time for each in drawn],
            height=0.75,
            color=[colors[each.subsystem] for each in drawn],
            label=kind,
        )
    if stalls is not None:
        _draw_stalls(figure, panel, stalls, subsystems.index(stalls.subsystem), until)
    label_bars(panel, labels, 10**6)
    panel.set_xlabel("time, cycles")
    plain_ticks(panel.xaxis)
    return figure


def _draw_stalls(
    figure: Figure, panel: Axes, stalls: StallReport, row: int, until: float | None
) -> None:
    """Hatch the gaps of a subsystem's row by cause, and say what share of the cycles each takes."""
    for cause, cycles in stalls.by_cause.items():
        gaps = [
            (each.start, (each.end if until is None else min(each.end, until)) - each.start)
            for each in stalls.stalls
            if each.cause == cause and (until is None or each.start < until)
        ]
        if not cycles:
            continue
        panel.broken_barh(
            gaps,
            (row - 0.375, 0.75),
            facecolor="none",
            edgecolor=_CAUSES[cause],
            hatch="////",
            linewidth=0,
            label=f"{cause}: {100 * cycles / stalls.cycles:.1f} %",
            gid=f"stall-{cause}",
        )
    handles, labels = panel.get_legend_handles_labels()
    chosen = [(h, label) for h, label in zip(handles, labels, strict=True) if ":" in label]
    if chosen:
        figure.legend(
            *zip(*chosen, strict=True),
            title=f"{stalls.subsystem} idle",
            loc="outside right upper",
            fontsize=9,
        )


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
            panel.barh(row, length, left=start, color=_STEPS[each.step.kind], edgecolor="white")
            panel.text(start + length / 2, row, each.name, ha="center", va="center", fontsize=9)
        label_bars(panel, [f"device {d}: {engine}" for d, engine in rows])
        panel.set_title(schedule_head(found), fontsize=9)
    panels[-1, 0].set_xlabel(f"time, {unit}s")
    plain_ticks(panels[-1, 0].xaxis)
    return figure
