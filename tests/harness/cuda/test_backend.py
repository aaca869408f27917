"""The CUDA backend on a driver that is none: what is found, built, run, and what goes wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import DeviceError, DeviceLostError, KernelBuildError, MeasurementError
from countperf.harness import devices
from countperf.harness.campaign import measure
from countperf.harness.clock import Timing
from countperf.harness.cuda import backend as cuda_backend
from countperf.harness.cuda.backend import CudaBackend
from countperf.harness.cuda.session import CudaSession, check_grid, load_driver
from countperf.harness.device import Device, Findings
from countperf.harness.devices import Discovery, find_device, try_device
from countperf.harness.icd import DriverSearch
from countperf.harness.runner import KernelRunner, in_mixed_order
from countperf.harness.sizes import measure_launch_overhead
from tests.harness.cuda.emulator import COMPILER
from tests.harness.cuda.fake_cupy import (
    CompileException,
    CUDADriverError,
    CUDARuntimeError,
    FakeCupy,
    FakeNvml,
)
from tests.harness.fakes import PROTOCOL, make_device
from tests.harness.loopy_cases import ROW_SUMS, TWO_LAUNCHES, double, make_loopy_case

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++")

DOUBLE = make_loopy_case()
ILLEGAL_ADDRESS = CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access")
SHORT = PROTOCOL.changed(separation_s=0.0, noise_limit=10.0, spread_limit=10.0)


@pytest.fixture
def cupy(tmp_path: Path) -> FakeCupy:
    return FakeCupy(tmp_path)


@pytest.fixture
def backend(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    made = CudaBackend(lambda: cupy.driver(FakeNvml()))
    monkeypatch.setattr(devices, "backends", lambda: {"cuda": made})
    return made


@pytest.fixture
def gpu(backend: CudaBackend) -> Device:
    (device,) = backend.discover().devices
    return device


@pytest.fixture
def runner(gpu: Device) -> KernelRunner:
    return KernelRunner.open(gpu)


def test_identity_and_limits(gpu: Device) -> None:
    assert gpu.label == "cuda:0"
    assert gpu.backend == "cuda"
    assert gpu.identity.slug == "nvidia-imaginary-9000"
    assert gpu.identity.platform == "CUDA"
    assert gpu.identity.driver_version == "580.65.06"
    assert gpu.identity.compute_units == 4
    assert gpu.limits.max_clock_mhz == 1980
    assert gpu.limits.max_allocation_bytes == 2**33  # what is free
    assert gpu.limits.global_memory_bytes == 2**34
    assert gpu.limits.group_class == "large"
    assert gpu.limits.compute_capability == "9.0"
    assert gpu.limits.sub_group_size == 32


def test_without_nvml_the_driver_is_named_by_cudas_version(cupy: FakeCupy) -> None:
    (device,) = CudaBackend(cupy.driver).discover().devices

    assert device.identity.driver_version == "13.1"


def test_every_gpu_is_listed(tmp_path: Path) -> None:
    cupy = FakeCupy(tmp_path, count=2)

    labels = [device.label for device in CudaBackend(cupy.driver).discover().devices]

    assert labels == ["cuda:0", "cuda:1"]


def test_sessions_of_two_gpus_do_not_mix(tmp_path: Path) -> None:
    cupy = FakeCupy(tmp_path, count=2)
    first, second = map(CudaSession.open, CudaBackend(cupy.driver).discover().devices)

    second.allocate(4)
    used = cupy.device
    first.allocate(4)

    assert (used, cupy.device) == (1, 0)


def test_the_trial(gpu: Device) -> None:
    assert try_device(gpu).works


def test_a_binary_from_an_earlier_day_proves_nothing(gpu: Device, cupy: FakeCupy) -> None:
    for _ in range(2):
        assert try_device(gpu).works

    assert len(set(cupy.sources)) == 2


@pytest.mark.parametrize(
    ("call", "error", "said", "advice"),
    [
        pytest.param(
            "compile",
            CompileException("nvrtc: error: invalid value for --gpu-architecture (-arch)"),
            "gpu-architecture",
            "CuPy does not fit",
            id="an old NVRTC",
        ),
        pytest.param(
            "compile", CompileException("nvrtc: error: internal"), "internal", "NVRTC", id="NVRTC"
        ),
        pytest.param(
            "compile",
            RuntimeError("CuPy failed to load libnvrtc.so.13: OSError"),
            "failed to load libnvrtc",
            "pip install countperf[cuda]",
            id="no NVRTC",
        ),
        pytest.param(
            "malloc",
            CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory"),
            "not enough memory",
            "nvidia-smi",
            id="memory",
        ),
        pytest.param("memcpy", ILLEGAL_ADDRESS, "new process", "nvidia-smi", id="lost"),
    ],
)
def test_a_gpu_that_does_not_work(
    gpu: Device, cupy: FakeCupy, call: str, error: Exception, said: str, advice: str
) -> None:
    cupy.failures[call] = error

    trial = try_device(gpu)

    assert not trial.works
    assert said in trial.reason
    assert advice in trial.advice


def test_launch_overhead_is_measured(gpu: Device) -> None:
    overhead = measure_launch_overhead(CudaSession.open(gpu), runs=4)

    assert overhead.time_s == pytest.approx(0.25e-3)
    assert overhead.host_s > 0


@pytest.mark.parametrize(
    "case", [make_loopy_case(), ROW_SUMS, TWO_LAUNCHES], ids=lambda c: c.kernel
)
def test_numbers_are_compared_and_runs_timed(
    runner: KernelRunner, cupy: FakeCupy, case: Any
) -> None:
    runner.check(case)
    cupy.launches.clear()
    with runner.loaded(case) as run:
        timings = [run() for _ in range(2)]

    launches = 2 if case is TWO_LAUNCHES else 1
    assert [name == "hold" for name in cupy.launches] == 2 * [True, *launches * [False]]
    assert [timing.time_s for timing in timings] == pytest.approx([launches * 0.25e-3] * 2)


def test_the_launch_is_worked_out_once_for_the_same_arguments(
    runner: KernelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from countperf.harness.cuda import session

    made: list[int] = []
    plan = session._Plan  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(session, "_Plan", lambda *a: made.append(1) or plan(*a))
    case = make_loopy_case()
    for _ in range(2):
        with runner.loaded(case) as run:
            run()
            run()

    assert len(made) == 2


def test_memory_that_launches_share_goes_with_the_arguments(runner: KernelRunner) -> None:
    import gc
    import weakref

    allocated: list[Any] = []
    allocate = runner.session.allocate

    def noted(size: int) -> Any:
        memory = allocate(size)
        allocated.append(weakref.ref(memory))
        return memory

    runner.session.allocate = noted
    with runner.loaded(TWO_LAUNCHES) as run:
        run()
        assert any(each() is not None for each in allocated)
        del run
    gc.collect()

    assert [each() for each in allocated] == [None] * len(allocated)


def test_a_zero_size_launches_nothing(runner: KernelRunner, cupy: FakeCupy) -> None:
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        "out[i] = 2*a[i]",
        [lp.GlobalArg("a,out", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 0",
        lang_version=(2018, 2),
    )
    kernel = runner.session.build_kernel(
        lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    )
    arguments = {"a": runner.session.allocate(0), "out": runner.session.allocate(0), "n": 0}

    kernel.launch(arguments)

    assert cupy.launches == ["hold"]


def test_sizes_that_the_kernel_does_not_assume_launch_nothing(
    runner: KernelRunner, cupy: FakeCupy
) -> None:
    kernel = runner.session.build_kernel(double())
    arguments = {"a": runner.session.allocate(80), "out": runner.session.allocate(80), "n": 20}

    with pytest.raises(KernelBuildError, match=r"\(n\) mod 16 = 0"):
        kernel.launch(arguments)

    assert cupy.launches == []


def _local(size: int) -> Any:
    unit = lp.make_kernel(
        "{[i]: 0<=i<16}",
        "t[i] = a[i] {id=t}\nout[i] = t[15-i] {dep=t}",
        [
            lp.GlobalArg("a,out", np.float32, shape="16"),
            lp.TemporaryVariable(
                "t", np.float32, shape=(size,), address_space=lp.AddressSpace.LOCAL
            ),
        ],
        lang_version=(2018, 2),
    )
    return lp.tag_inames(unit, {"i": "l.0"})


def _tall() -> Any:
    unit = lp.make_kernel(
        "{[i,j]: 0<=i<n and 0<=j<2}",
        "out[i, j] = 1",
        [lp.GlobalArg("out", np.float32, shape="n,2"), lp.ValueArg("n", np.int32)],
        lang_version=(2018, 2),
    )
    return lp.tag_inames(unit, {"i": "g.1", "j": "g.0"})


def _unknown_function() -> Any:
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        "out[i] = frobnicate(a[i])",
        [lp.GlobalArg("a,out", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        lang_version=(2018, 2),
    )
    return lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.parametrize(
    ("build", "changes", "said"),
    [
        pytest.param(lambda: _local(2**14), {}, "65536 byte of local memory", id="local memory"),
        pytest.param(
            lambda: double(2048), {"check_parameters": {"n": 2048}}, "up to 1024", id="group"
        ),
        pytest.param(
            _tall,
            {"check_parameters": {"n": 70000}, "make_arguments": lambda *_: {}},
            "launches up to",
            id="grid",
        ),
        pytest.param(_unknown_function, {}, "frobnicate", id="Loopy cannot express it"),
    ],
)
def test_what_a_gpu_does_not_run(runner: KernelRunner, build: Any, changes: Any, said: str) -> None:
    with pytest.raises(KernelBuildError, match=said):
        runner.check(make_loopy_case("strange", build, **changes))


@pytest.mark.parametrize("items", [2**31 - 64, 2**31])
def test_a_grid_that_narrow_indices_cannot_number(items: int) -> None:
    session = SimpleNamespace(
        handle=SimpleNamespace(max_grid=(2**31 - 1, 65535, 65535)),
        device=make_device("cuda:0", "g"),
    )
    given: Any = (session, "k", (items // 64,), (64,), 2**31 - 1)
    if items < 2**31:
        check_grid(*given)
        return
    with pytest.raises(KernelBuildError, match=r"2147483648 work items .* index_dtype=np\.int64"):
        check_grid(*given)


CASES = in_mixed_order(make_loopy_case(kernel) for kernel in ("one", "two", "three"))
FIRST, SECOND, LAST = (case.kernel for case in CASES)


def test_a_kernel_that_fails_is_named_and_the_campaign_goes_on(
    runner: KernelRunner, tmp_path: Path
) -> None:
    cases = [CASES[0], replace(CASES[1], build=_unknown_function), CASES[2]]

    found = measure(cases, store=tmp_path / "s.jsonl", protocol=SHORT, runner=runner)

    assert [entry.kernel for entry in found.measurements] == [FIRST, LAST]
    (failure,) = found.failures
    assert (failure.kernel, failure.stage) == (SECOND, "build")
    assert "frobnicate" in failure.reason
    header = json.loads((tmp_path / "s.jsonl").read_text().splitlines()[0])
    versions = header["environment"]["versions"]
    assert (versions["cuda_driver"], versions["nvidia_driver"]) == ("13010", "580.65.06")


@pytest.mark.parametrize(
    ("call", "error", "stage", "said"),
    [
        pytest.param(
            "compile", CompileException("k.cu(3): error: no"), "build", "error: no", id="build"
        ),
        pytest.param(
            "launch",
            CUDADriverError(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources"),
            "run",
            "too many resources",
            id="launch",
        ),
        pytest.param(
            "malloc",
            CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory"),
            "run",
            "not enough memory",
            id="out of memory",
        ),
    ],
)
def test_failures_that_the_campaign_survives(
    runner: KernelRunner,
    cupy: FakeCupy,
    tmp_path: Path,
    call: str,
    error: Exception,
    stage: str,
    said: str,
) -> None:
    cupy.failures[call] = error

    found = measure(CASES, store=tmp_path / "s.jsonl", protocol=SHORT, runner=runner)

    (failure,) = found.failures
    assert (failure.kernel, failure.stage) == (FIRST, stage)
    assert said in failure.reason
    assert len(found.measurements) == 2


def test_a_lost_device_ends_the_process_and_the_next_goes_on_behind_the_case(
    runner: KernelRunner, cupy: FakeCupy, tmp_path: Path
) -> None:
    store = tmp_path / "s.jsonl"
    cupy.failures["wait"] = ILLEGAL_ADDRESS

    with pytest.raises(DeviceLostError, match="new process"):
        measure(CASES, store=store, protocol=SHORT, runner=runner)
    found = measure(CASES, store=store, protocol=SHORT, runner=runner)

    assert [failure.kernel for failure in found.failures] == [FIRST]
    assert [entry.kernel for entry in found.measurements] == [SECOND, LAST]


def _broken(name: str) -> Any:
    raise ImportError(f"No module named {name!r}")


def test_without_cupy_the_mend_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"pip install countperf\[cuda\]"):
        load_driver(_broken)
    monkeypatch.setattr(cuda_backend, "is_installed", lambda: False)

    found = CudaBackend().discover()

    assert found.devices == ()
    assert "CuPy is not installed" in found.problem
    assert "pip install countperf[cuda]" in found.advice


@pytest.mark.parametrize(
    ("status", "version", "problem"),
    [
        pytest.param(35, 0, "CuPy is there, but no NVIDIA driver", id="no driver"),
        pytest.param(
            35,
            12040,
            "CuPy is there, but the NVIDIA driver is too old: it has CUDA 12.4, CuPy needs 13.0",
            id="too old",
        ),
        pytest.param(
            999, 13010, "CuPy is there, but CUDA does not start: cudaErrorX: it says", id="else"
        ),
    ],
)
def test_without_a_driver_the_mend_is_given(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, status: int, version: int, problem: str
) -> None:
    cupy.failures["count"] = CUDARuntimeError(status, "cudaErrorX: it says")
    monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: version)
    monkeypatch.setattr(cuda_backend, "has_nvidia_gpu", lambda: False)

    found = CudaBackend(lambda: load_driver(lambda name: cupy if name == "cupy" else FakeNvml()))
    findings = found.discover()

    assert findings == Findings(
        label_prefix="cuda", problem=problem, advice=findings.advice, is_expected=True
    )
    assert "install NVIDIA's driver" in findings.advice


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="finds no GPU"):
        load_driver(lambda _: FakeCupy(tmp_path, count=0))


ABSENT = Findings(label_prefix="cuda", problem="CuPy is not installed", advice="pip install it")


def test_asking_for_a_gpu_that_cannot_be_there_says_why() -> None:
    found = Discovery(drivers=DriverSearch(files=()), platforms=(), devices=(), absences=(ABSENT,))

    with pytest.raises(DeviceError, match="no device 'cuda:0': CuPy is not installed; pip install"):
        find_device("cuda:0", discovery=found)


@pytest.mark.parametrize("expected", [True, False])
def test_an_expected_gpu_is_part_of_the_advice(expected: bool) -> None:
    absence = replace(ABSENT, is_expected=expected)
    found = Discovery(drivers=DriverSearch(files=()), platforms=(), devices=(), absences=(absence,))

    with pytest.raises(DeviceError) as caught:
        find_device(discovery=found)

    assert ("CuPy is not installed" in str(caught.value)) is expected


def test_a_timing_is_the_gpus(runner: KernelRunner) -> None:
    with runner.loaded(make_loopy_case()) as run:
        timing = run()

    assert isinstance(timing, Timing)
    assert timing.time_s == pytest.approx(0.25e-3)


def test_a_wrong_name_of_a_kernel_is_a_build_error(gpu: Device) -> None:
    program = CudaSession.open(gpu).load("KERNEL nothing(GLOBAL float *a) { }")

    with pytest.raises(KernelBuildError, match="NOT_FOUND"):
        program.launch("something", 1, 1, ())


def test_waiting_for_what_failed_is_a_measurement_error(gpu: Device, cupy: FakeCupy) -> None:
    session = CudaSession.open(gpu)
    cupy.failures["synchronize"] = CUDARuntimeError(1, "cudaErrorInvalidValue: no")

    with pytest.raises(MeasurementError, match="InvalidValue"):
        session.finish()
