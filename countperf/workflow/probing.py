"""Whether weights fit the machine at hand: a probe of its bandwidth and clock in about a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countperf.errors import CountperfError
from countperf.metrics import factor_between
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.harness.device import Device
    from countperf.measurements import KernelCase
    from countperf.models.weights import WeightSet

NOTABLE_FACTOR = 1.6
"""Between predicted and measured times of a probe: fits are usually off by less."""

PROBES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "bandwidth": ("stride1/copy/256x1/f32", {"n": 1 << 24}),
    "clock": ("independent-chains/fma-1/128x1/f32", {"n": 1 << 16, "m": 128}),
}
"""Kernels of the catalogue that show the bandwidth, and the clock by a chain of operations."""

_RUNS = 8
_SPENT_S = 0.3
"""At least so many runs of a probe, and so much time on them."""


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
class WeightsCheck:
    """Whether weights fit the machine at hand.

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
            " was measured: countperf measure --store mine.jsonl, then countperf fit mine.jsonl"
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


def check_weights(
    name: str,
    weights: WeightSet,
    device: Device,
    *,
    fastest_run: Callable[[Device, KernelCase], float] | None = None,
) -> WeightsCheck:
    """Measure two kernels on a device, and compare them with what weights predict.

    Parameters
    ----------
    name : str
        Name of the weights.
    weights : WeightSet
        The weights.
    device : Device
        A device of this machine that matches theirs.
    fastest_run : callable, optional
        Measures a case, s; by default on the device.

    Returns
    -------
    WeightsCheck
        Nothing is raised for weights or devices that fail; the check says why.
    """
    probes: list[Probe] = []
    try:
        for of, (kernel, sizes) in PROBES.items():
            described = entry(kernel)
            predicted = weights.predict(described.build(), sizes, incomplete_ok=True)
            measured_s = (fastest_run or _fastest_run)(device, described.case_at(**sizes))
            probes.append(Probe(of=of, measured_s=measured_s, predicted_s=float(predicted.time_s)))
    except CountperfError as error:
        return WeightsCheck(weights=name, device=device.label, problem=str(error))
    return WeightsCheck(weights=name, device=device.label, probes=tuple(probes))


def check_device(device: Device) -> WeightsCheck | None:
    """Check the weights that are the default for a device; None if there are none."""
    from countperf.models.library import fits_for, load_weights

    for fit in fits_for(device.identity):
        try:
            weights = load_weights(fit.name)
        except CountperfError as error:
            return WeightsCheck(weights=fit.name, device=device.label, problem=str(error))
        return check_weights(fit.name, weights, device)
    return None


def check_here() -> tuple[WeightsCheck, ...]:
    """Check the default weights of each working device of this machine."""
    from countperf.harness.devices import discover
    from countperf.harness.trial import try_device

    found = [check_device(each) for each in discover().devices if try_device(each).works]
    return tuple(check for check in found if check is not None)


def _fastest_run(device: Device, case: KernelCase) -> float:
    from countperf.harness.runner import KernelRunner

    times: list[float] = []
    with KernelRunner.open(device).loaded(case) as run:
        while len(times) < _RUNS or sum(times) < _SPENT_S:
            times.append(run().time_s)
    return min(times)
