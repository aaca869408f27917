r"""Conformal interval widths: the difficulty of a kernel from the data of a fit.

Normalised conformal prediction (Papadopoulos, Gammerman and Vovk (2008), "Normalized Nonconformity
Measures for Regression Conformal Prediction"): errors of left-out families are divided by a
difficulty :math:`\sigma(x)`, and intervals are a quantile of these scores times :math:`\sigma(x)`.
With :math:`s_i \ge 0` the share of the time that unknown :math:`i` takes (its weight times
derivative, by amount; they sum to one),

.. math::

   \sigma(x) = \sigma_0 + \min\Bigl(\frac{\sqrt{f^T C f}}{T}, u\Bigr)
     + e \sum_i s_i \Bigl(\log\frac{x_i}{m_i}\Bigr)_+ + \sum_i \frac{s_i}{1 + n_i} + d(s)

- :math:`\sigma_0` = `LEAST`: no kernel is easier, whatever else is known of it;
- the relative standard error of the time by the weights' covariance :math:`C`, for derivatives
  :math:`f`, up to :math:`u` = `MOST_UNCERTAIN`: large where the measurements leave weights open;
- how far features lie above the largest measured value :math:`m_i`: extrapolation. Errors of one
  kernel at sizes that differ by a factor of four scatter by about 0.3, hence :math:`e` =
  `EXTRAPOLATION`;
- :math:`n_i`, the number of families of which some kernel spends `NOTABLE_SHARE` of its time on
  feature :math:`i`: what one family alone determines is worth less than what many agree on;
- :math:`d(s)`, the distance to measured kernels: half of :math:`\sum_i |s_i - s'_i|`, smallest over
  the kernels of each family, mean of the `NEAREST_FAMILIES` nearest families; between 0 and 1.

All parts are logarithms of ratios or shares, about as large as the error that they stand for, and
else enter with the same weight: a few families cannot tell weights of parts apart. The noise of a
case is not among them, for nothing is known of it where there is only a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.models.records import Support
from countperf.predictions import Quantity

LEAST = 0.2
MOST_UNCERTAIN = 2.0
NEAREST_FAMILIES = 2
EXTRAPOLATION = 0.25

NOTABLE_SHARE = 0.05
"""A feature counts as exercised by a kernel that spends this share of its time on it."""

_AT_ONCE = 2**20
_SAME_PROFILE = 0.1
_DECIMALS = 3

Array = NDArray[np.float64]


def time_shares(gradient: Array, unknowns: Sequence[float]) -> Array:
    """Return which share of the time, by amount, each unknown takes; zero for pure numbers."""
    factors = np.abs(np.asarray(unknowns, np.float64))
    parts = factors.reshape(-1, *(1,) * (gradient.ndim - 1)) * np.abs(gradient)
    whole = parts.sum(axis=0)
    return parts / np.where(whole > 0, whole, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Region:
    """Measured region of a fit: `Support` with arrays."""

    # for each weight and parameter, how many families have kernels in which it matters
    families: Array
    largest: Array  # for each weight, the largest measured value of its feature
    measured: Sequence[Array]  # shares of the time of some kernels of each family


def region_of(
    shares: Array, largest: Array, families: NDArray[np.intp], kept: NDArray[np.bool_]
) -> Region:
    """Return what measured cases say about which kernels are near."""
    exercised = shares >= NOTABLE_SHARE
    numbers = np.unique(families)
    return Region(
        families=np.sum([exercised[:, families == n].any(axis=1) for n in numbers], axis=0),
        largest=largest,
        measured=[shares[:, (families == n) & kept].T for n in numbers],
    )


def representatives(shares: Array, families: Sequence[str]) -> NDArray[np.bool_]:
    """Return a few cases of each family, within 0.1 of which all others of it lie."""
    labels = np.array(families)
    kept = np.zeros(len(labels), np.bool_)
    for family in dict.fromkeys(families):
        places = np.flatnonzero(labels == family)
        own = np.empty((len(places), len(shares)))
        number = 0
        for place in places:
            profile = shares[:, place]
            if np.all(0.5 * np.abs(profile - own[:number]).sum(axis=1) > _SAME_PROFILE):
                own[number] = profile
                number += 1
                kept[place] = True
    return kept


def support_of(shares: Array, largest: Array, families: Sequence[str]) -> Support:
    """Return what measured cases say about which kernels are near."""
    labels = np.array(families)
    names = list(dict.fromkeys(families))
    exercised = shares >= NOTABLE_SHARE
    kept = representatives(shares, families)
    profiles = {
        family: tuple(
            map(tuple, np.round(shares[:, kept & (labels == family)].T, _DECIMALS).tolist())
        )
        for family in names
    }
    counts = [exercised[:, labels == family].any(axis=1) for family in names]
    return Support(
        families=tuple(np.sum(counts, axis=0).astype(int).tolist()),
        largest=tuple(largest.tolist()),
        profiles=profiles,
    )


def relative_standard_error(
    time_s: Quantity, gradient: Array, covariance: Array | None
) -> NDArray[np.float64]:
    """Return the standard error of a time by the weights' covariance, relative; NaN if unknown."""
    if covariance is None:
        return np.full(gradient.shape[1:], np.nan)
    variance = np.einsum("i...,ij,j...->...", gradient, covariance, gradient)
    size = np.abs(np.asarray(time_s, np.float64))
    return np.sqrt(np.maximum(variance, 0.0)) / np.where(size > 0, size, np.nan)


def overshoot(variables: Mapping[str, Quantity], largest: Mapping[str, float]) -> Quantity:
    """Return the logarithm of how far names of an expression lie above their largest values."""
    above = [
        np.log(np.maximum(np.asarray(value, np.float64), largest[name]) / largest[name])
        for name, value in variables.items()
        if largest.get(name, 0.0) > 0
    ]
    found = np.max(np.broadcast_arrays(*above), axis=0) if above else np.zeros(())
    return found if found.ndim else float(found)


def difficulty(
    support: Support | Region,
    shares: Array,
    values: Array,
    relative_error: Quantity,
    overshoot: Quantity = 0.0,
) -> Quantity:
    """Return how hard a prediction is, by the formula of the module."""
    trailing = (1,) * (shares.ndim - 1)
    largest = np.array(support.largest, np.float64).reshape(-1, *trailing)
    above = np.log(np.maximum(values, largest) / largest)
    outside = EXTRAPOLATION * (np.sum(shares[: len(values)] * above, axis=0) + overshoot)
    rare = 1.0 / (1.0 + np.array(support.families, np.float64).reshape(-1, *trailing))
    total = (
        LEAST
        + np.minimum(np.nan_to_num(relative_error, nan=MOST_UNCERTAIN), MOST_UNCERTAIN)
        + outside
        + np.sum(shares * rare, axis=0)
        + _distance(support.measured, shares)
    )
    return total if np.ndim(total) else float(total)


def _distance(measured: Sequence[Array], shares: Array) -> Array:
    nearest = [_nearest(several, shares) for several in measured]
    return np.mean(np.sort(nearest, axis=0)[:NEAREST_FAMILIES], axis=0)


def _nearest(several: Array, shares: Array) -> Array:
    if shares.ndim == 1:
        return 0.5 * np.abs(shares - several).sum(axis=-1).min()
    if shares.ndim == 2 and shares.size * len(several) <= _AT_ONCE:
        return 0.5 * np.abs(shares.T[:, np.newaxis] - several).sum(axis=-1).min(axis=1)
    # one after the other, for there may be many sizes
    return np.min([0.5 * np.abs(shares.T - one).sum(axis=-1).T for one in several], axis=0)
