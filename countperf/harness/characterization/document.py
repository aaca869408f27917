"""The result of a characterization, as a document."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat

from countperf.display import Table
from countperf.documents import Document, Part
from countperf.hardware.identity import DeviceIdentity
from countperf.hardware.parameters import DeviceParameters
from countperf.measurements import Environment


class Finding(Part):
    """A measured number."""

    name: str  # what was measured, such as ``fma.f32 latency``
    value: float  # the number, and the largest minus the smallest repetition relative to it
    spread: NonNegativeFloat
    unit: str  # of the value
    kernel: str  # the microbenchmark it comes from, with what it was run with
    is_plausible: bool = True  # whether it is within what is possible
    remark: str = ""  # what it was compared with, or why it is not plausible


class Characterization(Table, Document):
    """Findings of the microbenchmarks."""

    format: Literal["countperf-characterization"] = "countperf-characterization"
    version: Literal[1] = 1
    device: DeviceIdentity  # the device
    environment: Environment  # of the run
    findings: tuple[Finding, ...] = ()  # every number
    left_out: dict[str, str] = Field(default_factory=dict)  # what was not measured, and why
    parameters: DeviceParameters  # what mechanistic models read
    finished: tuple[str, ...] = ()  # names of the experiments that are done, for a run that resumes

    def find(self, name: str) -> Finding | None:
        """Return the finding of that name, if there is one."""
        return next((finding for finding in self.findings if finding.name == name), None)
