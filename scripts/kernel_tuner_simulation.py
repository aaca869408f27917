"""Kernel Tuner's strategies on recorded spaces, under a budget of recorded time alone.

In simulation mode Kernel Tuner's budget is the recorded time of what was measured plus the time
that passes on the clock: the strategy's, reading the cache, making the search space, and whatever
else the machine does. Here the budget is the recorded time alone (compiling, checking and running a
configuration when it is measured for the first time), for every strategy alike, so that scores do
not depend on the machine and its load. The strategies themselves, and the way they are called, are
Kernel Tuner's. What a strategy computes is measured beside it, as CPU time.

A strategy that only asks again for what it has measured spends no recorded time: it is ended after
`IDLE` such requests in a row.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import numpy as np
from kernel_tuner import util
from kernel_tuner.interface import Options, strategy_map
from kernel_tuner.runners.simulation import SimulationRunner
from kernel_tuner.searchspace import Searchspace
from kernel_tuner.strategies.wrapper import OptAlgWrapper
from numpy.typing import NDArray

TIMES = ("compile_time", "verification_time", "benchmark_time")
"""Recorded times of a configuration that make up the budget, ms."""

IDLE = 20_000
"""Requests in a row for what is known, after which a strategy is ended."""

_FAILED = 1e19  # Kernel Tuner writes larger numbers for what failed


def seconds_of(row: Mapping[str, Any]) -> float:
    """Return what measuring a configuration takes, s, as it was recorded."""
    known = [row.get(name) for name in TIMES]
    return sum(float(each) for each in known if isinstance(each, int | float)) / 1e3


def value_of(row: Mapping[str, Any]) -> float:
    """Return the recorded time of a configuration, ms; nan if it failed."""
    value = row.get("time")
    if "__error__" in row or not isinstance(value, int | float) or value > _FAILED:
        return float("nan")
    return float(value)


def _as_read(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as Kernel Tuner reads it: failures as objects, no time left out."""
    found = dict.fromkeys(TIMES, 0.0) | {n: 0.0 if row[n] is None else row[n] for n in row}
    failures = [v for v in row.values() if isinstance(v, str) and v.endswith("Config")]
    if failures:
        found["__error__"] = getattr(util, failures[-1])()
    return found


class RecordedBudget(util.TuningBudget):
    """Kernel Tuner's budget without the time that passes on the clock."""

    def __init__(self, limit_s: float, evaluations: int) -> None:
        super().__init__(limit_s, evaluations)
        self._asked_at: tuple[int, int] = (0, 0)

    def get_time_spent(self) -> timedelta:
        """Return the recorded time of what was measured."""
        return self.time_spent_extra

    def raise_exception_if_done(self) -> None:
        """End the strategy if the budget is spent, or if it does not measure any more."""
        super().raise_exception_if_done()
        asked, known = self._asked_at
        asked = asked + 1 if known == self.num_fevals else 0
        self._asked_at = asked, self.num_fevals
        if asked > 2 * IDLE:  # Kernel Tuner looks twice per request
            raise util.StopCriterionReached("nothing new is asked for")


class _Runner(SimulationRunner):
    """Kernel Tuner's simulation, which notes what was measured, in that order."""

    def __init__(self) -> None:
        options = Options([("kernel_name", "recorded")])
        super().__init__(None, options, Options([("quiet", True)]), 1, [])
        self.spent_s: list[float] = []
        self.values: list[float] = []

    def run(self, parameter_space: Any, tuning_options: Any) -> list[Any]:
        """Return recorded results, and note them."""
        results = super().run(parameter_space, tuning_options)
        for result in results:
            if result is not None:
                self.spent_s.append(seconds_of(result))
                self.values.append(value_of(result))
        return results


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Configurations that a strategy measured in its budget, in order."""

    spent_s: NDArray[np.float64]  # recorded time, s, after each request
    values: NDArray[np.float64]  # recorded time of the configuration, ms; nan of those that failed
    cpu_s: float  # CPU time of strategy and simulation


class Simulation:
    """A recorded space as Kernel Tuner's simulation mode has it."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self._rows = {key: _as_read(row) for key, row in content["cache"].items()}
        self.space = Searchspace(content["tune_params"], self._is_known, 1_000_000_000)
        if self.space.size != len(self._rows):
            raise ValueError(f"{self.space.size} of {len(self._rows)} configurations were found")

    def _is_known(self, configuration: Mapping[str, Any]) -> bool:
        return ",".join(map(str, configuration.values())) in self._rows

    def run(
        self,
        strategy: Any,
        *,
        limit_s: float,
        seed: int,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Run:
        """Run a strategy of Kernel Tuner's or one of the user's until its budget is spent."""
        import random

        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # Kernel Tuner's strategies draw from it
        runner = _Runner()
        tuning = Options(
            tune_params=self.content["tune_params"],
            restrictions=self.space._modified_restrictions,
            restrictions_unmodified=self._is_known,
            objective=["time"],
            objective_higher_is_better=[False],
            metrics=None,
            cache=self._rows,
            cachefile=None,
            simulation_mode=True,
            verbose=False,
            verify=None,
            snap=True,
            strategy_options=Options(options),
            budget=RecordedBudget(limit_s, self.space.size),
        )
        tune = (
            strategy_map[strategy] if isinstance(strategy, str) else OptAlgWrapper(strategy)
        ).tune
        began_s = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tune(self.space, runner, tuning)
        return Run(
            spent_s=np.cumsum(runner.spent_s),
            values=np.array(runner.values),
            cpu_s=time.process_time() - began_s,
        )
