"""Families of kernels that are left out, and predicted by a fit of the others.

Leaving out random rows would only test interpolation: a family's other sizes and group shapes
remain in the fit. So whole families are left out, one or several at a time.

Their figure is the factor by which left-out cases are typically off, ``max(predicted/measured,
measured/predicted)``: the geometric mean over a family's cases, then over families, whatever their
numbers of cases. (The geometric mean of relative errors, which is stated beside it, gains as much
where an error of 2 % becomes one of 1 % as it loses where a factor of 2 becomes one of 3; but it is
the large errors that put variants in the wrong order.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from countperf.errors import FitError, FitNotConvergedError
from countperf.features import CountValue
from countperf.fitting.correcting import LeftOut, left_out_corrections
from countperf.fitting.design import Design, Observation
from countperf.fitting.estimate import Estimate, estimate_design
from countperf.fitting.solve import LogPrior, Recipe
from countperf.fitting.threads import on_one_thread
from countperf.metrics import factor_between
from countperf.models.definition import CODE, MISS, SPILL
from countperf.steps import stepped

Group = tuple[str, ...]
"""Families that are left out together."""

UNPREDICTED = 1.0
"""Relative error that a case counts for which a candidate cannot predict, and another can."""

LARGEST_FACTOR = 10.0
"""Factors beyond it count for as much."""

SMALLEST_ERROR = 1e-4

_OVERHEAD = frozenset({"groups", "launches", "passes"})
"""Last parts of the names of what a kernel has that only launches."""

_PROCESSES = 8
"""Into so many parts groups go that are left out by several processes."""

_TOLERANCE = 1e-6
"""Relative change of the cost that ends fits without a family, which begin at that of all cases.
With 1e-9 they take twice as long, and the factor over left-out families differs by 0.0009 and
0.0003 (PoCL on Zen 4, Intel's runtime on Zen 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutCase:
    """A measured case, predicted without its family."""

    name: str  # the case, its kernel, and the family that was left out
    kernel: str
    family: str
    measured_s: float  # measured time, s
    predicted_s: float | None  # predicted time, s
    corrected_s: float | None = None
    overhead_only: bool = False  # whether the kernel only launches

    @property
    def relative_error(self) -> float | None:
        """``|predicted - measured| / measured``, where there is a prediction."""
        if self.predicted_s is None:
            return None
        return abs(self.predicted_s - self.measured_s) / self.measured_s

    @property
    def factor(self) -> float | None:
        """Factor between prediction and measurement (`metrics.factor_between`), if predicted."""
        if self.predicted_s is None:
            return None
        return factor_between(self.predicted_s, self.measured_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutFigure:
    """Error of left-out families, each family with the same weight."""

    error: float  # geometric mean of the relative errors
    factor: float  # geometric mean of ``max(predicted/measured, measured/predicted)``


def leave_families_out(
    observations: Sequence[Observation],
    near: Estimate,
    recipe: Recipe,
    *,
    design: Design | None = None,
    prior: LogPrior | None = None,
    with_correction: bool = False,
    parts: int = 0,
    executor: Executor | None = None,
) -> tuple[HeldOutCase, ...]:
    """Predict families of kernels with a fit of the others, near the fit of all cases.

    Families are left out one at a time, or in so many parts. The design is that of the fit of all
    cases unless another one of the same cases is given.
    """
    families = tuple(dict.fromkeys(case.family for case in observations))
    groups = [families[i::parts] for i in range(min(parts, len(families)))] if parts else []
    groups = groups or [(family,) for family in families]
    without = partial(
        leave_out,
        tuple(case.family for case in observations),
        near.design if design is None else design,
        near,
        replace(recipe, tolerance=max(recipe.tolerance, _TOLERANCE)),
        prior,
    )
    if executor is None:
        found = without(groups)
    else:
        shares = [groups[first::_PROCESSES] for first in range(min(_PROCESSES, len(groups)))]
        done = stepped(executor.map(without, shares), "leaving out families", total=len(shares))
        found = {group: each for part in done for group, each in part.items()}
    left_out: dict[Group, LeftOut] = {}
    for group, each in found.items():
        if isinstance(each, str):
            raise FitNotConvergedError(f"without the family {', '.join(map(repr, group))}: {each}")
        left_out[group] = each
    factors = left_out_corrections(near, observations, left_out) if with_correction else None
    times = np.full(len(observations), np.nan)
    for each in left_out.values():
        times[~each.outside] = each.times_s
    cases = [
        HeldOutCase(
            name=case.name,
            kernel=case.kernel,
            family=case.family,
            measured_s=case.time_s,
            predicted_s=None if math.isnan(time_s) else time_s,
            corrected_s=None
            if math.isnan(time_s) or factors is None
            else time_s * math.exp(float(factors[position])),
            overhead_only=prior is None and _only_launches(case.counts),
        )
        for position, (case, time_s) in enumerate(zip(observations, times.tolist(), strict=True))
    ]
    return tuple(case for family in families for case in cases if case.family == family)


@on_one_thread
def leave_out(
    labels: Sequence[str],
    design: Design,
    near: Estimate,
    recipe: Recipe,
    prior: LogPrior | None,
    groups: Sequence[Group],
) -> dict[Group, LeftOut | str]:
    """Predict groups of families, each without itself; or say why a fit did not converge."""
    found: dict[Group, LeftOut | str] = {}
    for group in stepped(groups, "leaving out families"):
        inside = np.isin(labels, group)
        times = np.full(int(inside.sum()), np.nan)
        predicted_s = np.empty(0)
        try:
            outside = design.of_cases(~inside, with_all=prior is not None)
            fitted = estimate_design(outside, recipe, near=near, prior=prior)
            if not fitted.converged:
                raise FitNotConvergedError(f"the solver stopped early: {fitted.message}")
            times = fitted.at_cases(design.of_cases(inside, with_all=prior is not None))
            predicted_s = fitted.predicted_s
        except FitNotConvergedError as error:
            found[group] = str(error)
            break
        except FitError:  # nothing is left to fit
            pass
        found[group] = LeftOut(times_s=times, outside=~inside, predicted_s=predicted_s)
    return found


def _only_launches(counts: Mapping[str, CountValue]) -> bool:
    """Tell whether a kernel has no operations and no accesses; its machine code always has some."""
    return all(
        name.startswith((CODE, MISS, SPILL)) or name.rpartition(".")[2] in _OVERHEAD
        for name, count in counts.items()
        if count
    )


def corrected(held_out: Iterable[HeldOutCase]) -> tuple[HeldOutCase, ...]:
    """Return cases that were left out with their corrected times as those that were predicted."""
    return tuple(replace(case, predicted_s=case.corrected_s) for case in held_out)


def held_out_figure(
    held_out: Iterable[HeldOutCase], *, predictable: Collection[str] = ()
) -> HeldOutFigure:
    """Return by how much cases of left-out families are off, each family counting the same.

    Of cases that cannot be predicted those count that are `predictable`. Kernels that only launch
    do not count.
    """
    errors: defaultdict[str, list[float]] = defaultdict(list)
    factors: defaultdict[str, list[float]] = defaultdict(list)
    for case in held_out:
        error, factor = case.relative_error, case.factor
        if case.overhead_only or (error is None and case.name not in predictable):
            continue
        errors[case.family].append(max(UNPREDICTED if error is None else error, SMALLEST_ERROR))
        factors[case.family].append(
            min(1 + UNPREDICTED if factor is None else factor, LARGEST_FACTOR)
        )
    return HeldOutFigure(error=_mean_of_means(errors), factor=_mean_of_means(factors))


def _mean_of_means(by_family: Mapping[str, Sequence[float]]) -> float:
    return float(np.exp(np.mean([np.mean(np.log(values)) for values in by_family.values()])))
