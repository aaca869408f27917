"""Validation of a fit on families of kernels that were left out.

Leaving out random rows would only test interpolation: a family's other sizes and group shapes
remain in the fit. So whole families are left out, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from countperf.errors import FitError, FitNotConvergedError
from countperf.features import CountValue, FeatureSpec
from countperf.fitting.correcting import left_out_corrections
from countperf.fitting.design import Observation, as_model, check_counting_rules, inputs_of
from countperf.fitting.estimate import NORMAL_MEDIAN, Estimate, estimate, recipe_of
from countperf.fitting.leaving_out import LeavingOut, LeftOut, leave_out
from countperf.fitting.problem import Recipe
from countperf.measurements import PURPOSES, Measurement
from countperf.metrics import EvaluatedCase, Evaluation, factor_between
from countperf.models.definition import CODE, MISS, SPILL, ModelDefinition
from countperf.models.function import ModelInputs
from countperf.models.validity import WORST_LOG_RATIO
from countperf.models.weights import WeightSet
from countperf.properties.counts import says_group_shape
from countperf.steps import stepped

_OVERHEAD = frozenset({"groups", "launches", "passes"})
"""Last parts of the names of what a kernel has that only launches."""

_PARTS = 8
"""Into so many parts families go that are left out by several processes."""

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
    # how hard the fit of the others says it is, as `countperf.models.conformal` has it
    difficulty: float | None = None
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


def leave_one_family_out(
    observations: Sequence[Observation],
    model: ModelDefinition | FeatureSpec,
    *,
    recipe: Recipe | None = None,
    fitted: Estimate | None = None,
    inputs: Mapping[int, ModelInputs] | None = None,
    with_difficulty: bool = True,
    with_correction: bool = False,
    parts: int = 0,
    executor: Executor | None = None,
) -> tuple[HeldOutCase, ...]:
    """Predict each family of kernels with a fit of the other families."""
    definition = as_model(model)
    chosen = recipe or recipe_of(definition)
    rough = replace(chosen, tolerance=max(chosen.tolerance, _TOLERANCE))
    inputs = inputs or inputs_of(observations, definition)
    families = tuple(dict.fromkeys(case.family for case in observations))
    groups = (
        [families[first::parts] for first in range(parts)] if parts else [(f,) for f in families]
    )
    near = fitted or estimate(observations, definition, chosen, inputs=inputs)
    without = partial(
        leave_out,
        LeavingOut.of(observations, inputs, near, rough, with_difficulty=with_difficulty),
    )
    if executor is None:
        found = without(groups)
    else:
        shares = [groups[first::_PARTS] for first in range(min(_PARTS, len(groups)))]
        done = stepped(executor.map(without, shares), "leaving out families", total=len(shares))
        found = {group: each for part in done for group, each in part.items()}
    for group, each in found.items():
        if isinstance(each, str):
            raise FitNotConvergedError(f"without the family {', '.join(map(repr, group))}: {each}")
    left_out = {group: each for group, each in found.items() if not isinstance(each, str)}
    log_factors = left_out_corrections(near, observations, left_out) if with_correction else None
    return _held_out_cases(observations, left_out, log_factors)


def _held_out_cases(
    observations: Sequence[Observation],
    left_out: Mapping[tuple[str, ...], LeftOut],
    log_factors: NDArray[np.float64] | None,
) -> tuple[HeldOutCase, ...]:
    """Return the cases family by family, each predicted without it."""
    by_family: dict[str, list[HeldOutCase]] = {case.family: [] for case in observations}
    group_of = {family: group for group in left_out for family in group}
    seen = dict.fromkeys(left_out, 0)
    for place, case in enumerate(observations):
        group = group_of[case.family]
        time_s, hard = left_out[group].of_case(seen[group])
        seen[group] += 1
        corrected_s = None
        if time_s is not None and log_factors is not None:
            corrected_s = time_s * math.exp(float(log_factors[place]))
        by_family[case.family].append(
            HeldOutCase(
                name=case.name,
                kernel=case.kernel,
                family=case.family,
                measured_s=case.time_s,
                predicted_s=time_s,
                corrected_s=corrected_s,
                difficulty=hard,
                overhead_only=_only_launches(case.counts),
            )
        )
    return tuple(case for cases in by_family.values() for case in cases)


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


def log_scatter(predicted_s: Sequence[float], measured_s: Sequence[float]) -> float | None:
    """Return the robust standard deviation of log(predicted / measured) about zero.

    It is the median of the absolute values over that of the standard normal distribution. A time
    that is not positive, or off by more than a factor of 1000, counts as off by that factor.
    """
    if len(predicted_s) == 0:
        return None
    ratios = np.asarray(predicted_s, np.float64) / np.asarray(measured_s, np.float64)
    logs = np.full(ratios.shape, WORST_LOG_RATIO)
    positive = ratios > 0
    logs[positive] = np.minimum(np.abs(np.log(ratios[positive])), WORST_LOG_RATIO)
    return float(np.median(logs) / NORMAL_MEDIAN)


def evaluate(weights: WeightSet, measurements: Iterable[Measurement]) -> Evaluation:
    """Compare measured cases with their predictions."""
    cases: list[EvaluatedCase] = []
    needed = [*weights.definition.named_transactions]
    needed += ["code"] if weights.definition.reads_code else []
    for measurement in stepped(measurements, "predicting cases"):
        vector = measurement.property_vector()
        if vector is None or not all(map(vector.knows, needed)):
            continue
        if weights.definition.named_shape and not says_group_shape(vector):
            continue
        check_counting_rules(measurement)
        prediction = weights.predict_counts(
            vector, measurement.parameters, incomplete_ok=True, level=0.9
        )
        low_high = prediction.interval_s
        cases.append(
            EvaluatedCase(
                kernel=measurement.kernel,
                parameters=measurement.parameters,
                measured_s=measurement.time_s,
                predicted_s=float(prediction.time_s),
                complete=prediction.complete,
                purpose=measurement.purpose,
                noise=measurement.noise,
                interval_s=None if low_high is None else (float(low_high[0]), float(low_high[1])),
            )
        )
    order = {kernel: k for k, kernel in enumerate(dict.fromkeys(case.kernel for case in cases))}
    cases.sort(key=lambda c: (PURPOSES.index(c.purpose), order[c.kernel], c.measured_s))
    if not cases:
        raise FitError(
            "there is no counted measurement to evaluate; measure test kernels or applications"
        )
    return Evaluation(device=weights.device.slug, model=weights.model, cases=tuple(cases))
