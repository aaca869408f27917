"""Measured times of a kernel beside predicted ones, as text, as a table and as an object."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from countperf.models.library import short_name
from countperf.report.numbers import format_percent, format_quantity, format_table
from countperf.report.objects import picked
from countperf.report.text import point_text

if TYPE_CHECKING:
    from countperf.measurements import TimedSize, TimingDocument

_WIDEST = 200
"""Longest line of a text; reasons and remarks are cut there."""


def timing_text(timing: TimingDocument, *, most_rows: int | None = None) -> str:
    """Write measured and predicted times: a sentence, a row for each size, and what to know."""
    header, rows = _table(timing)
    left_out = 0
    if most_rows is not None and len(rows) > most_rows:
        left_out = len(rows) - most_rows
        half = most_rows // 2
        rows = [*rows[:half], *rows[half + left_out :]]
    lines = format_table(rows, header=header, right=range(len(header) - 1)).splitlines()
    if left_out:
        lines.insert(1 + len(rows) // 2, f"... {left_out} more sizes")
    return "\n".join(
        [
            _cut(_sentence(timing)),
            *([_cut(_made_up(timing))] if timing.made_up else []),
            _cut(_how(timing)),
            *(f"  {line}" for line in lines),
            *map(_cut, _notes(timing)),
        ]
    )


def timing_html(timing: TimingDocument) -> str:
    """Write measured and predicted times as an HTML table, for notebooks."""
    header, rows = _table(timing)

    def row(cells: list[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    return "\n".join(
        [
            f"<p>{escape(_sentence(timing))}<br>{escape(_how(timing))}</p>",
            *([f"<p>{escape(_made_up(timing))}</p>"] if timing.made_up else []),
            f"<table><thead>{row(header, 'th')}</thead>",
            f"<tbody>{''.join(row(cells, 'td') for cells in rows)}</tbody></table>",
            *(f"<p>{escape(note)}</p>" for note in _notes(timing)),
        ]
    )


def timing_object(timing: TimingDocument) -> dict[str, Any]:
    """Return the times as a JSON-able object; nothing is rounded.

    The shape is ``{"kernel", "device", "cold", "protocol", "weights", "model", "interval_level",
    "made_up", "sizes": [{"parameters", "measured_s", "spread", "noise", "stable", "predicted_s":
    seconds | null, "interval_s": [low, high] | null, "verdict", "reason", "remarks"}],
    "failures": [{"parameters", "stage", "reason"}]}``.
    """
    return {
        **picked(timing, "kernel", "cold", "weights", "model", "interval_level", "made_up"),
        "device": timing.device.slug,
        "protocol": timing.protocol.name,
        "sizes": [
            {
                **picked(each.measurement, "parameters", "spread", "noise", "stable", "remarks"),
                "measured_s": each.measurement.time_s,
                **picked(each, "predicted_s", "interval_s", "verdict", "reason"),
            }
            for each in timing.sizes
        ],
        "failures": [picked(each, "parameters", "stage", "reason") for each in timing.failures],
    }


def timing_records(timing: TimingDocument) -> list[dict[str, Any]]:
    """Return a row for each size, for a data frame; what there is not is NaN."""
    rows: list[dict[str, Any]] = [
        {
            **each.measurement.parameters,
            "measured_s": each.measurement.time_s,
            "spread": each.measurement.spread,
            "noise": each.measurement.noise,
            "predicted_s": math.nan if each.predicted_s is None else each.predicted_s,
            "low_s": math.nan if each.interval_s is None else each.interval_s[0],
            "high_s": math.nan if each.interval_s is None else each.interval_s[1],
            "verdict": each.verdict,
            "remark": _remark(each),
        }
        for each in timing.sizes
    ]
    names = ("measured_s", "spread", "noise", "predicted_s", "low_s", "high_s")
    rows += [
        {
            **each.parameters,
            **dict.fromkeys(names, math.nan),
            "verdict": "failed",
            "remark": each.reason,
        }
        for each in timing.failures
    ]
    return rows


def _table(timing: TimingDocument) -> tuple[list[str], list[list[str]]]:
    """Return column titles and rows; the last column is aligned at the left."""
    predicts = any(each.predicted_s is not None for each in timing.sizes)
    names = list(timing.sizes[0].measurement.parameters)
    columns = ["predicted", f"{100 * timing.interval_level:.0f} % interval"] if predicts else []
    rows: list[list[str]] = []
    for each in timing.sizes:
        measured = each.measurement
        rows.append(
            [
                *(str(measured.parameters[name]) for name in names),
                format_quantity(measured.time_s, "s"),
                format_percent(measured.noise),
                *(_predicted_cells(each) if predicts else []),
                each.verdict,
            ]
        )
    for failed in timing.failures:
        cells = [str(failed.parameters[name]) for name in names]
        rows.append([*cells, "failed", "", *(["", ""] if predicts else []), ""])
    return [*names, "measured", "noise", *columns, ""], rows


def _predicted_cells(each: TimedSize) -> list[str]:
    if each.predicted_s is None:
        return ["", ""]
    interval = each.interval_s
    ends = [] if interval is None else [format_quantity(end, "s") for end in interval]
    return [format_quantity(each.predicted_s, "s"), " to ".join(ends)]


def _sentence(timing: TimingDocument) -> str:
    """Say what the measured times say of the predicted ones."""
    where = f"{timing.kernel} on {timing.device.slug}"
    verdicts = [each.verdict for each in timing.sizes]
    total = len(verdicts)
    known = [each for each in timing.sizes if each.predicted_s is not None]
    if not known:
        reasons = list(dict.fromkeys(each.reason for each in timing.sizes))
        return f"{where}: no prediction: {reasons[0]}"
    parts = [
        f"{verdicts.count(word)} {said}"
        for word, said in (
            ("inside", "inside the predicted interval"),
            ("outside", "outside"),
            ("noise", "too noisy to tell"),
            ("no interval", "without an interval"),
            ("no prediction", "without a prediction"),
        )
        if word in verdicts
    ]
    logs = [abs(math.log(e.measurement.time_s / e.predicted_s)) for e in known if e.predicted_s]
    factor = math.exp(sum(logs) / len(logs))
    times = "time" if total == 1 else "times"
    return f"{where}: of {total} {times}, {', '.join(parts)}; off by a factor of {factor:.2f}" + (
        " on average" if len(known) > 1 else ""
    )


def _made_up(timing: TimingDocument) -> str:
    at = f" at {point_text(timing.sizes[0].measurement.parameters)}" if timing.sizes[1:] else ""
    return (
        f"index arrays are made up{at}, real ones take other times: {timing.made_up} (yours:"
        " --arguments FILE.py:FUNCTION, make_arguments=)"
    )


def _how(timing: TimingDocument) -> str:
    """Say how it was measured, and by what predicted."""
    protocol = timing.protocol
    rounds = sorted({len(each.measurement.samples_s) for each in timing.sizes})
    number = "-".join(map(str, dict.fromkeys((rounds[0], rounds[-1]))))
    how = (
        f"{timing.caches}, minimum of at most {protocol.runs - protocol.drops} runs in each of"
        f" {number} round{'' if rounds == [1] else 's'}"
    )
    predicts = any(each.predicted_s is not None for each in timing.sizes)
    return f"{how}; predicted by the {short_name(timing.model)} model" if predicts else how


def _notes(timing: TimingDocument) -> list[str]:
    """Say what to know of single sizes, each text once, and of cold caches."""
    notes: dict[str, list[str]] = {}
    some = any(each.predicted_s is not None for each in timing.sizes)
    for each in timing.sizes:
        at = point_text(each.measurement.parameters)
        said = [*each.measurement.remarks]
        if each.measurement.settling == "unsettled":
            said.append("the rounds disagree; time again when the machine is quiet")
        if each.reason and some:  # if there are none, the first line says why
            said.append(each.reason if each.predicted_s else f"no prediction: {each.reason}")
        for text in said:
            notes.setdefault(text, []).append(at)
    for failed in timing.failures:
        notes.setdefault(f"failed: {failed.reason}", []).append(point_text(failed.parameters))
    lines = [
        f"{at[0] if len(at) == 1 else f'{len(at)} sizes'}: {text}" for text, at in notes.items()
    ]
    if len(lines) > _MOST_NOTES:
        more = len(lines) - _MOST_NOTES
        lines = [*lines[:_MOST_NOTES], f"... {more} more remarks: .to_frame() has all"]
    if timing.cold and some:
        lines.append("predictions are for warm caches, to whose runs the weights were fitted")
    return lines


_MOST_NOTES = 5


def _remark(each: TimedSize) -> str:
    return "; ".join(part for part in (each.reason, *each.measurement.remarks) if part)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
