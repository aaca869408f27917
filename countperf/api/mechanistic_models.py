"""Mechanistic models for kernels as users name them, and all models compared on measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.api.evaluation import read_measurements
from countperf.api.fits import known_device
from countperf.api.kernels import Kernel
from countperf.api.timing import time_resident_groups
from countperf.devices.discovery import find_device
from countperf.devices.nvcc import require_program
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.errors import DeviceError, ParameterError, nearest, option
from countperf.measuring import Timing, measurements_in
from countperf.mechanistic.comparison import compare_models, linear_result
from countperf.mechanistic.compiled_profile import capability_of, profile_kernel, with_machine_code
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.occupancy import KernelOccupancy, program_occupancy, unused_local_bytes
from countperf.mechanistic.predict_all import (
    ALL,
    ModelAnswers,
    ModelChoice,
    answers_of,
    model_names,
)
from countperf.mechanistic.step_formulas import StepFormulas
from countperf.mechanistic.step_formulas import step_formulas as _step_formulas
from countperf.mechanistic.sweep import MAX_SWEPT_INSTRUCTIONS, Axis, Sweep
from countperf.mechanistic.sweep import sweep as _sweep
from countperf.models.library import fits_folders
from countperf.sizes import checks_keywords, given_sizes
from countperf.store import read_file_text
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.devices.device import Device
    from countperf.measuring import Measurement, MeasurementSet, Purpose
    from countperf.mechanistic.comparison import CalibrationLevel, Comparison, Profiler
    from countperf.mechanistic.from_kernel import KernelProfiler
    from countperf.mechanistic.profile import ProfiledKernel


@checks_keywords
def predict_all(
    kernel: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    models: ModelChoice = ALL,
    statistics: Mapping[str, Any] | None = None,
    lines: Mapping[str, float] | None = None,
    profile_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> ModelAnswers:
    """Predict the time of a Loopy kernel by mechanistic models, in one call.

    Parameters
    ----------
    kernel : str, loopy.TranslationUnit or KernelProfiler
        The kernel, or a text that names one, as for `countperf.predict`.
    device : DeviceParameters, str or Path
        A device, its slug in the catalogue, or the path of its document (``.toml``, ``.json``).
    parameters, **more : int
        Values of all size parameters.
    models : str or sequence of str, optional
        Names of models, such as ``["volkov", "roofline"]``; default: all.
    statistics, lines : mapping, optional
        What data decides, as for `countperf.predict`; by array the lines that a sub-group touches,
        which come before a class of accesses such as ``{"x": "indirect"}``.
    profile_options : mapping, optional
        Options of `countperf.profile_kernel`, such as ``registers_per_work_item`` or
        ``active_groups``; and ``analysis``: ``"sass"`` takes instructions from machine code
        (`countperf.mechanistic.compiled_profile.with_machine_code`), ``"counts"`` from Loopy;
        ``sass`` names a listing of the machine code.

    Returns
    -------
    ModelAnswers
        For each model by its name the prediction, or the error that says which input it lacks.

    Raises
    ------
    CountperfError
        As in `countperf.mechanistic.predict_all.answers_of`; or there is no such device or kernel.
    """
    values = given_sizes(parameters, more)
    profiler = profiler_of(kernel, device, values, _with(profile_options, statistics, lines))
    return answers_of(profiler, values, models)


@checks_keywords
def occupancy(
    kernel: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    statistics: Mapping[str, Any] | None = None,
    lines: Mapping[str, float] | None = None,
    profile_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> KernelOccupancy:
    """Count the groups of a kernel that are resident on a device, and say what limits them.

    Parameters
    ----------
    kernel, device, parameters, profile_options, **more
        As for `predict_all`.

    Returns
    -------
    KernelOccupancy
        Resident groups of each device program, and what limits them; an upper bound where nobody
        knows the registers.

    Raises
    ------
    CountperfError
        As for `predict_all`; or not even one group fits.
    """
    values = given_sizes(parameters, more)
    profiler = profiler_of(kernel, device, values, _with(profile_options, statistics, lines))
    return KernelOccupancy(
        kernel=profiler.kernel,
        device=profiler.device.slug,
        parameters=values,
        programs=tuple(
            program_occupancy(profiled, profiler.device)
            for profiled, _ in profiler.launches_at(values)
        ),
    )


@checks_keywords
def sweep(
    kernel: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    over: Axis = "occupancy",
    values: Sequence[int] | None = None,
    models: ModelChoice = ALL,
    statistics: Mapping[str, Any] | None = None,
    lines: Mapping[str, float] | None = None,
    profile_options: Mapping[str, Any] | None = None,
    timed_on: str | Device | None = None,
    **more: Any,
) -> Sweep:
    """Predict a kernel by mechanistic models over one axis: a frame, and a figure.

    Parameters
    ----------
    kernel, device, parameters, models, profile_options, **more
        As for `predict_all`. Of a kernel with several device programs, the one that moves most
        bytes is swept.
    over : {"occupancy", "group_size"}, optional
        The axis: resident groups, or work items of a group.
    values : sequence of int, optional
        Values on it; by default those that the device holds.
    timed_on : str or Device, optional
        A device of this machine, as for `countperf.time_kernel`, where the kernel is timed over
        occupancy, beside the models: unused local memory limits the resident groups.

    Returns
    -------
    Sweep
        ``to_frame()`` has a row per value and model, `countperf.draw` draws the throughput.

    Raises
    ------
    CountperfError
        As for `predict_all`, `countperf.time_kernel` and `countperf.mechanistic.sweep.sweep`.
    """
    sizes = given_sizes(parameters, more)
    options: dict[str, Any] = {
        "max_instructions": MAX_SWEPT_INSTRUCTIONS,
        **_with(profile_options, statistics, lines),
    }
    profiler = profiler_of(kernel, device, sizes, options)
    if timed_on is not None and over == "occupancy":
        profiled = profiler.at(sizes)
        able = unused_local_bytes(profiled, profiler.device)
        chosen = {g: n for g, n in able.items() if values is None or g in values}
        swept = _sweep(profiled, profiler.device, values=[*chosen], models=models)
        given = options.get("statistics")
        measured = time_resident_groups(kernel, sizes, chosen, device=timed_on, statistics=given)
        times_s = {int(timed.case.rpartition("=")[2]): timed.time_s for timed in measured}
        return replace(
            swept,
            points=tuple(replace(p, measured_s=times_s.get(p.value)) for p in swept.points),
            measured_on=measured.header.device.slug,
            failures=tuple(failure.reason for failure in measured.failures),
            note=profiler.note,
        )
    launches = profiler.launches_at(sizes)
    profiled, _ = max(launches, key=lambda of: (of[0].profile.total_bytes or 0.0) * of[1])
    swept = _sweep(profiled, profiler.device, over=over, values=values, models=models)
    return replace(swept, note=profiler.note)


@checks_keywords
def step_formulas(
    kernel: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    profile_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> StepFormulas:
    """Find work, span and memory transactions of a kernel as polynomials in one of its sizes.

    Parameters
    ----------
    kernel, device, parameters, profile_options, **more
        As for `predict_all`; the one size without a value is free.

    Returns
    -------
    StepFormulas
        ``programs`` have the formulas; ``bound(n)`` is Eq. (1) of Ma, Chamberlain & Agrawal
        (2014), in steps; ``crossovers(other)`` says which of two kernels takes fewer.

    Raises
    ------
    CountperfError
        As for `predict_all`; or a count is no polynomial of the free size.

    Examples
    --------
    >>> options = {"registers_per_work_item": 20}
    >>> found = step_formulas("published-apsp/32x32", "nvidia-gtx-480", profile_options=options)
    >>> found.programs[0].transactions
    (1/512)*n^3 + (1/32)*n^2
    """
    held = given_sizes(parameters, more)
    profiler = profiler_of(kernel, device, held, profile_options)
    return _step_formulas(profiler, held, label=kernel if isinstance(kernel, str) else "")


def _with(
    options: Mapping[str, Any] | None,
    statistics: Mapping[str, Any] | None,
    lines: Mapping[str, float] | None,
) -> dict[str, Any]:
    given = {"statistics": statistics, "lines": lines}
    return {**(options or {}), **{name: v for name, v in given.items() if v is not None}}


def profiler_of(
    kernel: Any,
    device: DeviceParameters | str | Path,
    sizes: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> KernelProfiler:
    """Return the profiler of a kernel, or of the one that a text names; errors: `predict_all`."""
    if isinstance(kernel, KernelProfiler):
        return kernel
    if not isinstance(device, DeviceParameters | str | Path):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        message = (
            f"the device is a {type(device).__name__}; pass the slug of a device (such as"
            ' "nvidia-gtx-970"), the path of its document or DeviceParameters after the kernel,'
            ' and sizes after it: predict_all(kernel, device, {"n": 1024})'
        )
        raise ParameterError(message, parameter="device")
    given = dict(options or {})
    analysis, listing = given.pop("analysis", "counts"), given.pop("sass", None)
    if analysis not in ("counts", "sass"):
        message = f"{option('analysis')} is {analysis!r}; pass 'counts' or 'sass'"
        raise ParameterError(message, parameter="analysis")
    asked = Kernel.of(kernel, sizes, given.pop("statistics", None))
    unit = asked.unit_with("schedule, which mechanistic models need")
    profiler = profile_kernel(unit, device, statistics=asked.statistics, **given)
    if listing is not None:
        return with_machine_code(profiler, unit, read_file_text(Path(listing)))
    return profiler if analysis == "counts" else with_machine_code(profiler, unit)


def find_described_device(
    document: str | None = None, *, device: str | None = None, weights: str | None = None
) -> DeviceParameters:
    """Find the description of a device for the mechanistic models."""
    if document is not None:
        return load_device(document)
    slug = weights if device is None else find_device(device).identity.slug
    if slug is None:
        message = (
            "mechanistic models predict for a described device: name it"
            f" ({option('document', 'SLUG')} or FILE, such as nvidia-gtx-970), or a device of this"
            f" machine ({option('device', 'DEVICE')})"
        )
        raise DeviceError(message)
    parameters = known_device(slug, weights or slug)
    if parameters is None:
        message = (
            f"there is no description of {slug}; make one with: countperf characterize --store"
            f" runs/{slug}.json --output runs/{slug}-parameters.json, and pass that document,"
            f" {option('document', f'runs/{slug}-parameters.json')}"
        )
        raise DeviceError(message, device=slug)
    return parameters


COMPARED_INSTRUCTIONS = 150
"""Instructions of a sub-group's graph in a comparison: calibrations evaluate it many times."""


def list_measured_devices() -> dict[str, Path]:
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
    levels: Sequence[CalibrationLevel] = ("published", "scaled"),
    purposes: Sequence[Purpose] = ("test",),
    kernel: Any = None,
    timing: Timing | Path | str | None = None,
    profile_options: Mapping[str, Any] | None = None,
) -> Comparison:
    """Predict measured kernels by all models: as published, and scaled by a factor."""
    if (kernel is None) != (timing is None):
        message = (
            "a kernel of yours is compared with its measured times: pass both"
            f" ({option('kernel', 'KERNEL')}, {option('timing', 'FILE')}), where FILE comes from:"
            " countperf time KERNEL n=..."
            " --device DEVICE --output FILE"
        )
        raise ParameterError(message, parameter="timing")
    timings = Timing.read_file(timing) if isinstance(timing, Path | str) else timing
    known = list_measured_devices()
    source = (
        known.get(measurements, measurements) if isinstance(measurements, str) else measurements
    )
    measured = None
    if not isinstance(source, str) or Path(source).exists():
        measured = read_measurements(source)
        slug = measured.device.slug
    elif timings is not None and "scaled" not in levels and source == timings.device.slug:
        slug = source
    else:
        there = f"they do of {', '.join(known)}" if known else "this installation has none"
        is_timed = timings is not None and source == timings.device.slug
        others = ", or ask for the level 'published' alone, which needs none" if is_timed else ""
        raise ParameterError(
            f"there is no file {source}, and no measurements of a device of this name ship;"
            f" {there}; name a campaign's file (.jsonl){others}",
            parameter="measurements",
        )
    device = device or _describe_measured_device(slug, source)
    there = (*model_names(), "linear")
    if unknown := [name for name in models if name not in there]:
        raise ParameterError(
            f"no model is called {unknown[0]!r}; there are {', '.join(there)}"
            f"{nearest(unknown[0], there)}",
            parameter="model",
        )
    own, cases = None, tuple(measured or ())
    if timings is not None:
        timed = _own_cases(timings, slug)
        cases = (*(case for case in cases if case.purpose == "measurement"), *timed)
        given = {"max_instructions": COMPARED_INSTRUCTIONS, **(profile_options or {})}
        own = profiler_of(kernel, device, {}, given)
        purposes = ("application",)
    comparison = compare_models(
        device,
        cases,
        _profiles(device, own, profile_options or {}),
        models=models,
        levels=levels,
        purposes=purposes,
        own=own is not None,
    )
    if measured is None or kernel is not None or (models and "linear" not in models):
        return comparison
    models_with_linear = (linear_result(measured, purposes), *comparison.models)
    return comparison.model_copy(update={"models": models_with_linear})


def _describe_measured_device(slug: str, source: object) -> DeviceParameters:
    """Return what is known of a device, preferring what was measured beside its measurements."""
    beside = Path(source).parent / "parameters.json" if isinstance(source, Path | str) else None
    if beside is not None and beside.is_file():
        return DeviceParameters.read_file(beside)
    return load_device(slug)


_OWN = "own kernel: "


def _own_cases(timings: Timing, slug: str) -> list[Measurement]:
    """Return the measured times of a kernel of the user's, as cases on which errors are taken."""
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


def _profiles(
    device: DeviceParameters, own: KernelProfiler | None, options: Mapping[str, Any]
) -> Profiler:
    """Return profiles of measured kernels, of the catalogue, each counted once, or of one's own."""
    code = {name: options[name] for name in ("analysis", "sass") if name in options}
    if code.get("analysis", "counts") != "counts" or "sass" in code:
        capability_of(device)  # what is missing is said before the work
        if "sass" in code:
            read_file_text(Path(code["sass"]))
        else:
            require_program("nvcc")
            require_program("nvdisasm")
    profilers: dict[object, KernelProfiler] = {}

    def profile(measurement: Measurement) -> ProfiledKernel:
        name = measurement.kernel
        if own is not None and name.startswith(_OWN):
            return own.at(measurement.parameters)
        statistics = entry(name).statistics_at(measurement.parameters)
        key = (name, tuple(sorted(statistics.items())))
        if key not in profilers:
            given = {"max_instructions": COMPARED_INSTRUCTIONS, "statistics": statistics, **code}
            profilers[key] = profiler_of(entry(name).build(), device, {}, given)
        return profilers[key].at(measurement.parameters)

    return profile
