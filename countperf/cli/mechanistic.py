"""Commands that ask mechanistic models: ``occupancy``, ``sweep``, ``application``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from countperf.api import mechanistic_models as api
from countperf.api.applications import lay_out_schedules, predict_application
from countperf.api.kernels import Kernel
from countperf.cli.common import as_dict, one_point, points, say, show, show_all
from countperf.cli.options import OPTIONS
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.errors import ParameterError
from countperf.figures import check_outputs, draw, list_roofs
from countperf.mechanistic.predict_all import ALL, ModelAnswers, choose_models, model_names
from countperf.mechanistic.profiler_csv import read_profiler_csv


def profile_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `countperf.profile_kernel` that were given."""
    names = ("registers_per_work_item", "analysis", "sass", "metrics")
    given = {name: getattr(options, name, None) for name in names}
    given["statistics"] = as_dict(getattr(options, "statistics", None)) or None
    if given["metrics"]:
        given["metrics"] = read_profiler_csv(given["metrics"])
    return {name: value for name, value in given.items() if value is not None}


def mechanistic_models(options: argparse.Namespace) -> list[str] | None:
    """Return the names of the mechanistic models that ``--model`` lists; None for weights."""
    if options.model is None:
        return [ALL] if options.document is not None else None
    names = _names(options.model)
    if options.document is None and {ALL, *model_names(variants=True)}.isdisjoint(names):
        return None
    choose_models(names)  # raises if one is no mechanistic model
    return names


def _describe_device(options: argparse.Namespace, *others: str) -> DeviceParameters:
    """Describe a device; refuse options that name one beside ``--on``."""
    if options.document:
        _refuse(options, "names a device, as --on does; leave one of them out", *others)
    given = getattr(options, "weights", None)
    return api.find_described_device(options.document, device=options.device, weights=given)


def predict_by_models(options: argparse.Namespace) -> bool:
    """Print answers of the mechanistic models that are asked for; return false if none are."""
    if "," in (options.document or ""):
        _predict_on_devices(options)
        return True
    if (models := mechanistic_models(options)) is None:
        return False
    if models == ["tmm"] and options.explain:
        _explain_steps(options)
        return True
    said = "is for fitted weights; leave it out, or name weights in --model"
    of_weights = [name for name in _OF_WEIGHTS if name != "against_kernel"]
    _refuse(options, said, *of_weights, "instruction_counts", "incomplete_ok", "force", "level")
    check_outputs(options.figure)
    device = _describe_device(options, "weights", "device")
    if options.against_kernel:
        _refuse(options, "is for one kernel; leave it or --against-kernel out", *_OF_ONE_KERNEL)
        kernels, given = (options.kernel, options.against_kernel), profile_options(options)
        sizes = as_dict(options.parameters)
        found = api.find_crossover(*kernels, device, sizes, models=models, profile_options=given)
        show(options, found.lay_out())
        return True
    sizes = points(options.parameters)
    given = profile_options(options)
    asked = Kernel.of(options.kernel, sizes[0], given.get("statistics"))
    predicted = [*map(api.prepare_answers(asked, device, models, given), sizes)]
    show_all(options, [answers.lay_out() for answers in predicted])
    _draw_roofline(options, predicted)
    return True


def _draw_roofline(options: argparse.Namespace, answers: list[ModelAnswers]) -> None:
    """Draw answers below the roofs of their devices, and say which roofs these lack."""
    if options.figure:
        draw(answers, options.figure)
        devices = {of.device: of.described for of in answers}
        for lacking in filter(None, (list_roofs(device)[1] for device in devices.values())):
            say(f"countperf: {lacking}")


def _explain_steps(options: argparse.Namespace) -> None:
    """Print formulas of a kernel's steps, and where another kernel takes fewer."""
    said = "has no place among formulas of steps; leave it or --explain out"
    others = ("anchor", "against", "against_size", "incomplete_ok", "instruction_counts", "figure")
    _refuse(options, said, *others)
    asked = (_describe_device(options), one_point(options.parameters, "a formula"))
    kernels = filter(None, (options.kernel, options.against_kernel))
    given = profile_options(options)
    first, *others = (api.step_formulas(k, *asked, profile_options=given) for k in kernels)
    show(options, first.lay_out(*others))


def _predict_on_devices(options: argparse.Namespace) -> None:
    """Print one table of all sizes, devices and models."""
    said = "is for one device; name one with --on, --weights or --device"
    more = ("metrics", "weights", "device", "force", "instruction_counts")
    _refuse(options, said, *_OF_WEIGHTS, *more)
    given = profile_options(options)
    check_outputs(options.figure)
    devices = [*dict.fromkeys(_names(options.document))]
    answers = api.predict_on(
        options.kernel,
        devices,
        as_dict(options.parameters),
        models=options.model and _names(options.model),
        profile_options=given,
        incomplete_ok=options.incomplete_ok,
        level=options.level,
    )
    show(options, answers.lay_out())
    known = {*model_names(), ALL}
    models = [n for n in _names(options.model or "") if n in known] or api.DEFAULT_MODELS
    drawn = [
        api.predict_all(options.kernel, device, at, models=models, profile_options=given)
        for device in map(load_device, devices if options.figure else ())
        for at in points(options.parameters)
    ]
    _draw_roofline(options, drawn)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


_OF_ONE_KERNEL = ("figure", "metrics", "sass")
_OF_WEIGHTS = ("anchor", "explain", "against", "against_kernel", "against_size")


def _refuse(options: argparse.Namespace, said: str, *names: str) -> None:
    for name in names:
        flag = options.flags[name]
        if getattr(options, name) not in (None, False, [], OPTIONS[flag].get("default")):
            raise ParameterError(f"{flag} {said}", parameter=name)


def run_occupancy(options: argparse.Namespace) -> None:
    """Print how many groups are resident, and what limits them."""
    resident = api.occupancy(
        options.kernel,
        _describe_device(options, "device"),
        one_point(options.parameters, "occupancy"),
        profile_options=profile_options(options),
    )
    show(options, resident.lay_out())


def run_sweep(options: argparse.Namespace) -> None:
    """Print a table of times, and draw the curves."""
    check_outputs(options.figure)
    swept = api.sweep(
        options.kernel,
        _describe_device(options),
        one_point(options.parameters, "a sweep"),
        over=options.over,
        models=mechanistic_models(options) or options.model,
        profile_options=profile_options(options),
        timed_on=options.device,
    )
    show(options, swept.lay_out())
    if options.figure:
        draw(swept, options.figure)


def run_application(options: argparse.Namespace) -> None:
    """Print the predicted schedule."""
    every = points(options.parameters)
    scheduled = [
        predict_application(
            Path(options.application),
            [name for named in options.document for name in _names(named)],
            variables,
            model=options.model,
            profile_options=profile_options(options),
        )
        for variables in every
    ]
    show(options, lay_out_schedules(every, scheduled) if every[1:] else scheduled[0].lay_out())
