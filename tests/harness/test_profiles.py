"""Profiles with the registers that nvcc gives a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.errors import DeviceError, ParameterError
from countperf.hardware.library import load_device
from countperf.harness.nvcc import compile_for, find_nvcc
from countperf.harness.profiles import compiled_registers, profile_kernel
from countperf.mechanistic.model import MechanisticPrediction
from countperf.workflow.mechanistic import predict_all
from measurement_kernels import catalog
from tests.counting import profiled

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc (the extra 'nvcc')")
H200 = "nvidia-h200"


@needs_nvcc
@pytest.mark.parametrize(
    "name", ["matmul-tiled/square/16x16", "n-body", "finite-differences/16x16", "convolution/16x16"]
)
def test_local_memory_is_what_ptxas_allocates(name: str) -> None:
    entry = catalog.entry(name)
    unit: Any = entry.builder()
    ((program, compiled),) = compile_for(unit, "9.0").items()

    profile = profile_kernel(unit, H200).at(dict(entry.check_parameters)).profile

    assert profile.name == program
    assert profile.registers_per_work_item == compiled.registers
    assert profile.local_bytes_per_group == compiled.shared_bytes


@needs_nvcc
def test_an_absent_gpu_gets_predictions_in_one_call() -> None:
    found = predict_all(profiled.saxpy(), H200, n=2**20)

    answer = found["roofline-bytes"]
    assert isinstance(answer, MechanisticPrediction)
    assert float(answer.time_s) == pytest.approx(3 * 4 * 2**20 / 4.8e12)
    for other in found.values():
        assert getattr(other, "parameter", None) != "registers_per_work_item"


@needs_nvcc
def test_a_capability_that_nvcc_does_not_know_leaves_the_registers_open() -> None:
    assert compiled_registers(profiled.saxpy(), load_device("nvidia-8800-gtx")) is None


def test_declared_registers_win() -> None:
    profiler = profile_kernel(profiled.saxpy(), H200, registers_per_work_item=77)

    assert profiler.at({"n": 64}).profile.registers_per_work_item == 77


def test_without_nvcc_registers_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTPERF_NVCC", "/no/such/nvcc")

    assert compiled_registers(profiled.saxpy(), load_device(H200)) is None


def test_registers_do_not_matter_on_a_cpu() -> None:
    assert compiled_registers(profiled.saxpy(), load_device("pocl-epyc-zen5")) is None


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(DeviceError, match="no description"):
        profile_kernel(profiled.saxpy(), "nvidia-voodoo")


def test_sizes_in_the_place_of_the_device_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"the device is a dict; pass the slug of a device"):
        predict_all(profiled.saxpy(), {"n": 2**20})  # pyright: ignore[reportArgumentType] - refused
