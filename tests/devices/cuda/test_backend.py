"""The CUDA backend on a driver that is none: what is found, built, run, and what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.devices import cuda as cuda_backend
from countperf.devices import discovery as devices
from countperf.devices.binding import bind_arguments
from countperf.devices.cuda import CudaBackend, CudaSession, check_grid, load_driver
from countperf.devices.device import Device, Findings
from countperf.devices.discovery import Discovery, find_device, try_device
from countperf.devices.targets import GeneratedCode, GeneratedLaunch
from countperf.errors import DeviceError, DeviceLostError, KernelBuildError, MeasurementError
from countperf.measuring.campaign import measure
from countperf.measuring.runner import KernelRunner, in_mixed_order
from countperf.measuring.size_choice import measure_launch_overhead
from tests.devices.cuda.emulator import COMPILER
from tests.devices.cuda.fake_cupy import (
    SHARED_LIMIT,
    CompileException,
    CUDADriverError,
    CUDARuntimeError,
    FakeCupy,
)
from tests.devices.fakes import PROTOCOL, make_device
from tests.devices.loopy_cases import ROW_SUMS, TWO_LAUNCHES, double, make_loopy_case
from tests.kernels import made

F4 = np.float32
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++")

DOUBLE = make_loopy_case()
NO_MEMORY = CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory")
ILLEGAL_ADDRESS = CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access")
SHORT = PROTOCOL.with_values(separation_s=0.0, noise_limit=10.0, spread_limit=10.0)


@pytest.fixture
def cupy(tmp_path: Path) -> FakeCupy:
    return FakeCupy(tmp_path)


@pytest.fixture
def backend(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    made = CudaBackend(lambda: cupy.driver())
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
    identity, limits = gpu.identity, gpu.limits
    assert (gpu.label, gpu.backend) == ("cuda:0", "cuda")
    named = identity.slug, identity.platform, identity.driver_version, identity.compute_units
    assert named == ("nvidia-imaginary-9000", "CUDA", "13.1", 4)
    assert (limits.max_clock_mhz, limits.sub_group_size) == (1980, 32)
    assert (limits.max_allocation_bytes, limits.global_memory_bytes) == (2**33, 2**34)  # free, all
    assert (limits.group_class, limits.compute_capability) == ("large", "9.0")


def test_every_gpu_is_listed_and_sessions_of_two_do_not_mix(tmp_path: Path) -> None:
    cupy = FakeCupy(tmp_path, count=2)
    gpus = CudaBackend(cupy.driver).discover().devices
    assert [gpu.label for gpu in gpus] == ["cuda:0", "cuda:1"]
    for number, session in reversed([*enumerate(map(CudaSession, gpus))]):
        session.allocate(4)
        assert cupy.device == number


def test_a_binary_from_an_earlier_day_proves_nothing(gpu: Device, cupy: FakeCupy) -> None:
    for _ in range(2):
        assert try_device(gpu).works
    assert len(set(cupy.sources)) == 2


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        ("compile", CompileException("nvrtc: error: invalid value for -arch"), "for -arch"),
        ("compile", RuntimeError("CuPy failed to load libnvrtc.so.13"), "failed to load libnvrtc"),
        ("malloc", NO_MEMORY, "not enough memory"),
        ("memcpy", ILLEGAL_ADDRESS, "new process"),
    ],
    ids=["an old NVRTC", "no NVRTC", "memory", "lost"],
)
def test_a_gpu_that_does_not_work(
    gpu: Device, cupy: FakeCupy, call: str, error: Exception, said: str
) -> None:
    cupy.failures[call] = error
    trial = try_device(gpu)
    assert not trial.works
    assert said in trial.reason
    for advice in ("nvidia-smi", "CuPy and NVRTC fit", "pip install countperf[cuda]"):
        assert advice in trial.advice


def test_launch_overhead_is_measured(gpu: Device) -> None:
    overhead = measure_launch_overhead(CudaSession(gpu), runs=4)
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
    with runner.load_case(case) as run:
        timings = [run() for _ in range(2)]
    launches = 2 if case is TWO_LAUNCHES else 1
    assert [name == "hold" for name in cupy.launches] == 2 * [True, *launches * [False]]
    assert [timing.time_s for timing in timings] == pytest.approx([launches * 0.25e-3] * 2)


def test_the_launch_is_worked_out_once_for_the_same_arguments(
    runner: KernelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[None] = []
    launches = GeneratedCode.launches
    monkeypatch.setattr(GeneratedCode, "launches", lambda *a: found.append(None) or launches(*a))
    for _ in range(2):
        with runner.load_case(DOUBLE) as run:
            run()
            run()
    assert len(found) == 2


def test_memory_that_launches_share_goes_with_the_arguments(runner: KernelRunner) -> None:
    import gc
    import weakref

    allocated: list[Any] = []
    allocate = runner.session.allocate

    def note(size: int) -> Any:
        memory = allocate(size)
        allocated.append(weakref.ref(memory))
        return memory

    runner.session.allocate = note
    with runner.load_case(TWO_LAUNCHES) as run:
        run()
        assert any(each() is not None for each in allocated)
        del run
    gc.collect()
    assert [each() for each in allocated] == [None] * len(allocated)


def _doubled(body: str = "out[i] = 2*a[i]") -> Any:
    return made("i<n", body, "a,out f32 n; n i32", assumptions="n >= 0", split="i:16")


def test_unused_local_memory_is_dynamic_and_may_be_more_than_code_can_declare(
    runner: KernelRunner, cupy: FakeCupy
) -> None:
    case = make_loopy_case("padded", double, unused_local_bytes=2 * SHARED_LIMIT)
    with runner.load_case(case) as run:
        run()
    assert cupy.shared_bytes == 2 * SHARED_LIMIT


def test_sizes_of_zero_or_that_the_kernel_does_not_assume_launch_nothing(
    runner: KernelRunner, cupy: FakeCupy
) -> None:
    session = runner.session
    with pytest.raises(KernelBuildError, match=r"\(n\) mod 16 = 0"):
        bind_arguments(session, session.build_kernel(double()), {"n": 20})
    assert cupy.launches == []
    kernel = session.build_kernel(_doubled())
    kernel.launch({"a": session.allocate(0), "out": session.allocate(0), "n": 0})
    assert cupy.launches == ["hold"]


def _local(size: int) -> Any:
    held = lp.TemporaryVariable("t", F4, shape=(size,), address_space=lp.AddressSpace.LOCAL)
    body = "t[i] = a[i] {id=t}\nout[i] = t[15-i] {dep=t}"
    unit = made("{[i]: 0<=i<16}", body, "a,out f32 16", held, assumptions="")
    return lp.tag_inames(unit, {"i": "l.0"})


def _tall() -> Any:
    unit = made("{[i,j]: 0<=i<n and 0<=j<2}", "out[i, j] = 1", "out f32 n,2; n i32")
    return lp.tag_inames(unit, {"i": "g.1", "j": "g.0"})


@pytest.mark.parametrize(
    ("build", "n", "said"),
    [
        (lambda: _local(2**14), 16, "65536 byte of local memory"),
        (lambda: double(2048), 2048, "up to 1024"),
        (_tall, 70000, "launches up to"),
        (lambda: _doubled("out[i] = frobnicate(a[i])"), 64, "frobnicate"),
    ],
    ids=["local memory", "group", "grid", "Loopy cannot express it"],
)
def test_what_a_gpu_does_not_run(runner: KernelRunner, build: Any, n: int, said: str) -> None:
    case = make_loopy_case("strange", build, check_parameters={"n": n}, make_arguments=None)
    with pytest.raises(KernelBuildError, match=said):
        runner.check(case)


def test_a_grid_that_narrow_indices_cannot_number() -> None:
    handle = SimpleNamespace(max_grid=(2**31 - 1, 65535, 65535))
    session: Any = SimpleNamespace(handle=handle, device=make_device("cuda:0", "g"))
    check_grid(session, GeneratedLaunch("k", (2**25 - 1,), (64,), ()), 2**31 - 1)
    with pytest.raises(KernelBuildError, match=r"2147483648 work items .* index_dtype=np\.int64"):
        check_grid(session, GeneratedLaunch("k", (2**25,), (64,), ()), 2**31 - 1)


CASES = in_mixed_order(make_loopy_case(kernel) for kernel in ("one", "two", "three"))
FIRST, SECOND, LAST = (case.kernel for case in CASES)


@pytest.mark.parametrize(
    ("call", "error", "stage", "said"),
    [
        ("compile", CompileException("k.cu(3): error: no"), "build", "error: no"),
        ("launch", CUDADriverError(701, "CUDA_ERROR: too many resources"), "run", "too many"),
        ("malloc", NO_MEMORY, "run", "not enough memory"),
    ],
    ids=["build", "launch", "out of memory"],
)
def test_failures_that_the_campaign_survives(
    runner: Any, cupy: FakeCupy, tmp_path: Path, call: str, error: Any, stage: str, said: str
) -> None:
    cupy.failures[call] = error
    found = measure(CASES, store=tmp_path / "s.jsonl", protocol=SHORT, runner=runner)
    (failure,) = found.failures
    assert (failure.kernel, failure.stage) == (FIRST, stage)
    assert said in failure.reason
    assert [entry.kernel for entry in found.measurements] == [SECOND, LAST]
    assert found.header.environment.versions["cuda_driver"] == "13010"


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


def test_without_cupy_or_a_driver_the_mend_is_given(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    cupy.failures["count"] = CUDARuntimeError(35, "cudaErrorX: it says")
    monkeypatch.setattr(cuda_backend, "has_nvidia_gpu", lambda: True)
    without = "CuPy is there, but CUDA does not start: cudaErrorX: it says"
    for load, problem, advice in (
        (broken, "CuPy is not installed", "pip install countperf[cuda]"),
        (lambda _: cupy, without, "install NVIDIA's driver"),
        (lambda _: FakeCupy(tmp_path, count=0), "CUDA finds no GPU", "install NVIDIA's driver"),
    ):
        found = CudaBackend(lambda load=load: load_driver(load)).discover()
        assert (found.devices, found.label_prefix, found.is_expected) == ((), "cuda", True)
        assert found.problem.startswith(problem)
        assert advice in found.advice


ABSENT = Findings(label_prefix="cuda", problem="CuPy is not installed", advice="pip install it")


def _discovery(**changes: Any) -> Discovery:
    return Discovery((Findings(problem="no OpenCL", advice="get it"), replace(ABSENT, **changes)))


def test_an_expected_gpu_is_part_of_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "discover", _discovery)
    with pytest.raises(DeviceError, match="no device 'cuda:0': CuPy is not installed; pip install"):
        find_device("cuda:0")
    for expected in (True, False):
        found = _discovery(is_expected=expected)
        monkeypatch.setattr(devices, "discover", lambda found=found: found)
        with pytest.raises(DeviceError) as caught:
            find_device()
        assert ("CuPy is not installed" in str(caught.value)) is expected


def test_errors_of_cuda_become_ours(gpu: Device, cupy: FakeCupy) -> None:
    session = CudaSession(gpu)
    program = session.load("KERNEL nothing(GLOBAL float *a) { }")
    with pytest.raises(KernelBuildError, match="NOT_FOUND"):
        program("something", 1, 1, ())
    cupy.failures["synchronize"] = CUDARuntimeError(1, "cudaErrorInvalidValue: no")
    with pytest.raises(MeasurementError, match="InvalidValue"):
        session.finish()
