r"""Estimated build times of variants, from the measured ones.

Compilers take longer the more instructions the code generator writes, copies of unrolled loops
included: :math:`a (1 + w/W)` for w instructions, where a is learnt from what was built. W was found
with five families of kernels under two CPU runtimes, whose build times follow the rule with
correlations of 0.2 to 0.9; all that hangs on it is in which order variants are tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from countperf.tuning.posterior import Array

WRITTEN = 40.0
"""Instructions that take as long to compile as everything else about a variant."""

PRIOR_S = 0.3
"""Time of building a small variant, before any was built, s."""


class BuildTimes:
    """Expected times of building variants."""

    def __init__(self) -> None:
        self._small_s: list[float] = []

    def add(self, written: float, seconds: float) -> None:
        """Learn from a variant of so many written instructions."""
        self._small_s.append(seconds / _size(written))

    def expected_s(self, written: Array) -> Array:
        """Return expected times, s, of variants of so many written instructions."""
        small_s = float(np.mean(self._small_s)) if self._small_s else PRIOR_S
        return small_s * _size(written)


def _size(written: Any) -> Any:
    return 1 + written / WRITTEN
