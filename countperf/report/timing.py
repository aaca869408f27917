"""Measured times of a kernel beside predicted ones, and kernels that a program launched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from countperf.models.library import short_name
from countperf.report.numbers import format_quantity, point_text
from countperf.report.rows import Printed, picked, table_of

if TYPE_CHECKING:
    from countperf.measurements import TimingDocument

_MOST_NOTES = 5
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
            **picked(each.measurement, "parameters", "spread", "noise", "stable", "remarks"),
            "measured_s": each.measurement.time_s,
            **picked(each, "predicted_s", "interval_s", "verdict", "reason"),
        }
        for each in of.sizes
    ]
    failures = [picked(each, "parameters", "stage", "reason") for each in of.failures]
    rows: list[dict[str, Any]] = [
        {
            "parameters": each["parameters"],
            **{name: _or_nan(each.get(name), name) for name in _TIMES},
            "verdict": each.get("verdict", "failed"),
            "remark": "; ".join(filter(None, (each["reason"], *each.get("remarks", ())))),
        }
        for each in (*sizes, *failures)
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
    verdicts = [each.verdict for each in of.sizes]
    total = len(verdicts)
    known = [each for each in of.sizes if each.predicted_s is not None]
    if not known:
        reasons = list(dict.fromkeys(each.reason for each in of.sizes))
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


def _made_up(of: TimingDocument) -> str:
    at = f" at {point_text(of.sizes[0].measurement.parameters)}" if of.sizes[1:] else ""
    return (
        f"index arrays are made up{at}, real ones take other times: {of.made_up} (pass yours by a"
        " function, make_arguments=)"
    )


def _how(of: TimingDocument) -> str:
    """Say how it was measured, and by what predicted."""
    protocol = of.protocol
    rounds = sorted({len(each.measurement.samples_s) for each in of.sizes})
    number = "-".join(map(str, dict.fromkeys((rounds[0], rounds[-1]))))
    how = (
        f"warm caches, minimum of at most {protocol.runs - protocol.drops} runs in each of"
        f" {number} round{'' if rounds == [1] else 's'}"
    )
    predicts = any(each.predicted_s is not None for each in of.sizes)
    return f"{how}; predicted by the {short_name(of.model)} model" if predicts else how


def _notes(of: TimingDocument) -> list[str]:
    """Say what to know of single sizes, each text once."""
    notes: dict[str, list[str]] = {}
    some = any(each.predicted_s is not None for each in of.sizes)
    for each in of.sizes:
        at = point_text(each.measurement.parameters)
        said = [*each.measurement.remarks]
        if each.measurement.settling == "unsettled":
            said.append("the rounds disagree; time again when the machine is quiet")
        if each.reason and some:  # if there are none, the first line says why
            said.append(each.reason if each.predicted_s else f"no prediction: {each.reason}")
        for text in said:
            notes.setdefault(text, []).append(at)
    for failed in of.failures:
        notes.setdefault(f"failed: {failed.reason}", []).append(point_text(failed.parameters))
    lines = [
        f"{at[0] if len(at) == 1 else f'{len(at)} sizes'}: {text}" for text, at in notes.items()
    ]
    if len(lines) > _MOST_NOTES:
        more = len(lines) - _MOST_NOTES
        lines = [*lines[:_MOST_NOTES], f"... {more} more remarks: .to_frame() has all"]
    return lines


# --- launches of a program

_LAUNCH_COLUMNS = {
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


def launches(kernels: Sequence[Any], left_out: int = 0, problems: Sequence[str] = ()) -> Printed:
    """Give what was launched: a sentence, a row for each kernel and sizes, and what to know."""
    if not kernels:
        return Printed(head=["no kernel was launched"], notes=problems)
    known = [each for each in kernels if each.predicted_s is not None]
    covered = sum(each.launches for each in known)
    number = left_out + sum(each.launches for each in kernels)
    total_s = sum(each.total_s or 0.0 for each in known)
    names = len({each.kernel for each in kernels})
    rows: list[dict[str, Any]] = [
        {
            **picked(each, "kernel", "launches", "device", "exact", "model", "reason"),
            "parameters": point_text(each.parameters),
            **{
                name: _or_nan(getattr(each, name), name)
                for name in ("flops", "global_bytes", "predicted_s", "interval_s", "total_s")
            },
        }
        for each in kernels
    ]
    shown = [
        {
            **row,
            "all": _quantity(row["total_s"], "s", "prediction"),
            "share": row["total_s"] / total_s if row["total_s"] > 0 else None,
            "flop": _quantity(row["flops"], "flop", "count"),
            "bytes": _quantity(row["global_bytes"], "byte", "count"),
        }
        for row in rows
    ]
    reasons: dict[str, list[str]] = {}
    for each in kernels:
        if each.reason:
            reasons.setdefault(each.reason, []).append(each.kernel)
    notes = [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    if len(notes) > _MOST_NOTES:
        notes = [*notes[:_MOST_NOTES], f"... {len(notes) - _MOST_NOTES} more reasons"]
    if left_out:
        notes.append(f"{left_out} launches were too many different ones to be kept apart")
    return Printed(
        head=[
            f"{number} launch{'' if number == 1 else 'es'} of {names}"
            f" kernel{'' if names == 1 else 's'};"
            f" {format_quantity(total_s, 's')} predicted for {covered} of them"
        ],
        rows=rows,
        shown=table_of(shown, _LAUNCH_COLUMNS),
        notes=[*notes, *problems],
    )


def _quantity(value: float, unit: str, what: str) -> str:
    return f"no {what}" if math.isnan(value) else format_quantity(value, unit)
