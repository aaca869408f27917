"""Short descriptions of fits: what there is, and whether one suits the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from countperf.display import ShortRepr
from countperf.metrics import factor_between

NOTABLE_FACTOR = 1.6
"""Between predicted and measured times of a probe: fits are usually off by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableFit:
    """Fitted weights of a device that can be asked for by name."""

    name: str  # for ``load_weights`` and ``--weights``: the device's slug, or ``mine/NAME``
    device: str  # slug of the device
    models: tuple[str, ...]  # what ``model=`` and ``--model`` take
    date: str  # when the device was measured, ISO 8601
    held_out_error: float | None
    is_here: bool  # whether a device of this machine matches that of the weights
    problem: str = ""  # why the default document cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A kernel that was measured to check weights."""

    of: str  # what it shows: ``bandwidth`` or ``clock``
    measured_s: float  # fastest run, and what the weights predict, s
    predicted_s: float

    @property
    def is_as_fitted(self) -> bool:
        """Whether the machine is about as fast as the weights say."""
        return factor_between(self.predicted_s, self.measured_s) <= NOTABLE_FACTOR

    @property
    def text(self) -> str:
        """Speed of the machine as a share of what the weights say."""
        return f"{self.of} {self.predicted_s / self.measured_s:.2g} times that of the fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsCheck(ShortRepr):
    """Comparison of weights with the machine at hand."""

    weights: str  # name of the weights, label of the device
    device: str
    probes: tuple[Probe, ...] = ()  # what was measured
    problem: str = ""  # why nothing could be measured or predicted

    @property
    def fits(self) -> bool:
        """Whether all probes ran, and are about as fast as the weights say."""
        return bool(self.probes) and all(probe.is_as_fitted for probe in self.probes)

    @property
    def mend(self) -> str:
        """Remedy if the weights do not fit; empty if they do."""
        if self.fits:
            return ""
        if self.problem:
            return "run countperf doctor to see whether the device works"
        return (
            "stop other programs and check again; if it stays so, this machine is another one than"
            " was measured: countperf calibrate fits its weights in three minutes"
        )

    def to_object(self) -> dict[str, Any]:
        """Return the check as plain values."""
        return {
            "weights": self.weights,
            "device": self.device,
            "fits": self.fits,
            "probes": [
                {
                    "of": probe.of,
                    "measured_s": probe.measured_s,
                    "predicted_s": probe.predicted_s,
                    "is_as_fitted": probe.is_as_fitted,
                }
                for probe in self.probes
            ],
            "problem": self.problem,
            "mend": self.mend,
        }
