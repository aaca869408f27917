r"""Rescale weights that ship for a device to kernels that a calibration measured on it.

Weights expect a measured kernel :math:`i` to take :math:`e_i`, of which each group :math:`g` of
weights takes a share :math:`a_{ig}`: work in the core, memory beyond the second cache, and memory
beyond the last one. From times :math:`t_i` now, weights of group :math:`g` are multiplied by
:math:`s_g`, the most likely factors

.. math::

   \min_s \sum_i \Bigl(\frac{\log(e_i \sum_g a_{ig} s_g / t_i)}{\tau}\Bigr)^2
   + \Bigl(\frac{\log s_\text{core}}{\sigma_\text{core}}\Bigr)^2
   + \Bigl(\frac{\log s_\text{memory}}{\sigma_\text{memory}}\Bigr)^2
   + \Bigl(\frac{\log s_\text{far} - \log s_\text{memory}}{\sigma_\text{far}}\Bigr)^2
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from countperf.measuring import Header
from countperf.models.fitting.design import Observation
from countperf.models.fitting.fit_model import measurement_source
from countperf.models.fitting.leaving_out import log_scatter
from countperf.models.fitting.prior import readable
from countperf.models.fitting.solve import Matrix, Vector
from countperf.models.function import model_inputs
from countperf.models.metrics import mean_error
from countperf.models.weights import WeightSet, charge_inputs, correct_charge, find_missing

CORE, FAR, MEMORY = GROUPS = ("core", "far", "memory")

_PRIOR = np.array([[1 / 0.5, 0.0, 0.0], [0.0, 1 / 0.3, -1 / 0.3], [0.0, 0.0, 1 / 1.0]])
"""Of the logarithms of factors: they are small, and memory's are alike."""
_SCATTER = 0.5
"""Scatter of logarithms of errors that is assumed of weights without one."""
_STEPS = 20

_IN_MEMORY = re.compile(r"beyond_llc|load_memory")
_BEYOND_L2 = re.compile(r"beyond_l\d|beyond_streams|out_of_reach|load_distinct")


def group_of(feature: str) -> str | None:
    """Return the group of weights that a feature belongs to; None for launches."""
    if feature == "launches":
        return None
    if _IN_MEMORY.search(feature):
        return MEMORY
    return FAR if _BEYOND_L2.search(feature) else CORE


def split_time(weights: WeightSet, case: Observation) -> tuple[float, list[float]]:
    """Predict the time of a measured case, s, and return it with the share of each group."""
    charge = charge_inputs(weights, model_inputs(weights.definition, case.counts))
    parts = charge.scaled * weights.unknowns
    groups = [group_of(feature) for _, feature in weights.function.columns]
    whole = parts.sum() or 1.0
    shares = [
        float(sum(p for p, g in zip(parts, groups, strict=True) if g == group) / whole)
        for group in GROUPS
    ]
    return float(correct_charge(weights, charge)[0]), shares


def find_factors(expected_s: Vector, shares: Matrix, times_s: Vector, scatter: float) -> Vector:
    """Return the factor of each group by which kernels take some times; rows are kernels."""
    rest, ratios = 1.0 - shares.sum(axis=1), np.log(times_s / expected_s)
    logs = np.zeros(len(GROUPS))
    for _ in range(_STEPS):  # of Gauss and Newton
        parts = shares * np.exp(logs)
        whole = rest + parts.sum(axis=1)
        off = (ratios - np.log(whole)) / scatter
        trust = (1.0 + off**2) ** -0.25  # times that are far off count for less (soft L1)
        off, slopes = trust * off, (trust / whole / scatter)[:, np.newaxis] * parts
        logs += np.linalg.lstsq(
            np.vstack([slopes, _PRIOR]), np.concatenate([off, -_PRIOR @ logs]), rcond=None
        )[0]
    return np.exp(logs)


def rescale_weights(
    weights: WeightSet, observations: Sequence[Observation], header: Header, *, noise: float = 0.0
) -> WeightSet:
    """Rescale weights that ship for a device to its measured kernels: its clock and its memory.

    What a long campaign found stays, with its correction from similar kernels. Intervals get wider
    as far as left-out families are predicted worse than in the fit, and by `noise` of the times.
    """
    complete = [
        case
        for case in observations
        if not find_missing(weights, model_inputs(weights.definition, case.counts))
    ]
    cases = readable(complete, reads_code=weights.definition.reads_code)
    split = [split_time(weights, case) for case in cases]
    expected, shares = (np.array(column) for column in zip(*split, strict=True))
    measured = np.array([case.time_s for case in cases])
    families = np.array([case.family for case in cases])
    quality = weights.quality
    then = (quality and quality.held_out_scatter) or _SCATTER
    predicted = expected * (1.0 - shares.sum(axis=1))
    for family in np.unique(families):
        out = families == family
        factors = find_factors(expected[~out], shares[~out], measured[~out], then)
        predicted[out] += expected[out] * (shares[out] @ factors)
    if quality is not None:
        now = log_scatter(predicted.tolist(), measured.tolist()) or then
        changes: dict[str, Any] = {
            "held_out_error": mean_error(np.abs(predicted / measured - 1.0)).value,
            "held_out_scatter": now,
        }
        if quality.calibration is not None:
            changes["calibration"] = quality.calibration.widened(max(1.0, now / then), noise)
        quality = quality.model_copy(update=changes)
    found = find_factors(expected, shares, measured, then).tolist()
    by_group = {None: 1.0, **dict(zip(GROUPS, found, strict=True))}
    rescaled = tuple(one.scale_by(by_group[group_of(one.feature)]) for one in weights.weights)
    source = measurement_source(cases, header)
    return weights.model_copy(update={"weights": rescaled, "quality": quality, "source": source})
