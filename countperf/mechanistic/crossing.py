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
    points: tuple[Mapping[str, int], ...]  # sizes at which both were predicted, ascending
    # by model, the one to trust first first: points from which on a kernel is the faster one, ""
    # where both take the same time
    changes: Mapping[str, tuple[tuple[Mapping[str, int], str], ...]]
    ratios: Mapping[str, tuple[float, float]]  # time of the second over the first, at both ends
    lacking: Mapping[str, CountperfError]  # why a model does not tell

    __repr__ = text.Result.__str__

    def say_crossing(self, model: str) -> str:
        """Say which kernel is faster by a model, from which size on."""
        said = [
            f"{name or 'neither'} from {self.size} = {at[self.size]} on"
            for at, name in self.changes[model]
        ]
        if not said[1:]:
            said = [f"{said[0].removesuffix(' on')} to {self.points[-1][self.size]}: no crossing"]
        return ", ".join(said)

    def lay_out(self) -> text.Printed:
        """Give what the model to trust first says, then a row per model."""
        ends = [f"{self.size} = {self.points[i][self.size]}" for i in (0, -1)]
        best = next(iter(self.changes))
        rows: list[dict[str, Any]] = [
            {
                "model": name,
                "faster": self.say_crossing(name),
                **dict(zip(("first_ratio", "last_ratio"), self.ratios[name], strict=True)),
                "changes": [{"from": dict(at), "faster": who} for at, who in found],
            }
            for name, found in self.changes.items()
        ]
        reasons = [f"{name} does not tell: {error}" for name, error in self.lacking.items()]
        first, second = self.kernels
        return text.Printed(
            head=[
                text.wrap_note(f"faster: {self.say_crossing(best)}, by {best}", ""),
                f"{second} over {first}, times on {self.device}",
            ],
            rows=rows,
            columns={
                **text.columns_of("model"),
                "first_ratio": text.Column(f"at {ends[0]}", lambda ratio: f"{ratio:.3g}"),
                "last_ratio": text.Column(f"at {ends[1]}", lambda ratio: f"{ratio:.3g}"),
                **text.columns_of("faster"),
            },
            notes=[*map(text.wrap_note, reasons)],
            facts=text.extract(self, "kernels", "device", "size", "points")
            | {"lacking": {name: str(error) for name, error in self.lacking.items()}},
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

    first, last = values[main][0], values[main][-1]
    changes: dict[str, tuple[tuple[Mapping[str, int], str], ...]] = {}
    lacking: dict[str, CountperfError] = {}
    for model in rank_by_error(
        answers_at(first)[0], has_barriers=answers_at(first)[1].has_barriers
    ):
        try:
            found = find_changes(partial(name_faster, model), values[main], steps[main])
        except CountperfError as error:
            lacking[model] = error
        else:
            changes[model] = tuple((answers_at(n)[0].parameters, who) for n, who in found)
    if not changes:
        raise next(iter(lacking.values()))
    return Crossover(
        kernels=names,
        device=answers_at(first)[0].device,
        size=main,
        points=tuple(ordered),
        changes=changes,
        ratios={name: (find_ratio(name, first), find_ratio(name, last)) for name in changes},
        lacking=lacking,
    )
