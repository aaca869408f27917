"""Profiles of kernels on NVIDIA GPUs: registers and machine code of nvcc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.api.mechanistic_models import predict_all, profiler_of
from countperf.devices.nvcc import compile_for, find_program
from countperf.devices.parameters import load_device
from countperf.errors import CountperfError, ModelNotApplicableError, ParameterError
from countperf.mechanistic.compiled_profile import (
    MachineCodeProfiler,
    find_compiled_registers,
    profile_kernel,
    with_machine_code,
)
from countperf.mechanistic.profile import KernelProfile, MechanisticPrediction
from measurement_kernels import catalog
from tests.counting import profiled
from tests.kernels import in_groups, made

needs_nvcc = pytest.mark.skipif(find_program("nvcc") is None, reason="no nvcc (the extra 'nvcc')")
needs_tools = pytest.mark.skipif(
    find_program("nvcc") is None or find_program("nvdisasm") is None,
    reason="no nvcc or nvdisasm (extra 'nvcc')",
)
H200 = "nvidia-h200"


@needs_nvcc
@pytest.mark.parametrize("name", ["matmul-tiled/square/16x16", "finite-differences/16x16"])
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


def test_declared_registers_win_and_others_stay_open_where_nothing_tells_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiler = profile_kernel(profiled.saxpy(), H200, registers_per_work_item=77)
    assert profiler.at({"n": 64}).profile.registers_per_work_item == 77
    # nvcc does not know the capability; a processor has none; there is no nvcc
    for device in ("nvidia-8800-gtx", "pocl-epyc-zen5"):
        assert find_compiled_registers(profiled.saxpy(), load_device(device)) is None
    monkeypatch.setenv("COUNTPERF_NVCC", "/no/such/nvcc")
    assert find_compiled_registers(profiled.saxpy(), load_device(H200)) is None


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
    unit = made(domain, instructions, "n i32", arrays, name="odd")
    if name == "vectors":
        unit = lp.tag_inames(unit, "v:vec")
    return in_groups(unit, "i:64")


@needs_nvcc
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_compile(name: str) -> None:
    answers = predict_all(_odd(name), "nvidia-h100", n=2**20, models=["roofline", "volkov"])
    size = 4 if name == "maximum" else 8
    # each item reads eight elements, whose sectors L1 keeps
    wanted = (8 * size + size) * 2**20 / 3.352e12
    assert answers.predictions["roofline"].time_s == pytest.approx(wanted, rel=1e-2)
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
    masked = made("i<n", body, "m i8 n; x,z f32 n; index i32 n; n i32", split="i:64")

    def bytes_moved(statistic: str, **more: Any) -> float:
        statistics = {"insn": 1.0, "x": statistic}
        options = {"registers_per_work_item": 16, **more}
        given: Any = {"statistics": statistics, "profile_options": options}
        answers = predict_all(masked, H200, n=2**20, models="roofline", **given)
        return sum(traffic.asked for traffic in answers.traffic.values())

    base = bytes_moved("stride1")
    items = 2**20
    assert bytes_moved("1of2") - base == pytest.approx(4 * items)
    assert bytes_moved("indirect") - base == pytest.approx((32 - 4) * items)
    assert bytes_moved("2ofn") - base == pytest.approx((16 - 4) * items)
    assert bytes_moved("stride1", lines={"x": 32}) == bytes_moved("indirect")


DEVICE = load_device("nvidia-h200")
INTEGERS = ("i32", "i64")


def _compiled(unit: Any, sizes: dict[str, int], registers: int = 32) -> KernelProfile:
    profiler = profile_kernel(unit, DEVICE, registers_per_work_item=registers)
    return with_machine_code(profiler, unit).at(sizes).profile


def _without_addresses(alpha: Any) -> dict[str, float]:
    return {name: n for name, n in alpha.items() if not name.endswith(INTEGERS)}


@needs_tools
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("matmul-tiled/square/16x16", {"n": 64, "m": 128, "l": 64}),
        ("matmul-skinny/16x16", {"n": 64, "m": 128, "l": 64}),
        ("transpose/tiled/16x16", {"n": 64, "m": 64}),
        ("transpose/stride1-reads/16x16", {"n": 64, "m": 64}),
    ],
)
def test_instructions_of_the_code_are_those_that_are_counted(
    name: str, sizes: dict[str, int]
) -> None:
    unit: Any = catalog.entry(name).builder()
    compiled = _compiled(unit, sizes)
    counted = profile_kernel(unit, DEVICE, registers_per_work_item=32).at(sizes).profile
    assert _without_addresses(compiled.alpha) == dict(counted.alpha)
    assert any(name.endswith(INTEGERS) for name in compiled.alpha)


@needs_tools
def test_the_compiler_reads_a_point_once_that_the_source_reads_often() -> None:
    unit: Any = catalog.entry("n-body").builder()
    compiled = _compiled(unit, {"n": 512})
    counted = profile_kernel(unit, DEVICE, registers_per_work_item=32).at({"n": 512}).profile
    for name in ("fma.f32", "add.f32", "load.local.32", "barrier"):
        assert compiled.alpha[name] == counted.alpha[name]
    assert compiled.alpha["special.f32"] == counted.alpha["special.f32.rsqrt"]
    assert compiled.alpha["load.global.32.x3"] == 3 + 6  # its own point, and two blocks
    assert counted.alpha["load.global.32.x3"] == 3 * 512 + 6


@needs_tools
def test_dependencies_of_saxpy() -> None:
    graph = _compiled(profiled.saxpy(), {"n": 128}, 16).idg
    assert graph is not None
    numbers = [k for k, name in enumerate(graph.nodes) if not name.endswith(INTEGERS)]
    names = [*2 * ["load.global.32"], "fma.f32", "store.global.32"]
    assert [graph.nodes[k] for k in numbers] == names
    kept = [(numbers.index(i), numbers.index(j)) for i, j in graph.edges if {i, j} <= set(numbers)]
    assert kept == [(0, 2), (1, 2), (2, 3)]


@needs_tools
def test_a_loop_that_is_entered_only_if_its_size_is_positive() -> None:
    # nvcc guards the loop by a forward branch that is taken: n multiply-adds for each item
    unit: Any = catalog.entry("matmul-naive/16x16/f32").build()
    alpha = _compiled(unit, {"n": 64, "m": 2000, "l": 64}).alpha
    assert alpha["fma.f32"] == 2000
    assert sum(n for name, n in alpha.items() if name.startswith("load.global")) == 2 * 2000


SAXPY: Any = catalog.entry("published-saxpy2/256x1").build()


def _profiler(kernel: Any, device: str) -> MachineCodeProfiler:
    counted = profile_kernel(kernel, load_device(device), registers_per_work_item=16)
    return with_machine_code(counted, kernel)


@needs_tools
def test_a_loop_of_a_kernel_takes_what_its_machine_code_says() -> None:
    profiler = _profiler(SAXPY, "nvidia-rtx-2070")
    few, many = (profiler.at({"n": 10**6, "a": a}).profile for a in (32, 64))
    # addition of the counter, comparison, addition of x, branch, in an order that nvcc chooses:
    # counter (4 cycles), comparison (4), branch that is taken (12), or issue (3 each) and branch
    bounds = [profile.latency_bound or 0 for profile in (few, many)]
    assert 9 + 12 <= (bounds[1] - bounds[0]) / 32 <= 3 + 4 + 4 + 12
    issued = [profile.ins_issued or 0 for profile in (few, many)]
    assert issued[1] - issued[0] == 32 * 4
    assert profiler.note == "instructions: machine code for compute capability 7.5"


LISTING = Path(__file__).resolve().parents[1] / "golden" / "row_sums.sass"
ROW_SUMS = made(
    "i<n, j<m",
    "y[i] = sum(j, x[j, i])",
    "x f32 m,n; y f32 n; n,m i32",
    name="row_sums",
    split="i:64",
    assumptions="n mod 64 = 0 and n >= 64 and m >= 1",
)


def test_a_listing_that_is_given_is_followed_without_tools() -> None:
    options = {"registers_per_work_item": 16, "sass": LISTING}
    answers = predict_all(ROW_SUMS, "nvidia-t4", n=6400, m=50, profile_options=options)
    assert answers.note == "instructions: machine code for compute capability 7.5"
    assert len(answers.predictions) >= 12
    profiler = profiler_of(ROW_SUMS, "nvidia-t4", {}, options)
    profile = profiler.at({"n": 6400, "m": 50}).profile
    # from the listing: six instructions for each of 50 rows; before, three products and a branch
    assert profile.alpha["load.global.32"] == profile.alpha["add.f32"] == 50
    assert profile.alpha["mul.i32"] == 53
    assert profile.alpha["branch.i32"] == 52  # the exit is one
    more = profiler.at({"n": 6400, "m": 51}).profile
    assert sum(more.alpha.values()) - sum(profile.alpha.values()) == 6
    assert (more.ins_issued or 0) - (profile.ins_issued or 0) == 6
    with pytest.raises(ParameterError, match=r"no function published_saxpy2 \(it has: row"):
        profiler_of(SAXPY, "nvidia-t4", {}, options).at({"n": 64, "a": 1})


@needs_tools
def test_all_models_take_machine_code() -> None:
    options = {"registers_per_work_item": 16}
    counted, found = (
        predict_all(SAXPY, "nvidia-rtx-2070", n=10**6, a=8, profile_options={**options, **more})
        for more in ({}, {"analysis": "sass"})
    )
    assert found.note == "instructions: machine code for compute capability 7.5"
    # more instructions are issued than Loopy counts, and the memory's share stays
    gpumech = [each.predictions["gpumech-gto"].time_s for each in (counted, found)]
    assert gpumech[0] < gpumech[1]
    roofline = [each.predictions["roofline-bytes"].time_s for each in (counted, found)]
    assert roofline[0] == roofline[1]


def test_a_processor_has_no_such_code() -> None:
    profiler = profile_kernel(SAXPY, load_device("pocl-epyc-zen5"))
    with pytest.raises(ModelNotApplicableError, match="no compute capability"):
        with_machine_code(profiler, SAXPY)
