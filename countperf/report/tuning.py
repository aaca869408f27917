"""Rankings and searches as text, rows and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from countperf.report.numbers import (
    choice_text,
    format_percent,
    format_quantity,
    interval_text,
    point_text,
)
from countperf.report.objects import picked
from countperf.report.rows import ends, table_of

if TYPE_CHECKING:
    from countperf.tuning.points import Point
    from countperf.tuning.ranking import Ranking, Reason, RefusalCount
    from countperf.tuning.result import Trial, TuningResult

_EXAMPLES = 3
_LARGEST_CLAIM = 0.995
_STOPS = {
    "confident": "no variant left can be faster, at the stated confidence",
    "budget": "the budget is spent",
    "exhausted": "every variant was tried",
    "interrupted": "it was interrupted",
}


def point_object(point: Point) -> dict[str, Any]:
    """Return a point as plain values.

    ``{"choice", "predicted_s", "interval_s": [low, high] | null, "interval_level", "missing"?}`` or
    ``{"choice", "stage", "reason"}``.
    """
    choice = dict(point.choice)
    time_s = getattr(point, "time_s", None)
    if time_s is None:
        refused = {name: str(getattr(point, name, "")) for name in ("stage", "reason")}
        return {"choice": choice, **refused}
    missing = list(getattr(point, "missing", ()))
    return {
        "choice": choice,
        "predicted_s": time_s,
        **_interval_object(point),
        **({"missing": missing} if missing else {}),
        **({"model": model} if (model := getattr(point, "model", "")) else {}),
    }


def _interval_object(of: object) -> dict[str, Any]:
    ends = getattr(of, "interval_s", None)
    level = getattr(of, "interval_level", None)
    return {"interval_s": None if ends is None else list(ends), "interval_level": level}


def ranking_object(ranking: Ranking) -> dict[str, Any]:
    """Return the best points, how many there were, and what was refused and why."""
    return {
        **picked(ranking, "space", "device", "predicted", "complete", "seconds"),
        "parameters": dict(ranking.sizes),
        "refused": _refusals_object(ranking.refusals),
        "best": [point_object(point) for point in ranking.best],
    }


def ranking_text(ranking: Ranking, *, written_to: str | None = None) -> str:
    """Write the best points, and what was refused."""
    if ranking.best:
        columns = {"predicted_s": "predicted", "mark": "", "low_s": "from"}
        columns["high_s"] = f"to ({format_percent(ranking.best[0].interval_level)})"
        columns["model"] = "model"
        rows = [
            {
                "predicted_s": point.time_s,
                "mark": "*" if point.missing else None,
                **ends(point.interval_s),
                "model": point.model,
                **{f"choice {name}": value for name, value in point.choice.items()},
            }
            for point in ranking.best
        ]
        columns |= {f"choice {name}": name for name in ranking.best[0].choice}
        table = table_of(rows, columns).lines(indent="")
    else:
        table = ["no variant has a prediction"]
    some = "" if ranking.complete else ", not all of the space"
    parts = [
        *table,
        f"{ranking.space} on {ranking.device}, {point_text(ranking.sizes)}: {ranking.predicted} "
        f"variants predicted{some} in {format_quantity(ranking.seconds, 's')}",
    ]
    missing = sorted({name for point in ranking.best for name in point.missing})
    if missing:
        parts.append(f"* without the cost of {', '.join(missing)}, for which there is no weight")
    parts += _refusal_lines(ranking.refusals)
    if ranking.refused:
        every = f"{written_to} has" if written_to else "--output FILE writes down"
        parts.append(f"{every} every refused one with its reason")
    return "\n".join(parts)


def tuning_object(result: TuningResult) -> dict[str, Any]:
    """Return the winner, its ties, what was tried and spent, and the regret bound.

    The bound is null where nothing but the winner is known; it is about ``"bounded"`` variants, and
    of ``"unbounded"`` others of the space nothing is known.
    """
    return {
        **picked(result, "space", "device", "regret_bound", "bounded", "unbounded", "confidence"),
        **picked(result, "stopped", "spent_s", "ranking_s", "numbers_checked", "predicted"),
        "parameters": dict(result.sizes),
        "winner": _tried_object(result.winner),
        "within_noise": [_tried_object(tried) for tried in result.within_noise],
        "complete": result.ranking_complete,
        "tried": [_tried_object(tried) for tried in result.tried],
        "refused": _refusals_object(result.refusals),
    }


def tuning_text(result: TuningResult) -> str:
    """Write the winner's time, which one it is, how sure that is, and what it took."""
    winner = result.winner
    failed = len(result.failed)
    parts = [
        f"{format_quantity(winner.time_s, 's')} (noise {format_percent(winner.noise)}, predicted "
        f"{format_quantity(winner.predicted_s, 's')}{_interval(winner)})",
        f"{result.space} on {result.device}, {point_text(result.sizes)}; {_checked(result)}",
        f"  {choice_text(winner.choice)}",
    ]
    for tried in result.within_noise[:5]:
        time = format_quantity(tried.time_s, "s")
        parts.append(f"  as fast within noise: {time}, {choice_text(tried.choice)}")
    if len(result.within_noise) > 5:
        parts.append(f"  and {len(result.within_noise) - 5} more")
    parts += [
        _bound(result),
        f"{len(result.tried)} of {result.predicted} predicted variants ran"
        f"{f', {failed} failed' if failed else ''}; {format_quantity(result.spent_s, 's')} spent, "
        f"{format_quantity(result.ranking_s, 's')} of it on predictions; {_STOPS[result.stopped]}",
    ]
    return "\n".join([*parts, *_refusal_lines(result.refusals)])


def _checked(result: TuningResult) -> str:
    if result.numbers_checked:
        return "numbers checked"
    return "numbers not checked, for the space has no reference"


def _bound(result: TuningResult) -> str:
    """Say how much faster others may be, and of how many nothing is known."""
    others = f"the {result.unbounded} others that the space may have"
    mend = "a larger budget looks at more"
    if result.ranking_complete:
        mend = "they have no prediction, for the reasons below"
    if result.regret_bound is None:
        return f"nothing bounds how much faster {others} are, none was looked at: {mend}"
    whole = "the space"
    if result.unbounded:
        whole = f"the {result.bounded} variants that have a prediction"
    confidence = f"at {format_percent(result.confidence)} confidence"
    text = (
        f"the fastest of {whole} takes at most {format_percent(result.regret_bound)} less than a "
        f"median run of this one, {confidence}"
    )
    if result.regret_bound > _LARGEST_CLAIM:
        text = f"too little was measured to bound, {confidence}, the fastest of {whole}"
    return f"{text}\nnothing bounds {others}: {mend}" if result.unbounded else text


def _tried_object(tried: Trial) -> dict[str, Any]:
    what = ("choice", "time_s", "predicted_s", "samples_s", "rounds", "cut_short", "at_s")
    return {**picked(tried, *what), **_interval_object(tried)}


def _refusals_object(refusals: Mapping[str, RefusalCount]) -> dict[str, Any]:
    return {
        stage: {
            "count": each.count,
            "examples": [point_object(example) for example in each.examples[:_EXAMPLES]],
            "reasons": [
                {"count": reason.count, "example": point_object(reason.example)}
                for reason in each.reasons
            ],
        }
        for stage, each in refusals.items()
    }


def _refusal_lines(refusals: Mapping[str, RefusalCount]) -> list[str]:
    lines: list[str] = []
    for stage, each in refusals.items():
        head = f"refused ({stage}): {each.count}"
        if len(each.reasons) == 1 and each.reasons[0].count == each.count:
            lines.append(f"{head}, such as {_example(each.reasons[0])}")
            continue
        named = each.reasons[:_EXAMPLES]
        lines += [head, *(f"  {reason.count}, such as {_example(reason)}" for reason in named)]
        others = each.count - sum(reason.count for reason in named)
        if others and named:
            lines.append(f"  {others} for other reasons")
    return lines


def _interval(tried: Trial) -> str:
    if tried.interval_s is None:
        return ""
    return f", {interval_text(tried.interval_s)} at {format_percent(tried.interval_level)}"


def _example(reason: Reason) -> str:
    return f"{choice_text(reason.example.choice)}: {reason.example.reason}"
