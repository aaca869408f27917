"""Rankings of variants and searches for the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from countperf.report.rows import (
    Printed,
    choice_text,
    format_percent,
    format_quantity,
    interval_text,
    picked,
    point_text,
    table_of,
)
from countperf.steps import format_duration

if TYPE_CHECKING:
    from countperf.tuning.points import Point
    from countperf.tuning.ranker import Ranking, Reason, RefusalCount
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
    columns = {"predicted_s": "predicted", "mark": "", "low_s": "from"}
    if best:
        columns["high_s"] = f"to ({format_percent(of.best[0].interval_level)})"
        columns |= {f"choice {name}": name for name in of.best[0].choice}
    shown = [
        {
            **{name: row.get(name) for name in ("predicted_s", "interval_s")},
            "mark": "*" if row.get("missing") else None,
            **{f"choice {name}": value for name, value in row["choice"].items()},
        }
        for row in best
    ]
    some = "" if of.complete else ", not all of the space"
    notes = [
        f"{of.space} on {of.device}, {point_text(of.sizes)}: {of.predicted} "
        f"variants predicted{some} in {format_quantity(of.seconds, 's')}",
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
            **picked(of, "space", "device", "predicted", "complete", "seconds"),
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
        f"{of.space} on {of.device}, {point_text(of.sizes)}; {checked}",
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
    what = ("space", "device", "regret_bound", "bounded", "unbounded", "confidence", "stopped")
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
        parts=[Printed(notes=_refusal_lines(of.refusals))],
        facts={
            **picked(of, *what, "spent_s", "ranking_s", "numbers_checked", "predicted"),
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
        f"refused ({stage}): {reason.count} of {refusal.count}, such as {_example(reason)}"
        for stage, refusal in refusals.items()
        for reason in refusal.reasons[:_EXAMPLES]
    ]


def _example(reason: Reason) -> str:
    return f"{choice_text(reason.example.choice)}: {reason.example.reason}"
