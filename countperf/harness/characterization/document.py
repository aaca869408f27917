"""The result of a characterization, as a document."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat

from countperf.display import Table
from countperf.documents import Document, Part
from countperf.hardware.identity import DeviceIdentity
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.characterization.timing import Estimate
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
        return next((each for each in self.findings if each.name == name), None)


def make_finding(
    name: str,
    estimate: Estimate,
    unit: str,
    kernel: str,
    *,
    lowest: float = 0.0,
    highest: float = float("inf"),
    why: str = "",
) -> Finding:
    """Make a finding, plausible if it lies between two bounds and its repetitions agree."""
    value = estimate.value
    remark = f"between {lowest:.3g} and {highest:.3g} {unit}: {why}" if why else ""
    plausible = lowest < value <= highest
    if not plausible:
        remark = f"not {remark}" if why else f"not above {lowest:.3g} {unit}"
    elif estimate.spread > 0.5:
        plausible, remark = False, f"repetitions differ by {estimate.spread:.0%}"
    return Finding(
        name=name,
        value=value,
        spread=estimate.spread,
        unit=unit,
        kernel=kernel,
        is_plausible=plausible,
        remark=remark,
    )
