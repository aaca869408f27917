"""Checks on a fit, each with its finding and a remedy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from countperf.execution.memory_hierarchy import (
    ASSUMED,
    UNKNOWN,
    CountedCaches,
    MemoryHierarchy,
)
from countperf.fitting.design import Design, Diagnosis, Observation
from countperf.fitting.estimate import Estimate
from countperf.fitting.leaving_out import HeldOutCase
from countperf.fitting.solve import Vector
from countperf.metrics import NOISE_DEVIATIONS, mean_error
from countperf.models.correction import CORRECTION, Correction
from countperf.models.records import Coverage, Weight
from countperf.predictions import Verdict

CONDITION_LIMIT = 1e4
"""Beyond it, errors of a tenth of a percent in the times can change weights by their own size."""

ERROR_LIMIT = 0.2
"""In-sample error above which a fit does not describe its own measurements."""

HELD_OUT_LIMIT = 0.5
"""Error over families left out above which predictions of new kernels mean little."""

COVERAGE_ERRORS = 2.0
"""Standard errors by which coverage may lie below its level, with families as single draws."""

_WORST = 3


def rank_verdict(diagnosis: Diagnosis, features: int) -> Verdict:
    """Name the features that the measurements cannot tell apart."""
    if not diagnosis.groups:
        return Verdict(
            name="rank", passed=True, message=f"full: {features} weights are all determined"
        )
    groups = "; ".join(" and ".join(group.features) for group in diagnosis.groups)
    return Verdict(
        name="rank",
        passed=False,
        message=f"{diagnosis.rank} of {features}: the measurements cannot tell apart {groups}; each"
        " group shares its cost in proportion",
        remedy="measure kernels that have these properties in other proportions; until then trust"
        " only kernels that have them in the same proportion",
    )


def correction_verdict(correction: Correction) -> Verdict:
    """Say what kernels that are like the one at hand are worth."""
    return Verdict(
        name=CORRECTION,
        passed=True,
        message=f"predictions are corrected by what the {len(correction.kernels)} measured kernels"
        f" were off by, as far as they are alike: families that are left out are typically off by"
        f" a factor of {correction.factor:.3f}, without it by {correction.uncorrected_factor:.3f}",
    )


def condition_verdict(diagnosis: Diagnosis) -> Verdict:
    """Name the features that are close to being indistinguishable."""
    pairs = "; ".join(f"{a} and {b}" for a, b, _ in diagnosis.close_pairs)
    found = f"condition {diagnosis.condition:.2g} of the scaled columns"
    if diagnosis.condition <= CONDITION_LIMIT and not pairs:
        return Verdict(name="condition", passed=True, message=found)
    return Verdict(
        name="condition",
        passed=False,
        message=found + (f"; nearly always in the same proportion: {pairs}" if pairs else ""),
        remedy="measure kernels in which they differ more, or read their weights together",
    )


def exercise_verdict(design: Design) -> Verdict:
    """Name properties that get no weight, or that the model has no rule for."""
    if not (design.unexercised or design.unknown):
        return Verdict(
            name="exercise", passed=True, message="every property of the kernels is exercised"
        )
    found = [f"never exercised: {', '.join(design.unexercised)}"] if design.unexercised else []
    if design.unknown:
        found.append(f"the model has no rule for: {', '.join(design.unknown)}")
    return Verdict(
        name="exercise",
        passed=False,
        message="; ".join(found),
        remedy="these get no weight; measure kernels that exercise them at other parameters",
    )


def error_verdict(observations: Sequence[Observation], errors: Vector) -> Verdict:
    """Say how well the fit describes its own measurements, and where it does worst."""
    mean = mean_error(errors)
    noise = np.array([case.noise for case in observations])
    worst = ", ".join(
        f"{observations[i].name} {100 * errors[i]:.0f} %"
        + (f" (noise {100 * noise[i]:.0f} %)" if noise[i] > 0 else "")
        for i in np.argsort(-errors)[:_WORST]
    )
    within = int(np.count_nonzero((errors <= NOISE_DEVIATIONS * noise) & (noise > 0)))
    return Verdict(
        name="in-sample error",
        passed=mean.value <= ERROR_LIMIT,
        message=f"{100 * mean.value:.1f} % (geometric mean of {mean.count} cases"
        + (f", {within} of them within noise" if within else "")
        + f"); worst: {worst}",
        remedy=""
        if mean.value <= ERROR_LIMIT
        else "the model does not describe these kernels on this device; look at the worst cases",
    )


def held_out_verdict(held_out: Sequence[HeldOutCase]) -> Verdict:
    """Say how well each family is predicted from the others."""
    errors = [error for case in held_out if (error := case.relative_error) is not None]
    if not errors:
        return Verdict(
            name="held-out error",
            passed=False,
            message="no family of kernels can be predicted from the others",
            remedy="measure more families",
        )
    mean = mean_error(errors)
    left = len(held_out) - len(errors)
    undetermined = f"; {left} cases are not determined by other families" if left else ""
    return Verdict(
        name="held-out error",
        passed=mean.value <= HELD_OUT_LIMIT,
        message=f"{100 * mean.value:.0f} % (geometric mean of {mean.count} cases, each predicted"
        f" without its family{undetermined})",
        remedy=""
        if mean.value <= HELD_OUT_LIMIT
        else "expect errors of this size for kernels unlike those measured; measure more families",
    )


def coverage_verdict(coverage: Coverage | None) -> Verdict:
    """Say how often intervals hold for families that they were not made from."""
    if coverage is None:
        return Verdict(
            name="coverage",
            passed=False,
            message="too few families of kernels to check the intervals of predictions",
            remedy="measure more families",
        )
    slack = COVERAGE_ERRORS * (0.9 * 0.1 / coverage.families) ** 0.5
    passed = coverage.share_90 >= 0.9 - slack
    return Verdict(
        name="coverage",
        passed=passed,
        message=f"intervals of 90 % hold for {100 * coverage.share_90:.0f} % of {coverage.cases}"
        f" cases of {coverage.families} families, each left out of what they are made from; they"
        f" reach a factor of {coverage.median_factor_90:.2g} up and down (median)",
        remedy=""
        if passed
        else "intervals are too narrow for kernels unlike those measured; measure more families",
    )


def sign_verdict(weights: Sequence[Weight]) -> Verdict:
    """Name negative weights."""
    negative = [weight.feature for weight in weights if weight.value_s < 0]
    if not negative:
        return Verdict(name="sign", passed=True, message="no weight is negative")
    return Verdict(
        name="sign",
        passed=False,
        message=f"negative weights: {', '.join(negative)}",
        remedy="not rates by themselves: they correct other weights; nonnegative=True forbids them",
    )


def bound_verdict(estimate: Estimate) -> Verdict:
    """Name weights and parameters that a bound holds."""
    function, solution = estimate.function, estimate.solution
    held = [key for key, bound in zip(function.keys, solution.at_bound, strict=True) if bound]
    if not held:
        return Verdict(name="bounds", passed=True, message="no weight is held at its bound")
    zero = [
        key
        for key, value in zip(function.keys, solution.coefficients, strict=True)
        if key in held and value == 0
    ]
    other = [key for key in held if key not in zero]
    found = (
        [f"held at zero, without the bound they would be negative: {', '.join(zero)}"]
        if zero
        else []
    ) + ([f"held at their bounds: {', '.join(other)}"] if other else [])
    return Verdict(
        name="bounds",
        passed=False,
        message="; ".join(found),
        remedy="their cost is hidden in other weights; measure kernels that set them apart",
    )


def convergence_verdict(estimate: Estimate) -> Verdict:
    """Say whether the solver met its tolerances."""
    if estimate.converged:
        return Verdict(name="convergence", passed=True, message=estimate.message or "linear")
    return Verdict(
        name="convergence",
        passed=False,
        message=f"the solver stopped early: {estimate.message}",
        remedy="allow it more evaluations, or give the parameters of the expression other starts or"
        " narrower bounds",
    )


def memory_verdict(memory: MemoryHierarchy, caches: CountedCaches | None = None) -> Verdict:
    """Say whose caches a model of an execution policy has, and its kernels were counted for."""
    if memory.name != UNKNOWN:
        if caches is not None and not memory.counted.counts_alike(caches):
            return Verdict(
                name="memory",
                passed=False,
                message=f"kernels were counted for caches of {caches.text}, and {memory.name} has"
                f" {memory.counted.text}",
                remedy="count the measured kernels again: countperf.workflow.measured.recount",
            )
        return Verdict(name="memory", passed=True, message=f"caches are those of {memory.name}")
    return Verdict(
        name="memory",
        passed=False,
        message=f"the caches of this device are not known; those of {ASSUMED} are assumed",
        remedy="fit on the device itself, if it is a processor whose system reports its caches, or"
        " in Python pass countperf.fitting.fit.fit its memory=MemoryHierarchy(...)",
    )


def significance_verdict(weights: Sequence[Weight]) -> Verdict:
    """Name weights that are smaller than twice their standard error."""
    weak = [
        weight.feature
        for weight in weights
        if weight.standard_error_s is not None and abs(weight.value_s) < 2 * weight.standard_error_s
    ]
    if not weak:
        return Verdict(
            name="significance", passed=True, message="every weight exceeds two standard errors"
        )
    return Verdict(
        name="significance",
        passed=False,
        message=f"not told from zero: {', '.join(weak)}",
        remedy="do not read these weights as rates; measure kernels in which they dominate",
    )


def stability_verdict(observations: Sequence[Observation], left_out: int) -> Verdict:
    """Say how many cases have samples that spread too far."""
    unstable = [case.name for case in observations if not case.stable]
    dropped = f"; {left_out} more were left out" if left_out else ""
    if not unstable:
        return Verdict(
            name="stability", passed=True, message=f"no case of the fit is unstable{dropped}"
        )
    some = ", ".join(unstable[:_WORST]) + (" ..." if len(unstable) > _WORST else "")
    return Verdict(
        name="stability",
        passed=False,
        message=f"the samples of {len(unstable)} of {len(observations)} cases spread too far"
        f" ({some}){dropped}",
        remedy="measure these again on a quiet machine",
    )


def counting_verdict(uncounted: Sequence[str], lacking: Sequence[str]) -> Verdict:
    """Name measured kernels that could not be counted, and those that lack what a model names."""
    message, remedy = "every measured kernel was counted", ""
    if uncounted:
        message = f"measured but not counted, so not in the fit: {', '.join(uncounted)}"
        remedy = "count them and write the measurements anew"
    elif lacking:
        kernels = list(dict.fromkeys(lacking))
        more = f" and {len(kernels) - _WORST} more" if len(kernels) > _WORST else ""
        message = (
            f"{len(lacking)} counted cases do not say what the model names, so are not in the fit:"
            f" {', '.join(kernels[:_WORST])}{more}"
        )
        remedy = "see why with countperf predict of one of them, with these weights"
    return Verdict(
        name="counting", passed=not (uncounted or lacking), message=message, remedy=remedy
    )
