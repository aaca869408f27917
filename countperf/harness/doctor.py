"""Diagnosis of devices and of the programs that read machine code: what works, and what to mend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from countperf.caches import unwritable_caches
from countperf.display import ShortRepr
from countperf.harness import nvcc
from countperf.harness.device import Device
from countperf.harness.devices import Discovery, choose_default, discover
from countperf.harness.environment import available_cores, read_processor
from countperf.harness.icd import INSTALL_ADVICE, DriverFile
from countperf.harness.nvcc import find_disassembler, find_nvcc
from countperf.harness.trial import Trial, measure_copy_bandwidth, try_device
from countperf.machine_code import objdump, throughput
from countperf.machine_code.objdump import find_objdump
from countperf.machine_code.throughput import find_analyzer


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport(Trial):
    """A device, tried for real."""

    label: str  # which device
    slug: str
    name: str
    platform: str
    driver_version: str
    device_type: str
    compute_units: int  # what it has
    max_group_size: int
    local_memory_bytes: int
    global_memory_bytes: int
    copy_bandwidth_byte_per_s: float | None = None  # bytes read plus bytes written per second


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """A program that reads machine code."""

    name: str  # what it is
    needed_for: str  # what goes without it
    path: str | None  # where it is
    advice: str = ""  # how to get it


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport(ShortRepr):
    """The state of OpenCL and CUDA on this machine."""

    processor: str  # of the machine
    cores: int  # that this process may use
    vendors_setting: str | None  # the user's ``OCL_ICD_VENDORS``
    drivers: tuple[DriverFile, ...]  # drivers that the loader was told of
    platforms: tuple[tuple[str, str], ...]  # name and version of those that answered
    devices: tuple[DeviceReport, ...]  # their devices
    default: str | None  # label of the device that is used if none is named
    advice: tuple[str, ...]  # what to do, most important first
    tools: tuple[ToolReport, ...] = ()  # programs that read machine code

    @property
    def is_healthy(self) -> bool:
        """Whether some device works."""
        return self.default is not None

    def to_object(self) -> dict[str, Any]:
        """Return the report as plain JSON-able values."""
        return asdict(self)


def examine(
    discovery: Discovery | None = None,
    *,
    attempt: Callable[[Device], Trial] = try_device,
    bandwidth: Callable[[Device], float] = measure_copy_bandwidth,
) -> DoctorReport:
    """Look at all drivers and devices, and try each device.

    Parameters
    ----------
    discovery : Discovery, optional
        What was found; by default, what is found now.
    attempt, bandwidth : callable, optional
        How to try a device, and how to measure its copy bandwidth, byte/s.

    Returns
    -------
    DoctorReport
        What was seen; nothing is raised for devices that fail.
    """
    found = discovery or discover()
    devices = tuple(_examine_device(device, attempt, bandwidth) for device in found.devices)
    working = {each.label: each.copy_bandwidth_byte_per_s or 0.0 for each in devices if each.works}
    return DoctorReport(
        processor=read_processor(),
        cores=available_cores(),
        vendors_setting=found.drivers.setting,
        drivers=found.drivers.files,
        platforms=found.platforms,
        devices=devices,
        default=choose_default(working),
        advice=tuple(_advice(found, devices)),
        tools=find_tools(),
    )


def find_tools() -> tuple[ToolReport, ...]:
    """Look for the programs that read machine code; none of them is run."""
    on_cpus, on_gpus = "the model that reads compiled code", "code for NVIDIA GPUs, without a GPU"
    wanted = (
        ("objdump", on_cpus, find_objdump, objdump.INSTALL_ADVICE),
        ("llvm-mca", on_cpus, find_analyzer, throughput.INSTALL_ADVICE),
        ("nvcc", on_gpus, find_nvcc, nvcc.INSTALL_ADVICE),
        ("nvdisasm", on_gpus, find_disassembler, nvcc.DISASSEMBLER_ADVICE),
    )
    return tuple(
        ToolReport(
            name=name,
            needed_for=needed_for,
            path=None if path is None else str(path),
            advice=advice if path is None else "",
        )
        for name, needed_for, find, advice in wanted
        for path in (find(),)
    )


def _examine_device(
    device: Device, attempt: Callable[[Device], Trial], bandwidth: Callable[[Device], float]
) -> DeviceReport:
    trial = attempt(device)
    names = ("slug", "name", "platform", "driver_version", "device_type", "compute_units")
    sizes = ("max_group_size", "local_memory_bytes", "global_memory_bytes")
    return DeviceReport(
        label=device.label,
        **{name: getattr(device.identity, name) for name in names},
        **{name: getattr(device.limits, name) for name in sizes},
        **asdict(trial),
        copy_bandwidth_byte_per_s=bandwidth(device) if trial.works else None,
    )


def _advice(found: Discovery, devices: tuple[DeviceReport, ...]) -> list[str]:
    drivers = found.drivers
    advice = list(unwritable_caches())
    if drivers.problem:
        advice.append(f"{drivers.problem}: {drivers.advice}")
    advice += [f"{device.label}: {device.advice}" for device in devices if not device.works]
    advice += [
        f"{absence.problem}: {absence.advice}" for absence in found.absences if absence.is_expected
    ]
    advice += [
        f"{file.origin}/{file.name} names {file.library}, which is not there: reinstall that"
        " driver, or remove the file"
        for file in drivers.files
        if file.problem
    ]
    advice += [
        f"{name} has no device: for a GPU, see that its kernel driver is loaded"
        for name, _ in found.platforms
        if not any(device.platform == name for device in devices)
    ]
    if not devices and not drivers.problem:
        advice.append(f"no OpenCL device found: {INSTALL_ADVICE}")
    return advice
