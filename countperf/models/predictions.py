"""Predictions of time models, with their parts, uncertainty and caveats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import CountperfError, ParameterError, PredictionError
from countperf.models.breakdown import (
    CORRECTION,
    MOST_ROWS,
    OTHER,
    breakdown_rows,
    corrected_parts,
    describe_bound,
    plain_name,
    uncharged_lines,
)
from countperf.text import (
    EACH,
    Column,
    Printed,
    Result,
    Table,
    check_lines,
    columns_of,
    cut,
    format_quantity,
    format_seconds,
    interval_text,
    picked,
    plain,
    point_text,
    short_name,
    some_of,
    table_of,
    weights_text,
    wrap_note,
)

Quantity = float | NDArray[np.float64]
"""A number, or an array of them where parameters were given as arrays."""

ParameterValue = int | NDArray[np.integer]
"""Value of a size parameter: an integer, or integers at which to predict in one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Outcome of one check on a fit or a prediction."""

    name: str  # what was checked, such as ``"rank"`` or ``"extrapolation"``
    passed: bool  # whether the result can be used without a caveat, as far as this check goes
    message: str  # what was found
    remedy: str = ""  # what to do about it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction(Result):
    """Predicted time of one launch of a kernel.

    Attributes
    ----------
    kernel, device, model, weights : str
        Name of the kernel, slug of the device, name of the model, name of the weights (empty where
        they have none).
    parameters : Mapping from str to int or ndarray
        Values of the size parameters.
    time_s : float or ndarray
        The time, s; of the shape that the parameters broadcast to.
    interval_s : pair of float or ndarray, or None
        Low and high end of where the time is expected in `interval_level` of cases, s; None where
        the model cannot tell, NaN at some of several sizes.
    breakdown : dict from str to float or ndarray
        Where the time goes: seconds per property, largest first. The parts sum to the time.
    missing : tuple of str
        Properties that the kernel has and the model knows no cost of; the time is without them.
    ignored : tuple of str
        Properties that the kernel has and the model leaves out by its definition.
    verdicts : tuple of Verdict
        Checks on the validity of this prediction.
    interval_level : float
        The share of cases whose time the interval is to hold, 0.9 or 0.95.
    model_choice : str
        Which model was chosen and why, where none was asked for; else empty.
    given_as : str
        Name of the kernel as the user gave it, where it was a text; else empty.
    origin : Origin or None
        Weights and counts that it is made from; None where the model has no fitted weights.
    resources : Mapping from str to str
        By part of the breakdown what it is for, such as ``"memory: L2"``, where the model states
        it.
    """

    kernel: str
    device: str
    model: str
    parameters: Mapping[str, ParameterValue]
    time_s: Quantity
    interval_s: tuple[Quantity, Quantity] | None
    breakdown: dict[str, Quantity]
    weights: str = ""
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    interval_level: float = 0.95
    model_choice: str = ""
    given_as: str = ""
    origin: Any = field(default=None, repr=False)
    resources: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    __repr__ = Result.__str__

    def against(self, other: Prediction) -> PredictionPair:
        """Compare with another prediction: of another kernel, size, device or model.

        The ``cause`` of the pair says in a sentence what makes the difference.

        Raises
        ------
        ParameterError
            One of them is of several sizes.
        """
        return PredictionPair(first=self, second=other)

    def anchored(self, *runs: Any) -> Prediction:
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

    def lay_out(self) -> Printed:
        """Give the time, what bounds it, at most eight rows of where it goes, and caveats.

        Weights are fitted to runs whose data the run before left in the caches.
        """
        facts = {
            **picked(self, "kernel", "device", "weights", "model", "parameters"),
            **picked(self, "time_s", "interval_s", "interval_level"),
            "breakdown_s": self.breakdown,
            "complete": self.complete,
            "caches": "warm",
            "caveats": [f"{verdict.name}: {verdict.message}" for verdict in self.caveats],
        }
        notes = [*uncharged_lines(self.ignored), *write_caveats(self)]
        if not isinstance(self.time_s, np.ndarray):
            head = prediction_head(self)
            rows = [
                {"part": part, **name_part(part, self.resources), "time_s": time_s}
                for part, time_s in plain(self.breakdown).items()
            ]
            cells = [
                (r.group, format_quantity(r.time_s, "s"), r.share, r.text)
                for r in breakdown_rows(self)
            ]
            shown = Table(header=(), rows=tuple(cells), right=(1, 2), titles=_BREAKDOWN)
            return Printed(head=head, rows=rows, shown=shown, notes=notes, facts=facts)
        mark = _incomplete(self)
        level = f"to ({100 * self.interval_level:.0f} %)"
        return Printed(
            head=[
                f"{self.kernel} on {self.device}; {_model(self)}, warm caches"
                f"{mark and f'; at least these times{mark}'}"
            ],
            rows=_times(self),
            columns={
                **{"parameters": EACH, "time_s": Column("time", format_seconds)},
                "low_s": Column("from", format_seconds),
                "high_s": Column(level, format_seconds),
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceAnswers(Result):
    """Predicted times of a kernel on several devices: for each size and model the fastest first."""

    answers: tuple[DeviceAnswer, ...]

    __repr__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give a row per size, device and model: time, bound, what is missing; then why.

        In JSON a row has what `answers` says of a model, and ``device``, ``parameters``, ``model``.
        """
        kernel = next(one.prediction.kernel for one in self.answers if one.prediction is not None)
        sizes = [one.parameters for one in self.answers]
        same = {k: v for k, v in sizes[0].items() if all(at[k] == v for at in sizes)}
        rows: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        said: dict[str, None] = {}
        for one in self.answers:
            row = {
                **picked(one, "device", "weights", "parameters", "model", "lacks"),
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
                    "missing": cut(lacks or several, _FEW_LETTERS),
                }
            )
            names = ", ".join(left_out)
            is_long = len(names) > _FEW_LETTERS
            left = f"{one.device}, {one.model}: leaves out {names}" if is_long else ""
            said |= {wrap_note(reason): None for reason in [row["reason"] or left] if reason}
        more = [f"- ... {len(said) - _MOST_REASONS} more: .to_frame() has all"]
        columns = {
            **{"parameters": EACH, **columns_of("device weights model")},
            **columns_of("time_s", format_seconds),
            **columns_of("bound missing"),
        }
        return Printed(
            head=[", ".join(filter(None, [kernel, point_text(same)]))],
            rows=rows,
            shown=table_of(shown, columns),
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
        **picked(prediction, "time_s", "interval_s"),
        "bound": getattr(prediction, "bound", None) or kinds,
        "breakdown_s": prediction.breakdown,
        **picked(prediction, "ignored", "missing"),
    }


_ALIKE = 0.05
"""Of a time: a difference below is none to explain."""

_LEAST_CAUSE = 0.2
"""Of a difference: parts that make less of it are not named, nor more than two."""

_BREAKDOWN = ("group", "time", "share", "part")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionPair(Result):
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
        points = point_text(self.first.parameters), point_text(self.second.parameters)
        counts = [getattr(one.origin, "kernel", None) for one in (self.first, self.second)]
        is_of_one_kernel = (self.first.given_as and self.second.given_as) or counts[0] == counts[1]
        if points[0] != points[1] and is_of_one_kernel:
            return points
        return f"{self.first.kernel} (first)", f"{self.second.kernel} (second)"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each part, that which differs most first."""
        parts = [corrected_parts(one) for one in (self.first, self.second)]
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
        said = [
            f"{part} ({format_quantity(share * abs(difference), 's')})"
            for share, part in sorted(shares, reverse=True)[:2]
            if share >= _LEAST_CAUSE
        ]
        return (
            f"cause: {slower} takes {format_quantity(abs(difference), 's')} longer than {faster},"
            f" mostly for {' and '.join(said) or 'many parts'}"
        )

    __repr__ = Result.__str__

    def lay_out(self, most: int = MOST_ROWS) -> Printed:
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
        columns = [Column(title, format_seconds if i else None) for i, title in enumerate(titles)]
        return Printed(
            head=[f"{self.names[1]}: {ratio} the time of {self.names[0]}{mark}", *bounds],
            rows=self.rows,
            shown=table_of([total, *self.rows[:most]], dict(zip(total, columns, strict=True))),
            notes=[*(line for one in both for line in verdict_lines(one.caveats)), self.cause],
        )


def name_part(part: str, resources: Mapping[str, str]) -> dict[str, str]:
    """Return the resource of a part and its plain name."""
    return {"group": resources.get(part, OTHER), "name": plain_name(part)}


def _times(of: Prediction) -> list[dict[str, Any]]:
    """Return a row for each size: sizes, time and both ends of the interval, s."""
    ends = dict(zip(("low_s", "high_s"), of.interval_s or (), strict=False))
    values = np.broadcast_arrays(*of.parameters.values(), of.time_s, *ends.values())
    rows = zip(*(array.ravel().tolist() for array in values), strict=True)
    number = len(of.parameters)
    return [
        {
            "parameters": dict(zip(of.parameters, row[:number], strict=True)),
            **dict(zip(("time_s", *ends), row[number:], strict=True)),
        }
        for row in rows
    ]


def write_caveats(of: Prediction) -> list[str]:
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
        *filter(None, [describe_bound(of)]),
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


NAMED_OTHERS = 4
"""Number of indistinguishable features that a remark names."""

_DERIVED = re.compile(r"(?<![\w.])[a-z0-9]+(?:_[a-z0-9]+)+(?![\w.])")


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Write what was checked: one line for each, and a remedy below those that failed."""
    return check_lines((v.passed, f"{v.name}: {_plain(v.message)}", v.remedy) for v in verdicts)


def _plain(message: str) -> str:
    """Put words for names that formulas of models have; those with dots are in the glossary."""
    return _DERIVED.sub(lambda name: plain_name(name[0]), message)
