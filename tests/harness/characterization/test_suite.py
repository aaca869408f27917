"""Microbenchmarks on a device whose parameters are known, on PoCL, and what nvcc makes of them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from countperf.documents.locks import locked
from countperf.errors import MeasurementError
from countperf.harness.characterization import bench as bench_module
from countperf.harness.characterization.bench import QUICK, Bench, Characterization
from countperf.harness.characterization.experiments import FAST, MIX_RATIOS, MIXED
from countperf.harness.characterization.kernels import (
    CHAINS,
    COMMON_SOURCE,
    INSTRUCTION_TESTS,
    UNROLLED,
    chain_source,
    mix_source,
)
from countperf.harness.characterization.suite import characterize
from countperf.harness.device import CUDA_PRELUDE, Device
from countperf.harness.devices import open_session
from countperf.harness.nvcc import compile_sources, find_nvcc
from tests.harness.characterization.synthetic import SyntheticClock, SyntheticSession, Truth

EFFORT = replace(
    QUICK,
    array_bytes=2**24,
    repetitions=2,
    tries=1,
    classes=("fma.f32", "add.s32", "rsqrt.f32", "mul.f64", "fma.f64", "cvt.f64.f32"),
)


def run(truth: Truth, **more: object) -> Characterization:
    session = SyntheticSession(truth)
    return characterize(session, clock=SyntheticClock(session), effort=EFFORT, **more)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def found() -> Characterization:
    return run(Truth())


def test_what_is_in_cycles_is_left_out_where_no_clock_is_known() -> None:
    session = SyntheticSession(Truth())
    limits = replace(session.device.limits, max_clock_mhz=0)
    session.device = replace(session.device, limits=limits)
    bench = Bench(session, SyntheticClock(session), EFFORT)

    with pytest.raises(MeasurementError, match="no cycle counter, and its driver states no clock"):
        _ = bench.clock_hz


def test_processors_whose_driver_states_no_clock_have_that_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_module, "read_clocks", lambda: {"cpu": 2600.0})
    session = SyntheticSession(Truth(), device_type="cpu")
    limits = replace(session.device.limits, max_clock_mhz=0)
    session.device = replace(session.device, limits=limits)

    bench = Bench(session, SyntheticClock(session), EFFORT)

    assert bench.clock_hz == pytest.approx(2.6e9)


def value(found: Characterization, name: str) -> float:
    finding = found.find(name)
    assert finding is not None
    assert finding.is_plausible, finding.remark
    assert finding.kernel
    return finding.value


@pytest.mark.parametrize("name", EFFORT.classes)
def test_cost_and_latency_of_a_class(found: Characterization, name: str) -> None:
    cpi, latency = Truth().cost(name)

    measured = found.parameters.classes[name]

    assert measured.cpi == pytest.approx(cpi, rel=1e-3)
    assert measured.latency == pytest.approx(latency, rel=1e-3)
    assert measured.source.startswith("measured, spread")


def test_memory(found: Characterization) -> None:
    truth = Truth()

    assert value(found, "memory latency") == pytest.approx(truth.memory_latency, rel=1e-3)
    memory = found.parameters.classes["ld.global.s32"]
    assert memory.kind == "memory"
    assert memory.latency == pytest.approx(truth.memory_latency, rel=1e-3)
    # the source's table 6: bytes per second = units * sub-group * bytes / cpi * clock
    rate = truth.units * 32 * 4 / memory.cpi * truth.clock_hz
    assert rate == pytest.approx(truth.bandwidth, rel=0.05)


def test_bandwidth_and_what_moves_together(found: Characterization) -> None:
    parameters = found.parameters

    assert parameters.bandwidth_byte_per_s == pytest.approx(1e11, rel=0.05)
    assert parameters.cache_line_bytes == 32
    assert value(found, "load bandwidth stride 2") == pytest.approx(5e10, rel=0.05)


def test_local_memory_and_barriers(found: Characterization) -> None:
    local, barrier = (found.parameters.classes[name] for name in ("ld.local.s32", "bar.sync"))

    assert (local.cpi, local.latency) == pytest.approx((1.0, 25.0), rel=1e-3)
    assert barrier.latency == pytest.approx(19.0, rel=1e-3)
    assert barrier.kind == "barrier"


def test_the_clock_is_the_devices_own(found: Characterization) -> None:
    assert found.parameters.clock_hz == pytest.approx(1e9, rel=0.01)
    assert "counter" in found.parameters.source_of("clock_hz")


def test_launch_overhead_and_links(found: Characterization) -> None:
    truth = Truth()

    assert found.parameters.launch_overhead_s == pytest.approx(truth.overhead_s)
    for direction, (startup, bandwidth) in (("h2d", truth.h2d), ("d2h", truth.d2h)):
        link = found.parameters.links[direction]  # pyright: ignore[reportArgumentType]
        assert link.startup_s == pytest.approx(startup, rel=1e-3)
        assert link.bandwidth_byte_per_s == pytest.approx(bandwidth, rel=1e-3)


def test_pipelines_without_an_issue_limit(found: Characterization) -> None:
    assert found.parameters.issue_limit is None
    assert found.parameters.classes["add.s32"].subsystem == "alu"
    assert found.parameters.classes["rsqrt.f32"].subsystem == "rsqrt_f32"
    assert found.parameters.classes["fma.f32"].subsystem == "alu"


def test_an_issue_limit_is_found() -> None:
    truth = Truth(issue_limit=2.0)

    found = run(truth)

    assert found.parameters.issue_limit == pytest.approx(2.0, rel=0.02)


def test_constants_of_the_older_models_follow(found: Characterization) -> None:
    truth, parameters = Truth(), found.parameters
    cpi, _ = truth.cost("fma.f32")

    assert parameters.issue_cycles == pytest.approx(cpi, rel=0.01)
    assert parameters.cores_per_compute_unit == round(32 / cpi)
    assert parameters.latency_steps == pytest.approx(truth.memory_latency, rel=0.01)
    # 128 byte of each unit's share of the bandwidth; a line of 32 byte for each of 32 items; rates
    # are as exact as in the tests above
    share = truth.bandwidth / truth.units / truth.clock_hz
    assert parameters.departure_del_coal_cycles == pytest.approx(128 / share, rel=0.05)
    assert parameters.departure_del_uncoal_cycles == pytest.approx(32 / share, rel=0.05)


def test_on_a_cpu_what_makes_no_sense_is_left_out_by_name() -> None:
    session = SyntheticSession(Truth(), "cpu")

    found = characterize(session, clock=SyntheticClock(session), effort=EFFORT)

    assert set(found.left_out) == {"local memory", "barriers", "mixes", "transfers"}
    assert found.finished[:3] == ("launch overhead", "clock", "bandwidth")


def test_a_broken_experiment_is_named_and_the_others_go_on() -> None:
    session = SyntheticSession(Truth())
    session.broken = {"barriers"}

    found = characterize(session, clock=SyntheticClock(session), effort=EFFORT)

    assert found.left_out == {"barriers": "barriers does not run"}
    assert {"local memory", "mixes", "transfers"} <= {*found.finished}


def test_a_number_that_cannot_be_is_marked_and_not_used() -> None:
    truth = Truth(costs={"fma.f32": (0.01, 0.05)})

    found = run(truth)

    finding = found.find("fma.f32 cpi")
    assert finding is not None
    assert not finding.is_plausible
    assert "at most 8 starts per cycle" in finding.remark
    assert "fma.f32" not in found.parameters.classes


def test_it_resumes_and_keeps_what_is_finished(tmp_path: Path) -> None:
    store = tmp_path / "device.json"
    first = run(Truth(), store=store, max_seconds=0.0)  # only what begins at once
    assert first.finished == ("launch overhead",)
    assert first.left_out["bandwidth"] == "no time was left"

    second = run(Truth(), store=store)

    assert second.finished[:2] == ("launch overhead", "clock")
    assert Characterization.read_file(store) == second
    assert second.findings[: len(first.findings)] == first.findings


def test_a_file_of_another_device_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "device.json"
    run(Truth(), store=store, max_seconds=0.0)

    with pytest.raises(MeasurementError, match="use another file"):
        run(Truth(units=5), store=store)


@pytest.mark.device
def test_a_real_device(device: Device) -> None:
    effort = replace(
        QUICK, shortest_s=1e-4, array_bytes=2**22, repetitions=2, tries=1,
        classes=("fma.f32", "add.s32"),
    )  # fmt: skip

    found = characterize(open_session(device), effort=effort)

    names = {finding.name for finding in found.findings}
    assert {"launch overhead", "fma.f32 latency", "fma.f32 cpi", "add.s32 cpi"} <= names
    assert {"copy bandwidth", "memory latency"} & names
    if device.identity.device_type == "cpu":
        assert "transfers" in found.left_out


@pytest.mark.device
def test_what_is_for_gpus_runs_as_well(device: Device) -> None:
    session = open_session(device)
    identity = device.identity.model_copy(update={"device_type": "gpu"})
    limits = replace(device.limits, sub_group_size=32, max_group_size=256, max_clock_mhz=2000)
    session.device = replace(device, identity=identity, limits=limits)  # pyright: ignore[reportAttributeAccessIssue]
    effort = replace(
        QUICK, shortest_s=1e-5, array_bytes=2**20, repetitions=1, tries=1,
        classes=("fma.f32", "add.s32"),
    )  # fmt: skip

    found = characterize(session, effort=effort)

    assert all("take no longer" in reason for reason in found.left_out.values()), found.left_out
    names = {finding.name for finding in found.findings}
    assert {"local latency", "barrier latency", "barrier cpi", "h2d bandwidth"} <= names


SOURCES = {
    "common": CUDA_PRELUDE + COMMON_SOURCE,
    **{
        test.name: CUDA_PRELUDE + chain_source(test, 1) + chain_source(test, CHAINS)
        for test in INSTRUCTION_TESTS
    },
    **{
        f"mix with {test.name}": CUDA_PRELUDE
        + "".join(
            mix_source(next(t for t in INSTRUCTION_TESTS if t.name == FAST), test, ratio)
            for ratio in MIX_RATIOS
        )
        for test in INSTRUCTION_TESTS
        if test.name in MIXED
    },
}


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc (the extra 'nvcc')")
@pytest.mark.parametrize("capability", ["7.5", "9.0"])
def test_nvcc_takes_the_microbenchmarks(capability: str) -> None:
    found = compile_sources(SOURCES, capability)

    assert all(found[name] for name in SOURCES)
    assert not any(
        resources.spill_bytes for kernels in found.values() for resources in kernels.values()
    )


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc (the extra 'nvcc')")
@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("add.f32", "add.f32"),
        ("mul.f32", "mul.f32"),
        ("fma.f32", "fma.rn.f32"),
        ("add.s32", "xor.b32"),
        ("mul.s32", "mul.lo.s32"),
        ("fma.f64", "fma.rn.f64"),
        ("cvt.s32.f32", "cvt.rzi.s32.f32"),
        ("cvt.f64.f32", "cvt.rn.f32.f64"),
    ],
)
def test_the_compiler_leaves_every_step_in(name: str, instruction: str, tmp_path: Path) -> None:
    test = next(each for each in INSTRUCTION_TESTS if each.name == name)
    path = tmp_path / "chain.cu"
    path.write_text(CUDA_PRELUDE + chain_source(test, 1))

    subprocess.run(
        [str(find_nvcc()), "-arch=sm_90", "-ptx", str(path), "-o", str(path.with_suffix(".ptx"))],
        check=True,
    )

    text = path.with_suffix(".ptx").read_text()
    assert text.count(f"\t{instruction} ") + text.count(f"\t{instruction}\t") >= UNROLLED


def test_another_run_into_the_same_file_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "found.json"
    with locked(store), pytest.raises(MeasurementError, match="in use"):
        run(Truth(), store=store)

    assert list(tmp_path.iterdir()) == []
