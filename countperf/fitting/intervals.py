r"""Intervals from the errors of left-out families of kernels.

Intervals follow the quantiles of :math:`|\log(p/m)|` over left-out cases, as in conformal
prediction: no shape of the distribution is assumed. Cases of a family are off together, so each
family counts the same, whatever its number of cases: the distributions of the families are averaged
(the pooling of Dunn, Wasserman and Ramdas (2023), "Distribution-Free Prediction Sets for Two-Layer
Hierarchical Models", doi:10.1080/01621459.2022.2060112). Families, not cases, are what a new one
is like, so that the level is raised as for so many observations as there are families: by
``1 + 1/n``. That is calibrated for a case of a family like those measured, as their number grows;
with a handful of families it is an estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from countperf.fitting.leaving_out import HeldOutCase
from countperf.models.records import Calibration, Coverage
from countperf.models.validity import WORST_LOG_RATIO

_FEWEST_FAMILIES = 3


def interval_calibration(held_out: Iterable[HeldOutCase]) -> Calibration | None:
    """Return what intervals are made of; None with less than three families to go by."""
    cases = [c for c in held_out if c.predicted_s is not None and not c.overhead_only]
    families = list(dict.fromkeys(case.family for case in cases))
    if len(families) < _FEWEST_FAMILIES:
        return None
    logs = np.array([log_ratio(case.predicted_s or 0.0, case.measured_s) for case in cases])
    sizes = Counter(case.family for case in cases)
    shares = np.array([1.0 / (len(families) * sizes[case.family]) for case in cases])
    between, within = scatter_of_kernels(logs, [case.kernel for case in cases])
    return Calibration(
        log_errors_90=conformal_quantile(np.abs(logs), shares, 0.9, units=len(families)),
        log_errors_95=conformal_quantile(np.abs(logs), shares, 0.95, units=len(families)),
        between_kernels=between,
        within_kernels=within,
        families=len(families),
        cases=len(cases),
    )


def coverage_without_own_family(held_out: Iterable[HeldOutCase]) -> Coverage | None:
    """Return how well intervals hold that the *other* families make for left-out cases.

    It is the honest check of a calibration with the measurements that it is made from. Each family
    counts the same.
    """
    cases = [c for c in held_out if c.predicted_s is not None and not c.overhead_only]
    families = list(dict.fromkeys(case.family for case in cases))
    if len(families) <= _FEWEST_FAMILIES:
        return None
    family = np.array([families.index(case.family) for case in cases], np.intp)
    logs = np.array([abs(log_ratio(c.predicted_s or 0.0, c.measured_s)) for c in cases])
    shares = 1.0 / np.bincount(family)[family]
    number = len(families) - 1
    covered: list[tuple[float, float]] = []
    widths: list[float] = []
    for place in range(len(families)):
        inside = family == place
        low, high = (
            conformal_quantile(logs[~inside], shares[~inside] / number, level, units=number)
            for level in (0.9, 0.95)
        )
        covered.append((float(np.mean(logs[inside] <= low)), float(np.mean(logs[inside] <= high))))
        widths += [low] * int(inside.sum())
    return Coverage(
        share_90=float(np.mean([low for low, _ in covered])),
        share_95=float(np.mean([high for _, high in covered])),
        median_factor_90=float(np.exp(np.median(widths))),
        families=len(covered),
        cases=len(cases),
    )


def log_ratio(predicted_s: float, measured_s: float) -> float:
    """Return log(predicted / measured), at most a factor of 1000; that for times below zero."""
    if predicted_s <= 0:
        return -WORST_LOG_RATIO
    return float(np.clip(np.log(predicted_s / measured_s), -WORST_LOG_RATIO, WORST_LOG_RATIO))


def conformal_quantile(
    values: NDArray[np.float64], shares: NDArray[np.float64], level: float, *, units: int
) -> float:
    """Return the smallest value that a share of ``level (1 + 1/units)`` does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(shares[order])
    wanted = min(level * (1.0 + 1.0 / units), 1.0)
    place = int(np.searchsorted(reached, wanted - 1e-12))
    return float(values[order[min(place, values.size - 1)]])


def scatter_of_kernels(logs: NDArray[np.float64], kernels: Sequence[str]) -> tuple[float, float]:
    """Split log ratios into what a kernel's cases share and what they do not."""
    numbers = {kernel: number for number, kernel in enumerate(dict.fromkeys(kernels))}
    members = np.array([numbers[kernel] for kernel in kernels], np.intp)
    order = np.argsort(members, kind="stable")
    groups = np.split(logs[order], np.cumsum(np.bincount(members))[:-1])
    freedom = sum(group.size - 1 for group in groups)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups)
    within = squares / freedom if freedom else 0.0
    shared = np.mean([float(group.mean()) ** 2 - within / group.size for group in groups])
    return float(np.sqrt(max(float(shared), 0.0))), float(np.sqrt(within))
