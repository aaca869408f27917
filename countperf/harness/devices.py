"""Devices of all backends: listing them, and finding one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from countperf.errors import DeviceError
from countperf.harness.backend import Findings
from countperf.harness.device import Device
from countperf.harness.icd import INSTALL_ADVICE, DriverSearch
from countperf.harness.registry import backends
from countperf.harness.trial import measure_copy_bandwidth, try_device

if TYPE_CHECKING:
    from countperf.harness.trial import Trial


_TIE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Devices of this machine, and backends that have none."""

    drivers: DriverSearch  # which drivers the OpenCL loader was to load
    platforms: tuple[tuple[str, str], ...]  # name and version of each platform
    devices: tuple[Device, ...]  # all devices, whether they work or not
    # backends other than OpenCL that can have no devices, and why
    absences: tuple[Findings, ...] = ()

    def absence(self, name: str) -> Findings | None:
        """Return why there is no device of that name, if its beginning is a backend's."""
        wanted = name.strip().lower().partition(":")[0]
        return next((absence for absence in self.absences if absence.label_prefix == wanted), None)


@cache
def discover() -> Discovery:
    """List the devices of all backends; the first call decides which drivers the process sees."""
    findings = [backend.discover() for backend in backends().values()]
    searches = [backend.drivers for backend in findings if backend.drivers is not None]
    return Discovery(
        drivers=searches[0] if searches else DriverSearch(files=()),
        platforms=tuple(platform for backend in findings for platform in backend.platforms),
        devices=tuple(device for backend in findings for device in backend.devices),
        absences=tuple(backend for backend in findings if backend.problem and backend.label_prefix),
    )


def select_device(name: str, devices: Sequence[Device]) -> Device:
    """Find the device that a name means."""
    wanted = name.strip().lower()
    exact = [device for device in devices if wanted in (device.label, device.identity.slug)]
    found = exact or [device for device in devices if _is_part(wanted, device)]
    if len(found) == 1:
        return found[0]
    if not devices:
        raise DeviceError(
            f"no device {name!r}: there is none at all; {INSTALL_ADVICE}", device=name
        )
    if found:
        message = f"{name!r} means several devices: {_listing(found)}; give the whole label"
        raise DeviceError(message, device=name)
    message = f"no device {name!r}; there is: {_listing(devices)}"
    raise DeviceError(message, device=name)


def _is_part(wanted: str, device: Device) -> bool:
    identity = device.identity
    names = (device.label, identity.slug, identity.name, identity.platform)
    return bool(wanted) and any(wanted in text.lower() for text in names)


def _listing(devices: Sequence[Device]) -> str:
    return ", ".join(f"{device.label} ({device.identity.name})" for device in devices)


def find_device(
    name: str | None = None,
    *,
    discovery: Discovery | None = None,
    attempt: Callable[[Device], Trial] | None = None,
    bandwidth: Callable[[Device], float] | None = None,
) -> Device:
    """Return a device that works."""
    found = discovery or discover()
    attempt = attempt or try_device
    if name is not None and (absence := found.absence(name)) is not None:
        raise DeviceError(f"no device {name!r}: {absence.problem}; {absence.advice}", device=name)
    if found.drivers.problem and not found.devices:
        message = f"no OpenCL driver: {found.drivers.problem}; {found.drivers.advice}"
        raise DeviceError(message, device=name)
    if name is not None:
        device = select_device(name, found.devices)
        trial = attempt(device)
        if trial.works:
            return device
        message = f"{device.label} ({device.identity.name}) does not work: {trial.reason}"
        raise DeviceError(f"{message}; {trial.advice}", device=name)
    trials = [(device, attempt(device)) for device in found.devices]
    working = [device for device, trial in trials if trial.works]
    if not working:
        reasons = "".join(f"{device.label}: {trial.reason}; " for device, trial in trials)
        nothing = "no OpenCL device works" if trials else "no OpenCL device found"
        expected = [each for each in found.absences if each.is_expected]
        advice = "; ".join(
            [*(f"{each.problem}: {each.advice}" for each in expected), INSTALL_ADVICE]
        )
        raise DeviceError(f"{nothing}: {reasons}{advice}")
    if len(working) == 1:
        return working[0]
    measure = bandwidth or measure_copy_bandwidth
    label = choose_default({device.label: measure(device) for device in working})
    return next(device for device in working if device.label == label)


def choose_default(bandwidth: Mapping[str, float]) -> str | None:
    """Choose the device that is used if none is named."""
    highest = max(bandwidth.values(), default=0.0)
    ties = (label for label, value in bandwidth.items() if value >= _TIE * highest)
    return min(ties, default=None)
