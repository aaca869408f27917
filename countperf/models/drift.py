r"""Weights that follow the machine: clock and memory as they are now, not as they were at the fit.

A fit knows what the kernels of a few probes are expected to take, :math:`e_i`, and which share
:math:`a_{ig}` of that each group of weights takes: work in the core, which goes with the clock,
memory beyond the second cache, and memory beyond the last one. From times :math:`t_i` now, weights
of group :math:`g` are multiplied by :math:`s_g`, the most likely factors

.. math::

   \min_s \sum_i \Bigl(\frac{\log(e_i \sum_g a_{ig} s_g / t_i)}{\tau}\Bigr)^2
   + \Bigl(\frac{\log s_\text{core}}{\sigma_\text{core}}\Bigr)^2
   + \Bigl(\frac{\log s_\text{memory}}{\sigma_\text{memory}}\Bigr)^2
   + \Bigl(\frac{\log s_\text{far} - \log s_\text{memory}}{\sigma_\text{far}}\Bigr)^2

Launches keep their cost. Kernels do not all follow three factors: times scatter about them by
`scatter_of`, which widens intervals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from pydantic import Field

from countperf.documents import Part

MACHINE = "machine"
"""Name of the line that says what was probed, and what it changed."""

CORE, FAR, MEMORY = GROUPS = ("core", "far", "memory")

_NOISE = 0.1
"""Standard deviation of the logarithm of a probe's time."""
_PRIOR = np.array([[1 / 0.5, 0.0, 0.0], [0.0, 1 / 0.3, -1 / 0.3], [0.0, 0.0, 1 / 1.0]])
"""Of the logarithms of factors: they are small, and memory's are alike."""
_SCATTER = 0.4
"""Scatter of the logarithms of kernels' drift about the factors, over the root mean square of the
factors' logarithms: .31 to .40 for 1,200 cases, timed at two hours on a Zen 3 under PoCL whose
memory was 3 times as slow as at the fit."""
_STEPS = 20

_IN_MEMORY = re.compile(r"beyond_llc|load_memory")
_BEYOND_L2 = re.compile(r"beyond_l\d|beyond_streams|out_of_reach|load_distinct")


class Probe(Part):
    """A size of a kernel that tells how fast the machine is."""

    kernel: str  # name in the catalogue
    parameters: dict[str, int]
    expected_s: float = Field(gt=0)  # time that the fit expects, s
    shares: dict[str, float]  # of the expected time, by group of weights

    def moved(self, factors: Mapping[str, float]) -> Self:
        """Return what scaled weights expect."""
        parts = {group: share * factors.get(group, 1.0) for group, share in self.shares.items()}
        whole = 1.0 - sum(self.shares.values()) + sum(parts.values())
        shares = {group: part / whole for group, part in parts.items()}
        return self.model_copy(update={"expected_s": self.expected_s * whole, "shares": shares})


def group_of(feature: str) -> str | None:
    """Return the group of weights that a feature belongs to; None for launches."""
    if feature == "launches":
        return None
    if _IN_MEMORY.search(feature):
        return MEMORY
    return FAR if _BEYOND_L2.search(feature) else CORE


def factors_of(
    probes: Sequence[Probe], times_s: Sequence[float], *, noise: float = _NOISE
) -> dict[str, float]:
    """Return by what weights are multiplied, by group, where probes take some times now, s."""
    shares = np.array([[probe.shares.get(group, 0.0) for group in GROUPS] for probe in probes])
    rest = 1.0 - shares.sum(axis=1)
    ratios = np.log([time / probe.expected_s for probe, time in zip(probes, times_s, strict=True)])
    logs = np.zeros(len(GROUPS))
    for _ in range(_STEPS):  # of Gauss and Newton
        parts = shares * np.exp(logs)
        whole = rest + parts.sum(axis=1)
        off = (ratios - np.log(whole)) / noise
        trust = (1.0 + off**2) ** -0.25  # times that are far off count for less (soft L1)
        off, slopes = trust * off, (trust / whole / noise)[:, np.newaxis] * parts
        logs += np.linalg.lstsq(
            np.vstack([slopes, _PRIOR]), np.concatenate([off, -_PRIOR @ logs]), rcond=None
        )[0]
    return {group: float(np.exp(log)) for group, log in zip(GROUPS, logs, strict=True)}


def scatter_of(factors: Mapping[str, float]) -> float:
    """Return how far times scatter about scaled weights, as a standard deviation of logarithms."""
    return _SCATTER * float(np.sqrt(np.mean(np.log([*factors.values()]) ** 2)))
