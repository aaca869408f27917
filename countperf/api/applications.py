"""Applications: texts with a step in each line, predicted and scheduled.

A text is such as::

    # each device computes its part of a vector; the first one collects the parts
    host 2e-9*N name=filled
    h2d 4*N/devices device=all after=filled
    kernel saxpy2.py:saxpy2 n=floor(N/devices) device=all name=done
    d2d 4*N/devices device=all to=0 after=done name=collected
    d2h 4*N after=collected

``h2d``, ``d2h`` and ``d2d`` copy bytes, ``host`` works for so many seconds. ``stream=a`` puts a
step in another stream of its device, ``device=1`` on another device than the first (0), and
``device=all`` on each (a copy ``to=0``: on each other one). ``name=`` names it, and
``after=name,name`` makes it wait, for a step of ``device=all`` on all devices. Everything else with
an equals sign is a size of the kernel. Numbers are formulas (`countperf.models.definition`) of the
variables that are given, of ``devices``, their number, and ``device``, that of the step. Lines
after ``#`` are comments. How steps are scheduled: `countperf.mechanistic.schedules`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from countperf.api.mechanistic_models import predict_all
from countperf.devices.parameters import (
    DeviceParameters,
    TransferDirection,
    available_devices,
    load_device,
)
from countperf.errors import DeviceParameterError, ParameterError
from countperf.mechanistic.merpsys import transfer_time
from countperf.mechanistic.profile import MechanisticPrediction, check_not_negative, check_whole
from countperf.mechanistic.schedules import STEP_KINDS, Schedule, Step, schedule
from countperf.models import definition
from countperf.sizes import checks_keywords, merge_sizes
from countperf.store import read_file_text

_OPTIONS = ("stream", "device", "after", "name", "to")


def parse_application(text: str, variables: Mapping[str, int] | None = None, /) -> tuple[Step, ...]:
    """Parse an application; see the module for the form."""
    values = {"devices": 1, **(variables or {})}
    check_whole(values["devices"], "devices", least=1)
    steps: list[Step] = []
    names: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            steps += _parse_line(shlex.split(line, comments=True), values, names, len(steps))
        except ValueError as error:
            message = f"line {number} of the application ({line.strip()}): {error}"
            raise ParameterError(message, parameter="application") from error
    if not steps:
        raise ParameterError("the application has no step", parameter="application")
    said = {"devices", *re.findall(r"\w+", text)}
    if unused := [name for name in values if name not in said]:
        message = f"the application has no variable {unused[0]!r}; leave it out"
        raise ParameterError(message, parameter=unused[0])
    return tuple(steps)


def _parse_line(
    words: Sequence[str], values: Mapping[str, int], names: dict[str, tuple[str, ...]], before: int
) -> list[Step]:
    """Return the steps of a line, and add what each name stands for to `names`."""
    if not words:
        return []
    kind, amount, *rest = [*words, ""]
    pairs = [word.partition("=") for word in rest if word]
    given = {name: value for name, _, value in pairs}
    if kind not in STEP_KINDS or not amount or len(given) < len(pairs) or "" in given.values():
        raise ValueError(
            "a line is 'h2d BYTES', 'd2h BYTES', 'd2d BYTES to=NUMBER', 'host SECONDS' or"
            " 'kernel KERNEL', then options and sizes, name=value, each once"
        )
    sizes = {name: value for name, value in given.items() if name not in _OPTIONS}
    if sizes and kind != "kernel":
        raise ValueError(f"a {kind} step has no sizes, but {', '.join(sizes)} is given")
    after = [name for name in given.get("after", "").split(",") if name]
    if unknown := [name for name in after if name not in names]:
        there = ", ".join(names) or "none"
        raise ValueError(f"waits for {unknown[0]!r}, which is no earlier step; there are {there}")
    where, steps = given.get("device", "0"), list[Step]()
    for number in range(values["devices"]) if where == "all" else [_whole(where, values)]:
        at = {**values, "device": number}
        to = _whole(given["to"], at) if "to" in given else None
        if where == "all" and to == number:
            continue
        if (kind == "d2d") != (to is not None) or to == number:
            raise ValueError("d2d, and it alone, names another device: to=NUMBER")
        if (last := max(number, to or 0)) >= values["devices"]:
            raise ValueError(
                f"no device has number {last}, counted from 0; pass devices={last + 1}"
            )
        name = given.get("name", f"{kind} {before + len(steps) + 1}")
        steps.append(
            Step(
                name=f"{name}.{number}" if "name" in given and where == "all" else name,
                kind=kind,
                amount=0.0 if kind == "kernel" else _value(amount, at),
                kernel=amount if kind == "kernel" else "",
                sizes={size: _whole(value, at) for size, value in sizes.items()},
                stream=given.get("stream", "0"),
                device=number,
                to=to,
                after=tuple(one for each in after for one in names[each]),
            )
        )
    known: dict[str, tuple[str, ...]] = {step.name: (step.name,) for step in steps}
    if "name" in given:
        known[given["name"]] = tuple(step.name for step in steps)
    if twice := known.keys() & names:
        raise ValueError(f"two steps are called {min(twice)!r}; give each a name of its own")
    names |= known
    return steps


def _value(text: str, values: Mapping[str, int]) -> float:
    """Return the value of a formula of variables."""
    formula = definition.parse(text)
    if unknown := [name for name in formula.names if name not in values]:
        said = f"add {unknown[0]}=1024, or what it is to be"
        raise ValueError(f"{text!r}: no value for {unknown[0]}; {said}")
    return check_not_negative(float(formula(values)), f"{text!r}")


def _whole(text: str, values: Mapping[str, int]) -> int:
    value = _value(text, values)
    if not value.is_integer():
        raise ValueError(f"{text!r} is {value}, which is not whole; write floor({text})")
    return int(value)


@checks_keywords
def predict_application(
    application: str | Path,
    devices: DeviceParameters | str | Path | Sequence[DeviceParameters | str | Path],
    variables: Mapping[str, Any] | None = None,
    /,
    *,
    model: str = "merpsys",
    profile_options: dict[str, Any] | None = None,
    **more: Any,
) -> Schedule:
    """Predict when each step of an application runs.

    Parameters
    ----------
    application : str or Path
        A text (`countperf.api.applications`), or a file of it.
    devices : DeviceParameters, str or Path, or a sequence of them
        The devices, by number.
    variables, **more : int
        Values of the text's variables. ``devices`` is the number of devices, by default of all;
        more than one of a single device are alike.
    model : str, optional
        Mechanistic model of the kernels; MERPSYS by default, whose transfers are taken for all.
    profile_options : mapping, optional
        As for `countperf.predict_all`, for all kernels.

    Returns
    -------
    Schedule
        ``time_s`` is the application's time; it prints when each step runs.

    Raises
    ------
    ParameterError, DeviceParameterError, CountingError
        A text or a step is wrong, a device is missing, or what a model lacks.
    """
    named = [devices] if isinstance(devices, DeviceParameters | str | Path) else devices
    described = [d if isinstance(d, DeviceParameters) else load_device(d) for d in named]
    values = {"devices": len(described), **merge_sizes(variables, more)}
    if isinstance(application, Path) or ("\n" not in application and Path(application).is_file()):
        application = read_file_text(Path(application))
    steps = parse_application(application, values)
    described = described * values["devices"] if len(described) == 1 else described
    if values["devices"] > len(described):
        message = f"{values['devices']} devices are asked for; describe one, or all of them"
        raise ParameterError(message, parameter="devices")
    times: dict[Any, float] = {}
    durations: list[float] = []
    for step in steps:
        device = described[step.device]
        if step.kind == "kernel":
            key = (step.kernel, device.slug, *step.sizes.items())
            if key not in times:
                answers = predict_all(
                    step.kernel, device, step.sizes, models=model, profile_options=profile_options
                )
                (answer,) = answers.values()
                if not isinstance(answer, MechanisticPrediction):
                    raise answer
                times[key] = float(answer.time_s)
            durations.append(times[key])
        elif step.kind == "host":
            durations.append(step.amount)
        elif step.to is not None and "d2d" not in device.links:  # through the host
            out = _transfer_time(device, "d2h", step.amount)
            durations.append(out + _transfer_time(described[step.to], "h2d", step.amount))
        else:
            durations.append(_transfer_time(device, step.kind, step.amount))
    where = ", ".join(parameters.slug for parameters in described[: values["devices"]])
    return schedule(steps, durations, source=f"{model} on {where}")


def _transfer_time(device: DeviceParameters, direction: TransferDirection, n_bytes: float) -> float:
    if direction not in device.links:
        linked = [slug for slug in available_devices() if direction in load_device(slug).links]
        message = (
            f"device {device.slug!r} states no link to its host for {direction}; add [links] to its"
            f" document, or take a device that has one: {', '.join(linked[:4])}"
        )
        raise DeviceParameterError(message, field=f"links.{direction}")
    return transfer_time(device.links[direction], n_bytes)
