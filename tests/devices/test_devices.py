"""Names of devices, and which one is taken."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from countperf.devices import discovery
from countperf.devices.device import Device, Findings
from countperf.devices.discovery import (
    DeviceTrial,
    Discovery,
    discover,
    find_device,
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
    ],
)
def test_a_name_that_only_one_device_has(name: str, label: str) -> None:
    assert select_device(name, ALL).label == label


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


def test_a_label_wins_over_parts_of_names() -> None:
    one = make_device("pocl:1", "device")
    eleven = make_device("pocl:11", "device")
    assert select_device("pocl:1", (eleven, one)).label == "pocl:1"


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


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("pocl", _discovery(*ALL), r"pocl:0 .*: unknown target CPU; reinstall"),
        (
            None,
            _discovery(POCL, INTEL),
            r"intel:0 .*: unknown target CPU; reinstall; pocl:0 .*: unknown target CPU; reinstall",
        ),
        *(
            (name, _discovery(problem="OCL_ICD_VENDORS=/x is not there"), "/x is not there: unset")
            for name in (None, "pocl:0")
        ),
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
    limits = replace(POCL.limits, max_group_size=largest)
    assert limits.group_class == group_class


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
    result = subprocess.run(
        [sys.executable, "-c", _FIND],
        env={**os.environ, "OCL_ICD_VENDORS": setting},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith(f"DeviceError: no OpenCL driver: OCL_ICD_VENDORS={setting} is")
