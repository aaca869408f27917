"""Profiles with instructions from machine code: loops by hand, and what stands in for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from countperf.errors import ModelNotApplicableError
from countperf.hardware.parameters import load_device
from countperf.harness.compile.ptx import MachineCodeProfiler, profile_kernel, with_machine_code
from countperf.harness.nvcc import find_disassembler, find_nvcc
from countperf.workflow.mechanistic import predict_all
from measurement_kernels import catalog

needs_tools = pytest.mark.skipif(
    find_nvcc() is None or find_disassembler() is None, reason="no nvcc or nvdisasm (extra 'nvcc')"
)
SAXPY: Any = catalog.entry("published-saxpy2/256x1").build()


def _profiler(kernel: Any, device: str, analysis: Any, registers: int = 16) -> MachineCodeProfiler:
    counted = profile_kernel(kernel, load_device(device), registers_per_work_item=registers)
    return with_machine_code(counted, kernel, analysis)


@needs_tools
def test_a_loop_of_a_kernel_takes_what_its_machine_code_says() -> None:
    profiler = _profiler(SAXPY, "nvidia-rtx-2070", "sass")

    few, many = (profiler.at({"n": 10**6, "a": a}).profile for a in (32, 64))

    # addition of the counter, comparison, addition of x, branch, in an order that nvcc chooses:
    # counter (4 cycles), comparison (4), branch that is taken (12), or issue (3 each) and branch
    bounds = [profile.latency_bound or 0 for profile in (few, many)]
    assert 9 + 12 <= (bounds[1] - bounds[0]) / 32 <= 3 + 4 + 4 + 12
    issued = [profile.ins_issued or 0 for profile in (few, many)]
    assert issued[1] - issued[0] == 32 * 4
    assert profiler.note == "instructions: machine code for compute capability 7.5"


@needs_tools
def test_nested_loops_multiply() -> None:
    unit: Any = catalog.entry("published-rodinia/kmeans-kernel-c/256x1").build()

    profiler = _profiler(unit, "nvidia-a100", "sass")

    (code,) = profiler.sass.values()
    executed = {1.0: 0, 5.0: 0, 170.0: 0}
    for segment in code.segments:
        times = math.prod((5.0, 34.0)[loop] for loop in segment.loops)
        executed[times] += segment.count("global")
    assert executed == {1.0: 1, 5.0: 0, 170.0: 2}  # the store, and a feature and a center
    found = profiler.at({"n": 1000}).profile
    assert found.ins_issued == code.ins_issued(5, 34)
    assert found.latency_bound == code.latency_bound(5, 34)


@needs_tools
def test_ptx_stands_in_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = _profiler(SAXPY, "nvidia-gtx-970", "sass")
    monkeypatch.setenv("COUNTPERF_NVDISASM", str(tmp_path / "none"))
    without = _profiler(SAXPY, "nvidia-rtx-2070", "sass")

    assert old.note.startswith("instructions: PTX for compute capability")
    assert "sm_52" in old.note
    assert without.note.startswith("instructions: PTX for compute capability 7.5 instead of")
    assert "no nvdisasm found" in without.note
    for profiler in (old, without):
        alpha = profiler.at({"n": 1000, "a": 32}).profile.alpha
        assert alpha["add.f32"] == 33
        assert alpha["load.global.32"] == 2


@needs_tools
def test_all_models_take_ptx() -> None:
    counted, found = (
        predict_all(
            SAXPY,
            "nvidia-rtx-2070",
            n=10**6,
            a=8,
            profile_options={"registers_per_work_item": 16, **more},
        )
        for more in ({}, {"analysis": "ptx"})
    )

    assert found.note == "instructions: PTX for compute capability 7.5"
    # more instructions are issued than Loopy counts, and the memory's share stays
    gpumech = [each.predictions["gpumech-gto"].time_s for each in (counted, found)]
    assert gpumech[0] < gpumech[1]
    roofline = [each.predictions["roofline-bytes"].time_s for each in (counted, found)]
    assert roofline[0] == roofline[1]


def test_a_processor_has_no_such_code() -> None:
    profiler = profile_kernel(SAXPY, load_device("pocl-epyc-zen5"))
    with pytest.raises(ModelNotApplicableError, match="no compute capability"):
        with_machine_code(profiler, SAXPY, "sass")
