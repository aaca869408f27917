"""Lines of a search's file: written from results, validated and read back into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from countperf.documents import Interval, IntervalOfTimes, Part, validate
from countperf.errors import DocumentError
from countperf.hardware.identity import DeviceIdentity
from countperf.tuning.points import Predicted, Refused, Stage
from countperf.tuning.ranking import Ranking, Reason, RefusalCount
from countperf.tuning.result import Budget, Stop, Trial
from countperf.tuning.space import Choice, Value

Level = Annotated[float, Field(gt=0, lt=1)]
"""Share of cases that an interval is to hold."""


class _Refused(Part):
    choice: dict[str, Value]
    stage: Stage
    reason: str

    def refused(self) -> Refused:
        """Return the variant that fell out."""
        return Refused(choice=self.choice, stage=self.stage, reason=self.reason)


class _Reasons(Part):
    count: NonNegativeInt
    reasons: tuple[tuple[PositiveInt, _Refused], ...] = ()


class _Budget(Part):
    seconds: PositiveFloat | None = None
    measurements: PositiveInt | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.seconds is None and self.measurements is None:
            raise ValueError("seconds or measurements are wanted")
        return self


class Line(Part):
    """Any line of a search but the first."""

    spent_s: NonNegativeFloat

    @property
    def choices(self) -> list[Choice]:
        """Variants that it is about."""
        return []


class RefusedLine(Line, _Refused):
    """A variant that failed on the device."""

    kind: Literal["refused"]

    @property
    def choices(self) -> list[Choice]:
        """The variant."""
        return [self.choice]


class TriedLine(Line):
    """A variant that ran."""

    kind: Literal["tried"]
    choice: dict[str, Value]
    predicted_s: PositiveFloat
    interval_s: IntervalOfTimes | None
    interval_level: Level
    samples_s: tuple[PositiveFloat, ...] = Field(min_length=1)
    rounds: tuple[PositiveInt, ...]
    cut_short: bool
    at_s: NonNegativeFloat

    @model_validator(mode="after")
    def _rounds_have_the_samples(self) -> Self:
        if self.rounds and sum(self.rounds) != len(self.samples_s):
            raise ValueError(
                f"{sum(self.rounds)} runs in rounds, but {len(self.samples_s)} samples"
            )
        return self

    @property
    def choices(self) -> list[Choice]:
        """The variant."""
        return [self.choice]

    def trial(self) -> Trial:
        """Return it."""
        return Trial(**{name: getattr(self, name) for name in Trial.__slots__})


def _predicted(*values: Any) -> Predicted:
    return Predicted(**dict(zip(_PREDICTED, values, strict=True)))


class RankingLine(Line):
    """Predictions so far; a tuple of values for each of the best variants."""

    kind: Literal["ranking"]
    best: tuple[
        tuple[
            dict[str, Value],
            PositiveFloat,
            tuple[PositiveInt | None, ...],
            tuple[str, ...],
            PositiveInt,
            dict[str, NonNegativeFloat],
            Interval | None,
            Level,
        ],
        ...,
    ]
    predicted: NonNegativeInt
    refusals: dict[Stage, _Reasons]
    position: NonNegativeInt
    ahead: tuple[NonNegativeInt, ...]
    complete: bool
    seconds: NonNegativeFloat

    @property
    def choices(self) -> list[Choice]:
        """The best."""
        return [choice for choice, *_ in self.best]

    def ranking(self, space: str, sizes: Mapping[str, int], device: str) -> Ranking:
        """Return the ranking of a space at sizes, by weights of a device."""
        return Ranking(
            space=space,
            sizes=sizes,
            device=device,
            best=tuple(_predicted(*each) for each in self.best),
            refusals={
                stage: RefusalCount(
                    count=each.count,
                    reasons=tuple(
                        Reason(count=count, example=example.refused())
                        for count, example in each.reasons
                    ),
                )
                for stage, each in self.refusals.items()
            },
            **{name: getattr(self, name) for name in _COPIED},
        )


class EndLine(Line):
    """End of a search."""

    kind: Literal["end"]
    stopped: Stop
    budget: _Budget

    def spent(self) -> Budget:
        """Return the budget that the search had."""
        return Budget(seconds=self.budget.seconds, measurements=self.budget.measurements)


_PREDICTED = (
    "choice",
    "time_s",
    "group_shape",
    "missing",
    "written",
    "parts",
    "interval_s",
    "interval_level",
)
_COPIED = ("predicted", "position", "ahead", "complete", "seconds")
_LINES: Mapping[object, type[Line]] = {
    "refused": RefusedLine,
    "tried": TriedLine,
    "ranking": RankingLine,
    "end": EndLine,
}


class _Plan(Part):
    confidence: Level = 0.95
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    runs: PositiveInt = 1
    max_case_s: PositiveFloat = 1.0
    warm_up_s: NonNegativeFloat = 0.0
    first_share: Level = 0.5
    ranking_share: Level = 0.5
    rounds: PositiveInt = 1
    prior_scatter: PositiveFloat = 0.5


class SearchHeader(Part):
    """The question of a search: space, sizes, device, weights, plan."""

    model_config = ConfigDict(extra="ignore")
    space: str
    parameters: tuple[str, ...]
    sizes: dict[str, PositiveInt]
    device: DeviceIdentity
    weights: str
    plan: _Plan


def read_line(entry: Mapping[str, Any], number: int, *, path: Path) -> Line:
    """Validate a line below the first one."""
    root = f"line {number}: $"
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _LINES:
        field = f"{root}.kind"
        message = f"{path}: {field}: one of {', '.join(map(str, _LINES))} is wanted, not {kind!r}"
        raise DocumentError(message, path=str(path), field=field)
    return validate(_LINES[kind], entry, path=path, root=root)


def read_header(header: Mapping[str, Any], path: Path) -> SearchHeader:
    """Validate the first line."""
    return validate(SearchHeader, header, path=path, root="line 1: $")


def tried_line(tried: Trial) -> dict[str, Any]:
    """Write a variant that ran as a line."""
    return {"kind": "tried", **asdict(tried)}


def refused_line(refused: Refused) -> dict[str, Any]:
    """Write a variant that failed as a line."""
    return {"kind": "refused", **asdict(refused)}


def ranking_line(ranking: Ranking) -> dict[str, Any]:
    """Write a ranking as a line."""
    return {
        "kind": "ranking",
        "best": [[getattr(p, name) for name in _PREDICTED] for p in ranking.best],
        "refusals": {
            stage: {
                "count": each.count,
                "reasons": [[reason.count, asdict(reason.example)] for reason in each.reasons],
            }
            for stage, each in ranking.refusals.items()
        },
        **{name: getattr(ranking, name) for name in _COPIED},
    }
