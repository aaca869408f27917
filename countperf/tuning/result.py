"""Results of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, Literal, TypeAlias

from countperf.display import Drawable, ShortRepr, Table, printed
from countperf.errors import ParameterError
from countperf.tuning.contrast import Contrast
from countperf.tuning.points import Predicted, Refused
from countperf.tuning.ranking import Ranking, Reason, RefusalCount
from countperf.tuning.space import Choice, Value

Stop: TypeAlias = Literal["confident", "budget", "exhausted", "interrupted"]
"""Why a search ended: nothing left can beat the best at the stated confidence; the budget is spent;
every variant was tried; it was interrupted."""

Key: TypeAlias = tuple[tuple[str, Value], ...]
"""A choice as something that can be looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget of a search: at least one of the two limits."""

    seconds: float | None = None  # time, ranking and building included, s
    measurements: int | None = None  # variants that are built and run

    def __post_init__(self) -> None:
        if self.seconds is None and self.measurements is None:
            raise ParameterError("no budget; pass seconds or measurements", parameter="seconds")
        for name, value in (("seconds", self.seconds), ("measurements", self.measurements)):
            if value is not None and not 0 < value < math.inf:
                raise ParameterError(f"a budget of {value} {name} is none", parameter=name)

    def exceeds(self, spent: Budget) -> bool:
        """Tell whether it allows for more than another one did."""
        limits = ((self.seconds, spent.seconds), (self.measurements, spent.measurements))
        return any(
            was is not None and (allowed is None or allowed > was) for allowed, was in limits
        )

    def to_object(self) -> dict[str, Any]:
        """Return the budget as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a search: confidence, tolerance, rounds."""

    confidence: float = 0.95  # at which it stops, and at which the regret is bounded
    tolerance: float = 0.02  # fraction of the best time that is not worth looking for
    runs: int = 10  # of a variant that may be the best
    max_case_s: float = 1.0  # after so long a variant gets no further runs, once it has two, s
    warm_up_s: float = 0.05
    first_share: float = 0.15
    ranking_share: float = 0.5
    rounds: int = 5
    # how far ``ln(measured / predicted)`` is held to scatter before anything is measured
    prior_scatter: float = 0.5

    def __post_init__(self) -> None:
        for name in ("confidence", "first_share", "ranking_share"):
            if not 0 < getattr(self, name) < 1:
                message = f"{name} is {getattr(self, name)}; it has to lie between 0 and 1"
                raise ParameterError(message, parameter=name)
        if not 0 <= self.warm_up_s < math.inf:
            message = f"warm_up_s is {self.warm_up_s}; it is a time in seconds, 0 or more"
            raise ParameterError(message, parameter="warm_up_s")
        if not 0 <= self.tolerance < 1:
            message = f"tolerance is {self.tolerance}; it is a fraction below 1"
            raise ParameterError(message, parameter="tolerance")
        if self.runs < 1 or self.rounds < 1 or not self.prior_scatter > 0:
            message = "runs, rounds and prior_scatter have to be positive"
            raise ParameterError(message, parameter="runs")

    def to_object(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(ShortRepr):
    """A variant that was built, checked and run."""

    choice: dict[str, Value]  # which one
    predicted_s: float  # what was predicted, before any correction, s
    samples_s: tuple[float, ...]  # time of each run, s
    # how many of the runs, one after the other, were in the same memory
    rounds: tuple[int, ...] = ()
    # low and high end of the prediction's interval, s
    interval_s: tuple[float, float] | None = None
    interval_level: float = 0.95  # the share of cases whose time the interval is to hold
    cut_short: bool = False  # whether its first runs left no hope, so that it was not run further
    at_s: float = 0.0  # how much of the budget was spent when it was done, s

    @property
    def time_s(self) -> float:
        """Shortest run of a round, the median of all rounds, s.

        What a variant takes depends on where its arrays happen to lie, and on what else goes on:
        of the shortest runs of all rounds the shortest is that of a lucky one, and the more rounds
        the luckier.
        """
        return median(self.rounds_s)

    @property
    def rounds_s(self) -> tuple[float, ...]:
        """Shortest run of each round, s."""
        ends = tuple(accumulate(self.rounds)) or (len(self.samples_s),)
        return tuple(min(self.samples_s[start:end]) for start, end in pairwise((0, *ends)))

    @property
    def noise(self) -> float:
        """Fraction by which the median run exceeds the time."""
        return max(0.0, median(self.samples_s) / self.time_s - 1)

    def again(self, samples_s: tuple[float, ...], *, cut_short: bool) -> Trial:
        """Return the variant with the runs of another round, s."""
        return replace(
            self,
            samples_s=(*self.samples_s, *samples_s),
            rounds=(*(self.rounds or (len(self.samples_s),)), len(samples_s)),
            cut_short=cut_short,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult(Table, Drawable):
    """The fastest variant found, and how sure that is."""

    space: str  # name of the space, slug of the device
    device: str
    sizes: Mapping[str, int]  # sizes of the kernel
    winner: Trial  # the fastest
    within_noise: tuple[Trial, ...]  # others that may be as fast, as far as the noise of both tells
    tried: tuple[Trial, ...]  # all that ran, in order
    failed: tuple[Refused, ...] = ()  # those that failed on the device
    # variants that there are not, by stage, those that failed on the device included
    refusals: Mapping[str, RefusalCount] = field(default_factory=dict)
    predicted: int  # variants with a prediction
    ranking_complete: bool  # whether all of the space was looked at
    stopped: Stop  # why it ended
    confidence: float  # of the bound
    regret_bound: float | None
    bounded: int  # variants with a prediction, but for those that failed on the device
    # others that there may be, of which nothing is known: not looked at, or without a prediction
    unbounded: int
    spent_s: float  # time spent over all sessions, s
    ranking_s: float  # how much of it went into predicting, s
    # whether each variant's numbers were compared with the space's reference
    numbers_checked: bool = True
    # the winner beside the default variant, part by part of the predicted time
    contrast: Contrast | None = None

    __repr__ = printed


class SearchInterrupt(KeyboardInterrupt):
    """Ctrl-C in a search; what was found by then comes with it."""

    def __init__(self, result: TuningResult | None, store: str | None, counted: str) -> None:
        kept = f"kept in {store}: the same call goes on from there"
        if store is None:
            kept = "nothing is kept; with store=FILE the same call would go on"
        super().__init__(f"the search was interrupted: {counted}; {kept}")
        self.result = result
        self.store = store


def ties(tried: tuple[Trial, ...], floor: float) -> tuple[Trial, tuple[Trial, ...]]:
    """Return the fastest variant, and those that its noise, theirs, or a floor leaves as fast."""
    winner = min(tried, key=lambda each: each.time_s)
    limit = [
        each
        for each in tried
        if each is not winner
        and each.time_s <= winner.time_s * (1 + max(floor, winner.noise, each.noise))
        and not each.cut_short
    ]
    return winner, tuple(sorted(limit, key=lambda each: each.time_s))


# --- lines of the file


def tried_line(tried: Trial) -> dict[str, Any]:
    """Write a variant that ran as a line."""
    return {
        "kind": "tried",
        "choice": tried.choice,
        "predicted_s": tried.predicted_s,
        "interval_s": None if tried.interval_s is None else list(tried.interval_s),
        "interval_level": tried.interval_level,
        "samples_s": list(tried.samples_s),
        "rounds": list(tried.rounds),
        "cut_short": tried.cut_short,
        "at_s": tried.at_s,
    }


def read_tried(line: Mapping[str, Any]) -> Trial:
    """Read it."""
    return Trial(
        choice=dict(line["choice"]),
        predicted_s=float(line["predicted_s"]),
        interval_s=_read_interval(line.get("interval_s")),  # files of old do not have it
        interval_level=float(line.get("interval_level", 0.95)),
        samples_s=tuple(float(sample) for sample in line["samples_s"]),
        rounds=tuple(int(number) for number in line.get("rounds", ())),  # files of old lack them
        cut_short=bool(line["cut_short"]),
        at_s=float(line["at_s"]),
    )


def _read_interval(ends: Sequence[float] | None) -> tuple[float, float] | None:
    if ends is None:
        return None
    low, high = ends
    return float(low), float(high)


def refused_object(refused: Refused) -> dict[str, Any]:
    """Write a refusal as plain values."""
    return {"choice": refused.choice, "stage": refused.stage, "reason": refused.reason}


def read_refused(line: Mapping[str, Any]) -> Refused:
    """Read it."""
    return Refused(choice=dict(line["choice"]), stage=line["stage"], reason=line["reason"])


def ranking_line(ranking: Ranking) -> dict[str, Any]:
    """Write a ranking as a line."""
    return {
        "kind": "ranking",
        "best": [
            [
                list(p.choice.values()),
                p.time_s,
                list(p.group_shape),
                list(p.missing),
                p.written,
                dict(p.parts),
                None if p.interval_s is None else list(p.interval_s),
                p.interval_level,
            ]
            for p in ranking.best
        ],
        "predicted": ranking.predicted,
        "refusals": {
            stage: {
                "count": each.count,
                "reasons": [[r.count, refused_object(r.example)] for r in each.reasons],
            }
            for stage, each in ranking.refusals.items()
        },
        "position": ranking.position,
        "ahead": list(ranking.ahead),
        "complete": ranking.complete,
        "seconds": ranking.seconds,
    }


def read_ranking(
    line: Mapping[str, Any],
    *,
    space: str,
    names: tuple[str, ...],
    sizes: Mapping[str, int],
    device: str,
) -> Ranking:
    """Read it."""
    return Ranking(
        space=space,
        sizes=sizes,
        device=device,
        best=tuple(
            Predicted(
                choice=dict(zip(names, values, strict=True)),
                time_s=float(time_s),
                group_shape=tuple(shape),
                missing=tuple(missing),
                written=int(more[0]) if more else 1,  # files of old do not have it
                parts=more[1] if len(more) > 1 else {},  # nor this
                interval_s=_read_interval(more[2]) if len(more) > 2 else None,
                interval_level=float(more[3]) if len(more) > 3 else 0.95,
            )
            for values, time_s, shape, missing, *more in line["best"]
        ),
        predicted=int(line["predicted"]),
        refusals={
            stage: RefusalCount(
                count=int(each["count"]),
                reasons=tuple(
                    Reason(count=int(count), example=read_refused(example))
                    for count, example in each.get("reasons", ())  # files of old do not have them
                ),
            )
            for stage, each in line["refusals"].items()
        },
        position=int(line["position"]),
        ahead=tuple(int(number) for number in line.get("ahead", ())),
        complete=bool(line["complete"]),
        seconds=float(line["seconds"]),
    )


def as_key(choice: Choice) -> Key:
    """Return a choice as something that can be looked up."""
    return tuple(sorted(choice.items()))
