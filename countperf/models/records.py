"""What the document of a fit is made of: weights, what they leave open, how well they fit."""

from __future__ import annotations

from pydantic import Field

from countperf.documents import Part


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
    """

    feature: str
    value_s: float
    standard_error_s: float | None
    unit: str
    smallest: float
    largest: float


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
    """How well a fit describes measurements.

    Attributes
    ----------
    in_sample_error : float
        Geometric mean of the relative errors over the measurements of the fit.
    held_out_error : float or None
        The same where each family of kernels is predicted from the others; None if no family could
        be.
    in_sample_scatter, held_out_scatter : float or None
        Robust standard deviation of log(predicted / measured) of these predictions.
    """

    in_sample_error: float = Field(ge=0)
    held_out_error: float | None = Field(ge=0)
    in_sample_scatter: float | None = Field(ge=0)
    held_out_scatter: float | None = Field(ge=0)


class MeasurementSource(Part):
    """Which measurements a fit was made from.

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
