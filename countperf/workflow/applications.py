"""Applications of transfers and kernels: predicted for described devices, measured on one here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from countperf.documents import read_file_text
from countperf.errors import DeviceParameterError, MeasurementError, ParameterError
from countperf.hardware.library import available_devices, load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.clock import EventClock
from countperf.harness.devices import find_device
from countperf.harness.registry import open_session
from countperf.mechanistic.applications import Schedule, Step, parse_application, schedule
from countperf.mechanistic.merpsys import transfer_time
from countperf.mechanistic.model import MechanisticPrediction
from countperf.tuning.apart import LONGEST_S
from countperf.workflow.mechanistic import predict_all
from countperf.workflow.timing import time_kernel

_REPETITIONS = 5
_MOST_BYTES = 2**30

Application = str | Path | Sequence[Step]
"""Steps, a text, or the path of a file that has the text."""


def predict_application(
    application: Application,
    devices: DeviceParameters | str | Path | Sequence[DeviceParameters | str | Path],
    /,
    *,
    model: str = "merpsys",
    profile_options: dict[str, Any] | None = None,
) -> Schedule:
    """Predict when each step of an application runs.

    Parameters
    ----------
    application : sequence of Step, str or Path
        The steps; a text (`countperf.mechanistic.applications`), or a file of it.
    devices : DeviceParameters, str or Path, or a sequence of them
        The devices, by number.
    model : str, optional
        Mechanistic model of the kernels; MERPSYS by default, whose transfers are taken for all.
    profile_options : mapping, optional
        As for `countperf.predict_all`, for all kernels.

    Returns
    -------
    Schedule
        ``time_s`` is the application's time, ``plot()`` draws the schedule.

    Raises
    ------
    ParameterError, DeviceParameterError, CountingError
        A text or a step is wrong, a device is missing, or what a model lacks.
    """
    steps = _steps_of(application)
    given = [devices] if isinstance(devices, DeviceParameters | str | Path) else list(devices)
    described = [d if isinstance(d, DeviceParameters) else load_device(d) for d in given]
    durations: list[float] = []
    for step in steps:
        if step.device >= len(described):
            message = f"a step is on device {step.device}, but there are {len(described)} devices"
            raise ParameterError(message, parameter="device")
        device = described[step.device]
        if step.kind != "kernel":
            if step.kind not in device.links:
                linked = [
                    slug for slug in available_devices() if step.kind in load_device(slug).links
                ]
                message = (
                    f"device {device.slug!r} states no link to its host for {step.kind}; add"
                    f" [links] to its document, or take a device that has one: {', '.join(linked)}"
                )
                raise DeviceParameterError(message, field=f"links.{step.kind}")
            durations.append(transfer_time(device.links[step.kind], step.n_bytes))
            continue
        answers = predict_all(
            step.kernel, device, step.sizes, models=model, profile_options=profile_options
        )
        (answer,) = answers.values()
        if not isinstance(answer, MechanisticPrediction):
            raise answer
        durations.append(float(answer.time_s))
    where = ", ".join(each.slug for each in described)
    return schedule(steps, durations, source=f"{model} on {where}")


def measure_application(
    application: Application, device: str | None = None, /, *, longest_s: float = LONGEST_S
) -> Schedule:
    """Measure the steps of an application on a device, and schedule them by what they took.

    Each transfer and each kernel is measured by itself (the shortest of several runs); how they
    overlap follows from the rules of `countperf.mechanistic.applications`.

    Parameters
    ----------
    application : sequence of Step, str or Path
        As for `predict_application`; all steps are on device 0.
    device : str, optional
        As for `countperf.measure`.
    longest_s : float, optional
        As for `countperf.time_kernel`.

    Raises
    ------
    ParameterError, DeviceError, MeasurementError, CountingError
        A step is wrong or on another device, a transfer too large, or a kernel does not run.
    """
    steps = _steps_of(application)
    if any(step.device for step in steps):
        message = "steps are measured on one device: all steps must be on device 0"
        raise ParameterError(message, parameter="device")
    found = find_device(device)
    known: dict[tuple[Any, ...], float] = {}
    durations: list[float] = []
    for step in steps:
        key = (step.kind, step.n_bytes, str(step.kernel), tuple(sorted(step.sizes.items())))
        if key not in known:
            if step.kind == "kernel":
                known[key] = _measured_kernel(step, found.label, longest_s)
            else:
                known[key] = _measured_transfer(step, found)
        durations.append(known[key])
    return schedule(steps, durations, source=f"measured steps on {found.identity.slug}")


def _steps_of(application: Application) -> tuple[Step, ...]:
    """Return the steps of an application; errors as of `parse_application`."""
    if not isinstance(application, Path | str):
        return tuple(application)
    is_path = "\n" not in str(application) and Path(application).is_file()
    text = read_file_text(Path(application)) if is_path else str(application)
    return parse_application(text)


def _measured_kernel(step: Step, label: str, longest_s: float) -> float:
    timing = time_kernel(step.kernel, dict(step.sizes), device=label, longest_s=longest_s)
    times: list[float] = timing.to_frame()["measured_s"].tolist()
    if len(times) != 1 or not times[0] > 0:
        message = f"kernel {step.kernel} at {dict(step.sizes)} has no measured time"
        raise MeasurementError(message)
    return times[0]


def _measured_transfer(step: Step, device: Any) -> float:
    if not 0 < step.n_bytes <= _MOST_BYTES:
        message = f"transfers of 1 to {_MOST_BYTES} byte are measured, not of {step.n_bytes:g}"
        raise ParameterError(message, parameter="n_bytes")
    session = open_session(device)
    clock = EventClock()
    host = np.zeros(int(step.n_bytes), np.uint8)
    memory = session.allocate(host.size)
    session.copy_in(memory, host)
    times: list[float] = []
    for _ in range(_REPETITIONS):
        begin = clock.now()
        if step.kind == "h2d":
            session.copy_in(memory, host)
        else:
            session.copy_out(host, memory)
        times.append(clock.now() - begin)
    return min(times)
