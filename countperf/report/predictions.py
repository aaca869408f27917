"""Counts, predictions, explained ones, and two predictions side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf import display
from countperf.errors import ParameterError
from countperf.hardware.parameters import some_of
from countperf.models.anchored import WeightsAndKernel
from countperf.models.correction import CORRECTION
from countperf.models.explanation import explain
from countperf.models.library import short_name
from countperf.predictions import Prediction
from countperf.properties.taxonomy import describe
from countperf.report.breakdown import (
    MOST_ROWS,
    bound_text,
    breakdown_rows,
    corrected_parts,
    correction_factor,
)
from countperf.report.names import OTHER, plain_name, uncharged_lines
from countperf.report.numbers import (
    format_percent,
    format_quantity,
    interval_text,
    point_text,
)
from countperf.report.plausibility import NAMED_OTHERS, NO_RATES, verdict_lines, weight_rows
from countperf.report.rows import Printed, Row, Table, picked, plain, table_of

if TYPE_CHECKING:
    from countperf.hardware.parameters import DeviceParameters
    from countperf.models.explanation import ExplainedPart, Explanation
    from countperf.models.weights import WeightSet
    from countperf.properties.vector import PropertyVector

_ALIKE = 0.05
"""Of a time: a difference below is none to explain."""
_SAME = 0.01
_CAUSES = 2
_BREAKDOWN = ("group", "time", "share", "part")


def counts(
    vector: PropertyVector,
    values: Mapping[str, Any] | None = None,
    points: Sequence[Mapping[str, int]] = (),
) -> Printed:
    """Give a kernel's counts: values where parameters were given, and symbolic ones."""
    titles = [point_text(point) for point in points] if len(points) > 1 else ["value"]
    view = {} if vector.view == "source" else {"view": vector.view}
    rows = [
        {
            "property": name,
            "unit": describe(name).unit,
            "count": str(count),
            "exact": count.exact,
            "meaning": describe(name).description,
        }
        for name, count in vector.items()
    ]
    shown = [
        {
            "property": name,
            **({} if values is None else _count_values(values[name], titles)),
            "formula": str(count),
            "": f"not exact: {caveat}" if (caveat := vector.caveat(name)) else "",
        }
        for name, count in vector.items()
    ]
    return Printed(
        head=[f"kernel {vector.kernel}, per launch{f', {vector.view} view' if view else ''}"],
        rows=rows,
        shown=table_of(
            shown,
            {
                "property": "property",
                **({} if values is None else dict(zip(titles, titles, strict=True))),
                **{"formula": "count", "": ""},
            },
        ),
        facts={
            "kernel": vector.kernel,
            **view,
            "properties": {
                name: {
                    "symbolic": str(count),
                    "exact": not vector.caveat(name),
                    **({} if values is None else {"value": values[name]}),
                }
                for name, count in vector.items()
            },
        },
    )


def _count_values(value: Any, titles: Sequence[str]) -> dict[str, Any]:
    """Give a value for each column; a count that is the same at all points, in each."""
    array = np.asarray(value, object)
    if len(titles) > 1:
        return dict(zip(titles, np.broadcast_to(array, (len(titles),)), strict=True))
    entries = [*array.ravel()]
    several = [*map(str, entries[:4]), *(["..."] if len(entries) > 4 else [])]
    return {titles[0]: entries[0] if len(entries) == 1 else ", ".join(several)}


def prediction(of: Prediction) -> Printed:
    """Give the time, what bounds it, at most eight rows of where it goes, and caveats.

    Weights are fitted to runs whose data the run before left in the caches.
    """
    what = ("kernel", "device", "parameters", "time_s", "interval_s", "interval_level")
    facts = {
        **picked(of, *what),
        "breakdown_s": of.breakdown,
        "complete": of.complete,
        "caches": "warm",
    }
    notes = uncharged_lines(of.ignored) if of.ignored else []
    notes += [*correction_lines(of), *verdict_lines(of.caveats)]
    if not isinstance(of.time_s, np.ndarray):
        head = prediction_head(of)
        rows = [
            {"part": part, **_named(part), "time_s": time_s}
            for part, time_s in plain(of.breakdown).items()
        ]
        return Printed(head=head, rows=rows, shown=_breakdown(of), notes=notes, facts=facts)
    mark = _incomplete(of)
    level = f"to ({100 * of.interval_level:.0f} %)"
    columns = {**{name: name for name in of.parameters}, "time_s": "time"}
    return Printed(
        head=[
            f"{of.kernel} on {of.device}; {short_name(of.model)} model, warm caches"
            f"{mark and f'; at least these times{mark}'}"
        ],
        rows=_times(of),
        columns=columns | {"low_s": "from", "high_s": level},
        notes=notes,
        facts=facts,
    )


def _named(part: str) -> dict[str, str]:
    return {"group": plain_name(part).group, "name": plain_name(part).text}


def _times(of: Prediction) -> list[dict[str, Any]]:
    """Return a row for each size: sizes, time and ends of the interval, s."""
    columns: dict[str, Any] = {**of.parameters, "time_s": of.time_s}
    if of.interval_s is not None:
        columns |= dict(zip(("low_s", "high_s"), of.interval_s, strict=True))
    arrays = np.broadcast_arrays(*columns.values())
    return [
        {name: value.item() for name, value in zip(columns, row, strict=True)}
        for row in zip(*(array.ravel() for array in arrays), strict=True)
    ]


def _breakdown(of: Prediction) -> Table:
    """Write where a time goes: a group's name stands at its first row."""
    cells: list[tuple[str, ...]] = []
    group = ""
    for row in breakdown_rows(of):
        title = "" if row.group in (group, OTHER) else row.group
        group = row.group
        cells.append((title, format_quantity(row.time_s, "s"), row.share, row.text))
    return Table(header=(), rows=tuple(cells), right=(1, 2), titles=_BREAKDOWN)


def correction_lines(of: Prediction) -> list[str]:
    """Write after which measured kernels a time was corrected, if it was."""
    return [
        f"{verdict.name}: {verdict.message}"
        for verdict in of.verdicts
        if verdict.name == CORRECTION
    ]


def prediction_head(of: Prediction) -> list[str]:
    """Write the time of a prediction at one size, what bounds it, and what it is of."""
    interval = (
        ""
        if of.interval_s is None
        else f" ({100 * of.interval_level:.0f} % interval: {interval_text(of.interval_s)})"
    )
    given = point_text(of.parameters)
    mark = _incomplete(of)
    model, comma, more = of.model.partition(", ")
    return [
        f"{'at least ' if mark else ''}{format_quantity(float(of.time_s), 's')}{interval}{mark}",
        *filter(None, [bound_text(of)]),
        f"{of.kernel} on {of.device}{', ' if given else ''}{given};"
        f" {short_name(model)}{comma}{more} model, warm caches",
    ]


def _incomplete(of: Prediction) -> str:
    """Say that a time is without some costs, so that it is a lower bound; nothing if it is not."""
    if of.complete:
        return ""
    return f" (incomplete: without the cost of {some_of(of.missing, most=NAMED_OTHERS)})"


# --- explained

Explained = tuple["Explanation", "WeightSet", "DeviceParameters | None"]
"""An explanation, the weights behind it, and what is known of their device."""


def part_rows(
    of: Explanation, weights: WeightSet | None = None, device: DeviceParameters | None = None
) -> list[dict[str, Any]]:
    """Return a row for each part of a time; with weights also units, rates and remarks."""
    whole = float(of.prediction.time_s)
    known = {} if weights is None else {row["feature"]: row for row in weight_rows(weights, device)}
    return [
        {
            "part": part.name,
            **_named(part.name),
            "time_s": part.part_s,
            "share": part.part_s / whole if whole > 0 else None,
            "count": part.count,
            "weight_s": None if part.weight is None else part.weight.value_s,
            **{
                name: known[part.name][name]
                for name in ("standard_error_s", "unit", "rate", "rate_unit", "remark", "shown")
                if part.name in known
            },
        }
        for part in of.parts
    ]


_PART = {
    **{name: name for name in ("unit", "weight_s", "standard_error_s", "remark", "count")},
    **{"part": "name", "time_s": "part_s"},
    **{"rate": "implied_rate", "rate_unit": "implied_rate_unit"},
}
"""Names of the values of a row in JSON."""


def explanation(
    of: Explanation,
    weights: WeightSet | None = None,
    device: DeviceParameters | None = None,
) -> Printed:
    """Give a time, its terms and its parts, with the rates that weights imply."""
    made = of.prediction
    rows = part_rows(of, weights, device)
    terms = [f"time_s = {of.expression}"] if weights is None or len(of.terms) > 1 else []
    columns = {"part": "part", "time_s": "time", "share": "", "count": "count", "at": "at"}
    notes = [*_demand(of, device), *([] if device is not None else [NO_RATES])]
    notes += uncharged_lines(made.ignored, every=True) if made.ignored else []
    return Printed(
        head=[*prediction_head(made), *terms],
        rows=[{n: v for n, v in row.items() if n != "shown"} for row in rows],
        shown=None
        if weights is None
        else table_of(
            [_shown_part(row, weights) for row in rows],
            columns | {"rate": "implied rate", "remark": ""},
        ),
        notes=[*notes, *correction_lines(made), *verdict_lines(made.caveats)],
        facts={
            **prediction(made).facts,
            "explanation": {
                "expression": of.expression,
                "terms": [{"term": term.name, "part_s": term.part_s} for term in of.terms],
                "parts": [{new: row.get(old) for old, new in _PART.items()} for row in rows],
                **picked(of, "global_bytes", "flops"),
            },
        },
    )


def _shown_part(row: Row, weights: WeightSet) -> dict[str, Any]:
    """Write a part: a property as it is, what a model makes of properties in plain words."""
    count = row["count"]
    shown = row.get("shown") or {}
    return {
        "part": _title(row["part"], weights),
        "time_s": row["time_s"],
        "share": row["share"],
        "count": None
        if count is None or not shown
        else (f"{count:.6g}" if count < 1e6 else format_quantity(count, "").strip()),
        "at": f"{shown['weight']} {shown['per']}" if shown else None,
        "rate": shown.get("rate"),
        "remark": row.get("remark"),
    }


def _title(part: str, weights: WeightSet) -> str:
    made = part.startswith("code.") or part in weights.definition.derived
    return plain_name(part).text if made else part


def _demand(of: Explanation, device: DeviceParameters | None) -> list[str]:
    """Say what the kernel gets altogether, of what the device can at most."""
    whole = float(of.prediction.time_s)
    if whole <= 0:
        return []
    peaks = (None, None) if device is None else (device.bandwidth_byte_per_s, device.peak_flops)
    said: list[str] = []
    for amount, unit, where, peak in (
        (of.global_bytes, "byte/s", "global memory", peaks[0]),
        (of.flops, "flop/s", "arithmetic", peaks[1]),
    ):
        if amount:
            part = (
                "peak unknown"
                if peak is None
                else f"{format_percent(amount / whole / peak)} of peak"
            )
            said.append(f"{format_quantity(amount / whole, unit)} of {where} ({part})")
    return [f"the kernel then gets {' and '.join(said)}"] if said else []


# --- two predictions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionPair(display.Table):
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
        one, other = (
            explain(origin.weights, origin.weights.counted(origin.kernel), of)
            if isinstance(origin := of.origin, WeightsAndKernel)
            else None
            for of in (self.first, self.second)
        )
        return None if one is None or other is None else (one, other)

    @property
    def cause(self) -> str:
        """A sentence on what makes the difference."""
        return cause_text(self.first, self.second, self.explained)

    __repr__ = display.printed


def pair(of: PredictionPair) -> Printed:
    """Give two predictions side by side: kernels, sizes or devices; the cause at the end."""
    return compared(of.first, of.second, of.explained)


_Both = tuple["Explanation", "Explanation"] | None


def compared(
    first: Prediction, second: Prediction, explained: _Both = None, *, most: int = MOST_ROWS
) -> Printed:
    """Give two predictions side by side, the cause of their difference last.

    Factors of a part, from the first to the second, are of its counts and of the cost of each.
    """
    both = (first, second)
    names = names_apart(first, second)
    whole = [float(np.asarray(each.time_s).item()) for each in both]
    ratio = f"{whole[1] / whole[0]:.3g} times" if whole[0] > 0 else "no multiple of"
    factors = [correction_factor(each) for each in both]
    lacking = [name for name, each in zip(names, both, strict=True) if not each.complete]
    mark = f" (incomplete, a lower bound: {' and '.join(lacking)})" if lacking else ""
    notes = [verdict for each in both for verdict in verdict_lines(each.caveats)]
    if factors != [1.0, 1.0]:
        said = f"the parts include corrections of × {factors[0]:.3g} and × {factors[1]:.3g}"
        notes = [said, *notes]
    rows = _pair_rows(first, second, explained)
    shown = [_pair_row("time", whole[0], whole[1]), *rows]
    if len(rows) > most:
        rest = rows[most - 1 :]
        first_s, second_s = (sum(row[name] for row in rest) for name in ("first_s", "second_s"))
        shown[most:] = [_pair_row(f"{len(rest)} more", first_s, second_s)]
    columns = {"part": "", "first_s": names[0], "second_s": names[1], "difference_s": "difference"}
    bounds = [f"  {n}: {bound_text(each)}" for n, each in zip(names, both, strict=True)]
    return Printed(
        head=[f"{names[1]}: {ratio} the time of {names[0]}{mark}", *bounds],
        rows=[
            {
                **{"part": row["part"], names[0]: row["first_s"], names[1]: row["second_s"]},
                **{name: row[name] for name in ("difference_s", "counts", "cost")},
            }
            for row in rows
        ],
        shown=table_of(shown, columns | {"counts": "counts ×", "cost": "cost of each ×"}),
        notes=[*notes, cause_text(first, second, explained)],
    )


def _pair_rows(first: Prediction, second: Prediction, explained: _Both) -> list[dict[str, Any]]:
    """Return a row for each part, that which differs most first."""
    parts = [corrected_parts(each) for each in (first, second)]
    known = [{part.name: part for part in each.parts} for each in explained or ()] or [{}, {}]
    rows = [
        _pair_row(
            plain_name(name).text,
            parts[0].get(name, 0.0),
            parts[1].get(name, 0.0),
            known[0].get(name),
            known[1].get(name),
        )
        for name in sorted({*parts[0], *parts[1]})
    ]
    return sorted(rows, key=lambda row: -abs(row["difference_s"]))


def _pair_row(
    part: str,
    first_s: float,
    second_s: float,
    first: ExplainedPart | None = None,
    second: ExplainedPart | None = None,
) -> dict[str, Any]:
    row = {"part": part, "first_s": first_s, "second_s": second_s}
    row |= {"difference_s": second_s - first_s, "counts": None, "cost": None}
    if first is not None and second is not None and first.count and second.count:
        row["counts"] = second.count / first.count
        if first.weight is not None and second.weight is not None and first.weight.value_s > 0:
            row["cost"] = second.weight.value_s / first.weight.value_s
    return row


def cause_text(first: Prediction, second: Prediction, explained: _Both = None) -> str:
    """Say in one sentence what makes the difference of two predictions."""
    whole = [float(np.asarray(each.time_s).item()) for each in (first, second)]
    difference = whole[1] - whole[0]
    if abs(difference) < _ALIKE * max(whole):
        return f"cause: none to name; the times differ by less than {100 * _ALIKE:.0f} %"
    if difference < 0:
        return cause_text(second, first, explained and (explained[1], explained[0]))
    faster, slower = names_apart(first, second)
    rows = sorted(_pair_rows(first, second, explained), key=lambda row: -row["difference_s"])
    causes = [row for row in rows if row["difference_s"] >= 0.2 * difference][:_CAUSES]
    said: list[str] = []
    for row in causes or rows[:1]:
        why = [format_quantity(row["difference_s"], "s")]
        if row["counts"] and abs(row["counts"] - 1) > _SAME:
            why.append(f"{row['counts']:.3g} times as many")
        if row["cost"] and abs(row["cost"] - 1) > _SAME:
            why.append(f"each at {row['cost']:.3g} times the cost")
        said.append(f"{row['part']} ({', '.join(why)})")
    return (
        f"cause: {slower} takes {format_quantity(difference, 's')} longer than {faster}, mostly"
        f" for {' and '.join(said)}"
    )


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
