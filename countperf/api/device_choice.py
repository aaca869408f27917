"""Predictions of a kernel on several devices, by fitted weights and by mechanistic models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from countperf.api.fits import known_device
from countperf.api.kernels import Kernel
from countperf.api.mechanistic_models import predict_all, profiler_of
from countperf.api.weights_choice import choose_weights
from countperf.devices.parameters import DeviceParameters, available_devices, load_device
from countperf.errors import (
    CountperfError,
    DeviceError,
    DeviceParameterError,
    ParameterError,
    PredictionError,
    nearest,
)
from countperf.mechanistic.predict_all import ALL, lacking_input, model_names
from countperf.mechanistic.profile import MechanisticPrediction as _Mechanistic
from countperf.models.library import find_fit, load_weights, model_in, short_name
from countperf.models.predictions import DeviceAnswer, DeviceAnswers
from countperf.models.validity import Level
from countperf.sizes import checks_keywords, combine_sizes, given_sizes

DEFAULT_MODELS = ("roofline", "wfg-corrected")
"""Of a described device: the bound that every GPU of the catalogue has, and the model with the
least published error (`countperf.mechanistic.predict_all`) of those that need neither a
simulation nor a cost of barriers, which nobody published of current GPUs."""


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

    Returns
    -------
    DeviceAnswers
        For each size and model a row per device, the fastest first. A device that cannot answer
        has a row that says why. ``to_frame()`` has times in s.

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
    points = combine_sizes(given_sizes(parameters, more))
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
        errors = {str(answer.error): answer.error for answer in answers if answer.error}
        if len(errors) == 1:
            raise next(iter(errors.values()))
        raise PredictionError(f"no device answers: {'; '.join(errors) or 'none is named'}")
    by_fits = [
        answer
        for answer in answers
        if answer.lacks == "weights" or not isinstance(answer.prediction, _Mechanistic | None)
    ]
    unknown = [model for model in models or () if model not in {ALL, *model_names()}]
    if unknown and not by_fits:
        near = nearest(unknown[0], (ALL, *model_names()))
        raise PredictionError(f"no device has a fit, which {unknown[0]} needs; leave it out{near}")
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
    is_file = name.endswith((".toml", ".json"))
    point = kernel.sizes
    row = partial(DeviceAnswer, device=Path(name).name if is_file else name, parameters=point)
    try:
        slug, described = ("", device) if is_described else _fit_and_description(name)
        row = partial(row, device=slug, weights=name) if slug else row
        by_fit, by_model = _models_of(name, models, bool(slug), described)
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
        profiler = profiler_of(kernel, described, point, of_models)
        found = predict_all(profiler, described, point, models=by_model)
    except CountperfError as error:
        has_name = isinstance(error, ParameterError | DeviceParameterError)
        yield row(lacks=lacking_input(error) if has_name else "kernel", error=error)
        return
    for model, answer in found.items():
        if isinstance(answer, CountperfError):
            yield row(model=model, lacks=lacking_input(answer), error=answer)
        else:
            yield row(model=model, prediction=answer)


def _models_of(
    name: str, models: Sequence[str] | None, has_fit: bool, described: object
) -> tuple[list[str | None], list[str]]:
    """Return which models of a fit and which mechanistic ones answer for a device."""
    if models is None:
        return ([None], []) if has_fit else ([], [*DEFAULT_MODELS])
    known = {ALL, *model_names()}
    by_fit: list[str | None] = [model for model in models if model not in known and has_fit]
    by_model = [model for model in models if model in known and described is not None]
    if not by_fit and not by_model:
        lacks = "description" if has_fit else "fit"
        message = f"there is no {lacks} of {name}, which {', '.join(models)} needs"
        raise DeviceError(message, device=name)
    return by_fit, by_model


def _fit_and_description(name: str) -> tuple[str, DeviceParameters | None]:
    """Return the device of a fit, empty if none has the name, and its description if known."""
    if (fit := find_fit(name)) is not None:
        return fit.identity.slug, known_device(fit.identity.slug, name)
    if model_in(Path(name)):
        return load_weights(name).device.slug, None
    if name.endswith((".json", ".toml")) or name in available_devices():
        return "", load_device(name)
    raise DeviceError(
        f"no fit and no description of a device is called {name!r}; countperf weights lists fits",
        device=name,
    )
