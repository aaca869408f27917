"""The weights that there are on this machine: listed, probed, and held against what ships."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import pandas as pd

from countperf.display import shortened
from countperf.documents import read_file_text
from countperf.documents.files import parse_json
from countperf.errors import CountperfError, DocumentError, FitError
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.devices import discover
from countperf.harness.runner import KernelRunner
from countperf.harness.trial import try_device
from countperf.models.fit_summaries import AvailableFit, Probe, ShippedComparison, WeightsCheck
from countperf.models.library import NamedFit, find_fit, fits_for, load_weights, named_fits
from countperf.report.weights import available
from countperf.workflow.evaluating import evaluate
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.harness.device import Device
    from countperf.measurements import KernelCase, MeasurementSet
    from countperf.models.weights import WeightSet


class AvailableWeights(Sequence[AvailableFit]):
    """A table of the fits there are: those that ship first, then the user's own."""

    def __init__(self, fits: Sequence[AvailableFit]) -> None:
        self._fits = tuple(fits)

    @overload
    def __getitem__(self, place: int) -> AvailableFit: ...
    @overload
    def __getitem__(self, place: slice) -> AvailableWeights: ...
    def __getitem__(self, place: int | slice) -> AvailableFit | AvailableWeights:
        found = self._fits[place]
        return AvailableWeights(found) if isinstance(found, tuple) else found

    def __len__(self) -> int:
        return len(self._fits)

    def __iter__(self) -> Iterator[AvailableFit]:
        return iter(self._fits)

    def __repr__(self) -> str:
        return shortened(available(self).text())

    def _repr_html_(self) -> str:
        return available(self).html()

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas data frame, a row for each fit, a column per attribute."""
        return available(self).frame()


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
    working = [each for each in discover().devices if try_device(each).works]
    return tuple(check for each in working for check in check_device(each))


def _fastest_run(device: Device, case: KernelCase) -> float:
    times: list[float] = []
    with KernelRunner.open(device).loaded(case) as run:
        while len(times) < _RUNS or sum(times) < _SPENT_S:
            times.append(run().time_s)
    return min(times)


def compared_with_shipped(
    weights: WeightSet, measurements: MeasurementSet
) -> ShippedComparison | None:
    """Compare weights with those that ship for their device."""
    fit = find_fit(weights.device.slug)
    if fit is None or fit.is_own:
        return None
    shipped = load_weights(fit.name)
    cases, error = _judged(weights, measurements)
    _, shipped_error = _judged(shipped, measurements)
    return ShippedComparison(
        name=fit.name,
        held_out_error=None if weights.quality is None else weights.quality.held_out_error,
        shipped_held_out_error=None if shipped.quality is None else shipped.quality.held_out_error,
        judged_cases=cases,
        judged_error=error,
        shipped_judged_error=shipped_error,
    )


def _judged(weights: WeightSet, measurements: MeasurementSet) -> tuple[int, float | None]:
    """Return how many cases judge fits, and the geometric mean of the relative errors on them."""
    try:
        found = evaluate(measurements, weights=weights, force=True)
    except FitError:  # there are none
        return 0, None
    return len(found.cases), found.overall().value
