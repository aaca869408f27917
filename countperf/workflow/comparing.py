"""Comparison of all models on measured kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.errors import (
    ParameterError,
)
from countperf.fitting.comparison import compare_models, linear_results
from countperf.hardware.library import load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.compile.ptx import profile_kernel
from countperf.measurements import TimingDocument, measurements_in
from countperf.mechanistic.predict_all import model_makers
from countperf.models.library import fits_folders
from countperf.workflow.measured import read_measurements
from countperf.workflow.mechanistic import profiler_of
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.fitting.comparison import Comparison, Level, Profiler
    from countperf.measurements import Measurement, MeasurementSet, Purpose
    from countperf.mechanistic.from_kernel import KernelProfiler
    from countperf.mechanistic.profile import ProfiledKernel


COMPARED_INSTRUCTIONS = 150
"""Instructions of a sub-group's graph in a comparison: calibrations evaluate it many times."""


def measured_devices() -> dict[str, Path]:
    """List the devices whose measurements come with countperf: slug to file, sorted."""
    files: dict[str, Path] = {}
    for folder in reversed(fits_folders()):
        for path in folder.glob("*/measurements.jsonl*"):
            files[path.parent.name] = measurements_in(path.parent)
    return dict(sorted(files.items()))


def compare(
    measurements: MeasurementSet | Path | str,
    *,
    device: DeviceParameters | None = None,
    models: Sequence[str] = (),
    levels: Sequence[Level] = ("published", "scaled"),
    purposes: Sequence[Purpose] = ("test",),
    kernel: Any = None,
    timing: TimingDocument | Path | str | None = None,
    profile_options: Mapping[str, Any] | None = None,
) -> Comparison:
    """Predict measured kernels by all models: as published, and scaled by a factor."""
    known = measured_devices()
    source = (
        known.get(measurements, measurements) if isinstance(measurements, str) else measurements
    )
    if isinstance(source, str) and not Path(source).exists():
        raise ParameterError(
            f"there is no file {source}, and no measurements of a device of this name ship; they do"
            f" of {', '.join(known)}",
            parameter="measurements",
        )
    measured = read_measurements(source)
    if device is None:
        device = _described(measured.device.slug, source)
    there = (*model_makers(()), "linear")
    if unknown := [name for name in models if name not in there]:
        raise ParameterError(
            f"no model is called {unknown[0]!r}; there are {', '.join(there)}", parameter="model"
        )
    profiles = _catalogue_profiles(device)
    cases = tuple(measured)
    if kernel is not None or timing is not None:
        own = _own_cases(kernel, timing, measured.device.slug)
        cases = (*(case for case in cases if case.purpose == "measurement"), *own)
        profiles = _own_profiles(kernel, device, profiles, profile_options)
        purposes = ("application",)
    comparison = compare_models(
        model_makers,
        device,
        cases,
        profiles,
        models=models,
        levels=levels,
        purposes=purposes,
    )
    if kernel is not None or (models and "linear" not in models):
        return comparison
    return comparison.with_models(linear_results(measured, purposes))


def _described(slug: str, source: object) -> DeviceParameters:
    """Return what is known of a device, preferring what was measured beside its measurements."""
    beside = Path(source).parent / "parameters.json" if isinstance(source, Path | str) else None
    if beside is not None and beside.is_file():
        return DeviceParameters.read_file(beside)
    return load_device(slug)


_OWN = "own kernel: "


def _own_cases(
    kernel: Any, timing: TimingDocument | Path | str | None, slug: str
) -> list[Measurement]:
    """Return the measured times of a kernel of the user's, as cases on which errors are taken."""
    if kernel is None or timing is None:
        message = (
            "a kernel of yours is compared with its measured times: pass both"
            " (kernel=KERNEL, timing=FILE), where FILE comes from: countperf time KERNEL n=..."
            " --device DEVICE --save FILE"
        )
        raise ParameterError(message, parameter="timing")
    timings = timing if isinstance(timing, TimingDocument) else TimingDocument.read_file(timing)
    if timings.device.slug != slug:
        message = (
            f"the times are of {timings.device.slug}, the measurements that calibrate of {slug};"
            " time the kernel on the same device"
        )
        raise ParameterError(message, parameter="timing")
    return [
        size.measurement.model_copy(
            update={
                "purpose": "application",
                "kernel": f"{_OWN}{timings.kernel}",
                "case": f"{_OWN}{size.measurement.case}",
            }
        )
        for size in timings.sizes
    ]


def _own_profiles(
    kernel: Any, device: DeviceParameters, others: Profiler, options: Mapping[str, Any] | None
) -> Profiler:
    """Return profiles of a kernel of the user's, and of the catalogue's."""
    given = {"max_instructions": COMPARED_INSTRUCTIONS, **(options or {})}
    profiler = profiler_of(kernel, device, {}, given)
    return lambda measurement: (
        profiler.at(measurement.parameters)
        if measurement.kernel.startswith(_OWN)
        else others(measurement)
    )


def _catalogue_profiles(device: DeviceParameters) -> Profiler:
    """Return profiles of measured kernels of the catalogue, each kernel counted once."""
    profilers: dict[object, KernelProfiler] = {}

    def profile(measurement: Measurement) -> ProfiledKernel:
        name = measurement.kernel
        statistics = entry(name).statistics_at(measurement.parameters)
        key = (name, tuple(sorted(statistics.items())))
        if key not in profilers:
            profilers[key] = profile_kernel(
                entry(name).build(),
                device,
                max_instructions=COMPARED_INSTRUCTIONS,
                statistics=statistics,
            )
        return profilers[key].at(measurement.parameters)

    return profile
