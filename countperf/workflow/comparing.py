"""Comparison of all models on measured kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.errors import (
    ParameterError,
)
from countperf.fitting.comparison import compare_models, linear_results
from countperf.hardware.library import load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.profiles import profile_kernel
from countperf.mechanistic.predict_all import model_makers
from countperf.models.library import fits_folders
from countperf.workflow.kernels import load_kernel as load_kernel
from countperf.workflow.measured import read_measurements
from countperf.workflow.prediction import explain as explain
from countperf.workflow.prediction import predict as predict
from countperf.workflow.prediction import with_compiled_code as with_compiled_code
from countperf.workflow.progress import say_nothing
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.fitting.comparison import Comparison, Level
    from countperf.measurements import Measurement, MeasurementSet, Purpose
    from countperf.mechanistic.from_kernel import KernelProfiler
    from countperf.mechanistic.profile import ProfiledKernel


COMPARED_INSTRUCTIONS = 150
"""Instructions of a sub-group's graph in a comparison: calibrations evaluate it many times."""


def measured_devices() -> dict[str, Path]:
    """List the devices whose measurements come with countperf: slug to file, sorted."""
    found: dict[str, Path] = {}
    for folder in reversed(fits_folders()):
        for path in folder.glob("*/measurements.jsonl"):
            found[path.parent.name] = path
    return dict(sorted(found.items()))


def compare(
    measurements: MeasurementSet | Path | str,
    *,
    device: DeviceParameters | None = None,
    models: Sequence[str] = (),
    levels: Sequence[Level] = ("published", "scaled", "fitted"),
    purposes: Sequence[Purpose] = ("test",),
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Predict measured kernels by all models: as published, scaled by a factor, and fitted.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        Measurements of one device, their file, or the slug of a device whose measurements come
        with countperf.
    device : DeviceParameters, optional
        Constants of the device; by default those that ``characterize`` wrote beside the
        measurements (``parameters.json``), else the catalogue's.
    models : sequence of str, optional
        Only these models; by default all, the fitted linear model among them.
    levels : sequence of {"published", "scaled", "fitted"}
        What is calibrated; by default all three. Fitting all constants takes minutes.
    purposes : sequence of {"test", "application", "variant"}, optional
        What the kernels are for on which errors are taken.
    progress : callable from str to None, optional
        Is told what is being calibrated.

    Returns
    -------
    Comparison
        Errors on kernels for `purposes`; calibrated on the measurement kernels.

    Raises
    ------
    ParameterError
        No model has such a name.
    DeviceError, DocumentError
        The device has no description, or the measurements are bad.
    FitError
        No case has a profile.
    """
    known = measured_devices()
    place = known.get(measurements, measurements) if isinstance(measurements, str) else measurements
    found = read_measurements(place)
    if device is None:
        device = _described(found.device.slug, place)
    there = (*model_makers(()), "linear")
    if unknown := [name for name in models if name not in there]:
        raise ParameterError(
            f"no model is called {unknown[0]!r}; there are {', '.join(there)}", parameter="model"
        )
    comparison = compare_models(
        model_makers,
        device,
        tuple(found),
        _CatalogueProfiles(device),
        models=models,
        levels=levels,
        purposes=purposes,
        thinned={"pipeline-rr": 8, "pipeline-gto": 8},
        progress=progress or say_nothing,
    )
    if (models and "linear" not in models) or "fitted" not in levels:
        return comparison
    return comparison.with_models(linear_results(found, purposes))


def _described(slug: str, place: object) -> DeviceParameters:
    """Return what is known of a device, preferring what was measured beside its measurements."""
    beside = Path(place).parent / "parameters.json" if isinstance(place, Path | str) else None
    if beside is not None and beside.is_file():
        return DeviceParameters.read_file(beside)
    return load_device(slug)


class _CatalogueProfiles:
    """Profiles of measured kernels of the catalogue, each kernel counted once."""

    def __init__(self, device: DeviceParameters) -> None:
        self.device = device
        self._profilers: dict[object, KernelProfiler] = {}

    def __call__(self, measurement: Measurement) -> ProfiledKernel:
        name = measurement.kernel
        statistics = entry(name).statistics_at(measurement.parameters)
        key = (name, tuple(sorted(statistics.items())))
        if key not in self._profilers:
            self._profilers[key] = profile_kernel(
                entry(name).build(),
                self.device,
                max_instructions=COMPARED_INSTRUCTIONS,
                statistics=statistics,
            )
        return self._profilers[key].at(measurement.parameters)
