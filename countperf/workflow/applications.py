"""Applications of transfers and kernels, predicted for described devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from countperf.documents import read_file_text
from countperf.errors import DeviceParameterError, ParameterError
from countperf.hardware.library import available_devices, load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.applications import Schedule, Step, parse_application, schedule
from countperf.mechanistic.merpsys import transfer_time
from countperf.mechanistic.model import MechanisticPrediction
from countperf.workflow.mechanistic import predict_all

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


def _steps_of(application: Application) -> tuple[Step, ...]:
    """Return the steps of an application; errors as of `parse_application`."""
    if not isinstance(application, Path | str):
        return tuple(application)
    is_path = "\n" not in str(application) and Path(application).is_file()
    text = read_file_text(Path(application)) if is_path else str(application)
    return parse_application(text)
