"""Findings and advice of the doctor."""

from __future__ import annotations

import json
from collections.abc import Callable
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
    doctor,
    find_tools,
)
from tests.devices.fakes import make_device

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
    assert report.default == "pocl:0"
    assert report.is_healthy
    assert "pip uninstall pocl-binary-distribution" in report.advice[0]
    assert "apt-get install pocl-opencl-icd" in report.advice[0]
    assert "pip install countperf[intel]" in report.advice[0]
    content = json.loads(json.dumps(report.to_object()))
    assert content["devices"][0]["label"] == "pocl:0"
    said = str(report).splitlines()
    assert said[0] == "ok  pocl:0  pthread-skylake: works (default)"
    assert said[1].startswith("!!  pocl:1  pthread-generic: does not work: error: unknown target")
    assert said[2].startswith("      mend: ")


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
