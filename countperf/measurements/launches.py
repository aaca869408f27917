"""Kernels that a program launched, counted and predicted: a document."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic import model_validator as validator_of

from countperf.documents import Document, IntervalOfTimes, Part
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, CountingRules


class RecordedKernel(Part):
    """A kernel at the sizes of its launches.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    parameters : dict from str to int
        Values of its size parameters.
    launches : int
        How often it was launched.
    device : str
        Slug of the device; empty if it is not known.
    flops, global_bytes : float or None
        Floating-point operations, and bytes that work items load from and store to global memory,
        of one launch; None if the kernel cannot be counted.
    exact : bool
        Whether all counts are exact.
    weights, model : str
        Slug of the device of the weights that predicted, and name of their model; empty if nothing
        predicted.
    predicted_s : float or None
        Predicted time of one launch, s.
    interval_s : pair of float, or None
        The interval of the prediction, s.
    reason : str
        Why there are no counts, or no prediction, or what it is without; empty if neither.
    """

    kernel: str
    parameters: dict[str, int] = Field(default_factory=dict)
    launches: PositiveInt
    device: str = ""
    flops: NonNegativeFloat | None = None
    global_bytes: NonNegativeFloat | None = None
    exact: bool = True
    weights: str = ""
    model: str = ""
    predicted_s: PositiveFloat | None = None
    interval_s: IntervalOfTimes | None = None
    reason: str = ""

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
    """Kernels that Loopy launched in a program, those that take longest first.

    Attributes
    ----------
    counting_rules : int
        Version of the counting rules.
    interval_level : float
        In which share of cases intervals are to hold the time.
    kernels : tuple of RecordedKernel
        One for each kernel, sizes and device.
    left_out : int
        Launches that were too many different ones to be kept apart.
    problems : tuple of str
        What went wrong in recording.
    """

    format: Literal["countperf-launches"] = "countperf-launches"
    version: Literal[1] = 1
    counting_rules: CountingRules = COUNTING_RULES_VERSION
    interval_level: float = Field(default=0.95, gt=0, lt=1)
    kernels: tuple[RecordedKernel, ...] = ()
    left_out: NonNegativeInt = 0
    problems: tuple[str, ...] = ()

    @property
    def launches(self) -> int:
        """Number of all launches."""
        return self.left_out + sum(each.launches for each in self.kernels)

    @property
    def total_s(self) -> float:
        """Predicted time of all launches that have a prediction, s."""
        return sum(each.total_s or 0.0 for each in self.kernels)
