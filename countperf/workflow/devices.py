"""Devices of this machine, and documents of devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from countperf.hardware.library import available_devices, load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.devices import discover
from countperf.models.library import find_fit

if TYPE_CHECKING:
    from countperf.harness.device import Device


def devices() -> tuple[Device, ...]:
    """List the devices of this machine, OpenCL and CUDA, working or not (see `doctor`)."""
    return discover().devices


def known_device(slug: str, beside: Path | str | None = None) -> DeviceParameters | None:
    """Return what is known of a device, or None."""
    if beside is not None:
        fit = find_fit(str(beside))
        place = Path(beside) if fit is None else fit.folder
        near = (place if place.is_dir() else place.parent) / "parameters.json"
        if near.is_file() and (found := DeviceParameters.read_file(near)).slug == slug:
            return found
    return load_device(slug) if slug in available_devices() else None
