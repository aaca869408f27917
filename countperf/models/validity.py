"""How far a prediction from fitted weights can be trusted: its interval and its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from countperf.predictions import Quantity, Verdict

if TYPE_CHECKING:
    from countperf.devices.identity import DeviceIdentity
    from countperf.models.records import IndistinguishableGroup, Weight

NORMAL_QUANTILE = 1.959963984540054
"""Of the standard normal distribution, at 97.5 %: two-sided intervals of 95 %."""

RELATION_TOLERANCE = 1e-6
"""A relation of counts holds if what is left of its terms is below this share of them."""

EXTRAPOLATION_FACTOR = 2.0
"""How far above its largest measured value a feature may lie before a verdict says so. Below the
smallest there is nothing to extrapolate: the launch overhead is measured by itself."""

NOTABLE_SHARE = 0.05
"""Features that take less of the time than this are not checked for their range."""


def interval(
    time_s: Quantity,
    counts: Sequence[Quantity],
    covariance: NDArray[np.float64] | None,
    scatter: float | None,
) -> tuple[Quantity, Quantity] | None:
    r"""Return where the time is expected in 95 of 100 cases, or None if that is not known.

    Parameters
    ----------
    time_s : float or ndarray
        Predicted time, s.
    counts : sequence of float or ndarray
        Feature values, one for each weight.
    covariance : ndarray or None
        Of the weights, s**2.
    scatter : float or None
        Standard deviation of log(predicted / measured) over kernels that were not in the fit.

    Notes
    -----
    Two independent sources: weights are uncertain, :math:`\sigma_w^2 = f^T C f` for feature values
    :math:`f`, and the model is wrong by a factor that scatters with :math:`s`. With
    :math:`z = 1.96` the interval reaches from :math:`T` up by
    :math:`\sqrt{(T (e^{zs} - 1))^2 + (z \sigma_w)^2}` and down by
    :math:`\sqrt{(T (1 - e^{-zs}))^2 + (z \sigma_w)^2}`, not below zero.
    """
    if scatter is None or covariance is None or np.any(np.asarray(time_s) <= 0):
        return None
    values = np.array(np.broadcast_arrays(*counts), np.float64)
    variance = np.einsum("i...,ij,j...->...", values, covariance, values)
    weights_s = NORMAL_QUANTILE * np.sqrt(np.maximum(variance, 0.0))
    up = np.hypot(time_s * np.expm1(NORMAL_QUANTILE * scatter), weights_s)
    down = np.hypot(time_s * -np.expm1(-NORMAL_QUANTILE * scatter), weights_s)
    low, high = np.maximum(time_s - down, 0.0), time_s + up
    if isinstance(time_s, np.ndarray):
        return np.asarray(low), np.asarray(high)
    return float(low), float(high)


def incomplete_verdict(missing: Sequence[str]) -> Verdict:
    """Say which properties the prediction is without."""
    if not missing:
        return Verdict(name="complete", passed=True, message="every charged property has a weight")
    return Verdict(
        name="complete",
        passed=False,
        message=f"without the cost of {', '.join(missing)}",
        remedy="measure kernels that exercise them, and refit",
    )


def indistinguishable_verdict(
    groups: Sequence[IndistinguishableGroup], counts: Mapping[str, Quantity]
) -> Verdict:
    """Say whether the kernel needs weights apart that the measurements left together."""
    broken = broken_groups(groups, counts)
    if not broken:
        return Verdict(
            name="indistinguishable",
            passed=True,
            message="no weight is needed apart from others that it was fitted together with",
        )
    names = "; ".join(", ".join(group.features) for group in broken)
    return Verdict(
        name="indistinguishable",
        passed=False,
        message=f"the measurements cannot tell apart {names}, and this kernel has them in another"
        " proportion: how their cost is shared is a guess",
        remedy="measure kernels that have these properties in other proportions, and refit",
    )


def broken_groups(
    groups: Sequence[IndistinguishableGroup], counts: Mapping[str, Quantity]
) -> list[IndistinguishableGroup]:
    """Return the groups of which a kernel breaks a relation that held in every measurement."""
    return [
        group
        for group in groups
        if any(not _holds(relation, counts) for relation in group.relations)
    ]


def _holds(relation: Mapping[str, float], counts: Mapping[str, Quantity]) -> bool:
    terms = [factor * np.asarray(counts.get(name, 0.0)) for name, factor in relation.items()]
    size = sum((np.abs(term) for term in terms), start=np.zeros(()))
    rest = np.abs(sum(terms, start=np.zeros(())))
    return bool(np.all(rest <= RELATION_TOLERANCE * size))


def extrapolation_verdict(
    weights: Sequence[Weight], counts: Mapping[str, Quantity], parts: Mapping[str, Quantity]
) -> Verdict:
    """Say which notable features lie far above the range of the measurements."""
    whole = sum((np.abs(part) for part in parts.values()), start=np.zeros(()))
    outside: list[str] = []
    for weight in weights:
        if weight.feature not in parts:
            continue
        count = np.asarray(counts[weight.feature])
        notable = np.abs(parts[weight.feature]) >= NOTABLE_SHARE * whole
        if np.any(notable & (count > EXTRAPOLATION_FACTOR * weight.largest)):
            outside.append(weight.feature)
    if not outside:
        return Verdict(name="extrapolation", passed=True, message="not beyond what was measured")
    return Verdict(
        name="extrapolation",
        passed=False,
        message=f"far above the largest value measured: {', '.join(outside)}",
        remedy="measure kernels of such sizes, and refit",
    )


def sign_verdict(time_s: Quantity) -> Verdict:
    """Say whether a time came out that cannot be."""
    if np.all(np.asarray(time_s) > 0):
        return Verdict(name="sign", passed=True, message="the time is positive")
    return Verdict(
        name="sign",
        passed=False,
        message="the predicted time is not positive: negative weights outweigh the others",
        remedy="fit with nonnegative=True, or measure kernels closer to this one",
    )


def device_verdict(fitted: DeviceIdentity, asked: DeviceIdentity | None) -> Verdict:
    """Say in what the device asked for differs from that of the weights."""
    differences = {} if asked is None else fitted.differences(asked)
    if not differences:
        return Verdict(name="device", passed=True, message="the device of the weights")
    text = "; ".join(f"{field} {old!r}, now {new!r}" for field, (old, new) in differences.items())
    return Verdict(
        name="device",
        passed=False,
        message=f"not quite the device of the weights: {text}",
        remedy="measure and fit anew on this device",
    )
