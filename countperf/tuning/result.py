"""Results of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from countperf.display import Drawable, ShortRepr, Table, printed
from countperf.documents import IntervalOfTimes
from countperf.errors import ParameterError
from countperf.tuning.points import Refused
from countperf.tuning.ranker import RefusalCount
from countperf.tuning.space import Choice, Value

Stop: TypeAlias = Literal["confident", "budget", "exhausted", "interrupted"]
"""Why a search ended: nothing left can beat the best at the stated confidence; the budget is spent;
every variant was tried; it was interrupted."""

Key: TypeAlias = tuple[tuple[str, Value], ...]
"""A choice as something that can be looked up."""

_LONGEST_S = 60.0  # that a variant may take in the longest of searches, and in the shortest
_SHORTEST_S = 3.0

Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


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

    @property
    def longest_s(self) -> float:
        """Time that a variant may take unless the caller says otherwise, s."""
        if self.seconds is None:
            return _LONGEST_S
        return min(_LONGEST_S, max(_SHORTEST_S, self.seconds / 2))

    def exceeds(self, spent: Budget) -> bool:
        """Tell whether it allows for more than another one did."""
        limits = ((self.seconds, spent.seconds), (self.measurements, spent.measurements))
        return any(
            was is not None and (allowed is None or allowed > was) for allowed, was in limits
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a search: confidence, tolerance, rounds."""

    confidence: Share = 0.95  # at which it stops, and at which the regret is bounded
    tolerance: Annotated[float, Field(ge=0, lt=1)] = (
        0.02  # fraction of the best time that is not worth looking for
    )
    runs: PositiveInt = 10  # of a variant that may be the best
    max_case_s: PositiveFloat = (
        1.0  # after so long a variant gets no further runs, once it has two, s
    )
    warm_up_s: NonNegativeFloat = 0.05
    first_share: Share = 0.15
    ranking_share: Share = 0.5
    rounds: PositiveInt = 5
    # how far ``ln(measured / predicted)`` is held to scatter before anything is measured
    prior_scatter: PositiveFloat = 0.5

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(ShortRepr):
    """A variant that was built, checked and run."""

    choice: dict[str, Value]  # which one
    predicted_s: PositiveFloat  # what was predicted, before any correction, s
    # time of each run, s
    samples_s: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]
    # how many of the runs, one after the other, were in the same memory
    rounds: tuple[PositiveInt, ...] = ()
    # low and high end of the prediction's interval, s
    interval_s: IntervalOfTimes | None = None
    interval_level: Share = 0.95  # the share of cases whose time the interval is to hold
    cut_short: bool = False  # whether its first runs left no hope, so that it was not run further
    at_s: NonNegativeFloat = 0.0  # how much of the budget was spent when it was done, s

    def __post_init__(self) -> None:
        if self.rounds and sum(self.rounds) != len(self.samples_s):
            runs = f"{sum(self.rounds)} runs in rounds, but {len(self.samples_s)} samples"
            raise ParameterError(runs, parameter="rounds")

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
class Outlook:
    """Knowledge of a search about the variants that it did not measure."""

    # variants that there are not, by stage, those that failed on the device included
    refusals: Mapping[str, RefusalCount] = field(default_factory=dict[str, RefusalCount])
    predicted: NonNegativeInt  # variants with a prediction
    ranking_complete: bool  # whether all of the space was looked at
    regret_bound: float | None
    bounded: NonNegativeInt  # variants with a prediction, but for those that failed on the device
    # others that there may be, of which nothing is known: not looked at, or without a prediction
    unbounded: NonNegativeInt
    ranking_s: NonNegativeFloat  # how much of the time went into predicting, s


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult(Outlook, Table, Drawable):
    """The fastest variant found, and how sure that is."""

    space: str  # name of the space, slug of the device
    device: str
    sizes: Mapping[str, int]  # sizes of the kernel
    winner: Trial  # the fastest
    within_noise: tuple[Trial, ...]  # others that may be as fast, as far as the noise of both tells
    tried: tuple[Trial, ...]  # all that ran, in order
    failed: tuple[Refused, ...] = ()  # those that failed on the device
    stopped: Stop  # why it ended
    confidence: float  # of the bound
    spent_s: float  # time spent over all sessions, s
    # whether each variant's numbers were compared with the space's reference
    numbers_checked: bool = True

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


def as_key(choice: Choice) -> Key:
    """Return a choice as something that can be looked up."""
    return tuple(sorted(choice.items()))
