"""Lines of the files of searches, validated before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
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
from countperf.tuning.points import Stage
from countperf.tuning.result import Stop
from countperf.tuning.space import Value

Level = Annotated[float, Field(gt=0, lt=1)]
"""Share of cases that an interval is to hold."""

_OLDER_BEST = (1, {}, None, 0.95)
"""Defaults of the last four fields of a prediction in files that lack some of them."""


class _Refused(Part):
    choice: dict[str, Value]
    stage: Stage
    reason: str


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


class _SearchLine(Part):
    spent_s: NonNegativeFloat


class _RefusedLine(_SearchLine, _Refused):
    kind: Literal["refused"]


class _TriedLine(_SearchLine):
    kind: Literal["tried"]
    choice: dict[str, Value]
    predicted_s: PositiveFloat
    interval_s: IntervalOfTimes | None = None
    interval_level: Level = 0.95
    samples_s: tuple[PositiveFloat, ...] = Field(min_length=1)
    rounds: tuple[PositiveInt, ...] = ()
    cut_short: bool
    at_s: NonNegativeFloat

    @model_validator(mode="after")
    def _rounds_have_the_samples(self) -> Self:
        if self.rounds and sum(self.rounds) != len(self.samples_s):
            raise ValueError(
                f"{sum(self.rounds)} runs in rounds, but {len(self.samples_s)} samples"
            )
        return self


class _RankingLine(_SearchLine):
    kind: Literal["ranking"]
    best: tuple[
        tuple[
            tuple[Value, ...],
            PositiveFloat,
            tuple[PositiveInt, ...],
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
    ahead: tuple[NonNegativeInt, ...] = ()
    complete: bool
    seconds: NonNegativeFloat


class _EndLine(_SearchLine):
    kind: Literal["end"]
    stopped: Stop
    budget: _Budget
    default: dict[str, Value] | None = None


_SEARCH_LINES: Mapping[object, type[_SearchLine]] = {
    "refused": _RefusedLine,
    "tried": _TriedLine,
    "ranking": _RankingLine,
    "end": _EndLine,
}


class _SearchPlan(Part):
    confidence: Level = 0.95
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    runs: PositiveInt = 1
    max_case_s: PositiveFloat = 1.0
    warm_up_s: NonNegativeFloat = 0.0
    first_share: Level = 0.5
    ranking_share: Level = 0.5
    rounds: PositiveInt = 1
    prior_scatter: PositiveFloat = 0.5


class _SearchHeader(Part):
    model_config = ConfigDict(extra="ignore")
    space: str
    parameters: tuple[str, ...]
    sizes: dict[str, PositiveInt]
    device: DeviceIdentity
    weights: str
    plan: _SearchPlan


def check_header(header: Mapping[str, Any], path: Path) -> None:
    """Validate the first line of a search."""
    validate(_SearchHeader, header, path=path, root="line 1: $")


def check_line(entry: Mapping[str, Any], number: int, *, path: Path) -> None:
    """Validate a line below the first one."""
    root = f"line {number}: $"
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _SEARCH_LINES:
        wanted = ", ".join(map(str, _SEARCH_LINES))
        field = f"{root}.kind"
        message = f"{path}: {field}: one of {wanted} is wanted, not {kind!r}"
        raise DocumentError(message, path=str(path), field=field)
    validate(_SEARCH_LINES[kind], _completed(entry), path=path, root=root)


def _completed(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the predictions of an older ranking the fields that they lack."""
    best = entry.get("best")
    if not isinstance(best, list):
        return entry
    fields = 4 + len(_OLDER_BEST)
    whole = [
        [*each, *_OLDER_BEST[len(each) - fields :]]
        if isinstance(each, list) and 4 <= len(each) < fields
        else each
        for each in best
    ]
    return {**entry, "best": whole}
