"""Measured times of a kernel beside predicted ones, as text, as a table and as an object."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from countperf.models.library import short_name
from countperf.report.numbers import point_text
from countperf.report.objects import picked
from countperf.report.rows import Printed, ends, table_of

if TYPE_CHECKING:
    from countperf.measurements import TimingDocument

_WIDEST = 200
"""Longest line of a text; reasons and remarks are cut there."""


def timing_printed(timing: TimingDocument) -> Printed:
    """Write measured and predicted times: sentences, a row for each size, and what to know."""
    sizes = timing.sizes[0].measurement.parameters
    columns = {
        **{name: name for name in sizes},
        "measured_s": "measured",
        "noise": "noise",
        "predicted_s": "predicted",
        "low_s": "from",
        "high_s": f"to ({100 * timing.interval_level:.0f} %)",
        "verdict": "",
    }
    return Printed(
        head=[_sentence(timing), *([_made_up(timing)] if timing.made_up else []), _how(timing)],
        table=table_of(timing_records(timing), columns),
        notes=_notes(timing),
    )


def timing_text(timing: TimingDocument, *, most_rows: int | None = None) -> str:
    """Write measured and predicted times as text; long lines are cut."""
    return timing_printed(timing).text(most_rows, widest=_WIDEST)


def timing_object(timing: TimingDocument) -> dict[str, Any]:
    """Return the times as a JSON-able object; nothing is rounded.

    The shape is ``{"kernel", "device", "protocol", "weights", "model", "interval_level",
    "made_up", "sizes": [{"parameters", "measured_s", "spread", "noise", "stable", "predicted_s":
    seconds | null, "interval_s": [low, high] | null, "verdict", "reason", "remarks"}],
    "failures": [{"parameters", "stage", "reason"}]}``.
    """
    return {
        **picked(timing, "kernel", "weights", "model", "interval_level", "made_up"),
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
            **picked(each.measurement, "spread", "noise"),
            "predicted_s": each.predicted_s,
            **ends(each.interval_s),
            "verdict": each.verdict,
            "remark": "; ".join(filter(None, (each.reason, *each.measurement.remarks))),
        }
        for each in timing.sizes
    ]
    rows += [
        {**each.parameters, "verdict": "failed", "remark": each.reason} for each in timing.failures
    ]
    names = ("measured_s", "spread", "noise", "predicted_s", "low_s", "high_s")
    missing = dict.fromkeys(names, math.nan)
    return [row | {n: m for n, m in missing.items() if row.get(n) is None} for row in rows]


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
        f"warm caches, minimum of at most {protocol.runs - protocol.drops} runs in each of"
        f" {number} round{'' if rounds == [1] else 's'}"
    )
    predicts = any(each.predicted_s is not None for each in timing.sizes)
    return f"{how}; predicted by the {short_name(timing.model)} model" if predicts else how


def _notes(timing: TimingDocument) -> list[str]:
    """Say what to know of single sizes, each text once."""
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
    return lines


_MOST_NOTES = 5
