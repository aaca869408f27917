"""Devices of all backends: listing, trying and finding them, and what to mend."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, get_args

import numpy as np

from countperf.caches import unwritable_caches
from countperf.devices.device import Device, DriverFile, Findings, Session, check_process
from countperf.devices.identity import read_processor
from countperf.errors import DeviceError, KernelBuildError, nearest
from countperf.machine_code import tools
from countperf.sizes import checks_keywords
from countperf.text import Printed, Result, ShortRepr, check_lines, extract

if TYPE_CHECKING:
    from countperf.devices.cuda import CudaBackend
    from countperf.devices.identity import DeviceIdentity
    from countperf.devices.opencl import OpenClBackend


@cache
def backends() -> Mapping[str, OpenClBackend | CudaBackend]:
    """Return the backends by name; none of them is imported before it is used."""
    from countperf.devices.cuda import CudaBackend
    from countperf.devices.opencl import OpenClBackend

    return {"opencl": OpenClBackend(), "cuda": CudaBackend()}


def backend_of(device: Device) -> OpenClBackend | CudaBackend:
    """Return what runs kernels on a device."""
    return backends()[device.backend]


def open_session(device: Device) -> Session:
    """Open a device with whatever runs kernels on it; not in a process forked since its listing."""
    check_process(device.process, device.label)
    return backend_of(device).open(device)


@dataclass(frozen=True, slots=True)
class Discovery:
    """Devices and problems that the backends found on this machine."""

    findings: tuple[Findings, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, whether they work or not."""
        return tuple(device for backend in self.findings for device in backend.devices)

    def advise(self) -> list[str]:
        """Say what to do about backends without devices that the machine seems to have."""
        return [f"{b.problem}: {b.advice}" for b in self.findings if b.problem and b.is_expected]


@cache
def discover() -> Discovery:
    """List the devices of all backends; the first call decides which drivers the process sees."""
    return Discovery(tuple(backend.discover() for backend in backends().values()))


def matching_devices(identity: DeviceIdentity) -> list[Device]:
    """Return the devices on which weights of a device hold."""
    if identity.processor not in ("", read_processor()):
        return []  # no driver is loaded
    return [device for device in discover().devices if identity.matches(device.identity)]


def select_device(name: str, devices: Sequence[Device]) -> Device:
    """Find the device that a name means."""
    wanted = name.strip().lower()
    names = [(d.label, d.identity.slug, d.identity.name, d.identity.platform) for d in devices]
    known = list(zip(devices, names, strict=True))
    matches = [device for device, of_it in known if wanted in of_it[:2]]
    if not matches and wanted:
        matches = [device for device, of_it in known if wanted in "\n".join(of_it).lower()]
    if len(matches) == 1:
        return matches[0]
    listing = ", ".join(f"{d.label} ({d.identity.name})" for d in matches or devices)
    message = f"{name!r} means several devices: {listing}; give the whole label"
    if not matches:
        near = nearest(wanted, [each for of_it in names for each in of_it[:2]])
        message = f"no device {name!r}; there is: {listing}{near}"
    raise DeviceError(message, device=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrial:
    """Outcome of a trial run on a device."""

    works: bool  # a one-line kernel was built and run, and its numbers were right
    reason: str = ""  # if not: what happened, and what to do about it
    advice: str = ""


_TRIAL = """
KERNEL trial(GLOBAL const float *in, GLOBAL float *out)
{ int i = GLOBAL_ID; out[i] = 2 * in[i] + i; }
"""


def try_device(device: Device) -> DeviceTrial:
    """Build and run a one-line kernel and look at its numbers."""
    if device.process != os.getpid():  # before a fork it worked; when it is opened, it is refused
        return DeviceTrial(works=True)
    backend = backend_of(device)
    ascending = np.arange(256, dtype=np.float32)
    values = ascending[::-1].copy()
    try:
        session = backend.open(device)
        # built anew: a binary from an earlier day proves nothing about the compiler
        launch = session.load(_TRIAL, fresh=True)
        source, target = session.upload(values), session.allocate(values.nbytes)
        launch("trial", 4, 64, (source, target))
        result = session.download(target, values.dtype, values.size)
    except (KernelBuildError, *backend.failures()) as error:
        return DeviceTrial(works=False, reason=str(error), advice=backend.advise(device))
    if np.array_equal(result, 2 * values + ascending):
        return DeviceTrial(works=True)
    reason = "a one-line kernel gave wrong numbers"
    return DeviceTrial(works=False, reason=reason, advice=backend.advise(device))


def sort_devices(devices: Iterable[Device]) -> list[Device]:
    """Return devices in the order in which they are taken if none is named: GPUs, then by label."""
    return sorted(devices, key=lambda device: (device.identity.device_type != "gpu", device.label))


def find_device(name: str | None = None) -> Device:
    """Return a device that works."""
    discovery = discover()
    prefix = (name or "").strip().lower().partition(":")[0]
    for absent in discovery.findings:
        if absent.problem and prefix and prefix == absent.label_prefix:
            raise DeviceError(f"no device {name!r}: {absent.problem}; {absent.advice}", device=name)
    candidates = sort_devices(discovery.devices)
    if name is not None and candidates:
        candidates = [select_device(name, candidates)]
    reasons: list[str] = []
    for device in candidates:
        trial = try_device(device)
        if trial.works:
            return device
        reasons.append(
            f"{device.label} ({device.identity.name}) does not work: {trial.reason}; {trial.advice}"
        )
    advice = discovery.advise() if name is None or not candidates else []
    raise DeviceError("; ".join([*reasons, *advice]), device=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport(DeviceTrial):
    """A device, tried for real."""

    label: str  # which device
    slug: str
    name: str
    platform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """A program that reads machine code."""

    name: str
    needed_for: str  # what goes without it
    path: str | None  # where it is
    advice: str  # how to get it


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport(ShortRepr, Result):
    """The state of OpenCL and CUDA on this machine."""

    drivers: tuple[DriverFile, ...]  # drivers that the loader was told of
    devices: tuple[DeviceReport, ...]  # their devices
    default: str | None  # label of the device that is used if none is named
    advice: tuple[str, ...]  # what to do, most important first
    tools: tuple[ToolReport, ...] = ()  # programs that read machine code

    @property
    def is_healthy(self) -> bool:
        """True if some device works."""
        return self.default is not None

    def lay_out(self) -> Printed:
        """Give drivers, devices and programs, and what to do about those that do not work."""
        said = [
            ": ".join(filter(None, (f"driver {d.library} (from {d.origin})", d.problem)))
            for d in self.drivers
        ]
        for device in self.devices:
            chosen = " (default)" if device.label == self.default else ""
            state = f"works{chosen}" if device.works else f"does not work: {device.reason}"
            line = f"{device.label}  {device.name}: {state}"
            said += check_lines([(device.works, line, device.advice)])
        if not self.is_healthy:
            said.append("no OpenCL device works" if self.devices else "no OpenCL device was found")
            said.append(f"      mend: {'; '.join(self.advice)}")
        for tool in self.tools:
            state = tool.path or f"not found; {tool.needed_for} needs it: {tool.advice}"
            said.append(f"{'ok' if tool.path else '--'}  {tool.name}: {state}")
        return Printed(head=said, facts=asdict(self))


@checks_keywords
def doctor() -> DoctorReport:
    """Look at all drivers, and try each device; nothing is raised for those that fail."""
    discovery = discover()
    devices = tuple(
        DeviceReport(
            label=device.label,
            **extract(device.identity, "slug", "name", "platform"),
            **asdict(try_device(device)),
        )
        for device in discovery.devices
    )
    working = {report.label for report in devices if report.works}
    usable = [d.label for d in sort_devices(discovery.devices) if d.label in working]
    return DoctorReport(
        drivers=tuple(file for backend in discovery.findings for file in backend.drivers),
        devices=devices,
        default=usable[0] if usable else None,
        advice=tuple(_advise(discovery, devices)),
        tools=find_tools(),
    )


def find_tools() -> tuple[ToolReport, ...]:
    """Look for the programs that read machine code; none of them is run."""
    from countperf.devices import nvcc

    on_cpus, on_gpus = "the model that reads compiled code", "code for NVIDIA GPUs, without a GPU"
    wanted = (
        ("objdump", on_cpus, tools.find_objdump(), tools.OBJDUMP_ADVICE),
        ("llvm-mca", on_cpus, tools.find_analyzer(), tools.ANALYZER_ADVICE),
        *(
            (p, on_gpus, nvcc.find_program(p), nvcc.advise_program(p))
            for p in get_args(nvcc.Program)
        ),
    )
    return tuple(
        ToolReport(name=name, needed_for=needed_for, path=path and str(path), advice=advice)
        for name, needed_for, path, advice in wanted
    )


def _advise(discovery: Discovery, devices: tuple[DeviceReport, ...]) -> Iterator[str]:
    yield from unwritable_caches()
    yield from discovery.advise()
    yield from (f"{device.label}: {device.advice}" for device in devices if not device.works)
    for backend in discovery.findings:
        for file in backend.drivers:
            if file.problem:
                yield (
                    f"{file.origin}/{file.name} names {file.library}, which is not there: reinstall"
                    " that driver, or remove the file"
                )
        for name in backend.platforms:
            if not any(device.platform == name for device in devices):
                yield f"{name} has no device: for a GPU, see that its kernel driver is loaded"
