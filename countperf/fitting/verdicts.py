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
from countperf.fitting.leaving_out import HeldOutCase
from countperf.fitting.solve import Vector
from countperf.metrics import mean_error
from countperf.models.function import Coverage
from countperf.predictions import Verdict

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


def error_verdict(
    observations: Sequence[Observation],
    errors: Vector,
    held_out: Sequence[HeldOutCase],
    coverage: Coverage | None,
) -> Verdict:
    """Say how well each family is predicted from the others, and where the fit does worst."""
    own = mean_error(errors)
    worst = ", ".join(
        f"{observations[i].name} {100 * errors[i]:.0f} %" for i in np.argsort(-errors)[:_WORST]
    )
    message = f"{100 * own.value:.1f} % on the {own.count} cases of the fit (worst: {worst})"
    left_out = [error for case in held_out if (error := case.relative_error) is not None]
    if not left_out or coverage is None:
        return Verdict(
            name="errors",
            passed=False,
            message=f"{message}; too few families of kernels are predicted from the others",
            remedy="measure more families",
        )
    mean = mean_error(left_out)
    message += f", {100 * mean.value:.0f} % on {mean.count} cases predicted without their family"
    if left := len(held_out) - len(left_out):
        message += f" ({left} are not determined by other families)"
    message += (
        f"; intervals of 90 % hold for {100 * coverage.share_90:.0f} % of {coverage.cases} cases of"
        f" {coverage.families} families, each left out of what they are made from"
    )
    slack = COVERAGE_ERRORS * (0.9 * 0.1 / coverage.families) ** 0.5
    is_good = own.value <= ERROR_LIMIT and mean.value <= HELD_OUT_LIMIT
    passed = is_good and coverage.share_90 >= 0.9 - slack
    return Verdict(
        name="errors",
        passed=passed,
        message=message,
        remedy=""
        if passed
        else "expect such errors for kernels unlike those measured; measure more families",
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
                remedy="count the measured kernels again: countperf.workflow.fitting.recount",
            )
        return Verdict(name="memory", passed=True, message=f"caches are those of {memory.name}")
    return Verdict(
        name="memory",
        passed=False,
        message=f"the caches of this device are not known; those of {ASSUMED} are assumed",
        remedy="fit on the device itself, if it is a processor whose system reports its caches, or"
        " in Python pass countperf.fitting.fit.fit its memory=MemoryHierarchy(...)",
    )


def cases_verdict(
    observations: Sequence[Observation],
    uncounted: Sequence[str],
    lacking: Sequence[str],
) -> Verdict:
    """Name cases whose samples spread too far, and kernels that are not in the fit, with why."""
    unstable = [case.name for case in observations if not case.stable]
    found = [
        (f"the samples of {len(unstable)} of {len(observations)} cases spread too far", unstable),
        ("measured but not counted, so not in the fit", list(uncounted)),
        ("without what the model names, so not in the fit", list(dict.fromkeys(lacking))),
    ]
    told = [
        f"{what}: {', '.join(names[:_WORST])}"
        + (f" and {len(names) - _WORST} more" if len(names) > _WORST else "")
        for what, names in found
        if names
    ]
    return Verdict(
        name="cases",
        passed=not told,
        message="; ".join(told) or f"all {len(observations)} cases repeat and are in the fit",
        remedy="measure these again on a quiet machine; see with countperf count why one is not"
        " counted"
        if told
        else "",
    )
