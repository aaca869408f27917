"""Devices of all backends: listing, trying and finding them, and what to mend."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.caches import unwritable_caches
from countperf.display import ShortRepr
from countperf.errors import DeviceError, KernelBuildError
from countperf.harness import nvcc
from countperf.harness.device import Device, Findings, Session
from countperf.harness.nvcc import find_disassembler, find_nvcc
from countperf.machine_code import object_file, throughput
from countperf.machine_code.object_file import find_objdump
from countperf.machine_code.throughput import find_analyzer

if TYPE_CHECKING:
    from countperf.harness.cuda.backend import CudaBackend
    from countperf.harness.device import Device, Session
    from countperf.harness.opencl import OpenClBackend


# --- OpenCL drivers that the loader sees
#
# The loader inside the pyopencl wheel (ocl-icd) reads its drivers' names from ``.icd`` files in one
# folder: ``OCL_ICD_VENDORS``, else ``OPENCL_VENDOR_PATH``, else ``/etc/OpenCL/vendors``; lists of
# folders are not understood. It never looks into the Python environment, and the ``.icd`` file of
# the wheel ``intel-opencl-rt`` holds a path of the machine that made it. So where the environment
# holds drivers of its own, we write one folder with the system's files and right ones for these.
#
# The variable is read once, at the first question for platforms, and a user's own setting wins.

VENDORS_VARIABLE = "OCL_ICD_VENDORS"
_SYSTEM_VARIABLE = "OPENCL_VENDOR_PATH"
_SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
INTEL_LIBRARY = "libintelocl.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFile:
    """An ``.icd`` file."""

    name: str  # of the file
    library: str  # driver library it names: a path, or a name for the dynamic loader
    origin: str  # folder or package it comes from
    problem: str = field(init=False, default="")  # with it, as far as can be seen from outside

    def __post_init__(self) -> None:
        if "/" in self.library and not Path(self.library).is_file():
            object.__setattr__(self, "problem", f"{self.library} is not there")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSearch:
    """Drivers that the loader finds, and where."""

    files: tuple[DriverFile, ...]  # the drivers
    needs_folder: bool = False  # whether the drivers have to be gathered in a folder of our own
    problem: str = ""  # what is wrong with the user's setting, and how to mend it
    advice: str = ""


def find_drivers(
    environment: Mapping[str, str] | None = None,
    prefix: Path | str | None = None,
    *,
    system_folder: Path = _SYSTEM_FOLDER,
) -> DriverSearch:
    """Find out which drivers the loader is to see; changes nothing."""
    variables = os.environ if environment is None else environment
    root = Path(sys.prefix if prefix is None else prefix)
    system = Path(variables.get(_SYSTEM_VARIABLE) or system_folder)
    setting = variables.get(VENDORS_VARIABLE)
    if setting:
        return _search_setting(setting, system)
    of_system = _read_folder(system)
    known = {Path(file.library).name for file in of_system if not file.problem}
    own = tuple(file for file in _find_own(root) if Path(file.library).name not in known)
    return DriverSearch(files=(*of_system, *own), needs_folder=bool(own))


@contextmanager
def loader_setting(search: DriverSearch) -> Generator[None]:
    """Point the loader to the drivers while it asks for platforms for the first time.

    The variable is put back afterwards, so that child processes make up their own minds.
    """
    if not search.needs_folder:
        yield
        return
    before = os.environ.get(VENDORS_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="countperf-opencl-") as folder:
        for number, file in enumerate(search.files):
            # the loader takes files in their alphabetical order; keep ours after the system's
            target = Path(folder) / f"{number:02d}-{file.name}"
            target.write_text(file.library + "\n", encoding="utf-8")
        os.environ[VENDORS_VARIABLE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[VENDORS_VARIABLE]
            else:
                os.environ[VENDORS_VARIABLE] = before


def _find_own(prefix: Path) -> Iterator[DriverFile]:
    intel = prefix / "lib" / INTEL_LIBRARY
    if intel.is_file():
        yield DriverFile(name="countperf-intel.icd", library=str(intel), origin="intel-opencl-rt")
    for file in _read_folder(prefix / "etc" / "OpenCL" / "vendors"):
        if not file.problem and Path(file.library).name != INTEL_LIBRARY:
            yield file


def _search_setting(setting: str, system: Path) -> DriverSearch:
    advice = (
        f"unset {VENDORS_VARIABLE}, and countperf finds the drivers of the system and of the Python"
        f" environment itself; or set it to a folder with .icd files such as {system}"
    )
    path = Path(setting)
    if path.is_dir():
        files = _read_folder(path)
        problem = ""
        if not files:
            problem = f"{VENDORS_VARIABLE}={setting} is a folder without .icd files"
        elif all(file.problem for file in files):
            problem = f"{VENDORS_VARIABLE}={setting}: {files[0].problem}"
        return DriverSearch(files=files, problem=problem, advice=advice if problem else "")
    for file in (path, *(() if "/" in setting else (system / setting,))):
        if setting.endswith(".icd") and file.is_file():
            return DriverSearch(files=_read_files([file]))
    if path.is_file() or ("/" not in setting and ".so" in setting):
        library = DriverFile(name="", library=setting, origin=VENDORS_VARIABLE)
        return DriverSearch(files=(library,))
    kind = "a list, which the loader does not understand" if ":" in setting else "not there"
    problem = f"{VENDORS_VARIABLE}={setting} is {kind}"
    return DriverSearch(files=(), problem=problem, advice=advice)


def _read_folder(folder: Path) -> tuple[DriverFile, ...]:
    try:
        return _read_files(sorted(folder.glob("*.icd")))
    except OSError:  # a folder that cannot be read has nothing for the loader either
        return ()


def _read_files(paths: list[Path]) -> tuple[DriverFile, ...]:
    texts = ((path, path.read_text(encoding="utf-8", errors="replace")) for path in paths)
    return tuple(
        DriverFile(name=path.name, library=text.split("\n")[0].strip(), origin=str(path.parent))
        for path, text in texts
        if text.strip()
    )


INSTALL_ADVICE = (
    "install an OpenCL driver: on Debian or Ubuntu 'apt-get install pocl-opencl-icd' (as root),"
    " or in any Python environment on an x86-64 processor 'pip install countperf[intel]'"
)


@cache
def backends() -> Mapping[str, OpenClBackend | CudaBackend]:
    """Return the backends by name; none of them is imported before it is used."""
    from countperf.harness.cuda.backend import CudaBackend
    from countperf.harness.opencl import OpenClBackend

    return {"opencl": OpenClBackend(), "cuda": CudaBackend()}


def backend_of(device: Device) -> OpenClBackend | CudaBackend:
    """Return what runs kernels on a device."""
    try:
        return backends()[device.backend]
    except KeyError:
        message = f"{device.label}: no backend {device.backend!r}; there is {', '.join(backends())}"
        raise DeviceError(message, device=device.label) from None


def open_session(device: Device) -> Session:
    """Open a device with whatever runs kernels on it."""
    return backend_of(device).open(device)


_SOURCE = """
KERNEL trial(GLOBAL const float *in, GLOBAL float *out)
{ int i = GLOBAL_ID; out[i] = 2 * in[i] + i; }
"""
_TRIAL_ITEMS = 256
_TRIAL_GROUP = 64


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Outcome of a trial run on a device."""

    works: bool  # a one-line kernel was built and run, and its numbers were right
    reason: str = ""  # if not: what happened, and what to do about it
    advice: str = ""


def try_device(device: Device) -> Trial:
    """Build and run a one-line kernel and look at its numbers."""
    backend = backend_of(device)
    try:
        right = _run_trial(backend.open(device))
    except (KernelBuildError, *backend.failures()) as error:
        reason = str(error)
        return Trial(works=False, reason=reason, advice=advise(reason, device))
    if right:
        return Trial(works=True)
    reason = "a one-line kernel gave wrong numbers"
    return Trial(works=False, reason=reason, advice=advise(reason, device))


def advise(reason: str, device: Device) -> str:
    """Say what to do about a device that failed its trial for that reason."""
    return backend_of(device).advise(reason, device)


def _run_trial(session: Session) -> bool:
    # built anew: a binary from an earlier day proves nothing about the compiler
    program = session.load(_SOURCE, fresh=True)
    values = np.arange(_TRIAL_ITEMS, dtype=np.float32)[::-1].copy()
    source, target = session.upload(values), session.allocate(values.nbytes)
    program.launch("trial", _TRIAL_ITEMS // _TRIAL_GROUP, _TRIAL_GROUP, (source, target))
    result = session.download(target, values.dtype, values.size)
    return np.array_equal(result, 2 * values + np.arange(_TRIAL_ITEMS, dtype=np.float32))


def in_order(devices: Iterable[Device]) -> list[Device]:
    """Return devices in the order in which they are taken if none is named: GPUs, then by label."""
    return sorted(devices, key=lambda device: (device.identity.device_type != "gpu", device.label))


def find_device(
    name: str | None = None,
    *,
    discovery: Discovery | None = None,
    attempt: Callable[[Device], Trial] | None = None,
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
    reasons = ""
    for device in in_order(found.devices):
        trial = attempt(device)
        if trial.works:
            return device
        reasons += f"{device.label}: {trial.reason}; "
    nothing = "no OpenCL device works" if reasons else "no OpenCL device found"
    expected = [each for each in found.absences if each.is_expected]
    advice = "; ".join([*(f"{each.problem}: {each.advice}" for each in expected), INSTALL_ADVICE])
    raise DeviceError(f"{nothing}: {reasons}{advice}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport(Trial):
    """A device, tried for real."""

    label: str  # which device
    slug: str
    name: str
    platform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """A program that reads machine code."""

    name: str  # what it is
    needed_for: str  # what goes without it
    path: str | None  # where it is
    advice: str  # how to get it


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport(ShortRepr):
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

    def to_object(self) -> dict[str, Any]:
        """Return the report as plain JSON-able values."""
        return asdict(self)


def examine(
    discovery: Discovery | None = None,
    *,
    attempt: Callable[[Device], Trial] = try_device,
) -> DoctorReport:
    """Look at all drivers and devices, and try each device.

    Parameters
    ----------
    discovery : Discovery, optional
        What was found; by default, what is found now.
    attempt : callable, optional
        How to try a device.

    Returns
    -------
    DoctorReport
        What was seen; nothing is raised for devices that fail.
    """
    found = discovery or discover()
    devices = tuple(
        DeviceReport(
            label=device.label,
            **{name: getattr(device.identity, name) for name in ("slug", "name", "platform")},
            **asdict(attempt(device)),
        )
        for device in found.devices
    )
    working = {each.label for each in devices if each.works}
    return DoctorReport(
        drivers=found.drivers.files,
        devices=devices,
        default=next((e.label for e in in_order(found.devices) if e.label in working), None),
        advice=tuple(_advice(found, devices)),
        tools=find_tools(),
    )


def find_tools() -> tuple[ToolReport, ...]:
    """Look for the programs that read machine code; none of them is run."""
    on_cpus, on_gpus = "the model that reads compiled code", "code for NVIDIA GPUs, without a GPU"
    wanted = (
        ("objdump", on_cpus, find_objdump, object_file.INSTALL_ADVICE),
        ("llvm-mca", on_cpus, find_analyzer, throughput.INSTALL_ADVICE),
        ("nvcc", on_gpus, find_nvcc, nvcc.INSTALL_ADVICE),
        ("nvdisasm", on_gpus, find_disassembler, nvcc.DISASSEMBLER_ADVICE),
    )
    return tuple(
        ToolReport(
            name=name,
            needed_for=needed_for,
            path=None if path is None else str(path),
            advice=advice,
        )
        for name, needed_for, find, advice in wanted
        for path in (find(),)
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
