"""What the doctor finds, and advises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from countperf.harness.devices import Discovery, Trial, advise, examine, find_tools
from countperf.harness.icd import DriverFile, DriverSearch
from countperf.harness.opencl import build_message
from tests.harness.fakes import make_device

GOOD = make_device("pocl:0", "pthread-skylake", platform="Portable Computing Language")
BAD = make_device("pocl:1", "pthread-generic", platform="Portable Computing Language")
PLATFORMS = (("Portable Computing Language", "3.1"),)


def _attempt(device: object) -> Trial:
    if device is GOOD:
        return Trial(works=True)
    reason = "error: unknown target CPU 'generic'"
    return Trial(works=False, reason=reason, advice=advise(reason, BAD))


def test_each_device_is_tried_and_a_failing_one_explained() -> None:
    found = Discovery(drivers=DriverSearch(files=()), platforms=PLATFORMS, devices=(GOOD, BAD))

    report = examine(found, attempt=_attempt)

    assert [device.works for device in report.devices] == [True, False]
    assert report.default == "pocl:0"
    assert report.is_healthy
    assert "pip uninstall pocl-binary-distribution" in report.advice[0]
    assert "apt-get install pocl-opencl-icd" in report.advice[0]
    assert "pip install countperf[intel]" in report.advice[0]


def test_the_report_is_json_able() -> None:
    found = Discovery(drivers=DriverSearch(files=()), platforms=PLATFORMS, devices=(GOOD,))

    content = examine(found, attempt=_attempt).to_object()

    assert json.loads(json.dumps(content))["devices"][0]["label"] == "pocl:0"


def test_nothing_found_says_what_to_install() -> None:
    found = Discovery(drivers=DriverSearch(files=()), platforms=(), devices=())

    report = examine(found)

    assert not report.is_healthy
    assert report.advice[0].startswith("no OpenCL device found: install an OpenCL driver")


def test_a_platform_without_devices_and_a_missing_library_are_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    file = DriverFile(name="x.icd", library=str(tmp_path / "gone.so"), origin="/etc/OpenCL/vendors")
    found = Discovery(drivers=DriverSearch(files=(file,)), platforms=PLATFORMS, devices=())

    report = examine(found)

    assert report.drivers[0].problem.endswith("gone.so is not there")
    assert any("reinstall that driver" in advice for advice in report.advice)
    assert any("PoCL compiled: not kept in" in advice for advice in report.advice)
    assert any("set POCL_CACHE_DIR to a" in advice for advice in report.advice)
    assert any("has no device: for a GPU" in advice for advice in report.advice)


def test_a_wrong_setting_comes_first() -> None:
    drivers = DriverSearch(files=(), problem="it is not there", advice="unset it")

    report = examine(Discovery(drivers=drivers, platforms=(), devices=()))

    assert report.advice == ("it is not there: unset it",)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        pytest.param("clBuildProgram failed: OUT_OF_HOST_MEMORY", "free memory", id="memory"),
        pytest.param("segmentation", "update or reinstall the driver", id="anything else"),
    ],
)
def test_advice(reason: str, said: str) -> None:
    assert said in advise(reason, GOOD)


def test_of_a_failed_build_only_the_compilers_words_are_kept() -> None:
    text = (
        "clBuildProgram failed: BUILD_PROGRAM_FAILURE - clBuildProgram failed\n\n"
        "Build on <pyopencl.Device 'pthread-AMD EPYC'>:\n\n"
        "error: unknown target CPU 'generic'\n"
        "Device pthread-AMD EPYC failed to build the program\n\n"
        "(options: -I /somewhere)\n(source saved as /tmp/x.cl)"
    )

    assert build_message(text) == (
        "error: unknown target CPU 'generic'; Device pthread-AMD EPYC failed to build the program"
    )
    assert len(build_message("x" * 5000)) == 600


@pytest.mark.device
def test_the_doctor_of_this_machine() -> None:
    report = examine()

    assert report.is_healthy
    assert report.default in [device.label for device in report.devices if device.works]


def test_programs_that_read_machine_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "llvm-mca-99"
    program.touch(mode=0o755)
    monkeypatch.setenv("COUNTPERF_LLVM_MCA", str(program))
    monkeypatch.setenv("COUNTPERF_OBJDUMP", str(tmp_path / "none"))

    found = {each.name: each for each in find_tools()}

    assert list(found) == ["objdump", "llvm-mca", "nvcc", "nvdisasm"]
    assert found["llvm-mca"].path == str(program)
    assert found["objdump"].path is None
    assert "COUNTPERF_OBJDUMP" in found["objdump"].advice
