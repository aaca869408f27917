"""Measurement of variants: their numbers are checked, and each runs while it may be the fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from statistics import fmean
from typing import Any, TypeAlias

from countperf.errors import MeasurementError
from countperf.measuring import KernelCase
from countperf.measuring.runner import CaseRunner
from countperf.tuning.posterior import LogTimes
from countperf.tuning.ranker import PredictionTask
from countperf.tuning.result import Plan
from countperf.tuning.space import Choice

_FIRST_ALLOWANCE = 1.0
_ENOUGH = 3  # runs, two of which are no warm-up
_CHANCE = 0.2  # of being faster than what runs that agree say
_LARGEST_REGRET = 1 - 1e-6


def is_hopeless(samples_s: Sequence[float], best_s: float | None) -> bool:
    """Tell whether runs of a variant so far leave no hope of it being the fastest.

    The fastest of the runs has to exceed the best time known by an allowance for what later runs
    may gain: the whole of it after the first run, which may be a warm-up, half of it after the
    second, and so on; less where three runs or more agree: with t1 and t2 the two shortest, it
    holds with a confidence of 0.8 that no run takes less than ``t1 - 4*(t2 - t1)``.

    Source: Robson, Whitlock (1964), "Estimation of a truncation point", Biometrika 51,
    doi:10.1093/biomet/51.1-2.33, the limit of confidence for an end of a distribution.
    """
    return best_s is not None and bool(samples_s) and least_hope(samples_s) > best_s


def least_hope(samples_s: Sequence[float]) -> float:
    """Return the shortest time that later runs may come to, as `is_hopeless` has it, s."""
    shortest, *others = sorted(samples_s)
    least_s = shortest / (1 + _FIRST_ALLOWANCE / len(samples_s))
    if len(samples_s) < _ENOUGH:
        return least_s
    return max(least_s, shortest - (1 - _CHANCE) / _CHANCE * (others[0] - shortest))


def median_limit(samples_s: Sequence[float], confidence: float) -> float:
    """Bound the median run of a variant from above, s, whatever the distribution of its runs.

    The j-th shortest of n runs is below the median with the probability that of n fair coins j or
    more show heads. Of less than six runs, or so, none is long enough; the longest stands in.

    Source: David, Nagaraja (2003), "Order statistics", section 7.1.
    """
    from scipy.special import bdtrc

    number = len(samples_s)
    heads = 0  # of which more show with this probability
    while bdtrc(heads, number, 0.5) > 1 - confidence and heads + 1 < number:
        heads += 1
    return sorted(samples_s)[heads]


Rest: TypeAlias = Sequence[tuple[LogTimes, int]]
"""Variants that were not measured: distributions, and how many variants each of them stands for."""


def chance_of_better(rest: Rest, best_s: float, margin: float = 0.0) -> float:
    """Bound the probability that some unmeasured variant beats the best by more than a margin."""
    time_s = best_s * (1 - margin)
    expected = sum(count * float(times.probability_below(time_s).sum()) for times, count in rest)
    return min(1.0, expected)


def regret_bound(rest: Rest, best_s: float, confidence: float) -> float:
    """Bound by which fraction of a time the fastest of what was not measured may take less."""
    allowed = 1 - confidence
    if chance_of_better(rest, best_s) <= allowed:
        return 0.0
    if chance_of_better(rest, best_s, _LARGEST_REGRET) > allowed:
        return 1.0
    from scipy.optimize import bisect

    def over(share: float) -> float:
        return chance_of_better(rest, best_s, share) - allowed

    root: Any = bisect(over, 0.0, _LARGEST_REGRET)
    return float(root)


FEWEST_RUNS = 2
CHEAP = 0.05
"""Runs that take no more than this fraction of the time of building a variant are not spared."""

COLD = 3.0
"""So many times as long as later ones, or less, runs take before a device is warm."""


@dataclass(eq=False)
class VariantBench:
    """Measures variants on a device, one at a time."""

    task: PredictionTask
    runner: CaseRunner
    plan: Plan
    _: KW_ONLY
    most_s: float = math.inf  # after so long a variant gets no further runs, once it has two, s
    left_s: Callable[[], float] = lambda: math.inf
    built_s: list[float] = field(default_factory=list[float])
    checked: set[str] = field(default_factory=set[str])

    def build(self, choice: Choice) -> float:
        """Build a variant and check its numbers; return the time that it took, s."""
        case = self.task.space.case(choice, self.task.sizes, self.task.statistics)
        began_s = self.runner.clock.now()
        self.runner.check(case)
        took_s = self.runner.clock.now() - began_s
        if case.kernel not in self.checked:
            self.checked.add(case.kernel)
            self.built_s.append(took_s)
        return took_s

    def time(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Check a variant's numbers and run it.

        Runs that are over before the device is warm are not kept, see `Plan.warm_up_s`.
        """
        self.build(choice)
        case = self.task.space.case(choice, self.task.sizes, self.task.statistics)
        cheap_s, most_s = CHEAP * fmean(self.built_s), min(self.most_s, self.plan.max_case_s)
        return self.runner.apply(
            time_while_hopeful, case, self.plan, best_s, cheap_s, most_s, self.left_s()
        )


def time_while_hopeful(
    runner: CaseRunner,
    case: KernelCase,
    plan: Plan,
    best_s: float | None,
    cheap_s: float,
    most_s: float,
    left_s: float,
) -> tuple[tuple[float, ...], bool]:
    """Run a case while it may be the fastest and there is time, s; see `VariantBench.time`."""
    samples: list[float] = []
    cold: list[float] = []
    with runner.loaded(case) as run:
        began_s = runner.clock.now()
        while len(samples) < plan.runs:
            sample = run().time_s
            if not sample > 0:
                raise MeasurementError(f"{case.name}: a time of {sample} s", case=case.name)
            spent = runner.clock.now() - began_s
            spared = spent > cheap_s
            if spent < plan.warm_up_s and spent < left_s:
                cold.append(sample)
                if spared and best_s is not None and min(cold) > COLD * best_s:
                    return tuple(cold), True
                continue
            samples.append(sample)
            if spared and is_hopeless(samples, best_s):
                return tuple(samples), True
            if len(samples) >= FEWEST_RUNS and (spent > most_s or spent >= left_s):
                break
    return tuple(samples), False
