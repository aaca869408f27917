"""Measured times of one kernel at several sizes, beside predicted ones: a document."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from countperf.display import Drawable, Table, printed
from countperf.documents import Document, IntervalOfTimes, Part
from countperf.errors import DocumentError, PredictionError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES
from countperf.hardware.identity import DeviceIdentity
from countperf.measurements.lines import Environment, FailedCase, Measurement, Protocol
from countperf.metrics import NOISE_DEVIATIONS
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, CountingRules

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector

TimingVerdict = Literal["inside", "outside", "noise", "no interval", "no prediction"]
"""Verdicts of measured times on predictions."""


class TimedSize(Part):
    """A measured time at one point, and the predicted one."""

    measurement: Measurement  # every sample, and what they come to
    # by view of the kernel, the digest of its counts (`counts_digest`)
    counts: dict[str, str] = Field(default_factory=dict)
    predicted_s: PositiveFloat | None = None  # the predicted time, s
    interval_s: IntervalOfTimes | None = None  # the interval of the prediction, s
    reason: str = ""  # why there is no prediction, or what it is without

    @model_validator(mode="after")
    def _interval_holds_the_prediction(self) -> Self:
        if self.interval_s is None:
            return self
        low, high = self.interval_s
        if self.predicted_s is None or not low <= self.predicted_s <= high:
            raise ValueError("the interval does not hold the predicted time")
        return self

    @property
    def verdict(self) -> TimingVerdict:
        """Verdict of the measured time on the prediction.

        ``inside``: the interval holds the measured time. ``noise``: it does not, but the
        measurement's noise (`NOISE_DEVIATIONS` standard deviations) exceeds the distance, so that
        nothing is said; or it is longer, and other programs kept cores busy or the rounds disagree:
        on a quiet machine it takes less. ``outside``: the time is outside by more than that. ``no
        interval``: the model tells none, and the difference from the prediction exceeds the noise.
        """
        if self.predicted_s is None:
            return "no prediction"
        time_s = self.measurement.time_s
        low, high = self.interval_s or (self.predicted_s, self.predicted_s)
        if self.interval_s is not None and low <= time_s <= high:
            return "inside"
        factor = math.exp(NOISE_DEVIATIONS * self.measurement.noise)
        is_bound = self.measurement.is_disturbed or self.measurement.settling == "unsettled"
        if low <= time_s * factor and (is_bound or time_s / factor <= high):
            return "noise"
        return "no interval" if self.interval_s is None else "outside"


class TimingDocument(Table, Drawable, Document):
    """Measured times of a kernel at several points, beside what was predicted."""

    format: Literal["countperf-timing"] = "countperf-timing"
    version: Literal[1] = 1
    kernel: str  # name of the kernel
    device: DeviceIdentity  # what it was measured on
    protocol: Protocol  # how it was measured
    environment: Environment  # when, and on which machine
    timer: Literal["event"] = "event"  # which clock the samples come from
    cold: Literal[False] = False  # times with flushed caches, as version 0.2.0 took, are refused
    # version of the counting rules that the digests of counts follow
    counting_rules: CountingRules = COUNTING_RULES_VERSION
    weights: str = ""  # slug of the device of the weights that predicted, and name of their model
    model: str = ""
    model_choice: str = ""  # which model was chosen and why, where none was asked for
    # in which share of cases intervals are to hold the time
    interval_level: float = Field(default=0.95, gt=0, lt=1)
    made_up: str = ""  # which index arrays were made up, and how
    sizes: tuple[TimedSize, ...] = Field(min_length=1)  # one for each point that could be measured
    failures: tuple[FailedCase, ...] = ()  # one for each point that could not

    @model_validator(mode="after")
    def _points_go_together(self) -> Self:
        names = set(self.sizes[0].measurement.parameters)
        for each in (*(size.measurement for size in self.sizes), *self.failures):
            if set(each.parameters) != names:
                wanted = ", ".join(sorted(names)) or "none"
                raise ValueError(f"case {each.case!r} has other parameters than {wanted}")
        return self

    @model_validator(mode="after")
    def _counts_can_be_read(self) -> Self:
        for size in self.sizes:
            try:
                size.measurement.property_vector()
            except DocumentError as error:
                raise ValueError(f"case {size.measurement.case!r}: {error}") from error
        return self

    __repr__ = printed
    __str__ = printed

    @property
    def runs(self) -> tuple[tuple[dict[str, int], float], ...]:
        """Parameters of each measured point, and its time, s."""
        return tuple(
            (dict(size.measurement.parameters), size.measurement.time_s) for size in self.sizes
        )

    def runs_of(self, vector: PropertyVector) -> list[Measurement]:
        """Return the measurements, if they are of a kernel with certain counts."""
        if self.counting_rules != COUNTING_RULES_VERSION:
            raise PredictionError(
                f"the timing of {self.kernel!r} knows its kernel by counts under counting rules"
                f" {self.counting_rules}, and kernels are now counted under"
                f" {COUNTING_RULES_VERSION}: time the kernel again"
            )
        wanted = {vector.view: counts_digest(vector)}
        if vector.view == "structure":
            wanted["source"] = counts_digest(vector.emitted())
            if vector.caches is not None and not vector.caches.counts_alike(DEFAULT_CACHES):
                del wanted["structure"]  # timings have those for the usual caches
        if not any(set(wanted) & set(size.counts) for size in self.sizes):
            raise PredictionError(
                f"the timing of {self.kernel!r} does not tell which kernel it is of, since that"
                f" could not be counted in the {vector.view} view: time it with the statistics"
                " that it needs to be counted"
            )
        runs = [size.measurement for size in self.sizes if _agree(size.counts, wanted)]
        if not runs:
            raise PredictionError(
                f"the timing is of {self.kernel!r}, and kernel {vector.kernel!r} has other counts:"
                " time that kernel itself, with the statistics that its prediction gets"
            )
        return runs


def _agree(counts: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    shared = set(counts) & set(wanted)
    return bool(shared) and all(counts[view] == wanted[view] for view in shared)


def counts_digest(vector: PropertyVector) -> str:
    """Return a digest of the counts of a kernel; equal counts of one view have equal ones."""
    content = json.dumps(vector.to_document()["counts"], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
