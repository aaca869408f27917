"""Answers of mechanistic models, curves, occupancies and schedules as text, rows and objects."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from countperf.mechanistic.answers import ModelAnswers, lacking_input
from countperf.mechanistic.model import MechanisticPrediction
from countperf.mechanistic.sweep import Sweep
from countperf.report.numbers import format_percent, format_quantity, point_text
from countperf.report.objects import picked
from countperf.report.rows import table_of

if TYPE_CHECKING:
    from countperf.mechanistic.applications import Schedule
    from countperf.mechanistic.occupancy_advice import KernelOccupancy, ProgramOccupancy

_WIDTH = 118
_RESOURCES = {
    "work_items_per_group": "work items per group",
    "registers_per_work_item": "registers per work item",
    "local_bytes_per_group": "bytes of local memory per group",
}
_LIMITS = {
    "groups": "most groups of a compute unit",
    "work_items": "most work items of a compute unit",
    "sub_groups": "most sub-groups of a compute unit",
    "registers": "registers",
    "local": "local memory",
}


def answers_text(answers: ModelAnswers) -> str:
    """Write a row per model: time, bound, what it ignores, what it lacks; then how to mend that."""
    names = ("model", "time_s", "bound", "ignores", "lacks")
    columns = {name: name.removesuffix("_s") for name in names}
    table = table_of(answers_rows(answers), columns)
    reasons = dict.fromkeys(
        _sentence(answer)
        for answer in answers.values()
        if not isinstance(answer, MechanisticPrediction)
    )
    measured = [f"measured: {name} ({where})" for name, where in answers.measured.items()]
    notes = [answers.note] if answers.note else []
    return "\n".join(
        [answers_head(answers), *table.lines(), *notes, *measured, *_below(answers), *reasons]
    )


def _below(answers: ModelAnswers) -> list[str]:
    """Name the models whose times are below what the device's peaks allow."""
    device = answers.described
    peaks = ((answers.total_bytes, device.bandwidth_byte_per_s, "bandwidth"),)
    peaks += ((answers.total_flops, device.peak_flops, "arithmetic"),)
    found = [(amount / peak, what) for amount, peak, what in peaks if peak]
    if not found:
        return []
    least_s, what = max(found)
    names = [name for name, each in answers.predictions.items() if each.time_s < 0.999 * least_s]
    if not names:
        return []
    least = f"{format_quantity(least_s, 's')} at the peak of {what}"
    return [f"- below the roofline ({least}), which they leave out: {', '.join(names)}"]


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return textwrap.fill(
        f"- {text}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def answers_head(answers: ModelAnswers | KernelOccupancy) -> str:
    """Return kernel, device and sizes in a line."""
    sizes = ", ".join(["", point_text(answers.parameters)]) if answers.parameters else ""
    return f"{answers.kernel} on {answers.device}{sizes}"


def answers_rows(answers: ModelAnswers) -> list[dict[str, Any]]:
    """Return a row per model: name, time, bound, what it ignores and lacks, and its parts, s."""
    return [
        {
            "model": name,
            "time_s": float(answer.time_s),
            "bound": answer.bound,
            "ignores": ", ".join(answer.ignored),
            "lacks": "",
            "reason": "",
            **{f"{part}_s": float(time_s) for part, time_s in answer.breakdown.items()},
        }
        if isinstance(answer, MechanisticPrediction)
        else {
            "model": name,
            **dict.fromkeys(("time_s", "bound")),
            "ignores": "",
            "lacks": lacking_input(answer),
            "reason": str(answer),
        }
        for name, answer in answers.items()
    ]


def answers_object(answers: ModelAnswers) -> dict[str, Any]:
    """Return ``{"kernel", "device", "parameters", "measured", "note", "models": {name: {...}}}``.

    A model has ``time_s``, ``bound``, ``breakdown_s``, ``results`` and ``ignored``, or ``lacks``
    and ``reason``.
    """
    return {
        **picked(answers, "kernel", "device", "parameters", "measured", "note"),
        "models": {name: _answer_object(answer) for name, answer in answers.items()},
    }


def _answer_object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, MechanisticPrediction):
        return {"lacks": lacking_input(answer), "reason": str(answer)}
    return {
        "time_s": float(answer.time_s),
        "bound": answer.bound,
        "breakdown_s": {name: float(part) for name, part in answer.breakdown.items()},
        "results": {
            name: value if math.isfinite(value) else None for name, value in answer.results.items()
        },
        "ignored": list(answer.ignored),
    }


def occupancy_text(found: KernelOccupancy) -> str:
    """Write for each program what is resident, what each resource allows, and what would help."""
    lines = [answers_head(found)]
    for program in found.programs:
        lines += _program_lines(program)
    return "\n".join(lines)


def _program_lines(program: ProgramOccupancy) -> list[str]:
    residency = program.residency
    bound = "" if program.registers_are_known else "at most "
    ratio = "" if residency.ratio is None else f" ({format_percent(residency.ratio)} of the most)"
    lines = [
        f"{program.program}: {bound}{residency.active_groups} groups per compute unit,"
        f" {bound}{residency.occupancy_max} sub-groups{ratio};"
        f" limited by: {_LIMITS[residency.limiter]}",
    ]
    rows = [
        {
            "resource": _LIMITS[name],
            "groups that it allows": groups,
            "": "limits" if groups == residency.active_groups else None,
        }
        for name, groups in residency.limits.items()
    ]
    lines += table_of(rows).lines()
    if not program.registers_are_known:
        lines.append(
            f"  the registers of a work item are not known: up to {program.most_registers} keep"
            " this; state them (registers_per_work_item=N)"
        )
    for change in program.changes:
        then = change.residency
        percent = "" if then.ratio is None else f", {format_percent(then.ratio)} of the most"
        lines.append(
            f"  {change.value} {_RESOURCES[change.resource]} instead of"
            f" {program.uses[change.resource]}: {then.active_groups} groups,"
            f" {then.occupancy_max} sub-groups{percent}"
        )
    if not program.changes:
        lines.append("  no change of a single resource makes more sub-groups resident")
    return lines


def occupancy_rows(found: KernelOccupancy) -> list[dict[str, Any]]:
    """Return rows for the present state of each program and for each change that helps."""
    return [row for program in found.programs for row in _states(program)]


def _states(program: ProgramOccupancy) -> list[dict[str, Any]]:
    return [
        _occupancy_row(program.program, "", program.uses, program.residency),
        *(
            _occupancy_row(
                program.program,
                change.resource,
                {**program.uses, change.resource: change.value},
                change.residency,
            )
            for change in program.changes
        ),
    ]


def _occupancy_row(
    program: str, changed: str, uses: Mapping[str, int | None], residency: Any
) -> dict[str, Any]:
    return {
        "program": program,
        "changed": changed,
        **uses,
        "groups": residency.active_groups,
        "sub_groups": residency.occupancy_max,
        "occupancy": residency.ratio,
        "limited_by": residency.limiter,
        **{f"groups[{name}]": groups for name, groups in residency.limits.items()},
    }


def occupancy_object(found: KernelOccupancy) -> dict[str, Any]:
    """Return ``{"kernel", "device", "parameters", "programs": [{...}]}``."""
    return {
        **picked(found, "kernel", "device", "parameters"),
        "programs": [
            {
                **picked(program, "program", "registers_are_known", "most_registers"),
                "now": now,
                "changes": changes,
            }
            for program in found.programs
            for now, *changes in [_states(program)]
        ],
    }


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
