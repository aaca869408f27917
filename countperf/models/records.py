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
    """Weight of one feature."""

    feature: str  # the feature: a property name, or the sum of the properties that begin with it
    value_s: float  # seconds per unit of the feature
    standard_error_s: float | None  # standard error, s
    unit: str  # what one unit of the feature is, such as ``operation``
    smallest: float  # range of the feature over the measurements that have it
    largest: float

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if self.smallest > self.largest:
            raise ValueError("smallest is above largest")
        return self

    term: str = "cost"  # the term of the model that the weight is in


class Range(Part):
    """Range of a scale of terms over the measurements of a fit."""

    smallest: float  # over the measurements that have it
    largest: float


class Candidate(Part):
    """A model that was tried when one was chosen."""

    model: str  # its name
    # how it differs from others of the same kind, such as its execution policy
    description: str = ""
    held_out_error: float | None
    # the same of ``max(predicted/measured, measured/predicted)``, by which models are chosen
    held_out_factor: float | None = None
    in_sample_error: float | None  # the same over the cases of its fit
    predicted_cases: NonNegativeInt  # how many left-out cases it could predict, and of how many
    cases: NonNegativeInt
    chosen: bool = False  # whether it was chosen
    failure: str = ""  # why it could not be fitted


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
    """Region of the space of kernels that a fit has measured; see `countperf.models.conformal`."""

    # for each weight and parameter, how many families have kernels in which it matters
    families: tuple[NonNegativeInt, ...]
    largest: tuple[float, ...]  # for each weight, the largest measured value of its feature
    # for each family, which shares of their time some of its kernels spend on each unknown
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
    """In which share of left-out cases intervals made from the *other* families hold the time."""

    share_90: float = Field(ge=0, le=1)  # for intervals of these levels
    share_95: float = Field(ge=0, le=1)
    median_factor_90: float = Field(ge=1)
    families: int = Field(gt=0)  # what was left out, one family at a time
    cases: int = Field(gt=0)


class LocalCalibration(Part):
    """Quantiles of the errors of predictions in units of their difficulty."""

    scores_90: float = Field(ge=0)
    scores_95: float = Field(ge=0)
    support: Support  # from which the difficulty of a kernel is found


class Calibration(Part):
    """Quantiles of the errors of predictions of left-out families."""

    log_errors_90: float = Field(ge=0)
    log_errors_95: float = Field(ge=0)
    between_kernels: float = Field(ge=0)
    within_kernels: float = Field(ge=0)
    families: int = Field(gt=0)  # left-out families and cases with a prediction
    cases: int = Field(gt=0)
    # what intervals are made of that are wider for kernels that are harder to predict
    local: LocalCalibration | None = None


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
