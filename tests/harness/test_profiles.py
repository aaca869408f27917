"""Profiles with the registers that nvcc gives a kernel."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import CountperfError, DeviceError, ParameterError
from countperf.hardware.parameters import load_device
from countperf.harness.compile.ptx import compiled_registers, profile_kernel
from countperf.harness.nvcc import compile_for, find_nvcc
from countperf.mechanistic.model import MechanisticPrediction
from countperf.workflow.mechanistic import predict_all
from measurement_kernels import catalog
from tests.counting import profiled
from tests.made import LINE, make, split

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
    answers = predict_all(profiled.saxpy(), H200, n=2**20)

    roofline = answers["roofline-bytes"]
    assert isinstance(roofline, MechanisticPrediction)
    assert float(roofline.time_s) == pytest.approx(3 * 4 * 2**20 / 4.8e12)
    for answer in answers.values():
        assert getattr(answer, "parameter", None) != "registers_per_work_item"


def test_declared_registers_win() -> None:
    profiler = profile_kernel(profiled.saxpy(), H200, registers_per_work_item=77)

    assert profiler.at({"n": 64}).profile.registers_per_work_item == 77


def test_registers_stay_open_where_nothing_tells_them_or_they_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # nvcc does not know the capability; a processor has none; there is no nvcc
    for device in ("nvidia-8800-gtx", "pocl-epyc-zen5"):
        assert compiled_registers(profiled.saxpy(), load_device(device)) is None
    monkeypatch.setenv("COUNTPERF_NVCC", "/no/such/nvcc")
    assert compiled_registers(profiled.saxpy(), load_device(H200)) is None


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(DeviceError, match="no description"):
        profile_kernel(profiled.saxpy(), "nvidia-voodoo")
    with pytest.raises(ParameterError, match=r"the device is a dict; pass the slug of a device"):
        predict_all(profiled.saxpy(), {"n": 2**20})  # pyright: ignore[reportArgumentType] - refused


def _odd(name: str) -> Any:
    """Return a kernel of a kind that Loopy's CUDA, or the models, may not know."""
    kinds: dict[str, tuple[str, str, Any]] = {
        "maximum": ("{[i, j]: 0<=i<n and 0<=j<8}", "z[i] = max(j, x[8*i + j])", np.float32),
        "minimum": ("{[i, j]: 0<=i<n and 0<=j<8}", "z[i] = min(j, x[8*i + j])", np.float64),
        "half": ("{[i]: 0<=i<n}", "z[i] = x[i]*x[i]", np.float16),
        "complex": ("{[i]: 0<=i<n}", "z[i] = x[i]*x[i]", np.complex64),
        "structure": ("{[i]: 0<=i<n}", "z[i] = 2*x[i]", np.dtype([("a", "f4"), ("b", "i4")])),
        "vectors": ("{[i, v]: 0<=i<n and 0<=v<4}", "z[i, v] = 2*x[i, v]", np.float32),
        "cycle": ("{[i, j]: 0<=i,j<n}", "x[i] = z[i] {id=a,dep=b}\nz[i] = x[i] {id=b,dep=a}", "f4"),
    }
    domain, instructions, kind = kinds[name]
    layout: dict[str, Any] = {"shape": "8*n"}
    if name == "vectors":
        layout = {"shape": "n, 4", "dim_tags": "N0,vec"}
    arrays = lp.GlobalArg("x, z", kind, **layout)
    unit = make(domain, instructions, "n:i4", arrays, name="odd")
    if name == "vectors":
        unit = lp.tag_inames(unit, "v:vec")
    return split(unit, 64)


@needs_nvcc
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_compile(name: str) -> None:
    answers = predict_all(_odd(name), "nvidia-h100", n=2**20, models=["roofline", "volkov"])
    size = 4 if name == "maximum" else 8

    # each item reads elements that lie in sectors of their own
    assert answers.predictions["roofline"].time_s == pytest.approx(
        (8 * 32 + size) * 2**20 / 3.352e12, rel=1e-2
    )
    assert isinstance(answers["volkov"], MechanisticPrediction)


@needs_nvcc
@pytest.mark.filterwarnings("ignore::loopy.diagnostic.LoopyWarning")
@pytest.mark.parametrize("name", ["half", "complex", "structure", "vectors", "cycle"])
def test_what_has_no_cuda_is_refused(name: str) -> None:
    with pytest.raises(CountperfError, match=r"odd|nvcc"):
        compile_for(_odd(name))
    try:
        answers = predict_all(_odd(name), "nvidia-h100", n=2**20, models=["roofline"])
    except CountperfError:
        return
    assert isinstance(answers["roofline"], CountperfError)  # it lacks a cost of the class


def test_statistics_say_what_data_decides() -> None:
    body = "z[i] = x[index[i]] if m[i] else 2*x[i]"
    masked = make(LINE, body, "m:i1[n] x,z:f4[n] index:i4[n] n:i4", group=64)

    def bytes_moved(statistic: str, **more: Any) -> float:
        statistics = {"insn": 1.0, "x": statistic}
        options = {"registers_per_work_item": 16}
        more |= {"statistics": statistics, "profile_options": options}
        return predict_all(masked, H200, n=2**20, models="roofline", **more).total_bytes

    base = bytes_moved("stride1")
    items = 2**20
    assert bytes_moved("1of2") - base == pytest.approx(4 * items)
    assert bytes_moved("indirect") - base == pytest.approx((32 - 4) * items)
    assert bytes_moved("2ofn") - base == pytest.approx((16 - 4) * items)
    assert bytes_moved("stride1", lines={"x": 32}) == bytes_moved("indirect")
