"""One factor from estimates to measured times, in closed form."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from countperf.errors import ParameterError
from countperf.mechanistic.checks import check_not_negative
from countperf.mechanistic.model import MechanisticModel
from countperf.mechanistic.profile import ProfiledKernel


def fit_scale(
    estimated_s: Sequence[float], measured_s: Sequence[float], *, overhead_s: float = 0.0
) -> float:
    r"""Return the factor on estimates that fits measured times best.

    :math:`x` with the least :math:`\sum_i (1 - (x e_i + o)/m_i)^2`, the objective of the fitted
    models: with :math:`r_i = e_i/m_i` and :math:`a_i = 1 - o/m_i`, :math:`x = \sum a_i r_i / \sum
    r_i^2`. A single measurement is met exactly.
    """
    check_not_negative(overhead_s, "overhead_s")
    estimated = _times(estimated_s, "estimated_s")
    measured = _times(measured_s, "measured_s")
    if estimated.size != measured.size:
        message = f"{estimated.size} estimates, but measured_s has {measured.size} times"
        raise ParameterError(message, parameter="measured_s")
    ratio = estimated / measured
    factor = float(((1 - overhead_s / measured) @ ratio) / (ratio @ ratio))
    if factor <= 0:
        message = f"measured_s must be longer than the launch overhead of {overhead_s} s"
        raise ParameterError(message, parameter="measured_s")
    return factor


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledModel(MechanisticModel):
    """Base of the models that publish a factor on their time as their calibration."""

    @abstractmethod
    def scaled(self, factor: float, /) -> Self:
        """Return the model with this factor; at 1, its time is what the factor multiplies."""

    def calibrated(self, kernels: Sequence[ProfiledKernel], measured_s: Sequence[float]) -> Self:
        """Return the model with the factor that fits measured times best, see `fit_scale`."""
        unscaled = self.scaled(1.0)
        estimated = [unscaled.estimate(each.profile, each.launch).time_s for each in kernels]
        overhead = self.device.launch_overhead_s or 0.0
        return self.scaled(fit_scale(estimated, measured_s, overhead_s=overhead))


def _times(values: Sequence[float], name: str) -> NDArray[np.float64]:
    times = np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or times.size == 0 or not np.all(np.isfinite(times) & (times > 0)):
        message = f"{name} must be a sequence of positive, finite times in seconds"
        raise ParameterError(message, parameter=name)
    return times
