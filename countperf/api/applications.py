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
an equals sign is a size of the kernel. Numbers are formulas (`countperf.models.expressions`) of the
variables that are given, of ``devices``, their number, and ``device``, that of the step. Lines
after ``#`` are comments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from countperf.api.mechanistic_models import predict_all
from countperf.devices.parameters import (
    DeviceParameters,
    TransferDirection,
    available_devices,
    load_device,
)
from countperf.errors import DeviceParameterError, ParameterError
from countperf.mechanistic.merpsys import (
    Schedule,
    Step,
    StepKind,
    check_names,
    schedule,
    transfer_time,
)
from countperf.mechanistic.profile import MechanisticPrediction, check_whole
from countperf.models import expressions
from countperf.sizes import checks_keywords, given_sizes
from countperf.store import read_file_text

_KINDS: tuple[StepKind, ...] = get_args(StepKind)
_OPTIONS = ("stream", "device", "after", "name", "to")


def parse_application(text: str, variables: Mapping[str, int] | None = None, /) -> tuple[Step, ...]:
    """Parse an application; see the module for the form."""
    values = {"devices": 1, **(variables or {})}
    check_whole(values["devices"], "devices", least=1)
    steps: list[Step] = []
    everywhere: dict[str, list[str]] = {}
    said = set[str]()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
            said.update(re.findall(r"\w+", " ".join(words)))
            steps += _parsed(words, values, everywhere) if words else []
        except ValueError as error:
            message = f"line {number} of the application ({line.strip()}): {error}"
            raise ParameterError(message, parameter="application") from error
    if not steps:
        raise ParameterError("the application has no step", parameter="application")
    if unused := [name for name in values if name not in {"devices", *said}]:
        message = f"the application has no variable {unused[0]!r}; leave it out"
        raise ParameterError(message, parameter=unused[0])
    check_names(steps)
    return tuple(steps)


def _parsed(
    words: Sequence[str], values: Mapping[str, int], everywhere: dict[str, list[str]]
) -> list[Step]:
    """Return the steps of a line; names of steps on all devices are added to `everywhere`."""
    kind, amount, *rest = [*words, ""] if len(words) == 1 else words
    if kind not in _KINDS or not amount:
        raise ValueError(
            "a line is 'h2d BYTES', 'd2h BYTES', 'd2d BYTES to=NUMBER', 'host SECONDS' or"
            " 'kernel KERNEL name=value ...'"
        )
    pairs = [word.partition("=") for word in rest]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise ValueError(f"{wrong[0]!r} is not of the form name=value")
    given = {name: value for name, _, value in pairs}
    if len(given) < len(pairs):
        twice = next(name for name in given if [n for n, *_ in pairs].count(name) > 1)
        raise ValueError(f"{twice} is given twice; give it once")
    sizes = {name: value for name, value in given.items() if name not in _OPTIONS}
    if sizes and kind != "kernel":
        raise ValueError(f"a {kind} step has no sizes, but {', '.join(sizes)} is given")
    waited = [name for name in given.get("after", "").split(",") if name]
    name, where = given.get("name", ""), given.get("device", "0")
    numbers = range(values["devices"]) if where == "all" else [_whole(where, values)]
    if where == "all" and "to" in given:
        numbers = [n for n in numbers if n != _whole(given["to"], {**values, "device": n})]
    names = [f"{name}.{number}" if name and where == "all" else name for number in numbers]
    everywhere |= {name: names} if name else {}
    steps: list[Step] = []
    for number, own in zip(numbers, names, strict=True):
        at = {**values, "device": number}
        steps.append(
            Step(
                kind=kind,
                kernel=amount if kind == "kernel" else None,
                n_bytes=0.0 if kind in ("kernel", "host") else _value(amount, at),
                host_s=_value(amount, at) if kind == "host" else 0.0,
                sizes={size: _whole(value, at) for size, value in sizes.items()},
                stream=given.get("stream", "0"),
                device=number,
                to=_whole(given["to"], at) if "to" in given else None,
                after=tuple(one for each in waited for one in everywhere.get(each, [each])),
                name=own,
            )
        )
    return steps


def _value(text: str, values: Mapping[str, int]) -> float:
    """Return the value of a formula of variables."""
    formula = expressions.parse(text)
    for name in formula.names:
        if name not in values:
            raise ValueError(f"{text!r}: no value for {name}; add {name}=1024, or what it is to be")
    return float(formula(values))


def _whole(text: str, values: Mapping[str, int]) -> int:
    value = _value(text, values)
    if not value.is_integer():
        raise ValueError(f"{text!r} is {value}, which is not whole; write floor({text})")
    return int(value)


Application = str | Path | Sequence[Step]
"""Steps, a text, or the path of a file that has the text."""


@checks_keywords
def predict_application(
    application: Application,
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
    application : sequence of Step, str or Path
        The steps; a text (`countperf.api.applications`), or a file of it.
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
    values = {"devices": len(described), **given_sizes(variables, more)}
    number = values["devices"]
    check_whole(number, "devices", least=1)
    described = described * number if len(described) == 1 else described[:number]
    steps, durations = _steps_of(application, values), list[float]()
    times: dict[Any, float] = {}
    for step in steps:
        last = max(step.device, step.to or 0)
        if last >= len(described):
            message = (
                f"a step ({step.kind}) is on device {last}, and the last is {len(described) - 1};"
                f" pass devices={last + 1}, and one description or {last + 1}"
            )
            raise ParameterError(message, parameter="device")
        device = described[step.device]
        if step.kind == "kernel":
            name = step.kernel if isinstance(step.kernel, str) else id(step.kernel)
            key = (name, device.slug, tuple(step.sizes.items()))
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
            durations.append(step.host_s)
        elif step.to is not None and "d2d" not in device.links:  # through the host
            out = _transfer_time(device, "d2h", step.n_bytes)
            durations.append(out + _transfer_time(described[step.to], "h2d", step.n_bytes))
        else:
            durations.append(_transfer_time(device, step.kind, step.n_bytes))
    where = ", ".join(parameters.slug for parameters in described)
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


def _steps_of(application: Application, variables: Mapping[str, int]) -> tuple[Step, ...]:
    """Return the steps of an application; errors as of `parse_application`."""
    if not isinstance(application, Path | str):
        return tuple(application)
    is_file = "\n" not in str(application) and Path(application).is_file()
    is_path = isinstance(application, Path) or is_file
    text = read_file_text(Path(application)) if is_path else str(application)
    return parse_application(text, variables)
