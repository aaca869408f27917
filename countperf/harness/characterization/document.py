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
    """A measured number.

    Attributes
    ----------
    name : str
        What was measured, such as ``fma.f32 latency``.
    value, spread : float
        The number, and the largest minus the smallest repetition relative to it.
    unit : str
        Of the value.
    kernel : str
        The microbenchmark it comes from, with what it was run with.
    is_plausible : bool
        Whether it is within what is possible.
    remark : str
        What it was compared with, or why it is not plausible.
    """

    name: str
    value: float
    spread: NonNegativeFloat
    unit: str
    kernel: str
    is_plausible: bool = True
    remark: str = ""


class Characterization(Table, Document):
    """Findings of the microbenchmarks.

    Attributes
    ----------
    device : DeviceIdentity
        The device.
    environment : Environment
        Of the run.
    findings : tuple of Finding
        Every number.
    left_out : dict from str to str
        What was not measured, and why.
    parameters : DeviceParameters
        What mechanistic models read; the plausible numbers only.
    finished : tuple of str
        Names of the experiments that are done, for a run that resumes.
    """

    format: Literal["countperf-characterization"] = "countperf-characterization"
    version: Literal[1] = 1
    device: DeviceIdentity
    environment: Environment
    findings: tuple[Finding, ...] = ()
    left_out: dict[str, str] = Field(default_factory=dict)
    parameters: DeviceParameters
    finished: tuple[str, ...] = ()

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
    """Make a finding, plausible if it lies between two bounds and its repetitions agree.

    Parameters
    ----------
    name, unit, kernel : str
        As in `Finding`.
    estimate : Estimate
        The number.
    lowest, highest : float, optional
        What is possible.
    why : str, optional
        Where the bounds come from.
    """
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
