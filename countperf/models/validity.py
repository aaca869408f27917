"""Interval of a predicted time, and the verdicts on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import (
    ModelNotApplicableError,
    ParameterError,
    UnmeasuredPropertyError,
    option,
)
from countperf.models.function import NORMAL_QUANTILES
from countperf.models.predictions import Array, Quantity, Verdict

if TYPE_CHECKING:
    from countperf.devices.identity import DeviceIdentity
    from countperf.models.function import FitQuality, IndistinguishableGroup, Weight

Level = float
"""In which share of cases an interval is to hold the time: 0.9 or 0.95."""

Where = NDArray[np.bool_]
"""Truth of something at each size of a prediction; of no dimension at a single one."""

EXTRAPOLATION_WIDENING = 1.5
"""Growth of intervals, as logarithms of ratios, where a prediction lies far outside the
measured range: a choice, for nothing was measured there."""

WORST_LOG_RATIO = float(np.log(1000.0))
"""Times that are off by more count as off by that factor; where that is expected, no interval is
given, for it would say nothing."""

LEAST_SCATTER = 0.01
"""No kernel's times are taken to be known better than to one percent, as a standard deviation of
logarithms."""

RELATION_TOLERANCE = 1e-6
"""A relation of counts holds if what is left of its terms is below this share of them."""

EXTRAPOLATION_FACTOR = 2.0
"""Factor by which a feature may exceed its largest measured value without a verdict."""

SHORTEST_LAUNCH_S = {"cpu": 0.2e-6, "gpu": 1.08e-6}
"""Time of the shortest launch known of a kind of device, s: on processors the shortest measured
one (``short-launches/copy/32x1/f32`` by PoCL on a Zen 4); on GPUs the smallest weight of launches
in a shipped fit that is three times its standard error or more (GTX Titan Black). The shortest
published kernel takes 3.2 us on a GPU, and adds matrices (Amaris et al., GTX 980)."""

LAUNCH = "launch.shortest"
"""Part by which a time is raised to that of the shortest launch."""

NOTABLE_SHARE = 0.05
"""Features that take less of the time than this are not checked for their range."""

_MOST_UNCALIBRATED = 2  # families that are predicted from the others where they do not calibrate


def log_quantile(
    quality: FitQuality, level: Level, *, freedom: int = 0, error: Quantity = 0.0
) -> Quantity:
    """Return what ``|log(predicted / measured)|`` of new kernels stays below at a level.

    It is the calibrated quantile over families left out, where the fit has one. Else it is
    Student's quantile of the fit's own scatter, with as many degrees of freedom as the cases leave
    beyond the weights, and of the relative standard error of the time; or that of the scatter of
    the one or two families left out, if it is larger. Infinite if the cases leave no freedom.
    """
    if level not in NORMAL_QUANTILES:
        there = " and ".join(str(known) for known in sorted(NORMAL_QUANTILES))
        raise ParameterError(f"intervals are of {there}, not of {level}", parameter="level")
    if (own := quality.calibration) is not None:
        quantile = own.log_errors_95 if level == 0.95 else own.log_errors_90
        return max(quantile, NORMAL_QUANTILES[level] * LEAST_SCATTER)
    if freedom < 1 or quality.in_sample_scatter is None:
        return np.inf
    own_error = np.hypot(max(quality.in_sample_scatter, LEAST_SCATTER), error)
    held_out = student_quantile(level, _MOST_UNCALIBRATED) * (quality.held_out_scatter or 0.0)
    return np.maximum(student_quantile(level, freedom) * own_error, held_out)


def student_quantile(level: Level, freedom: int) -> float:
    """Return the quantile of Student's distribution for two-sided intervals of a level.

    From three degrees of freedom on it is the series of Abramowitz and Stegun (1964), 26.7.5.
    """
    if freedom == 1:
        return math.tan(0.5 * math.pi * level)
    if freedom == 2:
        return level * math.sqrt(2.0 / (1.0 - level**2))
    z = NORMAL_QUANTILES[level]
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def interval(time_s: Quantity, reach: Quantity) -> tuple[Quantity, Quantity] | None:
    r"""Return where times are expected, from :math:`T e^{-r}` to :math:`T e^r`.

    NaN where :math:`r` is a factor of 1000 or more, or the time is not positive; None if that is
    everywhere.
    """
    reach = np.where((np.asarray(time_s) > 0) & (reach < WORST_LOG_RATIO), reach, np.nan)
    if np.all(np.isnan(reach)):
        return None
    factor = np.exp(reach) if isinstance(time_s, np.ndarray) else float(np.exp(reach))
    return time_s / factor, time_s * factor


def make_unmeasured_error(
    kernel: str, device: str, properties: Iterable[str]
) -> UnmeasuredPropertyError:
    """Return the error that a kernel needs properties of which weights of a device have none."""
    names = tuple(properties)
    message = (
        f"kernel {kernel!r} needs {', '.join(names)}, for which the weights of {device} have no"
        " value: measure kernels that have them (countperf measure --profile broad has many) and"
        f" refit, or ask for a prediction without their cost ({option('incomplete_ok', 'True')})"
    )
    return UnmeasuredPropertyError(message, properties=names)


REMEDIES: Mapping[str, str] = {
    "complete": "measure kernels that exercise them, and refit",
    "indistinguishable": "measure kernels that have these properties in other proportions, and"
    " refit",
    "extrapolation": "measure kernels of such sizes, and refit",
    "masked": "measure kernels that have them, and refit",
    "launch": "measure launches of little work there, and refit",
    "interval": "take another model of these weights, or measure more families of kernels, and"
    " refit",
    "groups": "correct predictions by runs: countperf time ... --output FILE, then predict --anchor"
    " FILE",
    "sign": "fit with weights of at least zero (countperf fit FILE --nonnegative), or measure"
    " kernels closer to this one",
    "device": "measure and fit anew on this device",
    "weights": "",
}
"""Advice that mends a problem of a prediction, by the name of its caveat."""


def make_caveats(**problems: Any) -> tuple[Verdict, ...]:
    """Return a verdict for each problem that is a text, and not empty."""
    return tuple(
        Verdict(name=name, passed=False, message=problem, remedy=REMEDIES[name])
        for name, problem in problems.items()
        if problem
    )


def describe_guess(groups: Sequence[IndistinguishableGroup], counts: Mapping[str, Quantity]) -> str:
    """Say if the kernel needs weights apart that the measurements left together."""
    names = "; ".join(", ".join(group.features) for group in find_broken_groups(groups, counts))
    return names and (
        f"the measurements cannot tell apart {names}, and this kernel has them in another"
        " proportion: how their cost is shared is a guess"
    )


def find_broken_groups(
    groups: Sequence[IndistinguishableGroup], counts: Mapping[str, Quantity]
) -> list[IndistinguishableGroup]:
    """Return the groups of which a kernel breaks a relation that held in every measurement."""
    return [group for group in groups if np.any(breaks(group, counts))]


def breaks(group: IndistinguishableGroup, counts: Mapping[str, Quantity]) -> Where:
    """Return at which sizes a kernel breaks a relation of a group."""
    return anywhere(~_holds(relation, counts) for relation in group.relations)


def _holds(relation: Mapping[str, float], counts: Mapping[str, Quantity]) -> Where:
    terms = [factor * np.asarray(counts.get(name, 0.0)) for name, factor in relation.items()]
    size = sum((np.abs(term) for term in terms), start=np.zeros(()))
    rest = np.abs(sum(terms, start=np.zeros(())))
    return np.asarray(rest <= RELATION_TOLERANCE * size)


def anywhere(places: Iterable[Where]) -> Where:
    """Return the sizes that are among some of these."""
    return reduce(np.logical_or, places, np.zeros((), np.bool_))


def features_outside(
    weights: Mapping[str, Weight], values: Iterable[Quantity], parts: Mapping[str, Quantity]
) -> tuple[dict[str, Where], dict[str, Where]]:
    """Return the notable features far above the range of the measurements, and those below it.

    Those below are notable beside other work; launches hide them where there is little of it.
    """
    sizes = {name: np.abs(part) for name, part in parts.items() if name != LAUNCH}
    whole = sum(sizes.values(), start=np.zeros(()))
    work = whole - sizes.get("launches", 0.0)
    above: dict[str, Where] = {}
    below: dict[str, Where] = {}
    for (key, weight), count in zip(weights.items(), values, strict=True):
        if key not in parts:
            continue
        is_far = count > EXTRAPOLATION_FACTOR * weight.largest
        if np.any(places := is_far & (sizes[key] >= NOTABLE_SHARE * whole)):
            above[key] = places
        is_less = (count > 0) & (count < (weight.smallest or 0.0))
        if np.any(places := is_less & (sizes[key] >= NOTABLE_SHARE * work)):
            below[key] = places
    return above, below


def describe_range(above: Iterable[str], below: Iterable[str]) -> str:
    """Say what lies far above the range of the measurements, or below it."""
    places = {"far above the largest": above, "below the smallest": below}
    return "; ".join(f"{where} value measured: {', '.join(n)}" for where, n in places.items() if n)


def raise_to_launch(time_s: Quantity, shortest_s: float) -> Quantity:
    """Raise times above zero to that of the shortest launch."""
    if isinstance(time_s, np.ndarray):
        return np.where((time_s > 0) & (time_s < shortest_s), shortest_s, time_s)
    return shortest_s if 0 < time_s < shortest_s else time_s


def describe_interval(reach: Quantity) -> str:
    """Say why there is no interval, where the fit does not know how far off its predictions are."""
    if np.any(np.isinf(reach)):
        return "none: the fit has no more measured cases than weights, so no error is known"
    if np.any(np.asarray(reach) >= WORST_LOG_RATIO):
        return (
            "none: families of kernels left out of the fit were predicted a factor of 1000 or more"
            " off, or with times below zero"
        )
    return ""


def refuse_infinite(model: str, times_s: Array) -> None:
    """Raise `ModelNotApplicableError` for a time that is infinite or no number."""
    if not np.all(np.isfinite(times_s)):
        raise ModelNotApplicableError(
            f"the {model} model gives no finite time here: a derived feature divides by zero, or"
            " takes the logarithm of what is not positive"
        )


def refuse_negative(model: str, kernel: str, time_s: Quantity) -> None:
    """Raise `ModelNotApplicableError` for a time below zero; several at once are all refused."""
    if np.any(np.asarray(time_s) < 0):
        raise ModelNotApplicableError(
            f"the {model} model predicts {float(np.min(time_s)):.3g} s for {kernel!r}: its negative"
            " weights outweigh the others; name a model without them (countperf weights lists"
            " models), or fit with nonnegative=True (countperf fit --nonnegative)"
        )


def describe_device(fitted: DeviceIdentity, asked: DeviceIdentity) -> str:
    """Say in what the device asked for differs from that of the weights."""
    text = "; ".join(
        f"{field} {old!r}, now {new!r}" for field, (old, new) in fitted.differences(asked).items()
    )
    return text and f"not quite the device of the weights: {text}"
