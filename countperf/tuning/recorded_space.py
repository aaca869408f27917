"""Search spaces whose configurations were measured by others, read from files of other tuners.

What measuring a configuration took is its cost, so that a search can be judged by what it would
have spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.display import Drawable, ShortRepr, Table
from countperf.errors import DocumentError, ParameterError
from countperf.measurements.recorded import number_or_text, read_records
from countperf.tuning.configuration_search import ConfigurationSearch
from countperf.tuning.space import Choice, Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedSpace(ShortRepr):
    """Configurations of a kernel with the times that somebody measured."""

    name: str  # kernel and device, as the file names them
    device: str
    configurations: tuple[Choice, ...]  # each with a value for each parameter
    times_s: NDArray[np.float64]  # run time of each configuration, s
    costs_s: NDArray[np.float64]  # what measuring each took, s

    @classmethod
    def read_file(cls, path: Path | str) -> RecordedSpace:
        """Read the file of a tuner (`countperf.measurements.recorded`)."""
        found = read_records(path)
        return cls(
            name=found.name,
            device=found.device,
            configurations=tuple(each.configuration for each in found.records),
            times_s=np.array([each.time_s for each in found.records]),
            costs_s=np.array([each.cost_s for each in found.records]),
        )

    @property
    def parameters(self) -> dict[str, tuple[Value, ...]]:
        """Values of each parameter, in the order in which they come."""
        return {
            name: tuple(dict.fromkeys(each[name] for each in self.configurations))
            for name in self.configurations[0]
        }

    @property
    def best_s(self) -> float:
        """Shortest time, s."""
        return float(np.nanmin(self.times_s))

    def where(self, /, **values: Value) -> RecordedSpace:
        """Return the configurations that have these values."""
        kept = [
            place
            for place, each in enumerate(self.configurations)
            if all(each.get(name) == value for name, value in values.items())
        ]
        if not np.isfinite(self.times_s[kept]).any():
            raise DocumentError(
                f"no configuration of '{self.name}' with {values} ran; values: {self.parameters}",
                path=None,
            )
        return RecordedSpace(
            name=self.name,
            device=self.device,
            configurations=tuple(self.configurations[place] for place in kept),
            times_s=self.times_s[kept],
            costs_s=self.costs_s[kept],
        )

    def times_of(self, configurations: Sequence[Choice]) -> NDArray[np.float64]:
        """Return the times of configurations of another file, s; nan where this one has none."""
        names = tuple(self.configurations[0])
        known = dict(zip(map(_key(names), self.configurations), self.times_s, strict=True))
        times = np.array([known.get(_key(names)(each), np.nan) for each in configurations])
        if not np.isfinite(times).any():
            raise DocumentError(
                f"no configuration that ran in '{self.name}', such as {self.configurations[0]}, is"
                f" common with those asked for, such as {configurations[0]}: the names and values"
                " of their parameters have to agree",
                path=None,
            )
        return times


def _key(names: Iterable[str]) -> Callable[[Choice], tuple[Value | None, ...]]:
    return lambda choice: tuple(choice.get(name) for name in names)


def read_value(text: str) -> tuple[str, Value]:
    """Read ``name=value``: a number, ``true`` or ``false``, else a text."""
    name, _, written = text.partition("=")
    if not name or not written:
        raise ParameterError(
            f"{text!r} is no name=value, such as block_size_x=32", parameter="where"
        )
    return name, number_or_text(written)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTrial:
    """Configuration that a replayed search looked up."""

    configuration: Choice  # which one
    time_s: float | None  # its recorded time, s
    spent_s: float  # what the search would have spent by then, s, by recorded costs


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Table, Drawable, ShortRepr):
    """Trials of a replayed search, and how the best of them compares with the optimum."""

    space: str  # kernel and device of the recorded times
    device: str
    trials: tuple[ReplayedTrial, ...]  # in order
    optimum_s: float  # shortest recorded time, s
    configurations: int  # how many the space has

    @property
    def best(self) -> ReplayedTrial:
        """The trial with the shortest time."""
        return min((each for each in self.trials if each.time_s is not None), key=_time_of)

    @property
    def over_optimum(self) -> float:
        """Time of the best trial over the shortest recorded time; 1 if the optimum was found."""
        return _time_of(self.best) / self.optimum_s

    @property
    def best_so_far_s(self) -> tuple[float, ...]:
        """Shortest time after each trial, s; infinite before the first that ran."""
        times = [np.inf if each.time_s is None else each.time_s for each in self.trials]
        return tuple(float(value) for value in np.minimum.accumulate(times))


def _time_of(trial: ReplayedTrial) -> float:
    assert trial.time_s is not None
    return trial.time_s


def replay(
    recorded: RecordedSpace,
    *,
    measurements: int | None = None,
    seconds: float | None = None,
    predicted_s: Sequence[float] | NDArray[np.float64] | None = None,
    seed: int = 0,
) -> ReplayResult:
    """Search a recorded space: each measurement is a look at the recorded time."""
    count = len(recorded.configurations)
    if measurements is None and seconds is None:
        measurements = max(24, count // 100)
    for name, limit in (("measurements", measurements), ("seconds", seconds)):
        if limit is not None and not limit > 0:
            raise ParameterError(f"{name}={limit} is not positive", parameter=name)
    if seconds is not None and np.isnan(recorded.costs_s).all():
        raise ParameterError(
            f"the record of '{recorded.name}' does not say what measuring takes: limit the"
            " measurements instead of the seconds",
            parameter="seconds",
        )
    costs = recorded.costs_s
    if not (unknown := np.isnan(costs)).all():
        costs = np.where(unknown, np.nanmedian(costs), costs)
    search = ConfigurationSearch(recorded.configurations, predicted_s=predicted_s, seed=seed)
    trials: list[ReplayedTrial] = []
    spent_s = 0.0
    while (measurements is None or len(trials) < measurements) and (
        (place := search.ask()) is not None
    ):
        cost_s = float(costs[place])
        if seconds is not None and spent_s + cost_s > seconds:
            break
        spent_s += cost_s
        time_s = float(recorded.times_s[place])
        known = None if np.isnan(time_s) else time_s
        search.tell(place, known, cost_s=cost_s if cost_s > 0 else None)
        trials.append(
            ReplayedTrial(
                configuration=recorded.configurations[place], time_s=known, spent_s=spent_s
            )
        )
    if search.best is None:
        raise ParameterError(
            f"none of {len(trials)} configurations ran within the limits; allow more of them",
            parameter="measurements" if seconds is None else "seconds",
        )
    return ReplayResult(
        space=recorded.name,
        device=recorded.device,
        trials=tuple(trials),
        optimum_s=recorded.best_s,
        configurations=count,
    )


def replay_object(result: ReplayResult) -> dict[str, Any]:
    """Return a replayed search as plain values, with times in s."""
    best = result.best
    return {
        "space": result.space,
        "device": result.device,
        "configurations": result.configurations,
        "measured": len(result.trials),
        "failed": sum(each.time_s is None for each in result.trials),
        "best": {"configuration": dict(best.configuration), "time_s": best.time_s},
        "optimum_s": result.optimum_s,
        "over_optimum": result.over_optimum,
        "spent_s": None if np.isnan(result.trials[-1].spent_s) else result.trials[-1].spent_s,
    }
