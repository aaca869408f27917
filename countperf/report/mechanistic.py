"""Answers of mechanistic models, curves, occupancies and schedules."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from countperf.mechanistic.predict_all import lacking_input
from countperf.report.rows import (
    Printed,
    format_percent,
    format_quantity,
    picked,
    point_text,
    table_of,
)

if TYPE_CHECKING:
    from countperf.mechanistic.merpsys import Schedule
    from countperf.mechanistic.occupancy import KernelOccupancy
    from countperf.mechanistic.predict_all import Answer, ModelAnswers
    from countperf.mechanistic.sweep import Sweep

_WIDTH = 118
_ANSWER_COLUMNS = ("model", "time_s", "bound", "ignores", "lacks")


def answers(of: ModelAnswers) -> Printed:
    """Give a row per model: time, bound, what it ignores, what it lacks; then how to mend that.

    In JSON a model has ``time_s``, ``bound``, ``breakdown_s``, ``results`` and ``ignored``, or
    ``lacks`` and ``reason``.
    """
    errors = [answer for answer in of.values() if isinstance(answer, Exception)]
    return Printed(
        head=[_head(of)],
        rows=[
            {
                "model": name,
                **dict.fromkeys(("time_s", "bound")),
                "ignores": "",
                "lacks": lacking_input(answer),
                "reason": str(answer),
            }
            if isinstance(answer, Exception)
            else {
                "model": name,
                "time_s": float(answer.time_s),
                "bound": answer.bound,
                "ignores": ", ".join(answer.ignored),
                "lacks": "",
                "reason": "",
                **{f"{part}_s": float(time_s) for part, time_s in answer.breakdown.items()},
            }
            for name, answer in of.items()
        ],
        columns={name: name.removesuffix("_s") for name in _ANSWER_COLUMNS},
        notes=[
            *([of.note] if of.note else []),
            *(f"measured: {name} ({where})" for name, where in of.measured.items()),
            *_below(of),
            *dict.fromkeys(map(_sentence, errors)),
        ],
        facts={
            **picked(of, "kernel", "device", "parameters", "measured", "note"),
            "models": {name: _answer(answer) for name, answer in of.items()},
        },
    )


def _answer(of: Answer) -> dict[str, Any]:
    if isinstance(of, Exception):
        return {"lacks": lacking_input(of), "reason": str(of)}
    return {
        **picked(of, "time_s", "bound"),
        "breakdown_s": of.breakdown,
        "results": {n: value if math.isfinite(value) else None for n, value in of.results.items()},
        "ignored": of.ignored,
    }


def _below(of: ModelAnswers) -> list[str]:
    """Name the models whose times are below what the device's peaks allow."""
    device = of.described
    peaks = ((of.total_bytes, device.bandwidth_byte_per_s, "bandwidth"),)
    peaks += ((of.total_flops, device.peak_flops, "arithmetic"),)
    known = [(amount / peak, what) for amount, peak, what in peaks if peak]
    if not known:
        return []
    least_s, what = max(known)
    names = [
        name for name, prediction in of.predictions.items() if prediction.time_s < 0.999 * least_s
    ]
    least = f"{format_quantity(least_s, 's')} at the peak of {what}"
    said = f"- below the roofline ({least}), which they leave out: {', '.join(names)}"
    return [said] if names else []


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return textwrap.fill(
        f"- {text}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _head(of: ModelAnswers | KernelOccupancy) -> str:
    sizes = ", ".join(["", point_text(of.parameters)]) if of.parameters else ""
    return f"{of.kernel} on {of.device}{sizes}"


def occupancy(of: KernelOccupancy) -> Printed:
    """Give for each program what is resident, and what each resource allows."""
    rows: list[dict[str, Any]] = [
        {
            "program": program.program,
            **program.uses,
            "groups": program.residency.active_groups,
            "sub_groups": program.residency.occupancy_max,
            "occupancy": program.residency.ratio,
            "limited_by": program.residency.limiter,
            **{f"groups[{name}]": number for name, number in program.residency.limits.items()},
        }
        for program in of.programs
    ]
    shown = [
        {**row, "occupancy": None if row["occupancy"] is None else format_percent(row["occupancy"])}
        for row in rows
    ]
    return Printed(
        head=[_head(of)],
        rows=rows,
        shown=table_of(
            shown, {n: n.replace("_", " ") for n in rows[0] if not n.startswith("groups[")}
        ),
        notes=[
            f"{program.program}: at most {program.residency.active_groups} groups, since the"
            " registers of a work item are not known; state them (registers_per_work_item=N)"
            for program in of.programs
            if program.is_bound
        ],
        facts=picked(of, "kernel", "device", "parameters"),
        name="programs",
    )


def sweep(of: Sweep) -> Printed:
    """Give a row per value and model; people see a column per model, with the times."""
    rows = [
        {
            of.over: point.value,
            "sub_groups": point.occupancy,
            "flop_per_byte": point.intensity,
            "model": name,
            "time_s": None if isinstance(answer, Exception) else float(answer.time_s),
            "bound": None if isinstance(answer, Exception) else answer.bound,
            "sub_groups_per_cycle": of.throughput(point, name),
            "lacks": lacking_input(answer) if isinstance(answer, Exception) else "",
        }
        for point in of.points
        for name, answer in point.answers.items()
    ]
    shown = [
        {
            of.over: point.value,
            "sub-groups": point.occupancy,
            "flop/byte": point.intensity,
            **{
                f"{name}_s": None if isinstance(answer, Exception) else float(answer.time_s)
                for name, answer in point.answers.items()
            },
        }
        for point in of.points
    ]
    lacking = dict.fromkeys(f"{row['model']} lacks {row['lacks']}" for row in rows if row["lacks"])
    return Printed(
        head=[f"{of.kernel} on {of.device} over {of.over}"],
        rows=rows,
        shown=table_of(shown),
        notes=[*lacking],
        facts=picked(of, "kernel", "device", "over"),
        name="points",
    )


def schedule(of: Schedule) -> Printed:
    """Give source, time and what overlapping saves; then a row per step."""
    saved = 1 - of.time_s / of.serial_s if of.serial_s else 0.0
    return Printed(
        head=[
            f"{of.source}: {format_quantity(of.time_s, 's')}; one after the other"
            f" {format_quantity(of.serial_s, 's')} (overlap saves {100 * saved:.0f} %)"
        ],
        rows=[
            {
                "step": step.name,
                **picked(step.step, "kind", "device", "stream"),
                **picked(step, "start_s", "end_s"),
                "duration_s": step.end_s - step.start_s,
            }
            for step in of.steps
        ],
        columns={
            **{name: name for name in ("step", "device", "stream")},
            **{"start_s": "start", "duration_s": "takes"},
        },
        facts=picked(of, "source", "time_s", "serial_s"),
        name="steps",
    )
