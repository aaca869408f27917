"""Searches for the fastest variant, rankings; measured times of a kernel beside predicted ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from countperf.errors import option
from countperf.models.library import short_name
from countperf.report.rows import (
    EACH,
    Column,
    Printed,
    choice_text,
    columns_of,
    format_percent,
    format_quantity,
    format_seconds,
    interval_text,
    picked,
    point_text,
    table_of,
    weights_text,
)
from countperf.steps import format_duration

if TYPE_CHECKING:
    from countperf.measuring import TimingDocument
    from countperf.tuning.points import Point
    from countperf.tuning.ranker import Ranking, RefusalCount
    from countperf.tuning.result import Trial, TuningResult
    from countperf.tuning.trials import SearchState


_EXAMPLES = 3
_LARGEST_CLAIM = 0.995
_MOST_TIES = 5
_STOPS = {
    "confident": "no variant left can be faster, at the stated confidence",
    "budget": "the budget is spent",
    "exhausted": "every variant was tried",
    "interrupted": "it was interrupted",
}


def point(of: Point) -> dict[str, Any]:
    """Return a point as a row: its choice with the predicted time, or why it was refused."""
    choice = dict(of.choice)
    time_s = getattr(of, "time_s", None)
    if time_s is None:
        return {"choice": choice, **{name: str(getattr(of, name, "")) for name in _REFUSED}}
    missing = list(getattr(of, "missing", ()))
    return {
        "choice": choice,
        "predicted_s": time_s,
        "interval_s": getattr(of, "interval_s", None),
        "interval_level": getattr(of, "interval_level", None),
        **({"missing": missing} if missing else {}),
    }


_REFUSED = ("stage", "reason")
_ASIDE = ("interval_level", "missing")


def ranking(of: Ranking, *, written_to: str | None = None) -> Printed:
    """Give the best points, how many there were, and what was refused and why."""
    best = [point(row) for row in of.best]
    level = f"to ({format_percent(of.best[0].interval_level)})" if best else ""
    shown = [{**row, "mark": "*" if row.get("missing") else None} for row in best]
    columns = {
        **{"predicted_s": Column("predicted", format_seconds), "mark": Column()},
        **_ends(level),
        "choice": EACH,
    }
    some = "" if of.complete else ", not all of the space"
    notes = [
        f"{of.space} on {of.device}, {point_text(of.sizes)}: {of.predicted} "
        f"variants predicted{some} in {format_quantity(of.seconds, 's')};"
        f" {short_name(of.model)} model{weights_text(of.weights, of.device)}",
    ]
    missing = sorted({name for row in of.best for name in row.missing})
    if missing:
        notes.append(f"* without the cost of {', '.join(missing)}, for which there is no weight")
    notes += _refusal_lines(of.refusals)
    if of.refused:
        every = f"{written_to} has" if written_to else "--output FILE writes down"
        notes.append(f"{every} every refused one with its reason")
    rows = [
        {"place": position, **{n: v for n, v in row.items() if n not in _ASIDE}}
        for position, row in enumerate(best, start=1)
    ]
    return Printed(
        head=[] if best else ["no variant has a prediction"],
        rows=rows,
        shown=table_of(shown, columns),
        notes=notes,
        facts={
            **picked(of, "space", "device", "weights", "model", "predicted", "complete", "seconds"),
            "parameters": dict(of.sizes),
            "refused": _refusals(of.refusals),
            "best": best,
        },
    )


def search(of: TuningResult) -> Printed:
    """Give the winner's time, which one it is, how sure that is, and what it took.

    The bound is null where nothing but the winner is known; it is about ``"bounded"`` variants, and
    of ``"unbounded"`` others of the space nothing is known.
    """
    winner = of.winner
    failed = f", {len(of.failed)} failed" if of.failed else ""
    checked = (
        "numbers checked"
        if of.numbers_checked
        else "numbers not checked, for the space has no reference"
    )
    level = format_percent(winner.interval_level)
    interval = (
        "" if winner.interval_s is None else f", {interval_text(winner.interval_s)} at {level}"
    )
    lines = [
        f"{format_quantity(winner.time_s, 's')} (noise {format_percent(winner.noise)}, predicted "
        f"{format_quantity(winner.predicted_s, 's')}{interval})",
        f"{of.space} on {of.device}, {point_text(of.sizes)}; {checked}; predicted by the"
        f" {short_name(of.model)} model{weights_text(of.weights, of.device)}",
        f"  {choice_text(winner.choice)}",
        *(
            f"  as fast within noise: {format_quantity(trial.time_s, 's')},"
            f" {choice_text(trial.choice)}"
            for trial in of.within_noise[:_MOST_TIES]
        ),
        *_bound(of),
        f"{len(of.tried)} of {of.predicted} predicted variants ran{failed};"
        f" {format_quantity(of.spent_s, 's')} spent, "
        f"{format_quantity(of.ranking_s, 's')} of it on predictions; {_STOPS[of.stopped]}",
    ]
    what = ("space", "device", "weights", "model", "regret_bound", "bounded", "unbounded")
    return Printed(
        head=lines,
        rows=[
            {
                **picked(trial, "choice", "time_s", "predicted_s", "noise"),
                "runs": len(trial.samples_s),
                **picked(trial, "cut_short", "at_s"),
                "best_s": best_s,
                "is_winner": trial.choice == winner.choice,
            }
            for trial, best_s in zip(
                of.tried, accumulate((trial.time_s for trial in of.tried), min), strict=True
            )
        ],
        columns={
            **{"choice": EACH, **columns_of("time_s predicted_s", format_seconds)},
            **columns_of("noise", format_percent),
            **columns_of("runs cut_short"),
            **columns_of("at_s best_s", format_seconds),
            **columns_of("is_winner"),
        },
        parts=[Printed(notes=_refusal_lines(of.refusals))],
        facts={
            **picked(of, *what, "confidence", "stopped", "spent_s", "ranking_s"),
            **picked(of, "numbers_checked", "predicted"),
            "parameters": dict(of.sizes),
            "winner": _tried(winner),
            "within_noise": [_tried(trial) for trial in of.within_noise],
            "complete": of.ranking_complete,
            "tried": [_tried(trial) for trial in of.tried],
            "refused": _refusals(of.refusals),
        },
    )


def state_text(state: SearchState) -> str:
    """Write the state of a search on a line: the best, what may be gained, the time left."""
    if state.best_s is None:
        noun = "variant" if state.predicted == 1 else "variants"
        said = [f"{state.space}: {state.predicted} {noun} predicted, none ran yet"]
    else:
        said = [
            f"{state.space}: best {format_quantity(state.best_s, 's')} ({choice_text(state.best)})",
            f"{state.tried} of {state.predicted} ran",
        ]
    if state.expected_gain is not None and state.chance is not None:
        said.append(
            f"next: {format_percent(state.expected_gain)} faster on average,"
            f" {format_percent(state.chance)} chance that one left is faster"
        )
    if state.left_s is not None:
        said.append(f"{format_duration(state.left_s)} left")
    return "; ".join(said)


def _bound(of: TuningResult) -> list[str]:
    """Say how much faster others may be, and of how many nothing is known."""
    said = f"too little was measured to bound the fastest of {of.space}"
    if of.regret_bound is not None and of.regret_bound <= _LARGEST_CLAIM:
        whole = f"the {of.bounded} variants that have a prediction" if of.unbounded else "the space"
        said = (
            f"the fastest of {whole} takes at most {format_percent(of.regret_bound)} less than a"
            f" median run of this one, at {format_percent(of.confidence)} confidence"
        )
    others = f"nothing is known of the {of.unbounded} others that the space may have"
    return [said, others] if of.unbounded else [said]


def _tried(of: Trial) -> dict[str, Any]:
    what = ("choice", "time_s", "predicted_s", "samples_s", "rounds", "cut_short", "at_s")
    return picked(of, *what, "interval_s", "interval_level")


def _refusals(refusals: Mapping[str, RefusalCount]) -> dict[str, Any]:
    return {
        stage: {
            "count": refusal.count,
            "examples": [point(example) for example in refusal.examples[:_EXAMPLES]],
            "reasons": [
                {"count": reason.count, "example": point(reason.example)}
                for reason in refusal.reasons
            ],
        }
        for stage, refusal in refusals.items()
    }


def _refusal_lines(refusals: Mapping[str, RefusalCount]) -> list[str]:
    return [
        f"refused ({stage}): {reason.count} of {refusal.count}, such as"
        f" {choice_text(reason.example.choice)}: {reason.example.reason}"
        for stage, refusal in refusals.items()
        for reason in refusal.reasons[:_EXAMPLES]
    ]


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
        **{"parameters": EACH, "measured_s": Column("measured", format_seconds)},
        **{"noise": Column("noise", format_percent)},
        **{"predicted_s": Column("predicted", format_seconds)},
        **_ends(f"to ({100 * of.interval_level:.0f} %)"),
        "verdict": Column(),
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
            **{name: size.get(name) for name in _TIMES},
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
        f" function, {option('make_arguments')})"
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
    by = f"{short_name(of.model)} model{weights_text(of.weights, of.device.slug)}"
    return f"{how}; predicted by the {by}" if predicts else how


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


def _ends(level: str) -> dict[str, Column]:
    """Return columns of both ends of an interval."""
    return {"low_s": Column("from", format_seconds), "high_s": Column(level, format_seconds)}


_LAUNCH_COLUMNS = {
    **{"kernel": Column("kernel"), "parameters": Column("sizes")},
    **columns_of("device launches"),
    **{"predicted_s": Column("one launch", format_seconds), **_ends("to")},
    **{"total_s": Column("all", format_seconds), "reason": Column()},
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
