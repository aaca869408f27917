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
after ``#`` are comments.

Steps are scheduled after Gajger & Czarnul (2018), sections 5.4.2 and 6.2, whose applications run
one step after the other; streams, which let transfers overlap with kernels, are an extension:

1. Steps of one stream run in their order; streams are independent of each other.
2. A device executes one kernel at a time, and has one copy engine for each direction; the host
   executes one step at a time. Each takes the steps that are ready in the order of the program.
3. A copy between devices keeps the engine out of one and the engine into the other busy.
4. A step named in ``after`` is waited for, whatever its stream and device.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from countperf import text
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
from countperf.models import definition
from countperf.sizes import checks_keywords, merge_sizes
from countperf.store import read_file_text

StepKind = Literal["h2d", "d2h", "d2d", "host", "kernel"]
STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)
_KINDS_OF: Mapping[str, tuple[StepKind, ...]] = {
    "kernels": ("kernel",),
    "transfers": ("h2d", "d2h", "d2d"),
    "steps of the host": ("host",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(text.ShortRepr):
    """One step of an application."""

    name: str  # its name, or its kind and number from 1
    kind: StepKind  # a transfer to, from or between devices, work of the host, or a kernel
    amount: float  # bytes of a transfer, seconds of the host's work
    kernel: str  # text that names a kernel
    sizes: Mapping[str, int]  # the kernel's
    stream: str
    device: int  # number of its device, from 0
    to: int | None  # number of the device that a transfer between devices goes to
    after: tuple[str, ...]  # names of steps that it waits for

    @property
    def engines(self) -> tuple[tuple[int | None, str], ...]:
        """Parts of devices, by number, that execute it; None stands for the host."""
        if self.kind == "d2d":
            return (self.device, "d2h"), (self.to, "h2d")
        return ((None if self.kind == "host" else self.device, self.kind),)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep(text.ShortRepr):
    """A step in a schedule."""

    step: Step
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule(text.Result):
    """Schedule of an application: begin and end of each step."""

    source: str  # a model's name, and devices
    steps: tuple[TimedStep, ...]  # in the order of the program

    __repr__ = text.Result.__str__

    @property
    def time_s(self) -> float:
        """Time from the start to the end of the last step, s."""
        return max(step.end_s for step in self.steps)

    @property
    def serial_s(self) -> float:
        """Time of all steps one after the other, s."""
        return self.busy_s(*STEP_KINDS)

    def busy_s(self, *kinds: StepKind) -> float:
        """Return the time of all steps of some kinds one after the other, s."""
        return sum(s.end_s - s.start_s for s in self.steps if s.step.kind in kinds)

    def say_longest(self) -> str:
        """Say which kind of step takes most of the time of all steps."""
        busy = {name: self.busy_s(*kinds) for name, kinds in _KINDS_OF.items()}
        longest = max(busy, key=busy.__getitem__)
        share = busy[longest] / self.serial_s if self.serial_s else 0.0
        return f"{longest} take {text.format_percent(share)} of all steps" if share else "no time"

    def lay_out(self) -> text.Printed:
        """Give source, time and what overlapping saves; then a row per step."""
        saved = 1 - self.time_s / self.serial_s if self.serial_s else 0.0
        times = [text.format_seconds(time_s) for time_s in (self.time_s, self.serial_s)]
        rows = [
            {
                "step": timed.step.name,
                **text.extract(timed.step, "kind", "device", "stream"),
                **text.extract(timed, "start_s", "end_s"),
                "duration_s": timed.end_s - timed.start_s,
            }
            for timed in self.steps
        ]
        return text.Printed(
            head=[
                f"{self.source}: {times[0]}; one after the other {times[1]}"
                f" (overlap saves {100 * saved:.0f} %); {self.say_longest()}"
            ],
            rows=rows,
            columns={
                **text.columns_of("step device stream"),
                **text.columns_of("start_s", text.format_seconds),
                "duration_s": text.Column("duration", text.format_seconds),
            },
            facts=text.extract(self, "source", "time_s", "serial_s"),
            name="steps",
        )


def lay_out_schedules(points: Sequence[Mapping[str, int]], of: Sequence[Schedule]) -> text.Printed:
    """Give a row per point of variables: the time, and how long each kind of step runs."""
    source = max((scheduled.source for scheduled in of), key=len)
    names = "time_s serial_s kernels_s transfers_s host_s"
    ends = [(text.point_text(points[i]), of[i]) for i in (0, -1)]
    said = [f"{text.format_seconds(one.time_s)} at {at} ({one.say_longest()})" for at, one in ends]
    return text.Printed(
        head=[source, text.wrap_note(f"from {said[0]} to {said[1]}", "")],
        rows=[
            {
                "variables": point,
                **text.extract(scheduled, "time_s", "serial_s"),
                **{f"{n.split()[-1]}_s": scheduled.busy_s(*of) for n, of in _KINDS_OF.items()},
            }
            for point, scheduled in zip(points, of, strict=True)
        ],
        columns={"variables": text.EACH, **text.columns_of(names, text.format_seconds)},
        facts={"source": source},
        name="points",
    )


def schedule(steps: Sequence[Step], durations_s: Sequence[float], *, source: str = "") -> Schedule:
    """Schedule steps that take given times; see the module for the rules."""
    times: dict[Any, float] = {}  # at which streams and engines are free, and named steps done
    done: dict[int, TimedStep] = {}
    while len(done) < len(steps):
        # of the steps at the heads of their streams, the one that can start first, then in order
        heads: dict[tuple[Any, ...], int] = {}
        for number, step in enumerate(steps):
            if number not in done:
                heads.setdefault((step.device, "stream", step.stream), number)
        able: list[tuple[float, int, tuple[Any, ...]]] = []
        for stream, number in heads.items():
            waits = (stream, *steps[number].engines, *steps[number].after)
            if times.keys() >= {*steps[number].after}:
                able.append((max(times.get(each, 0.0) for each in waits), number, stream))
        start, number, stream = min(able)
        step, end = steps[number], start + durations_s[number]
        times |= dict.fromkeys((stream, *step.engines, step.name), end)
        done[number] = TimedStep(step=step, start_s=start, end_s=end)
    return Schedule(source=source, steps=tuple(done[number] for number in range(len(steps))))


_OPTIONS = ("stream", "device", "after", "name", "to")


def parse_application(
    application: str, variables: Mapping[str, int] | None = None, /
) -> tuple[Step, ...]:
    """Parse an application; see the module for the form."""
    values = {"devices": 1, **(variables or {})}
    check_whole(values["devices"], "devices", least=1)
    steps: list[Step] = []
    names: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(application.splitlines(), 1):
        try:
            steps += _parse_line(shlex.split(line, comments=True), values, names, len(steps))
        except ValueError as error:
            message = f"line {number} of the application ({line.strip()}): {error}"
            raise ParameterError(message, parameter="application") from error
    if not steps:
        raise ParameterError("the application has no step", parameter="application")
    said = {"devices", *re.findall(r"\w+", application)}
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


def _value(formula: str, values: Mapping[str, int]) -> float:
    """Return the value of a formula of variables."""
    parsed = definition.parse(formula)
    if unknown := [name for name in parsed.names if name not in values]:
        said = f"add {unknown[0]}=1024, or what it is to be"
        raise ValueError(f"{formula!r}: no value for {unknown[0]}; {said}")
    return check_not_negative(float(parsed(values)), f"{formula!r}")


def _whole(formula: str, values: Mapping[str, int]) -> int:
    value = _value(formula, values)
    if not value.is_integer():
        raise ValueError(f"{formula!r} is {value}, which is not whole; write floor({formula})")
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
    model, profile_options : optional
        Mechanistic model of the kernels, and options as for `countperf.predict_all`; MERPSYS by
        default, whose transfers are taken for all.

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
