"""Parts of the document of a fit: weights, uncertainty, quality."""

from __future__ import annotations

from pydantic import Field

from countperf.documents import Part
from countperf.models.definition import Unread


class Weight(Part):
    """Weight of one feature."""

    feature: str  # the feature: a property name, or the sum of the properties that begin with it
    value_s: float  # seconds per unit of the feature
    standard_error_s: float | None  # standard error, s
    unit: str  # what one unit of the feature is, such as ``operation``
    smallest: Unread = Field(default=(), exclude=True)
    largest: float  # value of the feature over the measurements
    term: str = "cost"  # the term of the model that the weight is in


class Range(Part):
    """Largest value of a scale of terms over the measurements of a fit."""

    smallest: Unread = Field(default=(), exclude=True)
    largest: float


class Coverage(Part):
    """In which share of left-out cases intervals made from the *other* families hold the time."""

    share_90: float = Field(ge=0, le=1)  # for intervals of these levels
    share_95: float = Field(ge=0, le=1)
    median_factor_90: float = Field(ge=1)
    families: int = Field(gt=0)  # what was left out, one family at a time
    cases: int = Field(gt=0)


class Calibration(Part):
    """Quantiles of the errors of predictions of left-out families."""

    log_errors_90: float = Field(ge=0)
    log_errors_95: float = Field(ge=0)
    between_kernels: float = Field(ge=0)
    within_kernels: float = Field(ge=0)
    families: int = Field(gt=0)  # left-out families and cases with a prediction
    cases: int = Field(gt=0)


class IndistinguishableGroup(Part):
    """Features whose weights the measurements cannot tell apart."""

    features: tuple[str, ...] = Field(min_length=1)  # their names
    relations: tuple[dict[str, float], ...] = Field(min_length=1)


class FitQuality(Part):
    """Quality of a fit on its measurements."""

    # geometric mean of the relative errors over the measurements of the fit
    in_sample_error: float = Field(ge=0)
    # the same where each family of kernels is predicted from the others
    held_out_error: float | None = Field(ge=0)
    # factor by which these predictions are off, each family counting the same
    held_out_factor: float | None = Field(default=None, ge=1)
    # robust standard deviation of log(predicted / measured) of these predictions
    in_sample_scatter: float | None = Field(ge=0)
    held_out_scatter: float | None = Field(ge=0)
    calibration: Calibration | None = None  # what intervals are made of
    coverage: Coverage | None = None  # how well such intervals hold
    model_error: float | None = Field(default=None, gt=0)


class MeasurementSource(Part):
    """Source of a fit: its measurements."""

    # measured cases in the fit, and those of them whose samples spread too far
    cases: int = Field(gt=0)
    unstable_cases: int = Field(ge=0)
    families: tuple[str, ...]  # families of measurement kernels
    protocol: str  # how and when they were measured
    recorded_at: str
