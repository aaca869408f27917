"""Parts of the document of a fit: weights, uncertainty, quality."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, field_serializer, field_validator, model_validator

from countperf.documents import Part
from countperf.models.packing import as_tuples, pack, unpack


class Weight(Part):
    """Weight of one feature.

    Attributes
    ----------
    feature : str
        The feature: a property name, or the sum of the properties that begin with it.
    value_s : float
        Seconds per unit of the feature; may be negative.
    standard_error_s : float or None
        Standard error, s; None where there is none: no degrees of freedom, held at a bound, or not
        to be told apart from other weights.
    unit : str
        What one unit of the feature is, such as ``operation``.
    smallest, largest : float
        Range of the feature over the measurements that have it.
    term : str
        The term of the model that the weight is in.
    """

    feature: str
    value_s: float
    standard_error_s: float | None
    unit: str
    smallest: float
    largest: float

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if self.smallest > self.largest:
            raise ValueError("smallest is above largest")
        return self

    term: str = "cost"


class Range(Part):
    """Range of a scale of terms over the measurements of a fit.

    Attributes
    ----------
    smallest, largest : float
        Over the measurements that have it.
    """

    smallest: float
    largest: float


class Candidate(Part):
    """A model that was tried when one was chosen.

    Attributes
    ----------
    model : str
        Its name.
    description : str
        How it differs from others of the same kind, such as its execution policy; empty in
        documents that were written before.
    held_out_error : float or None
        Geometric mean of the relative errors, families left out one at a time, each family counting
        the same; None if it could not be fitted.
    held_out_factor : float or None
        The same of ``max(predicted/measured, measured/predicted)``, by which models are chosen;
        None in documents that were written before.
    in_sample_error : float or None
        The same over the cases of its fit.
    predicted_cases, cases : int
        How many left-out cases it could predict, and of how many.
    chosen : bool
        Whether it was chosen.
    failure : str
        Why it could not be fitted.
    """

    model: str
    description: str = ""
    held_out_error: float | None
    held_out_factor: float | None = None
    in_sample_error: float | None
    predicted_cases: NonNegativeInt
    cases: NonNegativeInt
    chosen: bool = False
    failure: str = ""


def _sizes(content: Any) -> dict[str, int]:
    if not isinstance(content, dict) or any(
        not isinstance(size, int) or size < 0 for size in content.values()
    ):
        raise ValueError("families of profiles are numbers by name")
    return content


def _rows_of(content: Any) -> tuple[tuple[float, ...], ...]:
    if not isinstance(content, str):
        raise ValueError("shares of profiles are packed rows of numbers")
    return unpack(content)


class Support(Part):
    """Region of the space of kernels in which a fit has measured; see `countperf.models.conformal`.

    Attributes
    ----------
    families : tuple of int
        For each weight and parameter, how many families have kernels in which it matters.
    largest : tuple of float
        For each weight, the largest measured value of its feature.
    profiles : dict from str to tuple of tuple of float
        For each family, which shares of their time some of its kernels spend on each unknown.
    """

    families: tuple[NonNegativeInt, ...]
    largest: tuple[float, ...]
    profiles: dict[str, tuple[tuple[float, ...], ...]]

    @field_validator("profiles", mode="before")
    @classmethod
    def _unpacked(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        if set(content) != {"families", "shares"}:
            return {name: as_tuples(rows) for name, rows in content.items()}
        sizes, rows = _sizes(content["families"]), _rows_of(content["shares"])
        if sum(sizes.values()) != len(rows):
            raise ValueError("there are more or fewer profiles than the families have")
        given = iter(rows)
        return {name: tuple(next(given) for _ in range(size)) for name, size in sizes.items()}

    @field_serializer("profiles", when_used="json")
    def _packed(self, profiles: dict[str, tuple[tuple[float, ...], ...]]) -> dict[str, Any]:
        return {
            "families": {name: len(rows) for name, rows in profiles.items()},
            "shares": pack([row for rows in profiles.values() for row in rows]),
        }

    @cached_property
    def measured(self) -> tuple[NDArray[np.float64], ...]:
        """The profiles of each family, shape (n_profiles, n_unknowns)."""
        return tuple(np.array(each, np.float64) for each in self.profiles.values())


class Coverage(Part):
    """In which share of left-out cases intervals made from the *other* families hold the time.

    Attributes
    ----------
    share_90, share_95 : float
        For intervals of these levels; each family counts the same.
    median_factor_90 : float
        How far the ends of such an interval of level 0.9 lie from the time, as a factor: the median
        over cases.
    families, cases : int
        What was left out, one family at a time.
    """

    share_90: float = Field(ge=0, le=1)
    share_95: float = Field(ge=0, le=1)
    median_factor_90: float = Field(ge=1)
    families: int = Field(gt=0)
    cases: int = Field(gt=0)


class LocalCalibration(Part):
    """Quantiles of the errors of predictions in units of their difficulty.

    Attributes
    ----------
    scores_90, scores_95 : float
        What ``|log(predicted / measured)|`` over difficulty stays below for 90 and 95 of 100
        left-out cases, where each family counts the same.
    support : Support
        From which the difficulty of a kernel is found.
    """

    scores_90: float = Field(ge=0)
    scores_95: float = Field(ge=0)
    support: Support


class Calibration(Part):
    """Quantiles of the errors of predictions of left-out families.

    Attributes
    ----------
    log_errors_90, log_errors_95 : float
        What ``|log(predicted / measured)|`` stays below for 90 and 95 of 100 left-out cases, where
        each family counts the same.
    between_kernels, within_kernels : float
        Standard deviations of ``log(predicted / measured)``: of the kernels' means about zero, and
        of a kernel's cases about its mean.
    families, cases : int
        Left-out families and cases with a prediction.
    local : LocalCalibration or None
        What intervals are made of that are wider for kernels that are harder to predict; None in
        old documents, whose intervals are as wide for all.
    """

    log_errors_90: float = Field(ge=0)
    log_errors_95: float = Field(ge=0)
    between_kernels: float = Field(ge=0)
    within_kernels: float = Field(ge=0)
    families: int = Field(gt=0)
    cases: int = Field(gt=0)
    local: LocalCalibration | None = None


class IndistinguishableGroup(Part):
    """Features whose weights the measurements cannot tell apart.

    Attributes
    ----------
    features : tuple of str
        Their names.
    relations : tuple of dict from str to float
        Independent relations among them that hold in every measurement: the sum of coefficient
        times value is zero. A kernel for which one does not hold is predicted at a guess.
    """

    features: tuple[str, ...] = Field(min_length=1)
    relations: tuple[dict[str, float], ...] = Field(min_length=1)


class FitQuality(Part):
    """Quality of a fit on its measurements.

    Attributes
    ----------
    in_sample_error : float
        Geometric mean of the relative errors over the measurements of the fit.
    held_out_error : float or None
        The same where each family of kernels is predicted from the others; None if no family could
        be.
    in_sample_scatter, held_out_scatter : float or None
        Robust standard deviation of log(predicted / measured) of these predictions.
    calibration : Calibration or None
        What intervals are made of; None if too little could be left out, and in old documents.
    coverage : Coverage or None
        How well such intervals hold; None with less than four families, and in old documents.
    model_error : float or None
        If noisy cases counted for less: the size of the model's own errors, relative, that their
        noise was compared with. None if all cases counted the same.
    """

    in_sample_error: float = Field(ge=0)
    held_out_error: float | None = Field(ge=0)
    in_sample_scatter: float | None = Field(ge=0)
    held_out_scatter: float | None = Field(ge=0)
    calibration: Calibration | None = None
    coverage: Coverage | None = None
    model_error: float | None = Field(default=None, gt=0)


class MeasurementSource(Part):
    """Source of a fit: its measurements.

    Attributes
    ----------
    cases, unstable_cases : int
        Measured cases in the fit, and those of them whose samples spread too far.
    families : tuple of str
        Families of measurement kernels.
    protocol, recorded_at : str
        How and when they were measured.
    """

    cases: int = Field(gt=0)
    unstable_cases: int = Field(ge=0)
    families: tuple[str, ...]
    protocol: str
    recorded_at: str
