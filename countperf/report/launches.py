"""Kernels that a program launched, as text, tables and a page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from countperf.report.numbers import format_quantity, point_text
from countperf.report.page import Block, Page, Section
from countperf.report.rows import Printed, Table, ends, table_of

if TYPE_CHECKING:
    from countperf.measurements import LaunchesDocument

_WIDEST = 160
_MOST_REASONS = 5
_COLUMNS = {
    "kernel": "kernel",
    "parameters": "sizes",
    "launches": "launches",
    "predicted_s": "one launch",
    "low_s": "from",
    "high_s": "to",
    "all": "all",
    "share": "share",
    "flop": "flop",
    "bytes": "bytes",
}


def launches_printed(log: LaunchesDocument) -> Printed:
    """Write what was launched: a sentence, a row for each kernel and sizes, and what to know."""
    if not log.kernels:
        return Printed(head=["no kernel was launched"], notes=log.problems)
    return Printed(head=[_sentence(log)], table=_table(log), notes=_notes(log))


def launches_text(log: LaunchesDocument, *, most_rows: int | None = None) -> str:
    """Write what was launched as text; long lines are cut."""
    return launches_printed(log).text(most_rows, widest=_WIDEST)


def launches_records(log: LaunchesDocument) -> list[dict[str, Any]]:
    """Return a row for each kernel and sizes, for a data frame; what there is not is NaN."""

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    return [
        {
            "kernel": each.kernel,
            "parameters": point_text(each.parameters),
            "launches": each.launches,
            "device": each.device,
            "flops": number(each.flops),
            "global_bytes": number(each.global_bytes),
            "exact": each.exact,
            "predicted_s": number(each.predicted_s),
            **{name: number(end) for name, end in ends(each.interval_s).items()},
            "total_s": number(each.total_s),
            "model": each.model,
            "reason": each.reason,
        }
        for each in log.kernels
    ]


def launches_page(log: LaunchesDocument) -> Page:
    """Show what a program launched, and why kernels have no counts or prediction."""
    reasons = tuple(
        (f"{e.kernel} {point_text(e.parameters)}".strip(), e.reason)
        for e in log.kernels
        if e.reason
    )
    devices = ", ".join(sorted({each.device or "no OpenCL device" for each in log.kernels}))
    return Page(
        title="Kernels that a program launched",
        lead=(_sentence(log), *([f"on {devices}"] if log.kernels else [])),
        sections=(
            Section(
                title="Kernels",
                blocks=(Block(table=_table(log)),),
            ),
            Section(
                title="Without a prediction, or not complete",
                blocks=(Block(facts=reasons),) if reasons else (),
            ),
            Section(
                title="Problems in recording",
                blocks=(Block(lines=log.problems),) if log.problems else (),
            ),
        ),
    )


def _table(log: LaunchesDocument) -> Table:
    rows = [
        row
        | {
            "all": "no prediction" if each.total_s is None else format_quantity(each.total_s, "s"),
            "share": None if each.total_s is None else each.total_s / log.total_s,
            "flop": "no count" if each.flops is None else format_quantity(each.flops, "flop"),
            "bytes": None
            if each.global_bytes is None
            else format_quantity(each.global_bytes, "byte"),
        }
        for row, each in zip(launches_records(log), log.kernels, strict=True)
    ]
    return table_of(rows, _COLUMNS)


def _sentence(log: LaunchesDocument) -> str:
    known = [each for each in log.kernels if each.predicted_s is not None]
    covered = sum(each.launches for each in known)
    kernels = len({each.kernel for each in log.kernels})
    launches = f"{log.launches} launch{'' if log.launches == 1 else 'es'}"
    return (
        f"{launches} of {kernels} kernel{'' if kernels == 1 else 's'};"
        f" {format_quantity(log.total_s, 's')} predicted for {covered} of them"
    )


def _notes(log: LaunchesDocument) -> list[str]:
    """Say why there are no predictions, each text once, and what went wrong."""
    by_reason: dict[str, list[str]] = {}
    for each in log.kernels:
        if each.reason:
            by_reason.setdefault(each.reason, []).append(each.kernel)
    notes = [
        f"{', '.join(dict.fromkeys(kernels))}: {reason}" for reason, kernels in by_reason.items()
    ]
    if len(notes) > _MOST_REASONS:
        notes = [*notes[:_MOST_REASONS], f"... {len(notes) - _MOST_REASONS} more reasons"]
    if log.left_out:
        notes.append(f"{log.left_out} launches were too many different ones to be kept apart")
    return [*notes, *log.problems]
