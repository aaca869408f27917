"""Short descriptions of fits: what there is, how one compares, whether it suits the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from countperf.display import ShortRepr
from countperf.metrics import factor_between

NOTABLE_FACTOR = 1.6
"""Between predicted and measured times of a probe: fits are usually off by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableFit:
    """Fitted weights of a device that can be asked for by name.

    Attributes
    ----------
    name : str
        For ``load_weights`` and ``--weights``: the device's slug, or ``mine/NAME``.
    device : str
        Slug of the device.
    models : tuple of str
        What ``model=`` and ``--model`` take.
    date : str
        When the device was measured, ISO 8601; empty if the document does not say.
    held_out_error : float or None
        Geometric mean of the relative errors of the default model, each family of kernels predicted
        from the others; None if none could be left out.
    is_here : bool
        Whether a device of this machine matches that of the weights.
    problem : str
        Why the default document cannot be read; empty if it can.
    """

    name: str
    device: str
    models: tuple[str, ...]
    date: str
    held_out_error: float | None
    is_here: bool
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedComparison:
    """Errors of a fit beside those of the shipped weights of the device.

    Attributes
    ----------
    name : str
        Of the shipped weights.
    held_out_error, shipped_held_out_error : float or None
        Geometric means of the relative errors of both, each on its own measurements, families of
        kernels left out; None where none could be.
    judged_cases : int
        Cases of the measurements that judge fits, such as those of test kernels.
    judged_error, shipped_judged_error : float or None
        The same of both on these cases, which neither was fitted to here; None without any.
    """

    name: str
    held_out_error: float | None
    shipped_held_out_error: float | None
    judged_cases: int
    judged_error: float | None
    shipped_judged_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A kernel that was measured to check weights.

    Attributes
    ----------
    of : str
        What it shows: ``bandwidth`` or ``clock``.
    measured_s, predicted_s : float
        Fastest run, and what the weights predict, s.
    """

    of: str
    measured_s: float
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
    """Comparison of weights with the machine at hand.

    Attributes
    ----------
    weights, device : str
        Name of the weights, label of the device.
    probes : tuple of Probe
        What was measured.
    problem : str
        Why nothing could be measured or predicted; empty if it could.
    """

    weights: str
    device: str
    probes: tuple[Probe, ...] = ()
    problem: str = ""

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
