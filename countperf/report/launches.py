"""Kernels that a program launched, as text, tables and a page."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from countperf.report.numbers import format_percent, format_quantity, format_table
from countperf.report.page import Block, Page, PageTable, Section
from countperf.report.text import point_text

if TYPE_CHECKING:
    from countperf.measurements import LaunchesDocument, RecordedKernel

_WIDEST = 160
_MOST_REASONS = 5
_HEADER = ("kernel", "sizes", "launches", "one launch", "interval", "all", "share", "flop", "bytes")
_RIGHT = tuple(range(2, len(_HEADER)))


def launches_text(log: LaunchesDocument, *, most_rows: int | None = None) -> str:
    """Write what was launched: a sentence, a row for each kernel and sizes, and what to know."""
    if not log.kernels:
        return "\n".join(["no kernel was launched", *log.problems])
    shown = log.kernels[:most_rows]
    rows = [_cells(each, log.total_s) for each in shown]
    lines = [f"  {line}" for line in format_table(rows, header=_HEADER, right=_RIGHT).splitlines()]
    left_out = len(log.kernels) - len(shown)
    if left_out:
        lines.append(f"  ... {left_out} more: .to_frame() has all")
    return "\n".join([_sentence(log), *lines, *map(_cut, _notes(log))])


def launches_html(log: LaunchesDocument) -> str:
    """Write what was launched as an HTML table, for notebooks."""

    def row(cells: tuple[str, ...], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    body = "".join(row(_cells(each, log.total_s), "td") for each in log.kernels[:25])
    return "\n".join(
        [
            f"<p>{escape(_sentence(log))}</p>",
            f"<table><thead>{row(_HEADER, 'th')}</thead><tbody>{body}</tbody></table>",
            *(f"<p>{escape(note)}</p>" for note in _notes(log)),
        ]
    )


def launches_records(log: LaunchesDocument) -> list[dict[str, Any]]:
    """Return a row for each kernel and sizes, for a data frame; what there is not is NaN."""

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    return [
        {
            "kernel": each.kernel,
            "parameters": point_text(each.parameters) if each.parameters else "",
            "launches": each.launches,
            "device": each.device,
            "flops": number(each.flops),
            "global_bytes": number(each.global_bytes),
            "exact": each.exact,
            "predicted_s": number(each.predicted_s),
            "low_s": number(each.interval_s and each.interval_s[0]),
            "high_s": number(each.interval_s and each.interval_s[1]),
            "total_s": number(each.total_s),
            "model": each.model,
            "reason": each.reason,
        }
        for each in log.kernels
    ]


def launches_page(log: LaunchesDocument) -> Page:
    """Show what a program launched, and why kernels have no counts or prediction."""
    rows = tuple(_cells(each, log.total_s) for each in log.kernels)
    reasons = tuple((f"{e.kernel} {_sizes(e)}".strip(), e.reason) for e in log.kernels if e.reason)
    devices = ", ".join(sorted({each.device or "no OpenCL device" for each in log.kernels}))
    return Page(
        title="Kernels that a program launched",
        lead=(_sentence(log), *([f"on {devices}"] if log.kernels else [])),
        sections=(
            Section(
                title="Kernels",
                blocks=(Block(table=PageTable(header=_HEADER, rows=rows, right=_RIGHT)),),
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


def _cells(each: RecordedKernel, all_s: float) -> tuple[str, ...]:
    total_s, interval = each.total_s, each.interval_s
    return (
        each.kernel,
        _sizes(each),
        str(each.launches),
        "" if each.predicted_s is None else format_quantity(each.predicted_s, "s"),
        "" if interval is None else " to ".join(format_quantity(end, "s") for end in interval),
        "no prediction" if total_s is None else format_quantity(total_s, "s"),
        "" if total_s is None else format_percent(total_s / all_s),
        "no count" if each.flops is None else format_quantity(each.flops, "flop"),
        "" if each.global_bytes is None else format_quantity(each.global_bytes, "byte"),
    )


def _sizes(each: RecordedKernel) -> str:
    return point_text(each.parameters) if each.parameters else ""


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


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
