r"""Relative errors of predictions and their means over cases, kernels and devices.

Symbols: :math:`p` predicted and :math:`m > 0` measured values of the same cases.

The geometric mean of relative errors is the figure of Stevens & Klöckner (2016): per kernel over
its sizes, per device over its kernels, per kernel over devices. An error of exactly zero makes it
zero; a `MeanError` therefore says how many errors were zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, NonNegativeInt

from countperf.documents import Document, Interval, Part
from countperf.errors import ParameterError
from countperf.measuring.cases import NOISE_DEVIATIONS
from countperf.text import (
    Column,
    Printed,
    Result,
    columns_of,
    format_percent,
    format_seconds,
    picked,
    short_name,
    width_text,
)

PURPOSES = {"test": "test kernels", "application": "applications", "variant": "variants"}
"""Plural names of the purposes of kernels that judge fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanError:
    """Geometric mean of relative errors."""

    value: float  # the mean, as a fraction (0.3 is 30 %)
    count: int  # number of errors, and how many of them were exactly zero
    zero_errors: int


def factor_between(predicted_s: float, measured_s: float) -> float:
    """Return ``max(predicted/measured, measured/predicted)``; infinite for times below zero."""
    if predicted_s <= 0:
        return math.inf
    return max(predicted_s / measured_s, measured_s / predicted_s)


def mape(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Return the arithmetic mean of relative errors, as a fraction (Lemeire et al., 6.3)."""
    return float(np.mean(np.abs(np.subtract(predicted, measured)) / np.asarray(measured)))


def mape_shape(predicted: ArrayLike, measured: ArrayLike, occupancy: ArrayLike) -> float:
    r"""Return the error of the shape of throughputs over occupancies, as a fraction.

    :math:`\frac{1}{n}\sum_i |d_i - l(o_i)| / m_i`, where :math:`d_i = p_i - m_i` and :math:`l` is
    the least-squares line of :math:`d` over the occupancy :math:`o` (Lemeire et al., section 6.3;
    :math:`m_i`, printed outside of the sum, is read as inside).

    Examples
    --------
    >>> f"{mape_shape([2.0, 3.0, 4.0], [1.0, 1.0, 1.0], [1, 2, 3]):.3f}"  # off by a line
    '0.000'
    """
    p, m, o = (np.asarray(values, np.float64) for values in (predicted, measured, occupancy))
    line = np.polyval(np.polyfit(o, p - m, 1), o)
    return float(np.mean(np.abs(p - m - line) / m))


def mean_error(errors: ArrayLike, *, floor: float = 0.0) -> MeanError:
    """Take the geometric mean of relative errors, or of means of them."""
    values = np.asarray(errors, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values) & (values >= 0)):
        message = f"relative errors are a vector of finite numbers of at least 0, not {errors}"
        raise ParameterError(message, parameter="errors")
    if not (np.isfinite(floor) and floor >= 0):
        message = f"the floor must be finite and not negative, not {floor}"
        raise ParameterError(message, parameter="floor")
    zeros = int(np.count_nonzero(values == 0))
    raised = np.maximum(values, floor)
    value = 0.0 if np.any(raised == 0) else float(np.exp(np.mean(np.log(raised))))
    return MeanError(value=value, count=values.size, zero_errors=zeros)


class EvaluatedCase(Part):
    """One case that was both measured and predicted."""

    kernel: str  # name of the kernel
    parameters: dict[str, NonNegativeInt]  # size parameters
    measured_s: float = Field(gt=0)  # times, s
    predicted_s: float
    complete: bool = True  # whether the prediction knows the cost of every property of the kernel
    purpose: str = "test"  # what the kernel is for: ``test``, ``application``, ``variant``
    # how well the measured time repeats: standard deviation of its logarithm
    noise: float | None = Field(default=None, ge=0)
    # where the prediction expects the time in 90 of 100 cases, s
    interval_s: Interval | None = None

    @property
    def within_noise(self) -> bool:
        """True if the error is no larger than `NOISE_DEVIATIONS` of the measurement's noise."""
        return self.noise is not None and self.relative_error <= NOISE_DEVIATIONS * self.noise

    @property
    def is_covered(self) -> bool | None:
        """True if the interval holds the measured time; None without an interval."""
        if self.interval_s is None:
            return None
        return self.interval_s[0] <= self.measured_s <= self.interval_s[1]

    @property
    def relative_error(self) -> float:
        """``|predicted - measured| / measured``."""
        return abs(self.predicted_s - self.measured_s) / self.measured_s

    @property
    def factor(self) -> float:
        """Predicted over measured time or its inverse; see `factor_between`."""
        return factor_between(self.predicted_s, self.measured_s)


def mean_errors_by_kernel(cases: Iterable[EvaluatedCase]) -> dict[str, MeanError]:
    """Return the mean error of each kernel over its sizes, in the order of the cases."""
    errors: dict[str, list[float]] = {}
    for case in cases:
        errors.setdefault(case.kernel, []).append(case.relative_error)
    return {kernel: mean_error(values) for kernel, values in errors.items()}


class Evaluation(Document, Result):
    """Predicted against measured times on one device."""

    format: Literal["countperf-evaluation"] = "countperf-evaluation"
    version: Literal[1] = 1
    device: str  # slug of the device, and name of the model that predicted
    model: str
    cases: tuple[EvaluatedCase, ...] = Field(min_length=1)  # at least one
    # how the model was chosen, and what it does not predict; not in the document
    remarks: tuple[str, ...] = Field(default=(), exclude=True)

    def by_kernel(self) -> dict[str, MeanError]:
        """Return the mean error of each kernel over its sizes, in the order of the cases."""
        return mean_errors_by_kernel(self.cases)

    def worst_factors(self) -> dict[str, float]:
        """Return the largest factor between predicted and measured times of each kernel."""
        worst: dict[str, float] = {}
        for case in self.cases:
            worst[case.kernel] = max(case.factor, worst.get(case.kernel, 1.0))
        return worst

    def by_purpose(self) -> dict[str, Evaluation]:
        """Split by what kernels are for, in the order of the cases."""
        purposes = dict.fromkeys(case.purpose for case in self.cases)
        return {
            purpose: self.model_copy(
                update={"cases": tuple(c for c in self.cases if c.purpose == purpose)}
            )
            for purpose in purposes
        }

    def overall(self) -> MeanError:
        """Return the device's mean error: the geometric mean of the means of its kernels."""
        return mean_of_means(self.by_kernel())

    def coverage(self) -> tuple[int, int]:
        """Return how many of the cases' 90 % intervals hold the time, and of how many."""
        coverage = [case.is_covered for case in self.cases if case.is_covered is not None]
        return sum(coverage), len(coverage)

    def interval_factor(self) -> float | None:
        """Return by which factor the ends of 90 % intervals lie from their middle, in the median.

        The middle is that of the logarithms. Infinite where most intervals reach down to zero; None
        if no case has an interval.
        """
        ends = [case.interval_s for case in self.cases if case.interval_s is not None]
        if not ends:
            return None
        return median(math.sqrt(high / low) if low > 0 else math.inf for low, high in ends)

    __str__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give predicted against measured times for each purpose of kernels, mean errors first."""
        what = ("kernel", "purpose", "parameters", "measured_s", "predicted_s", "relative_error")
        covered, cases = self.coverage()
        factor = self.interval_factor()
        parts = self.by_purpose()
        return Printed(
            head=[f"{short_name(self.model)} model on {self.device}"],
            rows=[
                picked(case, *what, "noise", "within_noise", "interval_s", "complete")
                for case in self.cases
            ],
            parts=[
                shown for purpose, part in parts.items() for shown in _of_purpose(purpose, part)
            ],
            notes=self.remarks,
            facts={
                "device": self.device,
                "model": short_name(self.model),
                "remarks": self.remarks,
                "geometric_mean": _means(self),
                "by_purpose": {purpose: _means(part) for purpose, part in parts.items()},
                "coverage": {
                    "level": 0.9,
                    "covered": covered,
                    "cases": cases,
                    "median_factor": None if factor is None or math.isinf(factor) else factor,
                },
            },
            name="cases",
        )


def mean_of_means(means: Mapping[str, MeanError]) -> MeanError:
    """Take the geometric mean of mean errors; counts and zero errors add up."""
    return MeanError(
        value=mean_error([mean.value for mean in means.values()]).value,
        count=sum(mean.count for mean in means.values()),
        zero_errors=sum(mean.zero_errors for mean in means.values()),
    )


_CASE_COLUMNS = {
    **columns_of("kernel parameters"),
    **columns_of("measured_s predicted_s", format_seconds),
    "relative_error": Column("error", format_percent),
    "noise": Column("noise", format_percent),
    "": Column(),
}

_PURPOSES = {**PURPOSES, "variant": "variants of kernels"}


def _means(of: Evaluation) -> dict[str, Any]:
    overall = of.overall()
    return {
        "overall": overall.value,
        "by_kernel": {kernel: mean.value for kernel, mean in of.by_kernel().items()},
        "worst_factor": {
            kernel: factor if math.isfinite(factor) else None
            for kernel, factor in of.worst_factors().items()
        },
        "cases": overall.count,
        "zero_errors": overall.zero_errors,
    }


def _of_purpose(purpose: str, of: Evaluation) -> list[Printed]:
    overall, worst = of.overall(), of.worst_factors()
    zeros = f", {overall.zero_errors} of them zero" if overall.zero_errors else ""
    what = ("kernel", "parameters", "measured_s", "predicted_s", "relative_error")
    covered, intervals = of.coverage()
    factor = of.interval_factor()
    width = "" if factor is None else f", median half-width {width_text(factor)}"
    held = [f"  90 % intervals hold {covered} of {intervals} times{width}"] if intervals else []
    error = (
        f"{_PURPOSES.get(purpose, purpose)}: error {format_percent(overall.value)}"
        f" (geometric mean over {len(of.by_kernel())} kernels, {overall.count} cases{zeros})"
    )
    return [
        Printed(
            head=[error, *held],
            rows=[
                {**picked(case, *what), "noise": case.noise or None, "": _remarks(case)}
                for case in of.cases
            ],
            columns=_CASE_COLUMNS,
        ),
        Printed(
            head=["  per kernel: geometric mean of relative errors, and the worst factor"],
            rows=[
                {"kernel": kernel, "error": mean.value, "worst": worst[kernel]}
                for kernel, mean in of.by_kernel().items()
            ],
            columns={
                **columns_of("kernel"),
                **columns_of("error", format_percent),
                **columns_of("worst"),
            },
        ),
    ]


def _remarks(case: EvaluatedCase) -> str:
    said = {
        "incomplete": not case.complete,
        "within noise": case.within_noise,
        "outside its interval": case.is_covered is False,
    }
    return ", ".join(text for text, applies in said.items() if applies)
