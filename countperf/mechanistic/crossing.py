"""Sizes at which two kernels cross: from where on a model predicts less time for the other one.

Times are predicted at the given sizes; between two of them at which another kernel is the faster
one, the change is bisected, down to the greatest common divisor of the given values. Of two changes
between neighboring sizes none is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import gcd
from typing import Any

from countperf import text
from countperf.errors import CountperfError, ParameterError
from countperf.mechanistic.predict_all import ModelAnswers, rank_by_error
from countperf.mechanistic.step_formulas import find_changes

_SAME = 1e-3  # of a time: a smaller difference is none

Answers = Callable[[Mapping[str, int]], ModelAnswers]
"""What all models say of a kernel at a point."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Crossover(text.Result):
    """Which of two kernels is the faster one, from which size on, by model."""

    kernels: tuple[str, str]
    device: str  # slug of the device
    size: str  # the one whose values are named; others that grow follow
    ends: tuple[int, int]  # its least and largest value
    # by model, the one to trust first first: values from which on a kernel is the faster one, ""
    # where both take the same time
    changes: Mapping[str, Sequence[tuple[int, str]]]
    ratios: Mapping[str, tuple[float, float]]  # time of the second over the first, at both ends
    lacking: Mapping[str, str]  # why a model does not tell

    __repr__ = text.Result.__str__

    def say_crossing(self, model: str) -> str:
        """Say which kernel is faster by a model, from which size on."""
        said = [f"{who or 'neither'} from {self.size} = {n}" for n, who in self.changes[model]]
        if not said[1:]:
            return f"{said[0]} to {self.ends[1]}: no crossing"
        return ", ".join(f"{each} on" for each in said)

    def lay_out(self) -> text.Printed:
        """Give what the model to trust first says, then a row per model."""
        best, (first, second) = next(iter(self.changes)), self.kernels
        rows: list[dict[str, Any]] = [
            {
                "model": name,
                **dict(zip(("first_ratio", "last_ratio"), self.ratios[name], strict=True)),
                "faster": self.say_crossing(name),
                "changes": [{"from": value, "faster": who} for value, who in found],
            }
            for name, found in self.changes.items()
        ]
        at = [text.Column(f"at {self.size} = {end}", "{:.3g}".format) for end in self.ends]
        return text.Printed(
            head=[
                text.wrap_note(f"faster: {self.say_crossing(best)}, by {best}", ""),
                f"{second} over {first}, times on {self.device}",
            ],
            rows=rows,
            columns={
                **text.columns_of("model"),
                **dict(zip(("first_ratio", "last_ratio"), at, strict=True)),
                **text.columns_of("faster"),
            },
            notes=[
                text.wrap_note(f"{by} does not tell: {why}") for by, why in self.lacking.items()
            ],
            facts=text.extract(self, "kernels", "device", "size", "ends", "lacking"),
            name="models",
        )


def find_crossover(
    names: tuple[str, str],
    answers: tuple[Answers, Answers],
    points: Sequence[Mapping[str, int]],
) -> Crossover:
    """Find where two kernels cross by each model, between the given points."""
    several = [name for name in points[0] if len({point[name] for point in points}) > 1]
    ordered = sorted(points, key=lambda point: [point[name] for name in several])
    values = {name: [point[name] for point in ordered] for name in several}
    if not several or any(sorted(of) != of for of in values.values()):
        said = "sizes that grow together, such as n=256,1024,4096 or n=256:4096:8"
        message = f"a crossing is looked for between sizes: give two or more {said}"
        raise ParameterError(message, parameter="parameters")
    steps = {name: gcd(*of) for name, of in values.items()}
    main = several[0]

    @cache
    def answers_at(value: int) -> tuple[ModelAnswers, ...]:
        """Return what is predicted at a value of the first size, between the points given."""
        upper = next(n for n, each in enumerate(values[main]) if each >= value)
        low, high = ordered[max(upper - 1, 0)], ordered[upper]
        share = (value - low[main]) / (high[main] - low[main] or 1)
        between = {n: low[n] + share * (high[n] - low[n]) for n in several}
        at = {**high, **{n: round(v / steps[n]) * steps[n] for n, v in between.items()}}
        return tuple(of(at) for of in answers)

    def find_ratio(model: str, value: int) -> float:
        times: list[float] = []
        for each in answers_at(value):
            if isinstance(answer := each[model], Exception):
                raise answer
            times.append(float(answer.time_s))
        return times[1] / times[0]

    def name_faster(model: str, value: int) -> str:
        ratio = find_ratio(model, value)
        return "" if abs(ratio - 1) < _SAME else names[ratio < 1]

    ends = values[main][0], values[main][-1]
    changes: dict[str, list[tuple[int, str]]] = {}
    lacking: dict[str, str] = {}
    reason: CountperfError | None = None
    at_first = answers_at(ends[0])[0]
    for model in rank_by_error(at_first, has_barriers=at_first.has_barriers):
        try:
            changes[model] = find_changes(partial(name_faster, model), values[main], steps[main])
        except CountperfError as error:
            lacking[model], reason = str(error), reason or error
    if reason is not None and not changes:
        raise reason
    return Crossover(
        kernels=names,
        device=at_first.device,
        size=main,
        ends=ends,
        changes=changes,
        ratios={name: (find_ratio(name, ends[0]), find_ratio(name, ends[1])) for name in changes},
        lacking=lacking,
    )
