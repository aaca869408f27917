"""The weights that there are on this machine: listed, probed, and held against what ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from countperf.display import Table, printed
from countperf.documents import read_file_text
from countperf.documents.files import parse_json
from countperf.errors import CountperfError, DocumentError
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.devices import discover
from countperf.harness.runner import KernelRunner
from countperf.harness.trial import try_device
from countperf.models.fit_summaries import AvailableFit, Probe, WeightsCheck
from countperf.models.library import NamedFit, fits_for, load_weights, named_fits
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.harness.device import Device
    from countperf.measurements import KernelCase
    from countperf.models.weights import WeightSet


class AvailableWeights(tuple[AvailableFit, ...], Table):
    """A table of the fits there are: those that ship first, then the user's own."""

    __slots__ = ()
    __repr__ = printed


def available_weights() -> AvailableWeights:
    """List the fitted weights that there are: those that ship, and the user's own.

    Returns
    -------
    AvailableWeights
        A sequence of `AvailableFit`, printable, with ``to_frame()``.
    """
    present = tuple(device.identity for device in discover().devices)
    rows = (_row(fit, present) for fit in named_fits().values())
    return AvailableWeights([row for row in rows if row is not None])


def _row(fit: NamedFit, present: Sequence[DeviceIdentity]) -> AvailableFit | None:
    """Describe a fit by few fields of its default document; None if it is gone."""
    device, date, error, is_here, problem = fit.folder.name, "", None, False, ""
    if (path := fit.default) is None:
        return None
    try:
        content: Any = parse_json(read_file_text(path), path=path)
        identity = DeviceIdentity.from_object(content["device"], path=path)
        device = identity.slug
        date = (content.get("source") or {}).get("recorded_at", "")
        error = (content.get("quality") or {}).get("held_out_error")
        is_here = any(identity.matches(each) for each in present)
    except DocumentError as bad:
        if not path.exists():  # removed in the meantime
            return None
        problem = str(bad)
    except (KeyError, TypeError, AttributeError) as bad:
        problem = f"{path} is no weights document: {type(bad).__name__}: {bad}"
    return AvailableFit(
        name=fit.name,
        device=device,
        models=tuple(fit.models),
        date=date,
        held_out_error=error,
        is_here=is_here,
        problem=problem,
    )


PROBES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "bandwidth": ("stride1/copy/256x1/f32", {"n": 1 << 24}),
    "clock": ("independent-chains/fma-1/128x1/f32", {"n": 1 << 16, "m": 128}),
}
"""Kernels of the catalogue that show the bandwidth, and the clock by a chain of operations."""

_RUNS = 8
_SPENT_S = 0.3
"""At least so many runs of a probe, and so much time on them."""


def check_weights(
    name: str,
    weights: WeightSet,
    device: Device,
    *,
    fastest_run: Callable[[Device, KernelCase], float] | None = None,
) -> WeightsCheck:
    """Measure two kernels on a device, and compare them with what weights predict."""
    probes: list[Probe] = []
    try:
        for of, (kernel, sizes) in PROBES.items():
            described = entry(kernel)
            predicted = weights.predict(described.build(), sizes, incomplete_ok=True)
            measured_s = (fastest_run or _fastest_run)(device, described.case_at(**sizes))
            probes.append(Probe(of=of, measured_s=measured_s, predicted_s=float(predicted.time_s)))
    except CountperfError as error:
        return WeightsCheck(weights=name, device=device.label, problem=str(error))
    return WeightsCheck(
        weights=name,
        device=device.label,
        probes=tuple(probes),
    )


def check_device(
    device: Device, *, fastest_run: Callable[[Device, KernelCase], float] | None = None
) -> tuple[WeightsCheck, ...]:
    """Check all fits of a device, shipped ones and the user's own; the kernels run once."""
    measured_s: dict[str, float] = {}

    def run_once(of: Device, case: KernelCase) -> float:
        if case.name not in measured_s:
            measured_s[case.name] = (fastest_run or _fastest_run)(of, case)
        return measured_s[case.name]

    found: list[WeightsCheck] = []
    for fit in fits_for(device.identity):
        try:
            weights = load_weights(fit.name)
        except CountperfError as error:
            check = WeightsCheck(weights=fit.name, device=device.label, problem=str(error))
        else:
            check = check_weights(fit.name, weights, device, fastest_run=run_once)
        found.append(check)
    return tuple(found)


def check_here() -> tuple[WeightsCheck, ...]:
    """Check all fits of the working devices of this machine."""
    working = [device for device in discover().devices if try_device(device).works]
    return tuple(check for device in working for check in check_device(device))


def _fastest_run(device: Device, case: KernelCase) -> float:
    times: list[float] = []
    with KernelRunner.open(device).loaded(case) as run:
        while len(times) < _RUNS or sum(times) < _SPENT_S:
            times.append(run().time_s)
    return min(times)
