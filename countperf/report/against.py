"""Two predictions side by side, and in one sentence what makes the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countperf.display import MOST_LINES, Drawable, Table, shortened
from countperf.errors import ParameterError
from countperf.models.anchored import WeightsAndKernel
from countperf.models.explanation import explain
from countperf.models.library import short_name
from countperf.predictions import Prediction
from countperf.report.breakdown import (
    MOST_ROWS,
    bound_text,
    corrected_parts,
    correction_factor,
)
from countperf.report.names import plain_name
from countperf.report.numbers import format_quantity
from countperf.report.rows import Table as TextTable
from countperf.report.text import verdicts_text

if TYPE_CHECKING:
    from countperf.models.explanation import ExplainedPart, Explanation

_ALIKE = 0.05
"""Of a time: a difference below is none to explain."""
_SAME = 0.01
_NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionPair(Table, Drawable):
    """Two predictions side by side."""

    first: Prediction  # each at one size
    second: Prediction

    def __post_init__(self) -> None:
        for each in (self.first, self.second):
            if not isinstance(each, Prediction):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
                raise ParameterError(
                    f"a prediction is compared with another one, not with {each!r}; pass what"
                    " predict returns",
                    parameter="prediction",
                )
            if isinstance(each.time_s, np.ndarray):
                raise ParameterError(
                    f"predictions are compared at one size each, and that of {each.kernel!r} is of"
                    " several: predict each size by itself",
                    parameter="prediction",
                )

    @property
    def explained(self) -> tuple[Explanation, Explanation] | None:
        """Both with counts and costs (`countperf.explain`); None where weights are not known."""
        found = [_explained(each) for each in (self.first, self.second)]
        return (found[0], found[1]) if found[0] is not None and found[1] is not None else None

    @property
    def cause(self) -> str:
        """A sentence on what makes the difference."""
        return cause_text(self.first, self.second, self.explained)

    def __repr__(self) -> str:
        text = comparison_text(self.first, self.second, self.explained)
        body, _, cause = text.rpartition("\n")
        last = shortened(cause, 4)
        return f"{shortened(body, MOST_LINES - len(last.splitlines()))}\n{last}"


def comparison_text(
    first: Prediction,
    second: Prediction,
    explained: tuple[Explanation, Explanation] | None = None,
) -> str:
    """Write two predictions side by side: two kernels, sizes or devices, the cause at the end."""
    names = names_apart(first, second)
    whole = [float(np.asarray(each.time_s).item()) for each in (first, second)]
    ratio = f"{whole[1] / whole[0]:.3g} times" if whole[0] > 0 else "no multiple of"
    factors = [correction_factor(each) for each in (first, second)]
    lines = [
        f"{names[1]}: {ratio} the time of {names[0]}{_incomplete_ones(names, first, second)}",
        *(
            f"  {name}: {bound}"
            for name, each in zip(names, (first, second), strict=True)
            if (bound := bound_text(each))
        ),
        *side_by_side(first, second).lines(),
    ]
    if factors != [1.0, 1.0]:
        lines.append(f"the parts include corrections of × {factors[0]:.3g} and × {factors[1]:.3g}")
    for each in (first, second):
        lines += [verdicts_text(each.caveats)] if each.caveats else []
    return "\n".join([*lines, cause_text(first, second, explained)])


def cause_text(
    first: Prediction,
    second: Prediction,
    explained: tuple[Explanation, Explanation] | None = None,
) -> str:
    """Say in one sentence what makes the difference of two predictions."""
    names = names_apart(first, second)
    whole = [float(np.asarray(each.time_s).item()) for each in (first, second)]
    difference = whole[1] - whole[0]
    if abs(difference) < _ALIKE * max(whole):
        return f"cause: none to name; the times differ by less than {100 * _ALIKE:.0f} %"
    slower, faster = (names[1], names[0]) if difference > 0 else (names[0], names[1])
    parts = [corrected_parts(each) for each in (first, second)]
    changes = {
        part: abs(difference) / difference * (parts[1].get(part, 0.0) - parts[0].get(part, 0.0))
        for part in {*parts[0], *parts[1]}
    }
    order = sorted(changes, key=lambda part: (-changes[part], part))
    causes = [part for part in order if changes[part] >= 0.2 * abs(difference)][:_NAMED]
    said = [
        f"{plain_name(part).text} ({format_quantity(changes[part], 's')}"
        f"{_why(part, slower, difference, explained)})"
        for part in causes or order[:1]
    ]
    return (
        f"cause: {slower} takes {format_quantity(abs(difference), 's')} longer than {faster}, "
        f"mostly for {' and '.join(said)}"
    )


def _why(
    part: str,
    slower: str,
    difference: float,
    explained: tuple[Explanation, Explanation] | None,
) -> str:
    """Say by what a part grew: how often it occurs, or what each costs."""
    if explained is None:
        return ""
    order = explained if difference > 0 else explained[::-1]
    less, more = ({part.name: part for part in each.parts}.get(part) for each in order)
    if more is None or not more.count:
        return ""
    if less is None or not less.count:
        return f", which only {slower} has"
    said: list[str] = []
    times = more.count / less.count
    if abs(times - 1) > _SAME:
        said.append(f"{times:.3g} times as many")
    costs = _cost_ratio(less, more)
    if costs is not None and abs(costs - 1) > _SAME:
        said.append(f"each at {costs:.3g} times the cost")
    return f", {' and '.join(said)}" if said else ""


def _cost_ratio(less: ExplainedPart, more: ExplainedPart) -> float | None:
    if less.weight is None or more.weight is None or less.weight.value_s <= 0:
        return None
    return more.weight.value_s / less.weight.value_s


def side_by_side(first: Prediction, second: Prediction) -> TextTable:
    """Return a table of two predictions; of many parts, the last are summed."""
    parts = compared_parts(first, second)
    shown = parts if len(parts) <= MOST_ROWS else parts[: MOST_ROWS - 1]
    rest = parts[len(shown) :]
    rows = [("time", *(float(np.asarray(each.time_s).item()) for each in (first, second))), *shown]
    if rest:
        rows.append((f"{len(rest)} more", sum(r[1] for r in rest), sum(r[2] for r in rest)))
    return TextTable(
        header=("", *names_apart(first, second), "difference"),
        rows=tuple(
            (title, *(format_quantity(time_s, "s") for time_s in (one, other, other - one)))
            for title, one, other in rows
        ),
        right=(1, 2, 3),
    )


def compared_parts(first: Prediction, second: Prediction) -> list[tuple[str, float, float]]:
    """Return name and time, s, of each part in two predictions, that which differs most first."""
    parts = [corrected_parts(each) for each in (first, second)]
    found = [
        (plain_name(part).text, parts[0].get(part, 0.0), parts[1].get(part, 0.0))
        for part in sorted({*parts[0], *parts[1]})
    ]
    return sorted(found, key=lambda row: -abs(row[2] - row[1]))


def _explained(prediction: Prediction) -> Explanation | None:
    origin = prediction.origin
    if not isinstance(origin, WeightsAndKernel):
        return None
    vector = origin.weights.counted(origin.kernel)
    return explain(origin.weights, vector, prediction)


def _incomplete_ones(names: tuple[str, str], *predictions: Prediction) -> str:
    found = [n for n, each in zip(names, predictions, strict=True) if not each.complete]
    return f" (incomplete, a lower bound: {' and '.join(found)})" if found else ""


def names_apart(first: Prediction, second: Prediction) -> tuple[str, str]:
    """Return the names of two predictions: what they differ in, kernel, device, model or sizes."""
    for field in ("kernel", "device", "model"):
        names = getattr(first, field), getattr(second, field)
        if names[0] == names[1]:
            continue
        short = (short_name(names[0]), short_name(names[1]))
        return short if field == "model" and short[0] != short[1] else names
    apart = [n for n, v in second.parameters.items() if first.parameters.get(n) != v]
    if not apart:
        return "first", "second"
    sizes = [
        ", ".join(f"{n} = {each.parameters.get(n)}" for n in apart) for each in (first, second)
    ]
    return sizes[0], sizes[1]
