r"""How far predictions of new kernels are off, from families of kernels that were left out.

Intervals follow the quantiles of :math:`|\log(p/m)|` over left-out cases, as in conformal
prediction: no shape of the distribution is assumed. Cases of a family are off together, so each
family counts the same, whatever its number of cases: the distributions of the families are averaged
(the pooling of Dunn, Wasserman and Ramdas (2023), "Distribution-Free Prediction Sets for Two-Layer
Hierarchical Models", doi:10.1080/01621459.2022.2060112). That is calibrated for a case of a family
like those measured, as their number grows; with a handful of families it is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from countperf.fitting.validation import HeldOutCase
from countperf.models.records import Calibration

_WORST_LOG_RATIO = float(np.log(1000.0))
_FEWEST_FAMILIES = 3


def interval_calibration(held_out: Iterable[HeldOutCase]) -> Calibration | None:
    """Return what intervals are made of; None with less than three families to go by.

    Parameters
    ----------
    held_out : iterable of HeldOutCase
        Cases predicted without their family; those of kernels that only launch do not count.
    """
    cases = [c for c in held_out if c.predicted_s is not None and not c.overhead_only]
    families = list(dict.fromkeys(case.family for case in cases))
    if len(families) < _FEWEST_FAMILIES:
        return None
    logs = np.array([log_ratio(case.predicted_s or 0.0, case.measured_s) for case in cases])
    sizes = {family: sum(case.family == family for case in cases) for family in families}
    shares = np.array([1.0 / (len(families) * sizes[case.family]) for case in cases])
    between, within = scatter_of_kernels(logs, [case.kernel for case in cases])
    return Calibration(
        log_errors_90=conformal_quantile(np.abs(logs), shares, 0.9),
        log_errors_95=conformal_quantile(np.abs(logs), shares, 0.95),
        between_kernels=between,
        within_kernels=within,
        families=len(families),
        cases=len(cases),
    )


def coverage_without_own_family(held_out: Iterable[HeldOutCase]) -> tuple[float, float] | None:
    """Return in which shares of left-out cases quantiles from the *other* families hold.

    It is the honest check of a calibration with the measurements that it is made from. Each family
    counts the same; uncertainty of the weights, which widens intervals further, is left out.

    Returns
    -------
    tuple of float, or None
        Shares for the levels 0.9 and 0.95; None with less than four families.
    """
    cases = [c for c in held_out if c.predicted_s is not None and not c.overhead_only]
    shares: list[tuple[float, float]] = []
    for family in dict.fromkeys(case.family for case in cases):
        calibration = interval_calibration(c for c in cases if c.family != family)
        if calibration is None:
            return None
        logs = np.array(
            [
                abs(log_ratio(c.predicted_s or 0.0, c.measured_s))
                for c in cases
                if c.family == family
            ]
        )
        low, high = calibration.log_errors_90, calibration.log_errors_95
        shares.append((float(np.mean(logs <= low)), float(np.mean(logs <= high))))
    if not shares:
        return None
    return float(np.mean([low for low, _ in shares])), float(np.mean([high for _, high in shares]))


def log_ratio(predicted_s: float, measured_s: float) -> float:
    """Return log(predicted / measured), at most a factor of 1000; that for times below zero."""
    if predicted_s <= 0:
        return -_WORST_LOG_RATIO
    return float(np.clip(np.log(predicted_s / measured_s), -_WORST_LOG_RATIO, _WORST_LOG_RATIO))


def conformal_quantile(
    values: NDArray[np.float64], shares: NDArray[np.float64], level: float
) -> float:
    """Return the smallest value that a share of at least ``level (1 + 1/n)`` does not exceed.

    Parameters
    ----------
    values : ndarray, shape (n,)
        At least one.
    shares : ndarray, shape (n,)
        What each value counts for; they sum to one.
    level : float
        Between 0 and 1.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 20.0), np.full(19, 1 / 19), 0.9)
    18.0
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(shares[order])
    wanted = min(level * (1.0 + 1.0 / values.size), 1.0)
    place = int(np.searchsorted(reached, wanted - 1e-12))
    return float(values[order[min(place, values.size - 1)]])


def scatter_of_kernels(logs: NDArray[np.float64], kernels: Sequence[str]) -> tuple[float, float]:
    """Split log ratios into what a kernel's cases share and what they do not.

    Parameters
    ----------
    logs : ndarray, shape (n_cases,)
        log(predicted / measured).
    kernels : sequence of str
        Kernel of each case.

    Returns
    -------
    float
        Standard deviation about zero of what the cases of a kernel share.
    float
        Standard deviation of the cases of a kernel about it; zero if none has two.
    """
    groups = [
        logs[[i for i, other in enumerate(kernels) if other == kernel]]
        for kernel in dict.fromkeys(kernels)
    ]
    freedom = sum(group.size - 1 for group in groups)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups)
    within = squares / freedom if freedom else 0.0
    shared = np.mean([float(group.mean()) ** 2 - within / group.size for group in groups])
    return float(np.sqrt(max(float(shared), 0.0))), float(np.sqrt(within))
