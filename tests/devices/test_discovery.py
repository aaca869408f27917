"""Names of devices, which one is taken, and findings and advice of the doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countperf.devices import discovery
from countperf.devices.device import Device, DriverFile, Findings, pick_errors
from countperf.devices.discovery import (
    DeviceTrial,
    Discovery,
    DoctorReport,
    backend_of,
    discover,
    doctor,
    find_device,
    find_tools,
    select_device,
    try_device,
)
from countperf.errors import DeviceError
from tests.devices.fakes import make_device

POCL = make_device("pocl:0", "pthread-AMD EPYC", platform="Portable Computing Language")
INTEL = make_device("intel:0", "AMD EPYC", platform="Intel(R) OpenCL")
GPU = make_device("nvidia:0", "NVIDIA H200", platform="NVIDIA CUDA", slug="nvidia-h200")
GPU_TWIN = make_device("nvidia:1", "NVIDIA H200", platform="NVIDIA CUDA", slug="nvidia-h200")
ALL = (POCL, INTEL, GPU)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        *(("pocl:0", "pocl:0"), ("INTEL:0", "intel:0"), ("pocl", "pocl:0")),  # labels
        *(("h200", "nvidia:0"), (" pthread ", "pocl:0"), ("portable", "pocl:0")),  # other parts
        ("nvidia-h200", "nvidia:0"),  # a slug
        ("new:1", "new:1"),  # a label wins over parts of others
    ],
)
def test_a_name_that_only_one_device_has(name: str, label: str) -> None:
    others = make_device("new:11", "device"), make_device("new:1", "device")
    assert select_device(name, (*ALL, *others)).label == label


@pytest.mark.parametrize(
    ("name", "devices", "said"),
    [
        pytest.param("epyc", ALL, "several devices: pocl:0", id="part of two names"),
        pytest.param("nvidia-h200", (GPU, GPU_TWIN), "nvidia:1 (NVIDIA H200)", id="twins"),
        pytest.param("cuda:0", ALL, "there is: pocl:0 (pthread-AMD EPYC), intel:0", id="unknown"),
        pytest.param("", ALL, "there is: ", id="an empty name means nothing"),
    ],
)
def test_other_names_are_refused_with_what_there_is(
    name: str, devices: tuple[Device, ...], said: str
) -> None:
    with pytest.raises(DeviceError) as caught:
        select_device(name, devices)
    assert said in str(caught.value)
    assert caught.value.device == name


def _discovery(*devices: Device, problem: str = "") -> Discovery:
    return Discovery((Findings(devices=devices, problem=problem, advice="unset it"),))


WORKS = DeviceTrial(works=True)
BROKEN = DeviceTrial(works=False, reason="unknown target CPU", advice="reinstall")


def _have(monkeypatch: pytest.MonkeyPatch, found: Discovery, *works: Device) -> None:
    monkeypatch.setattr(discovery, "discover", lambda: found)
    monkeypatch.setattr(discovery, "try_device", lambda each: WORKS if each in works else BROKEN)


def test_the_default_is_the_first_gpu_that_works_else_the_first_device_by_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = replace(GPU, identity=GPU.identity.model_copy(update={"device_type": "gpu"}))
    for works, default in (((POCL, INTEL, gpu), gpu), ((POCL, INTEL), INTEL), ((POCL,), POCL)):
        _have(monkeypatch, _discovery(POCL, INTEL, gpu), *works)
        assert find_device() is default


_FAILS = "unknown target CPU; reinstall"
_NONE = _discovery(problem="OCL_ICD_VENDORS=/x is not there")


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("pocl", _discovery(*ALL), f"pocl:0 .*: {_FAILS}"),
        (None, _discovery(POCL, INTEL), f"intel:0 .*: {_FAILS}; pocl:0 .*: {_FAILS}"),
        *((name, _NONE, "/x is not there: unset") for name in (None, "pocl:0")),
    ],
)
def test_where_none_works_reasons_and_a_mend_are_given(
    name: str | None, found: Discovery, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _have(monkeypatch, found)
    with pytest.raises(DeviceError, match=said):
        find_device(name)


@pytest.mark.parametrize(
    ("largest", "group_class"),
    [(256, "small"), (511, "small"), (512, "medium"), (1023, "medium"), (1024, "large")],
)
def test_group_class(largest: int, group_class: str) -> None:
    assert replace(POCL.limits, max_group_size=largest).group_class == group_class


@pytest.mark.device
def test_a_device_of_this_machine_works() -> None:
    device = find_device()
    assert device in discover().devices
    assert select_device(device.label, discover().devices) == device
    assert try_device(device) == WORKS
    assert device.identity.compute_units >= 1
    assert device.limits.max_group_size >= 1


_FIND = """
from countperf.errors import DeviceError
from countperf.devices.discovery import find_device
try:
    print(find_device().label)
except DeviceError as error:
    print("DeviceError:", error)
"""


@pytest.mark.device
@pytest.mark.parametrize("setting", ["/nonexistent", "/etc/OpenCL/vendors:/tmp"])
def test_a_wrong_setting_in_a_real_process_is_explained(setting: str) -> None:
    environment = {**os.environ, "OCL_ICD_VENDORS": setting}
    said = subprocess.check_output([sys.executable, "-c", _FIND], env=environment, text=True)
    assert said.startswith(f"DeviceError: no OpenCL driver: OCL_ICD_VENDORS={setting} is")


GOOD = make_device("pocl:0", "pthread-skylake", platform="Portable Computing Language")
BAD = make_device("pocl:1", "pthread-generic", platform="Portable Computing Language")
PLATFORMS = ("Portable Computing Language",)


def _attempt(device: object) -> DeviceTrial:
    if device is GOOD:
        return DeviceTrial(works=True)
    reason = "error: unknown target CPU 'generic'"
    return DeviceTrial(works=False, reason=reason, advice=backend_of(BAD).advise(BAD))


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DoctorReport]:
    """Have the doctor find these devices, of which only one works."""

    def ask(*devices: Device, **changes: Any) -> DoctorReport:
        given: dict[str, Any] = {"platforms": PLATFORMS, "devices": devices, **changes}
        found = Findings(**given)
        monkeypatch.setattr(discovery, "discover", lambda: Discovery((found,)))
        monkeypatch.setattr(discovery, "try_device", _attempt)
        return doctor()

    return ask


def test_each_device_is_tried_and_a_failing_one_explained(find: Callable[..., Any]) -> None:
    report = find(GOOD, BAD)
    assert [device.works for device in report.devices] == [True, False]
    assert (report.default, report.is_healthy) == ("pocl:0", True)
    for mend in ("pip uninstall pocl-binary-distribution", "apt-get install pocl-opencl-icd"):
        assert mend in report.advice[0]
    assert "pip install countperf[intel]" in report.advice[0]
    assert json.loads(json.dumps(report.to_object()))["devices"][0]["label"] == "pocl:0"
    works, fails, mend, *_ = str(report).splitlines()
    assert works == "ok  pocl:0  pthread-skylake: works (default)"
    assert fails.startswith("!!  pocl:1  pthread-generic: does not work: error: unknown target")
    assert mend.startswith("      mend: ")


def test_nothing_found_says_what_to_install(find: Callable[..., Any]) -> None:
    problem = "no OpenCL device found"
    report = find(platforms=(), problem=problem, advice="install an OpenCL driver")
    assert not report.is_healthy
    assert report.advice == ("no OpenCL device found: install an OpenCL driver",)
    assert "no OpenCL device was found\n      mend: no OpenCL" in str(report)


def test_a_platform_without_devices_and_a_missing_library_are_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Callable[..., Any]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    file = DriverFile(name="x.icd", library=str(tmp_path / "gone.so"), origin="/etc/OpenCL/vendors")
    report = find(drivers=(file,))
    assert report.drivers[0].problem.endswith("gone.so is not there")
    for said in (
        "reinstall that driver",
        "PoCL compiled: not kept in",
        "set POCL_CACHE_DIR to a",
        "has no device: for a GPU",
    ):
        assert any(said in advice for advice in report.advice), said


def test_of_a_failed_build_only_the_compilers_words_are_kept() -> None:
    text = (
        "clBuildProgram failed: BUILD_PROGRAM_FAILURE - clBuildProgram failed\n\n"
        "Build on <pyopencl.Device 'pthread-AMD EPYC'>:\n\n"
        "error: unknown target CPU 'generic'\n"
        "Device pthread-AMD EPYC failed to build the program\n\n"
        "(options: -I /somewhere)\n(source saved as /tmp/x.cl)"
    )
    assert pick_errors(text) == "error: unknown target CPU 'generic'"
    assert len(pick_errors("x" * 5000)) == 600


def test_programs_that_read_machine_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "llvm-mca-99"
    program.touch(mode=0o755)
    monkeypatch.setenv("COUNTPERF_LLVM_MCA", str(program))
    monkeypatch.setenv("COUNTPERF_OBJDUMP", str(tmp_path / "none"))
    tools = {tool.name: tool for tool in find_tools()}
    assert list(tools) == ["objdump", "llvm-mca", "nvcc", "nvdisasm"]
    assert tools["llvm-mca"].path == str(program)
    assert tools["objdump"].path is None
    assert "COUNTPERF_OBJDUMP" in tools["objdump"].advice
