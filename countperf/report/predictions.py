"""Predictions, explained ones, and two predictions side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf import display
from countperf.display import some_of
from countperf.errors import ParameterError
from countperf.models.correction import CORRECTION
from countperf.models.library import short_name
from countperf.models.predictions import Prediction
from countperf.report.breakdown import (
    MOST_ROWS,
    bound_text,
    breakdown_rows,
    corrected_parts,
    plain_name,
    uncharged_lines,
)
from countperf.report.rows import (
    EACH,
    Column,
    Printed,
    Row,
    Table,
    format_percent,
    format_quantity,
    format_seconds,
    format_share,
    interval_text,
    picked,
    plain,
    point_text,
    table_of,
    weights_text,
)
from countperf.report.weights import NAMED_OTHERS, verdict_lines, weight_rows, weight_texts

if TYPE_CHECKING:
    from countperf.devices.parameters import DeviceParameters
    from countperf.models.validity import Explanation
    from countperf.models.weights import WeightSet


_ALIKE = 0.05
"""Of a time: a difference below is none to explain."""

_CAUSES = 2
_LEAST_CAUSE = 0.2
"""Of a difference: parts that make less of it are not named."""

_BREAKDOWN = ("group", "time", "share", "part")


def prediction(of: Prediction) -> Printed:
    """Give the time, what bounds it, at most eight rows of where it goes, and caveats.

    Weights are fitted to runs whose data the run before left in the caches.
    """
    facts = {
        **picked(of, "kernel", "device", "weights", "model", "parameters"),
        **picked(of, "time_s", "interval_s", "interval_level"),
        "breakdown_s": of.breakdown,
        "complete": of.complete,
        "caches": "warm",
        "caveats": [f"{verdict.name}: {verdict.message}" for verdict in of.caveats],
    }
    notes = uncharged_lines(of.ignored) if of.ignored else []
    notes += _caveats(of)
    if not isinstance(of.time_s, np.ndarray):
        head = prediction_head(of)
        rows = [
            {"part": part, **_named(part), "time_s": time_s}
            for part, time_s in plain(of.breakdown).items()
        ]
        cells = [
            (r.group, format_quantity(r.time_s, "s"), r.share, r.text) for r in breakdown_rows(of)
        ]
        shown = Table(header=(), rows=tuple(cells), right=(1, 2), titles=_BREAKDOWN)
        return Printed(head=head, rows=rows, shown=shown, notes=notes, facts=facts)
    mark = _incomplete(of)
    level = f"to ({100 * of.interval_level:.0f} %)"
    return Printed(
        head=[
            f"{of.kernel} on {of.device}; {_model(of)}, warm caches"
            f"{mark and f'; at least these times{mark}'}"
        ],
        rows=_times(of),
        columns={
            **{"parameters": EACH, "time_s": Column("time", format_seconds)},
            "low_s": Column("from", format_seconds),
            "high_s": Column(level, format_seconds),
        },
        notes=notes,
        facts=facts,
    )


def _named(part: str) -> dict[str, str]:
    return {"group": plain_name(part).group, "name": plain_name(part).text}


def _times(of: Prediction) -> list[dict[str, Any]]:
    """Return a row for each size: sizes, time and both ends of the interval, s."""
    ends = (
        {} if of.interval_s is None else dict(zip(("low_s", "high_s"), of.interval_s, strict=True))
    )
    arrays = np.broadcast_arrays(*of.parameters.values(), of.time_s, *ends.values())
    rows = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    number = len(of.parameters)
    return [
        {
            "parameters": dict(zip(of.parameters, row[:number], strict=True)),
            **dict(zip(("time_s", *ends), row[number:], strict=True)),
        }
        for row in rows
    ]


def _caveats(of: Prediction) -> list[str]:
    """Write after which measured kernels a time was corrected, if it was; and what is doubtful."""
    said = [f"{v.name}: {v.message}" for v in of.verdicts if v.name == CORRECTION]
    return [*said, *verdict_lines(of.caveats)]


def prediction_head(of: Prediction) -> list[str]:
    """Write the time of a prediction at one size, what bounds it, and what it is of."""
    interval = (
        ""
        if of.interval_s is None
        else f" ({100 * of.interval_level:.0f} % interval: {interval_text(of.interval_s)})"
    )
    given = point_text(of.parameters)
    mark = _incomplete(of)
    return [
        f"{'at least ' if mark else ''}{format_quantity(float(of.time_s), 's')}{interval}{mark}",
        *filter(None, [bound_text(of)]),
        f"{of.kernel} on {of.device}{', ' if given else ''}{given}; {_model(of)}, warm caches",
    ]


def _model(of: Prediction) -> str:
    """Name model and weights."""
    model, comma, more = of.model.partition(", ")
    return f"{short_name(model)}{comma}{more} model{weights_text(of.weights, of.device)}"


def _incomplete(of: Prediction) -> str:
    """Say that a time is without some costs, so that it is a lower bound; nothing if it is not."""
    if of.complete:
        return ""
    return f" (incomplete: without the cost of {some_of(of.missing, most=NAMED_OTHERS)})"


_DETAILS = ("standard_error_s", "unit", "rate", "rate_unit", "remark")
_EXPLAINED = {
    **{"part": Column("part"), "time_s": Column("time", format_seconds)},
    **{"share": Column("", format_share), "count": Column("count", right=True)},
    **{"at": Column("at"), "rate": Column("implied rate", right=True), "remark": Column()},
}


def explanation(of: Explanation, device: DeviceParameters | None = None) -> Printed:
    """Give a time, its terms and its parts, with the rates that weights imply."""
    made = of.prediction
    weights: WeightSet = made.origin.weights
    whole = float(made.time_s)
    known = {row["feature"]: row for row in weight_rows(weights)}
    rows = [
        {
            "part": part.name,
            **_named(part.name),
            "time_s": part.part_s,
            "share": part.part_s / whole if whole > 0 else None,
            "count": part.count,
            "weight_s": None if part.weight is None else part.weight.value_s,
            **{name: known.get(part.name, {}).get(name) for name in _DETAILS},
        }
        for part in of.parts
    ]
    notes = _demand(of, device)
    notes += uncharged_lines(made.ignored, every=True) if made.ignored else []
    return Printed(
        head=[*prediction_head(made), f"time_s = {of.expression}"],
        rows=rows,
        shown=table_of([_shown_part(row) for row in rows], _EXPLAINED),
        notes=[*notes, *_caveats(made)],
        facts={
            **prediction(made).facts,
            "explanation": {
                "expression": of.expression,
                "parts": rows,
                **picked(of, "global_bytes", "flops"),
            },
        },
    )


def _shown_part(row: Row) -> dict[str, Any]:
    count, is_weighed = row["count"], row["unit"] is not None
    cost, per, rate = weight_texts(row) if is_weighed else ("", "", None)
    return {
        **{name: row[name] for name in ("part", "time_s", "share", "remark")},
        "count": None if count is None else f"{count:.6g}",
        "at": f"{cost} {per}" if is_weighed else None,
        "rate": rate,
    }


def _demand(of: Explanation, device: DeviceParameters | None) -> list[str]:
    """Say what the kernel gets altogether, of what the device can at most."""
    whole = float(of.prediction.time_s)
    peaks = (None, None) if device is None else (device.bandwidth_byte_per_s, device.peak_flops)
    said = [
        f"{format_quantity(amount / whole, unit)} of {where}"
        f" ({'peak unknown' if not peak else f'{format_percent(amount / whole / peak)} of peak'})"
        for amount, unit, where, peak in (
            (of.global_bytes, "byte/s", "global memory", peaks[0]),
            (of.flops, "flop/s", "arithmetic", peaks[1]),
        )
        if amount and whole > 0
    ]
    return [f"the kernel then gets {' and '.join(said)}"] if said else []


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionPair(display.Table):
    """Two predictions side by side."""

    first: Prediction  # each at one size
    second: Prediction

    def __post_init__(self) -> None:
        for one in (self.first, self.second):
            if not isinstance(one, Prediction):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
                raise ParameterError(
                    f"a prediction is compared with another one, not with {one!r}; pass what"
                    " predict returns",
                    parameter="prediction",
                )
            if isinstance(one.time_s, np.ndarray):
                raise ParameterError(
                    f"predictions are compared at one size each, and that of {one.kernel!r} is of"
                    " several: predict each size by itself",
                    parameter="prediction",
                )

    @property
    def names(self) -> tuple[str, str]:
        """Kernels, devices, models, weights or sizes in which the two differ."""
        for field in ("given_as", "kernel", "device", "model", "weights"):
            first, second = getattr(self.first, field), getattr(self.second, field)
            if first != second and first and second:
                return first, second
        points = point_text(self.first.parameters), point_text(self.second.parameters)
        if points[0] != points[1] and self._is_of_one_kernel:
            return points
        return f"{self.first.kernel} (first)", f"{self.second.kernel} (second)"

    @property
    def _is_of_one_kernel(self) -> bool:
        if self.first.given_as and self.second.given_as:
            return True
        counts = [getattr(one.origin, "kernel", None) for one in (self.first, self.second)]
        return bool(counts[0] == counts[1])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each part, that which differs most first."""
        parts = [corrected_parts(one) for one in (self.first, self.second)]
        rows: list[dict[str, Any]] = []
        for name in sorted({*parts[0], *parts[1]}):
            times = [one.get(name, 0.0) for one in parts]
            row = {"part": plain_name(name).text, "first_s": times[0], "second_s": times[1]}
            rows.append(row | {"difference_s": times[1] - times[0]})
        return sorted(rows, key=lambda row: -abs(row["difference_s"]))

    @property
    def cause(self) -> str:
        """A sentence on what makes the difference."""
        whole = [float(one.time_s) for one in (self.first, self.second)]
        difference = whole[1] - whole[0]
        if abs(difference) < _ALIKE * max(whole):
            return f"cause: none to name; the times differ by less than {100 * _ALIKE:.0f} %"
        faster, slower = self.names if difference > 0 else self.names[::-1]
        shares = [(row["difference_s"] / difference, row["part"]) for row in self.rows]
        said = [
            f"{part} ({format_quantity(share * abs(difference), 's')})"
            for share, part in sorted(shares, reverse=True)[:_CAUSES]
            if share >= _LEAST_CAUSE
        ]
        return (
            f"cause: {slower} takes {format_quantity(abs(difference), 's')} longer than {faster},"
            f" mostly for {' and '.join(said) or 'many parts'}"
        )

    __repr__ = display.printed


def pair(of: PredictionPair, most: int = MOST_ROWS) -> Printed:
    """Give two predictions side by side, the cause of their difference last."""
    both = (of.first, of.second)
    whole = [float(one.time_s) for one in both]
    ratio = f"{whole[1] / whole[0]:.3g} times" if whole[0] > 0 else "no multiple of"
    lacking = [name for name, one in zip(of.names, both, strict=True) if not one.complete]
    mark = f" (incomplete, a lower bound: {' and '.join(lacking)})" if lacking else ""
    bounds = [f"  {n}: {bound_text(one)}" for n, one in zip(of.names, both, strict=True)]
    times = dict(zip(("first_s", "second_s"), whole, strict=True))
    total = {"part": "time", **times, "difference_s": whole[1] - whole[0]}
    titles = ("", *of.names, "difference")
    columns = [Column(title, format_seconds if i else None) for i, title in enumerate(titles)]
    return Printed(
        head=[f"{of.names[1]}: {ratio} the time of {of.names[0]}{mark}", *bounds],
        rows=of.rows,
        shown=table_of([total, *of.rows[:most]], dict(zip(total, columns, strict=True))),
        notes=[*(line for one in both for line in verdict_lines(one.caveats)), of.cause],
    )
