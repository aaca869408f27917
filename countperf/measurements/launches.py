"""Kernels that a program launched, counted and predicted: a document."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic import model_validator as validator_of

from countperf.documents import Document, IntervalOfTimes, Part
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, CountingRules


class RecordedKernel(Part):
    """A kernel at the sizes of its launches."""

    kernel: str  # name of the kernel
    parameters: dict[str, int] = Field(default_factory=dict)  # values of its size parameters
    launches: PositiveInt  # how often it was launched
    device: str = ""  # slug of the device
    flops: NonNegativeFloat | None = None
    global_bytes: NonNegativeFloat | None = None
    exact: bool = True  # whether all counts are exact
    weights: str = ""  # slug of the device of the weights that predicted, and name of their model
    model: str = ""
    predicted_s: PositiveFloat | None = None  # predicted time of one launch, s
    interval_s: IntervalOfTimes | None = None  # the interval of the prediction, s
    reason: str = ""  # why there are no counts, or no prediction, or what it is without

    @validator_of(mode="after")
    def _fields_agree(self) -> Self:
        if self.interval_s is not None:
            low, high = self.interval_s
            if self.predicted_s is None or not low <= self.predicted_s <= high:
                raise ValueError("the interval does not hold the predicted time")
        if self.predicted_s is None and not self.reason:
            raise ValueError("there is neither a prediction nor a reason why there is none")
        return self

    @property
    def total_s(self) -> float | None:
        """Predicted time of all launches, s."""
        return None if self.predicted_s is None else self.launches * self.predicted_s


class LaunchesDocument(Document):
    """Kernels that Loopy launched in a program, those that take longest first."""

    format: Literal["countperf-launches"] = "countperf-launches"
    version: Literal[1] = 1
    counting_rules: CountingRules = COUNTING_RULES_VERSION  # version of the counting rules
    # in which share of cases intervals are to hold the time
    interval_level: float = Field(default=0.95, gt=0, lt=1)
    kernels: tuple[RecordedKernel, ...] = ()  # one for each kernel, sizes and device
    left_out: NonNegativeInt = 0  # launches that were too many different ones to be kept apart
    problems: tuple[str, ...] = ()  # what went wrong in recording

    @property
    def launches(self) -> int:
        """Number of all launches."""
        return self.left_out + sum(each.launches for each in self.kernels)

    @property
    def total_s(self) -> float:
        """Predicted time of all launches that have a prediction, s."""
        return sum(each.total_s or 0.0 for each in self.kernels)
