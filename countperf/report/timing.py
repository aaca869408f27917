"""Measured times of a kernel beside predicted ones, and kernels that a program launched."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from countperf.models.library import short_name
from countperf.report.rows import Printed, format_quantity, picked, point_text

if TYPE_CHECKING:
    from countperf.measurements import TimingDocument

_MOST_NOTES = 5
_VERDICTS = {
    "inside": "inside the predicted interval",
    "outside": "outside of it",
    "noise": "too noisy to tell",
    "no interval": "without an interval",
    "no prediction": "without a prediction",
}
_TIMES = ("measured_s", "spread", "noise", "predicted_s", "interval_s")


def timing(of: TimingDocument) -> Printed:
    """Give measured and predicted times: sentences, a row for each size, and what to know."""
    columns = {
        **{name: name for name in of.sizes[0].measurement.parameters},
        "measured_s": "measured",
        "noise": "noise",
        "predicted_s": "predicted",
        "low_s": "from",
        "high_s": f"to ({100 * of.interval_level:.0f} %)",
        "verdict": "",
    }
    sizes: list[dict[str, Any]] = [
        {
            **picked(size.measurement, "parameters", "spread", "noise", "stable", "remarks"),
            "measured_s": size.measurement.time_s,
            **picked(size, "predicted_s", "interval_s", "verdict", "reason"),
        }
        for size in of.sizes
    ]
    failures = [picked(size, "parameters", "stage", "reason") for size in of.failures]
    rows: list[dict[str, Any]] = [
        {
            "parameters": size["parameters"],
            **{name: _or_nan(size.get(name), name) for name in _TIMES},
            "verdict": size.get("verdict", "failed"),
            "remark": "; ".join(filter(None, (size["reason"], *size.get("remarks", ())))),
        }
        for size in (*sizes, *failures)
    ]
    return Printed(
        head=[_sentence(of), *([_made_up(of)] if of.made_up else []), _how(of)],
        rows=rows,
        columns=columns,
        notes=_notes(of),
        facts={
            **picked(of, "kernel", "weights", "model", "interval_level", "made_up"),
            "device": of.device.slug,
            "protocol": of.protocol.name,
            "sizes": sizes,
            "failures": failures,
        },
    )


def _or_nan(value: Any, name: str) -> Any:
    if value is None:
        return (math.nan, math.nan) if name == "interval_s" else math.nan
    return value


def _sentence(of: TimingDocument) -> str:
    """Say what the measured times say of the predicted ones."""
    where = f"{of.kernel} on {of.device.slug}"
    known = [size for size in of.sizes if size.predicted_s is not None]
    if not known:
        return f"{where}: no prediction: {of.sizes[0].reason}"
    verdicts = Counter(size.verdict for size in of.sizes)
    logs = [abs(math.log(e.measurement.time_s / e.predicted_s)) for e in known if e.predicted_s]
    said = ", ".join(f"{number} {_VERDICTS[word]}" for word, number in verdicts.items())
    return f"{where}: {said}; off by a factor of {math.exp(sum(logs) / len(logs)):.2f} on average"


def _made_up(of: TimingDocument) -> str:
    at = f" at {point_text(of.sizes[0].measurement.parameters)}" if of.sizes[1:] else ""
    return (
        f"index arrays are made up{at}, real ones take other times: {of.made_up} (pass yours by a"
        " function, make_arguments=)"
    )


def _how(of: TimingDocument) -> str:
    """Say how it was measured, and by what predicted."""
    protocol = of.protocol
    rounds = sorted({len(size.measurement.samples_s) for size in of.sizes})
    number = "-".join(map(str, dict.fromkeys((rounds[0], rounds[-1]))))
    how = (
        f"warm caches, minimum of at most {protocol.runs - protocol.drops} runs in each of"
        f" {number} round{'' if rounds == [1] else 's'}"
    )
    predicts = any(size.predicted_s is not None for size in of.sizes)
    return f"{how}; predicted by the {short_name(of.model)} model" if predicts else how


def _notes(of: TimingDocument) -> list[str]:
    """Say what to know of single sizes, each text once."""
    notes: dict[str, list[str]] = {}
    some = any(size.predicted_s is not None for size in of.sizes)
    for size in of.sizes:
        said = [*size.measurement.remarks]
        if size.measurement.settling == "unsettled":
            said.append("the rounds disagree; time again when the machine is quiet")
        if size.reason and some:  # if there are none, the first line says why
            said.append(size.reason)
        for text in said:
            notes.setdefault(text, []).append(point_text(size.measurement.parameters))
    for failed in of.failures:
        notes.setdefault(f"failed: {failed.reason}", []).append(point_text(failed.parameters))
    lines = [f"{at[0] if len(at) == 1 else f'{len(at)} sizes'}: {t}" for t, at in notes.items()]
    more = len(lines) - _MOST_NOTES
    return [*lines[:_MOST_NOTES], *([f"... {more} more remarks"] if more > 0 else [])]


_LAUNCH_COLUMNS = {
    **{"kernel": "kernel", "parameters": "sizes", "device": "device", "launches": "launches"},
    **{"predicted_s": "one launch", "low_s": "from", "high_s": "to", "total_s": "all"},
    "reason": "",
}


def launches(log: Any) -> Printed:
    """Give what was launched: a sentence, a row for each kernel and sizes, and what to know."""
    rows: list[Any] = log.rows
    number = sum(row["launches"] for row in rows)
    known = [row for row in rows if "total_s" in row]
    total = format_quantity(sum(row["total_s"] for row in known), "s")
    of = f"{total} predicted for {sum(row['launches'] for row in known)} of them"
    return Printed(
        head=[f"{number} launches; {of}" if rows else "no kernel was launched"],
        rows=[{**row, "parameters": point_text(row["parameters"])} for row in rows],
        columns=_LAUNCH_COLUMNS,
        notes=[*log.problems],
    )
