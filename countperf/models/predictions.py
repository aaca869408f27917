"""Predictions of time models, with their parts, uncertainty and caveats.

Shares are of the parts that cost time; what negative weights take off is a row without a share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf import text
from countperf.errors import CountperfError, ParameterError, PredictionError
from countperf.models.labels import plain_name

Array = NDArray[np.float64]
Quantity = float | Array  # a number, or an array of them where parameters were given as arrays

ParameterValue = int | NDArray[np.integer]
"""Value of a size parameter: an integer, or integers at which to predict in one call."""

CORRECTION = "correction"
"""Part of a time that is none of the model's: what a correction adds or takes away."""

OTHER = "other"  # resource of a part for which the model states none

_FEW = 3


def write_uncharged(names: Sequence[str], *, every: bool = False) -> list[str]:
    """Write which properties a model leaves out: few by name, of more how many, or all of them."""
    if not names:
        return []
    said = [*map(plain_name, names)]
    if len(names) > _FEW and not every:
        said = [f"{len(names)} properties (countperf predict --explain lists them)"]
    return [f"not charged by this model: {', '.join(said)}"]


MOST_ROWS = 8  # rows of a breakdown for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Outcome of one check on a fit or a prediction."""

    name: str  # what was checked, such as ``"rank"`` or ``"extrapolation"``
    passed: bool  # whether the result can be used without a caveat, as far as this check goes
    message: str  # what was found
    remedy: str = ""  # what to do about it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction(text.Result):
    """Predicted time of one launch of a kernel."""

    kernel: str  # its name
    device: str  # its slug
    model: str
    parameters: Mapping[str, ParameterValue]  # values of the size parameters
    time_s: Quantity  # of the shape that the parameters broadcast to
    # low and high end of where the time is expected in `interval_level` of cases, s; None where the
    # model cannot tell, NaN at some of several sizes
    interval_s: tuple[Quantity, Quantity] | None
    # where the time goes: seconds per property, largest first; the parts sum to the time
    breakdown: dict[str, Quantity]
    weights: str = ""  # their name; empty where they have none
    missing: tuple[str, ...] = ()  # properties whose cost is not known; the time is without them
    ignored: tuple[str, ...] = ()  # those that the model leaves out by its definition
    verdicts: tuple[Verdict, ...] = ()  # on the validity of this prediction
    interval_level: float = 0.95  # or 0.9
    model_choice: str = ""  # which model was chosen and why, where none was asked for
    given_as: str = ""  # name of the kernel as the user gave it, where it was a text
    # weights and counts that it is made from; None where the model has no fitted weights
    origin: Any = field(default=None, repr=False)
    # by part of the breakdown what it is for, such as "memory: L2", where the model states it
    resources: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    __repr__ = text.Result.__str__

    def against(self, other: Prediction) -> PredictionPair:
        """Compare with another prediction: of another kernel, size, device or model.

        The ``cause`` of the pair says in a sentence what makes the difference.

        Raises
        ------
        ParameterError
            One of them is of several sizes.
        """
        return PredictionPair(first=self, second=other)

    def anchor(self, *runs: Any) -> Prediction:
        """Return the prediction, corrected by measured runs of its kernel.

        Parameters
        ----------
        *runs : Timing, Measurement, or pair of a Mapping from str to int and a float
            What `countperf.time_kernel` returned; or measured runs: parameters and time, s.

        Returns
        -------
        Prediction
            Of the same kernel, parameters and level. It is corrected by these runs alone, also if
            this prediction was corrected by others.

        Raises
        ------
        PredictionError, DeviceMismatchError, ParameterError
            The prediction has no fitted weights, or they do not say how kernels scatter; a timing
            is of another kernel or device; there is no run, or a time is not positive.
        """
        if self.origin is None:
            raise PredictionError(
                f"the prediction of {self.kernel!r} by the {self.model} model was not made with"
                " fitted weights, which is what runs correct: predict with load_weights(...)"
            )
        return self.origin.anchor(self, runs)

    @property
    def complete(self) -> bool:
        """True if the model knows the cost of every property that it does not ignore."""
        return not self.missing

    @property
    def caveats(self) -> tuple[Verdict, ...]:
        """The verdicts that did not pass."""
        return tuple(verdict for verdict in self.verdicts if not verdict.passed)

    def lay_out(self) -> text.Printed:
        """Give the time, what bounds it, at most eight rows of where it goes, and caveats."""
        facts = {
            **text.extract(self, "kernel", "device", "weights", "model", "parameters"),
            **text.extract(self, "time_s", "interval_s", "interval_level"),
            "breakdown_s": self.breakdown,
            "complete": self.complete,
            "caches": "warm",
            "caveats": [f"{verdict.name}: {verdict.message}" for verdict in self.caveats],
        }
        notes = [*write_uncharged(self.ignored), *write_caveats(self)]
        if not isinstance(self.time_s, np.ndarray):
            head = prediction_head(self)
            costs = text.plain(self.breakdown).items()
            rows = [{"part": p, **name_part(p, self.resources), "time_s": s} for p, s in costs]
            parts = breakdown_rows(self)
            cells = [(p.group, text.format_quantity(p.time_s, "s"), p.share, p.text) for p in parts]
            shown = text.Table(header=(), rows=tuple(cells), right=(1, 2), titles=_BREAKDOWN)
            return text.Printed(head=head, rows=rows, shown=shown, notes=notes, facts=facts)
        mark = _incomplete(self)
        level = f"to ({100 * self.interval_level:.0f} %)"
        return text.Printed(
            head=[
                f"{self.kernel} on {self.device}; {_model(self)}, warm caches"
                f"{mark and f'; at least these times{mark}'}"
            ],
            rows=_times(self),
            columns={
                **{"parameters": text.EACH, "time_s": text.Column("time", text.format_seconds)},
                "low_s": text.Column("from", text.format_seconds),
                "high_s": text.Column(level, text.format_seconds),
            },
            notes=notes,
            facts=facts,
        )


def largest_first(parts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Sort the parts of a time by size, negative ones last; arrays by their sum."""
    return dict(sorted(parts.items(), key=lambda item: (-float(np.sum(item[1])), item[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    """Answer of a device by a model at a size: a prediction, or an error that says why not."""

    device: str  # its slug, or how it was named
    parameters: Mapping[str, int]  # values of the size parameters
    weights: str = ""  # name of the weights; empty for mechanistic models
    model: str = ""  # empty where the device answers by none
    prediction: Prediction | None = None
    lacks: str = ""  # the input that is lacking, such as ``device.latency_steps``
    error: CountperfError | None = None
    why: str = ""  # what takes the time on a described device


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceAnswers(text.Result):
    """Predicted times of a kernel on several devices: for each size and model the fastest first."""

    answers: tuple[DeviceAnswer, ...]

    __repr__ = text.Result.__str__

    def say_fastest(self) -> list[str]:
        """Say which device is the fastest at the last size by each model, and why."""
        last = [one for one in self.answers if one.parameters == self.answers[-1].parameters]
        at = f" at {text.point_text(last[0].parameters)}" if len(last) < len(self.answers) else ""
        times: dict[str, dict[str, float]] = {}  # by model and device, the fastest first
        for one in last:
            if one.prediction is not None:
                times.setdefault(one.model, {})[one.device] = float(one.prediction.time_s)
        said: dict[str, list[str]] = {}
        named: dict[str, None] = {}
        for model, by_device in times.items():
            if len(by_device) > 1:
                (best, best_s), (other, other_s), *_ = by_device.items()
                factor = f"{other} takes {other_s / best_s:.3g} times as long by {model}"
                said.setdefault(best, []).append(factor)
                named |= dict.fromkeys((best, other))
        lines = [f"{best} is the fastest{at}: {', '.join(of)}" for best, of in said.items()]
        explained = [one for one in last if one.device in named and one.why]
        reasons = dict.fromkeys(f"{one.device}: {one.why}" for one in explained)
        return [*(text.wrap_note(line, "") for line in lines), *map(text.wrap_note, reasons)]

    def lay_out(self) -> text.Printed:
        """Give a row per size, device and model: time, bound, what is missing; then why."""
        kernel = next(one.prediction.kernel for one in self.answers if one.prediction is not None)
        sizes = [one.parameters for one in self.answers]
        same = {k: v for k, v in sizes[0].items() if all(at[k] == v for at in sizes)}
        rows: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        said: dict[str, None] = {}
        for one in self.answers:
            row = {
                **text.extract(one, "device", "weights", "parameters", "model", "lacks", "why"),
                **_facts_of(one.prediction),
                "reason": str(one.error or ""),
            }
            rows.append(row)
            left_out = [plain_name(name) for name in (*row["missing"], *row["ignored"])]
            lacks = re.sub(r"^(device|kernel)\.(classes\.)?", "", one.lacks)
            several = f"{len(left_out)} properties" if left_out[1:] else "".join(left_out)
            shown.append(
                {
                    "parameters": {n: v for n, v in one.parameters.items() if n not in same},
                    "device": one.device,
                    "weights": None if one.weights in ("", one.device) else one.weights,
                    "model": one.model,
                    "time_s": row["time_s"],
                    "bound": (row["bound"] or "").partition(" and ")[0],
                    "missing": text.cut(lacks or several, _FEW_LETTERS),
                }
            )
            names = ", ".join(left_out)
            is_long = len(names) > _FEW_LETTERS
            left = f"{one.device}, {one.model}: leaves out {names}" if is_long else ""
            said |= {text.wrap_note(reason): None for reason in [row["reason"] or left] if reason}
        more = [f"- ... {len(said) - _MOST_REASONS} more: .to_frame() has all"]
        columns = {
            **{"parameters": text.EACH, **text.columns_of("device weights model")},
            **text.columns_of("time_s", text.format_seconds),
            **text.columns_of("bound missing"),
        }
        return text.Printed(
            head=[", ".join(filter(None, [kernel, text.point_text(same)])), *self.say_fastest()],
            rows=rows,
            shown=text.table_of(shown, columns),
            notes=[*[*said][:_MOST_REASONS], *(more if len(said) > _MOST_REASONS else [])],
            facts={"kernel": kernel},
            name="answers",
        )


_MOST_REASONS = 5
_FEW_LETTERS = 24


def _facts_of(prediction: Prediction | None) -> dict[str, Any]:
    if prediction is None:
        nothing = dict.fromkeys(("time_s", "interval_s", "bound", "breakdown_s"))
        return {**nothing, "ignored": [], "missing": []}
    kinds = describe_bound(prediction).removeprefix("bound by ").partition(":")[0]
    return {
        **text.extract(prediction, "time_s", "interval_s"),
        "bound": getattr(prediction, "bound", None) or kinds,
        "breakdown_s": prediction.breakdown,
        **text.extract(prediction, "ignored", "missing"),
    }


_ALIKE = 0.05  # of a time: a difference below is none to explain

_LEAST_CAUSE = 0.2  # of a difference: parts that make less of it are not named, nor more than two

_BREAKDOWN = ("resource", "time", "share", "part")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionPair(text.Result):
    """Two predictions side by side."""

    first: Prediction  # each at one size
    second: Prediction

    def __post_init__(self) -> None:
        for one in (self.first, self.second):
            if isinstance(getattr(one, "time_s", None), float | int):
                continue
            raise ParameterError(
                f"predictions are compared at one size each, and {getattr(one, 'kernel', one)!r} is"
                " none such: pass what predict returns at one size",
                parameter="prediction",
            )

    @property
    def names(self) -> tuple[str, str]:
        """Kernels, devices, models, weights or sizes in which the two differ."""
        for name in ("given_as", "kernel", "device", "model", "weights"):
            first, second = getattr(self.first, name), getattr(self.second, name)
            if first != second and first and second:
                return first, second
        points = text.point_text(self.first.parameters), text.point_text(self.second.parameters)
        counts = [getattr(one.origin, "kernel", None) for one in (self.first, self.second)]
        is_of_one_kernel = (self.first.given_as and self.second.given_as) or counts[0] == counts[1]
        if points[0] != points[1] and is_of_one_kernel:
            return points
        return f"{self.first.kernel} (first)", f"{self.second.kernel} (second)"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each part, that which differs most first."""
        parts = [correct_parts(one) for one in (self.first, self.second)]
        rows: list[dict[str, Any]] = []
        for name in sorted({*parts[0], *parts[1]}):
            times = [one.get(name, 0.0) for one in parts]
            row = {"part": plain_name(name), "first_s": times[0], "second_s": times[1]}
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
        shares = [(s, part) for s, part in sorted(shares, reverse=True)[:2] if s >= _LEAST_CAUSE]
        said = [f"{p} ({text.format_quantity(s * abs(difference), 's')})" for s, p in shares]
        longer = text.format_quantity(abs(difference), "s")
        parts = " and ".join(said) or "many parts"
        return f"cause: {slower} takes {longer} longer than {faster}, mostly for {parts}"

    __repr__ = text.Result.__str__

    def lay_out(self, most: int = MOST_ROWS) -> text.Printed:
        """Give two predictions side by side, the cause of their difference last."""
        both = (self.first, self.second)
        whole = [float(one.time_s) for one in both]
        ratio = f"{whole[1] / whole[0]:.3g} times" if whole[0] > 0 else "no multiple of"
        lacking = [name for name, one in zip(self.names, both, strict=True) if not one.complete]
        mark = f" (incomplete, a lower bound: {' and '.join(lacking)})" if lacking else ""
        bounds = [f"  {n}: {describe_bound(one)}" for n, one in zip(self.names, both, strict=True)]
        times = dict(zip(("first_s", "second_s"), whole, strict=True))
        total = {"part": "time", **times, "difference_s": whole[1] - whole[0]}
        titles = ("", *self.names, "difference")
        columns = [text.Column(t, text.format_seconds if i else None) for i, t in enumerate(titles)]
        return text.Printed(
            head=[f"{self.names[1]}: {ratio} the time of {self.names[0]}{mark}", *bounds],
            rows=self.rows,
            shown=text.table_of([total, *self.rows[:most]], dict(zip(total, columns, strict=True))),
            notes=[*(line for one in both for line in verdict_lines(one.caveats)), self.cause],
        )


def name_part(part: str, resources: Mapping[str, str]) -> dict[str, str]:
    """Return the resource of a part and its plain name."""
    return {"group": resources.get(part, OTHER), "name": plain_name(part)}


def _times(of: Prediction) -> list[dict[str, Any]]:
    """Return a row for each size: sizes, time and both ends of the interval, s."""
    ends = dict(zip(("low_s", "high_s"), of.interval_s or (), strict=False))
    values = np.broadcast_arrays(*of.parameters.values(), of.time_s, *ends.values())
    rows = [*zip(*(array.ravel().tolist() for array in values), strict=True)]
    number = len(of.parameters)
    sizes = (dict(zip(of.parameters, row, strict=False)) for row in rows)
    times = (dict(zip(("time_s", *ends), row[number:], strict=True)) for row in rows)
    return [{"parameters": at, **time} for at, time in zip(sizes, times, strict=True)]


def write_caveats(of: Prediction) -> list[str]:
    """Write after which measured kernels a time was corrected, if it was; and what is doubtful."""
    said = [f"{v.name}: {v.message}" for v in of.verdicts if v.name == CORRECTION]
    return [*said, *verdict_lines(of.caveats)]


def prediction_head(of: Prediction) -> list[str]:
    """Write the time of a prediction at one size, what bounds it, and what it is of."""
    ends = of.interval_s and text.interval_text(of.interval_s)
    interval = f" ({100 * of.interval_level:.0f} % interval: {ends})" if ends else ""
    given = text.point_text(of.parameters)
    mark = _incomplete(of)
    return [
        f"{'at least ' if mark else ''}{text.format_seconds(float(of.time_s))}{interval}{mark}",
        *filter(None, [describe_bound(of)]),
        f"{of.kernel} on {of.device}{', ' if given else ''}{given}; {_model(of)}, warm caches",
    ]


def _model(of: Prediction) -> str:
    model, comma, more = of.model.partition(", ")
    return f"{text.short_name(model)}{comma}{more} model{text.weights_text(of.weights, of.device)}"


def _incomplete(of: Prediction) -> str:
    """Say that a time is without some costs, so that it is a lower bound; nothing if it is not."""
    if of.complete:
        return ""
    missing = text.some_of([*map(plain_name, of.missing)], most=NAMED_OTHERS)
    return f" (incomplete: without the cost of {missing})"


NAMED_OTHERS = 4  # number of indistinguishable features that a remark names

_NAME = re.compile(r"(?<![\w./-])[a-z0-9]+(?:[._][a-z0-9]+)+(?![\w./-])")


def verdict_lines(checks: Sequence[Verdict]) -> list[str]:
    """Write what was checked: one line for each, and a remedy below those that failed."""
    return text.check_lines((v.passed, f"{v.name}: {_plain(v.message)}", v.remedy) for v in checks)


def _plain(message: str) -> str:
    """Put labels for names of properties, and for those that formulas of models have."""
    return _NAME.sub(lambda name: plain_name(name[0]), message)


_LEAST_SHARE = 0.005  # of a time: parts that take less are shown together
_BOUND_SHARE = 0.5  # of a time: what takes so much bounds it by itself
_SAID_SHARE = 0.15  # of a time: parts that take less are not named as reasons


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """A row of a breakdown."""

    group: str
    text: str  # what takes the time
    time_s: float
    fraction: float | None = None  # its share of all that costs time

    @property
    def share(self) -> str:
        """The share as text: ``61 %``."""
        return "" if self.fraction is None else text.format_share(self.fraction)


def correct_parts(prediction: Prediction) -> dict[str, float]:
    """Return the parts of a time as the correction leaves them, s, without those that are zero."""
    parts = {name: _number(part) for name, part in prediction.breakdown.items()}
    added, whole = parts.pop(CORRECTION, 0.0), _number(prediction.time_s)
    factor = whole / (whole - added) if added and whole != added else 1.0
    return {name: factor * part for name, part in parts.items() if part != 0}


def breakdown_rows(prediction: Prediction) -> tuple[BreakdownRow, ...]:
    """Return where a predicted time goes, the largest parts first."""
    parts = correct_parts(prediction)
    costs = sorted(((s, name) for name, s in parts.items() if s > 0), reverse=True)
    whole = sum(s for s, _ in costs)
    taken_s = sum(s for s in parts.values() if s < 0)
    kinds = prediction.resources
    shown = [(s, plain_name(n), kinds.get(n, OTHER)) for s, n in costs if s >= _LEAST_SHARE * whole]
    shown = shown if len(costs) == len(shown) <= MOST_ROWS - 1 else shown[: MOST_ROWS - 2]
    left_s = whole - sum(s for s, *_ in shown)
    shown += [(left_s, "all else", OTHER)] if left_s > 1e-9 * whole else []
    rows = [BreakdownRow(group, name, s, s / whole) for s, name, group in shown]
    taken = "taken off by negative weights, which no device has"
    return (*rows, *([BreakdownRow(OTHER, taken, taken_s)] if taken_s < 0 else []))


def describe_bound(prediction: Prediction) -> str:
    """Say what bounds a time, and which parts take the most of it."""
    shares: dict[str, float] = {}
    rows = [row for row in breakdown_rows(prediction) if row.fraction]
    for row in rows:
        shares[_kind(row)] = shares.get(_kind(row), 0.0) + (row.fraction or 0.0)
    if not rows:
        return ""
    largest = sorted(shares, key=lambda kind: -shares[kind])
    bounding = largest[: 1 if shares[largest[0]] >= _BOUND_SHARE else 2]
    reasons = [row for row in rows if _kind(row) in bounding]
    named = [row for row in reasons if (row.fraction or 0.0) >= _SAID_SHARE][:3] or reasons[:1]
    return f"bound by {' and '.join(bounding)}: {', '.join(f'{r.text} ({r.share})' for r in named)}"


def _kind(row: BreakdownRow) -> str:
    return row.group.partition(":")[0]


def _number(value: object) -> float:
    return float(np.asarray(value).item())
