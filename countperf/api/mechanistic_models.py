"""Mechanistic models for kernels as users name them, and kernels on several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import gcd
from pathlib import Path
from typing import Any

from countperf import errors
from countperf.api.fits import look_up_device
from countperf.api.kernels import Kernel
from countperf.api.prediction import choose_weights
from countperf.api.timing import time_resident_groups
from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.devices.parameters import (
    DeviceParameters,
    advise_characterization,
    available_devices,
    load_device,
)
from countperf.errors import CountperfError, DeviceError, ParameterError, nearest, option
from countperf.mechanistic import crossing
from countperf.mechanistic import predict_all as answering
from countperf.mechanistic import step_formulas as formulas
from countperf.mechanistic import sweep as sweeping
from countperf.mechanistic.compiled_profile import profile_kernel, with_machine_code
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.occupancy import (
    KernelOccupancy,
    find_unused_local_bytes,
    program_occupancy,
)
from countperf.models.function import Level
from countperf.models.library import find_fit, load_weights, model_in, short_name
from countperf.models.predictions import DeviceAnswer, DeviceAnswers
from countperf.sizes import checks_keywords, combine_sizes, merge_sizes
from countperf.store import read_file_text


@checks_keywords
def predict_all(
    kernel: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    models: answering.ModelChoice = answering.ALL,
    statistics: Mapping[str, Any] | None = None,
    profile_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> answering.ModelAnswers:
    """Predict the time of a Loopy kernel by mechanistic models, in one call.

    Parameters
    ----------
    kernel, statistics
        As for `countperf.predict`; or a KernelProfiler.
    device : DeviceParameters, str or Path
        A device, its slug in the catalogue, or the path of its document (``.toml``, ``.json``).
    parameters, **more : int
        Values of all size parameters.
    models : str or sequence of str, optional
        Names of models, such as ``["volkov", "roofline"]``; default: all.
    profile_options : mapping, optional
        Options of `countperf.profile_kernel`, such as ``registers_per_work_item``, ``lines`` or
        ``active_groups``; and ``analysis``: ``"sass"`` takes instructions from machine code
        (`countperf.mechanistic.compiled_profile.with_machine_code`), ``"counts"`` from Loopy;
        ``sass`` names a listing of the machine code.

    Raises
    ------
    CountperfError
        The kernel cannot be counted, or there is no such device or kernel. What a single model
        lacks is its answer.
    """
    values = merge_sizes(parameters, more)
    profiler = profiler_of(kernel, device, values, profile_options, statistics)
    return answering.answers_of(profiler, values, models)


def prepare_answers(
    kernel: Kernel,
    device: DeviceParameters | str | Path,
    models: answering.ModelChoice,
    options: Mapping[str, Any],
) -> Callable[[Mapping[str, int]], answering.ModelAnswers]:
    """Return what answers at sizes; of one profile unless code depends on them."""
    shared = None if kernel.depends_on_sizes else profiler_of(kernel, device, kernel.sizes, options)
    asked: Any = {"models": models, "profile_options": options}
    return lambda at: predict_all(shared or kernel.at(at), device, at, **asked)


@checks_keywords
def occupancy(
    kernel: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    statistics: Mapping[str, Any] | None = None,
    profile_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> KernelOccupancy:
    """Count the groups of a kernel that are resident on a device, and say what limits them.

    Parameters and errors are those of `predict_all`; it is an error, too, if not even one group
    fits. The number is an upper bound where nobody knows the registers.
    """
    values = merge_sizes(parameters, more)
    profiler = profiler_of(kernel, device, values, profile_options, statistics)
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
    over: sweeping.Axis = "occupancy",
    values: Sequence[int] | None = None,
    models: answering.ModelChoice = answering.ALL,
    statistics: Mapping[str, Any] | None = None,
    profile_options: Mapping[str, Any] | None = None,
    timed_on: str | Device | None = None,
    **more: Any,
) -> sweeping.Sweep:
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

    Raises
    ------
    CountperfError
        As for `predict_all` and `countperf.time_kernel`; or no value of the axis fits.
    """
    sizes = merge_sizes(parameters, more)
    options: dict[str, Any] = {"max_instructions": sweeping.MAX_SWEPT_INSTRUCTIONS}
    options |= profile_options or {}
    profiler = profiler_of(kernel, device, sizes, options, statistics)
    unused: dict[int, int] | None = None
    if timed_on is not None and over == "occupancy":
        profiled = profiler.at(sizes)
        able = find_unused_local_bytes(profiled, profiler.device)
        unused = {groups: n for groups, n in able.items() if values is None or groups in values}
        values = [*unused]
    else:
        launches = profiler.launches_at(sizes)
        profiled, _ = max(launches, key=lambda of: (of[0].profile.total_bytes or 0.0) * of[1])
    swept = sweeping.sweep(profiled, profiler.device, over=over, values=values, models=models)
    traffic = profiled.profile.traffic
    said = f"at each value, {traffic.text}" if traffic is not None else ""
    swept = replace(swept, note="\n".join(filter(None, [profiler.note, said])))
    if unused is None:
        return swept
    given = statistics or options.get("statistics")
    measured = time_resident_groups(kernel, sizes, unused, device=timed_on, statistics=given)
    times_s = {int(timed.case.rpartition("=")[2]): timed.time_s for timed in measured}
    return replace(
        swept,
        points=tuple(replace(p, measured_s=times_s.get(p.value)) for p in swept.points),
        measured_on=measured.header.device.slug,
        failures=tuple(failure.reason for failure in measured.failures),
    )


@checks_keywords
def step_formulas(
    kernel: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    profile_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> formulas.StepFormulas:
    """Find work, span and memory transactions of a kernel as polynomials in one of its sizes.

    Parameters and errors are those of `predict_all`; the one size without a value is free, and it
    is an error if a count is no polynomial of it. ``programs`` have the formulas; ``bound(n)`` is
    Eq. (1) of Ma, Chamberlain & Agrawal (2014), in steps; ``crossovers(other)`` says which of two
    kernels takes fewer.

    Examples
    --------
    >>> options = {"registers_per_work_item": 20}
    >>> found = step_formulas("published-apsp/32x32", "nvidia-gtx-480", profile_options=options)
    >>> found.programs[0].transactions
    (1/512)*n^3 + (1/32)*n^2
    """
    held = merge_sizes(parameters, more)
    profiler = profiler_of(kernel, device, held, profile_options)
    return formulas.step_formulas(profiler, held, label=kernel if isinstance(kernel, str) else "")


@checks_keywords
def find_crossover(
    first: Any,
    second: Any,
    device: DeviceParameters | str | Path,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    models: answering.ModelChoice = answering.ALL,
    profile_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> crossing.Crossover:
    """Find from which size on another one of two kernels is faster, by mechanistic models.

    Parameters
    ----------
    first, second, device, models, profile_options
        As for `predict_all`.
    parameters, **more : int or sequence of int
        Values of all size parameters, and several of at least one. Between two values with another
        kernel in front, the change is bisected, down to the greatest common divisor of the values.

    Raises
    ------
    CountperfError
        As for `predict_all`; there is one size alone, or no model predicts both kernels.

    Examples
    --------
    >>> kernels = "published-apsp/16x16", "published-apsp/32x32"
    >>> options = {"registers_per_work_item": 20}
    >>> found = find_crossover(
    ...     *kernels, "nvidia-h100", n=[64, 1024], models="roofline", profile_options=options
    ... )
    >>> found.say_crossing("roofline")
    'published-apsp/32x32 from n = 64 to 1024: no crossing'
    """
    points = combine_sizes(merge_sizes(parameters, more))
    several = [name for name in points[0] if len({point[name] for point in points}) > 1]
    points.sort(key=lambda point: [point[name] for name in several])
    values = {name: [point[name] for point in points] for name in several}
    if not several or any(sorted(of) != of for of in values.values()):
        said = "sizes that grow together, such as n=256,1024,4096 or n=256:4096:8"
        message = f"a crossing is looked for between sizes: give two or more {said}"
        raise ParameterError(message, parameter="parameters")
    given: dict[str, Any] = {"max_instructions": sweeping.MAX_SWEPT_INSTRUCTIONS}
    given |= profile_options or {}
    size, steps = several[0], {name: gcd(*of) for name, of in values.items()}
    ends = values[size][0], values[size][-1]
    asked = [Kernel.of(one, points[0], given.get("statistics")) for one in (first, second)]
    names = [one.name or one.unit.default_entrypoint.name for one in asked]
    names[1] += " (second)" if names[0] == names[1] else ""
    both_at = [prepare_answers(one, device, models, given) for one in asked]

    @cache
    def answers_at(value: int) -> list[answering.ModelAnswers]:
        """Predict both kernels at a value of the first size, on the line between two points."""
        upper = next(n for n, each in enumerate(values[size]) if each >= value)
        low, high = points[max(upper - 1, 0)], points[upper]
        share = (value - low[size]) / (high[size] - low[size] or 1)
        between = {n: low[n] + share * (high[n] - low[n]) for n in several}
        at = {**high, **{n: round(v / steps[n]) * steps[n] for n, v in between.items()}}
        return [answers_of(at) for answers_of in both_at]

    def find_ratio(model: str, value: int) -> float:
        times: list[float] = []
        for each in answers_at(value):
            if isinstance(answer := each[model], Exception):
                raise answer
            times.append(float(answer.time_s))
        return times[1] / times[0]

    def name_faster(model: str, value: int) -> str:
        ratio = find_ratio(model, value)
        return "" if abs(ratio - 1) < crossing.SAME else names[ratio < 1]

    changes: dict[str, list[tuple[int, str]]] = {}
    lacking: dict[str, CountperfError] = {}
    both = answers_at(ends[0])
    for model in answering.rank_by_error(both[0], has_barriers=both[0].has_barriers):
        try:
            label = partial(name_faster, model)
            changes[model] = formulas.find_changes(label, values[size], steps[size])
        except CountperfError as error:
            lacking[model] = error
    if not changes:
        raise next(iter(lacking.values()))
    return crossing.Crossover(
        kernels=(names[0], names[1]),
        device=both[0].device,
        size=size,
        ends=ends,
        changes=changes,
        ratios={name: (find_ratio(name, ends[0]), find_ratio(name, ends[1])) for name in changes},
        lacking={name: str(error) for name, error in lacking.items()},
    )


def profiler_of(
    kernel: Any,
    device: DeviceParameters | str | Path,
    sizes: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    statistics: Mapping[str, Any] | None = None,
) -> KernelProfiler:
    """Return the profiler of a kernel, or of the one that a text names; errors: `predict_all`."""
    if isinstance(kernel, KernelProfiler):
        return kernel
    if not isinstance(device, DeviceParameters | str | Path):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        raise ParameterError(
            f"the device is a {type(device).__name__}; pass the slug of a device, the path of its"
            ' document or DeviceParameters: predict_all(kernel, "nvidia-gtx-970", {"n": 1024})',
            parameter="device",
        )
    given = dict(options or {})
    analysis, listing = given.pop("analysis", "counts"), given.pop("sass", None)
    if analysis not in ("counts", "sass"):
        message = f"{option('analysis')} is {analysis!r}; pass 'counts' or 'sass'"
        raise ParameterError(message, parameter="analysis")
    stated = given.pop("statistics", None)
    asked = Kernel.of(kernel, sizes, stated if statistics is None else statistics)
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
    parameters = look_up_device(slug, weights or slug)
    if parameters is None:
        message = f"there is no description of {slug}; {advise_characterization(slug)}"
        raise DeviceError(message, device=slug)
    return parameters


DEFAULT_MODELS = ("roofline", "wfg-corrected")
"""Of a described device: the bound that all have, and the model with the least published error of
those that need neither a simulation nor a cost of barriers, which nobody published of new GPUs."""


@checks_keywords
def predict_on(
    kernel: Any,
    devices: Sequence[DeviceParameters | Path | str],
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    models: Sequence[str] | str | None = None,
    statistics: Mapping[str, Any] | None = None,
    profile_options: Mapping[str, Any] | None = None,
    incomplete_ok: bool = False,
    level: Level = 0.95,
    **more: Any,
) -> DeviceAnswers:
    """Predict the time of a kernel on several devices, to choose one.

    For each size and model there is a row per device, the fastest first. A device that cannot
    answer has a row that says why.

    Parameters
    ----------
    kernel, parameters, statistics, profile_options, **more
        As for `countperf.predict_all`; sizes may have several values, which go together.
    devices : sequence of DeviceParameters, Path or str
        Fits and described devices, by name or file, mixed.
    models : str or sequence of str, optional
        Mechanistic models (``"all"``: each) and models of fits. By default a fit has its own, a
        device that is only described `DEFAULT_MODELS`.
    incomplete_ok, level
        As for `countperf.predict`, for fits.

    Raises
    ------
    CountperfError
        No device answers; or there is no such kernel.

    Examples
    --------
    >>> devices = ["nvidia-a100", "nvidia-h100"]
    >>> table = predict_on("vector-scale-add/stride1/256x1", devices, n=4096, models="roofline")
    >>> [answer.device for answer in table.answers]
    ['nvidia-h100', 'nvidia-a100']
    """
    points = combine_sizes(merge_sizes(parameters, more))
    options = dict(profile_options or {})
    asked = Kernel.of(kernel, statistics=options.pop("statistics", statistics))
    models = [models] if isinstance(models, str) else models
    of_fits = {"incomplete_ok": incomplete_ok, "level": level}
    answers = [
        answer
        for device in devices
        for point in points
        for answer in _answers(asked.at(point), device, models, of_fits, options)
    ]
    if all(answer.prediction is None for answer in answers):
        failures = {str(answer.error): answer.error for answer in answers if answer.error}
        if len(failures) == 1:
            raise next(iter(failures.values()))
        raise errors.PredictionError(f"no device answers: {'; '.join(failures) or 'none is named'}")
    mechanistic = {answering.ALL, *answering.model_names(variants=True)}
    unknown = [model for model in models or () if model not in mechanistic]
    if unknown and not any(of.weights or of.lacks == "weights" for of in answers):
        raise errors.PredictionError(
            f"no device has a fit, which {unknown[0]} needs; leave it"
            f" out{nearest(unknown[0], mechanistic)}"
        )
    order = [answer.model for answer in answers]

    def place(of: DeviceAnswer) -> tuple[Any, ...]:
        made, at = of.prediction, points.index({**of.parameters})
        return at, made is None, order.index(of.model), 0 if made is None else made.time_s

    return DeviceAnswers(answers=tuple(sorted(answers, key=place)))


def _answers(
    kernel: Kernel,
    device: DeviceParameters | Path | str,
    models: Sequence[str] | None,
    of_fits: Mapping[str, Any],
    of_models: Mapping[str, Any],
) -> Iterator[DeviceAnswer]:
    """Yield what a device answers at a size."""
    is_described = isinstance(device, DeviceParameters)
    name = device.slug if is_described else str(device)
    shown = Path(name).name if name.endswith((".toml", ".json")) else name
    row = partial(DeviceAnswer, device=shown, parameters=kernel.sizes)
    try:
        slug, described = ("", device) if is_described else _find_fit_and_description(name)
        row = partial(row, device=slug, weights=name) if slug else row
        by_fit: Sequence[str | None] = [None] if slug else []
        by_model: Sequence[str] = [] if slug else DEFAULT_MODELS
        if models is not None:
            known = {answering.ALL, *answering.model_names(variants=True)}
            by_fit = [model for model in models if model not in known and slug]
            by_model = [model for model in models if model in known and described is not None]
        if not by_fit and not by_model:
            message = f"there is no {'description' if slug else 'fit'} of {name}, which"
            raise DeviceError(f"{message} {', '.join(models or ())} needs", device=name)
    except CountperfError as error:
        yield row(lacks="device", error=error)
        return
    for model in by_fit:
        try:
            made = choose_weights(name, model=model).predict(kernel, **of_fits)
        except CountperfError as error:
            yield row(model=model or "", lacks="weights", error=error)
        else:
            by = short_name(made.model)
            yield row(device=made.device, weights=made.weights, model=by, prediction=made)
    if not by_model or described is None:
        return
    row = partial(row, device=described.slug, weights="")
    try:
        profiler = profiler_of(kernel, described, kernel.sizes, of_models)
        found = predict_all(profiler, described, kernel.sizes, models=by_model)
    except CountperfError as error:
        has_name = isinstance(error, ParameterError | errors.DeviceParameterError)
        yield row(lacks=answering.lacking_input(error) if has_name else "kernel", error=error)
        return
    for model, answer in found.items():
        if isinstance(answer, CountperfError):
            yield row(model=model, lacks=answering.lacking_input(answer), error=answer)
        else:
            yield row(model=model, prediction=answer, why=found.explain_bound())


def _find_fit_and_description(name: str) -> tuple[str, DeviceParameters | None]:
    """Return the device of a fit, empty if none has the name, and its description if known."""
    if (fit := find_fit(name)) is not None:
        return fit.identity.slug, look_up_device(fit.identity.slug, name)
    if model_in(Path(name)):
        return load_weights(name).device.slug, None
    if name.endswith((".json", ".toml")) or name in available_devices():
        return "", load_device(name)
    raise DeviceError(
        f"no fit and no description of a device is called {name!r}; countperf weights lists fits",
        device=name,
    )
