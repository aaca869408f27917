"""Microbenchmarks on a device whose parameters are known, on PoCL, and what nvcc makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.devices.device import CUDA_PRELUDE, Device
from countperf.devices.discovery import open_session
from countperf.devices.identity import DeviceType
from countperf.devices.nvcc import find_program, run_nvcc
from countperf.errors import MeasurementError
from countperf.measuring import characterization
from countperf.measuring.characterization import (
    CHAINS,
    COMMON_SOURCE,
    FULL,
    INSTRUCTION_TESTS,
    QUICK,
    UNROLLED,
    Bench,
    Characterization,
    Finding,
    characterize,
    chase_order,
    time_per_turn,
)
from tests.devices.nvcc_batches import compile_sources
from tests.devices.synthetic_gpu import SyntheticClock, SyntheticSession, Truth

EFFORT = replace(
    QUICK,
    array_bytes=2**24,
    repetitions=2,
    tries=1,
    classes=("fma.f32", "add.s32", "rsqrt.f32", "mul.f64", "fma.f64"),
)


def run(truth: Truth, session: Any = None, **more: Any) -> Characterization:
    session = session or SyntheticSession(truth)
    return characterize(session, clock=SyntheticClock(session), effort=EFFORT, **more)


@pytest.fixture(scope="module")
def found() -> Characterization:
    return run(Truth())


def _without_stated_clock(device_type: DeviceType) -> Bench:
    session = SyntheticSession(Truth(), device_type)
    limits = replace(session.device.limits, max_clock_mhz=0)
    session.device = replace(session.device, limits=limits)
    return Bench(session, SyntheticClock(session), EFFORT)


def test_where_the_driver_states_no_clock_processors_have_that_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(characterization, "read_clocks", lambda: {"cpu": 2600.0})
    assert _without_stated_clock("cpu").clock_hz == pytest.approx(2.6e9)
    with pytest.raises(MeasurementError, match="no cycle counter, and its driver states no clock"):
        _ = _without_stated_clock("gpu").clock_hz


def find(found: Characterization, name: str) -> Finding:
    return next(finding for finding in found.findings if finding.name == name)


def value(found: Characterization, name: str) -> float:
    finding = find(found, name)
    assert finding.is_plausible, finding.remark
    assert finding.kernel
    return finding.value


TRUTH = Truth()
_SHARE = TRUTH.bandwidth / TRUTH.units / TRUTH.clock_hz  # of a compute unit, byte a cycle
# cost and latency of classes; bytes per second = units * sub-group * bytes / cpi * clock (the
# source's table 6)
CLASSES = {
    **{name: (*TRUTH.cost(name), "compute", 1e-3) for name in EFFORT.classes},
    "ld.global.s32": (32 * 4 / _SHARE, TRUTH.memory_latency, "memory", 0.05),
    "ld.local.s32": (*TRUTH.local, "compute", 1e-3),
    "bar.sync": (*TRUTH.barrier, "barrier", 1e-3),
}


@pytest.mark.parametrize("name", CLASSES)
def test_cost_and_latency_of_a_class(found: Characterization, name: str) -> None:
    cpi, latency, kind, exactness = CLASSES[name]
    measured = found.parameters.classes[name]
    assert measured.cpi == pytest.approx(cpi, rel=exactness)
    assert measured.latency == pytest.approx(latency, rel=1e-3)
    assert measured.kind == kind
    assert measured.source.startswith("measured, spread")


@pytest.mark.parametrize(
    ("field", "wanted", "exactness"),
    [
        *(("bandwidth_byte_per_s", TRUTH.bandwidth, 0.05), ("cache_line_bytes", 64, 0)),
        *(("clock_hz", 1e9, 0.01), ("launch_overhead_s", TRUTH.overhead_s, 1e-6)),
        *(("issue_cycles", 0.25, 0.01), ("cores_per_compute_unit", 32 / 0.25, 0)),
        ("mem_ld_cycles", 600, 1e-3),
        # 128 byte of each unit's share of the bandwidth; a line of 32 byte for each of 32 items
        ("departure_del_coal_cycles", 128 / _SHARE, 0.05),
        ("departure_del_uncoal_cycles", 32 / _SHARE, 0.15),
    ],
)
def test_constants_of_the_device(
    found: Characterization, field: str, wanted: float, exactness: float
) -> None:
    assert getattr(found.parameters, field) == pytest.approx(wanted, rel=exactness)
    assert found.parameters.source_of(field)


def test_findings_links_and_what_is_not_measured(found: Characterization) -> None:
    assert value(found, "memory latency") == pytest.approx(TRUTH.memory_latency, rel=1e-3)
    assert value(found, "load bandwidth stride 32") == pytest.approx(1e11 / 8, rel=0.15)
    assert "counter" in found.parameters.source_of("clock_hz")
    links: Any = found.parameters.links
    for direction, wanted in (("h2d", TRUTH.h2d), ("d2h", TRUTH.d2h)):
        link = links[direction]
        assert (link.startup_s, link.bandwidth_byte_per_s) == pytest.approx(wanted, rel=1e-3)
    assert {found.parameters.classes[name].subsystem for name in EFFORT.classes} == {"alu"}
    assert found.parameters.issue_limit is None
    assert "'subsystem' and 'issue_limit'" in found.left_out["pipelines"]
    assert "left out: pipelines: which classes" in str(found)


def test_on_a_cpu_what_makes_no_sense_is_left_out_by_name() -> None:
    characterized = run(Truth(), SyntheticSession(Truth(), "cpu"))
    assert {*characterized.left_out} == {"pipelines", "local memory", "barriers", "transfers"}
    names = [finding.name for finding in characterized.findings]
    assert names[:3] == ["launch overhead", "clock", "copy bandwidth"]


def test_a_broken_experiment_is_named_and_the_others_go_on() -> None:
    session = SyntheticSession(Truth())
    session.broken = {"barriers"}
    characterized = run(Truth(), session)
    assert characterized.left_out.pop("pipelines")
    assert characterized.left_out == {"barriers": "barriers does not run"}
    assert {"local cpi", "h2d bandwidth"} <= {each.name for each in characterized.findings}


def test_a_number_that_cannot_be_is_marked_and_not_used() -> None:
    characterized = run(Truth(costs={"fma.f32": (0.01, 0.05)}))
    finding = find(characterized, "fma.f32 cpi")
    assert not finding.is_plausible
    assert "not between 0.125" in finding.remark
    assert "fma.f32" not in characterized.parameters.classes


def test_what_would_begin_too_late_is_left_out(tmp_path: Path) -> None:
    characterized = run(Truth(), max_seconds=0.0)  # only what begins at once
    assert [finding.name for finding in characterized.findings] == ["launch overhead"]
    assert characterized.left_out["bandwidth"] == "no time was left"
    characterized.write_file(tmp_path / "device.json")
    assert Characterization.read_file(tmp_path / "device.json") == characterized


_SHORT = replace(EFFORT, shortest_s=1e-5, array_bytes=2**20, classes=("fma.f32", "add.s32"))


@pytest.mark.device
def test_a_real_device(device: Device) -> None:
    characterized = characterize(open_session(device), effort=replace(_SHORT, shortest_s=1e-4))
    names = {finding.name for finding in characterized.findings}
    assert {"launch overhead", "fma.f32 latency", "fma.f32 cpi", "add.s32 cpi"} <= names
    assert {"copy bandwidth", "memory latency"} & names
    if device.identity.device_type == "cpu":
        assert "transfers" in characterized.left_out


@pytest.mark.device
def test_what_is_for_gpus_runs_as_well(device: Device) -> None:
    session = open_session(device)
    identity = device.identity.model_copy(update={"device_type": "gpu"})
    limits = replace(device.limits, sub_group_size=32, max_group_size=256, max_clock_mhz=2000)
    session.device = replace(device, identity=identity, limits=limits)
    characterized = characterize(session, effort=_SHORT)
    left_out = {n: why for n, why in characterized.left_out.items() if n != "pipelines"}
    assert all("take no longer" in reason for reason in left_out.values()), left_out
    names = {finding.name for finding in characterized.findings}
    assert {"local latency", "barrier latency", "barrier cpi", "h2d bandwidth"} <= names


_TESTS = {test.name: test for test in INSTRUCTION_TESTS}
SOURCES = {
    "common": COMMON_SOURCE,
    **{name: t.source(1) + t.source(CHAINS) for name, t in _TESTS.items()},
}
needs_nvcc = pytest.mark.skipif(find_program("nvcc") is None, reason="no nvcc (the extra 'nvcc')")


@needs_nvcc
@pytest.mark.parametrize("capability", [pytest.param("7.5", marks=pytest.mark.nightly), "9.0"])
def test_nvcc_takes_the_microbenchmarks(capability: str) -> None:
    sources = {name: CUDA_PRELUDE + source for name, source in SOURCES.items()}
    compiled = compile_sources(sources, capability)
    assert all(compiled[name] for name in SOURCES)
    kernels = [resources for several in compiled.values() for resources in several.values()]
    assert not any(resources.spill_bytes for resources in kernels)


@needs_nvcc
def test_the_compiler_leaves_every_step_in() -> None:
    instructions = {
        **{"add.f32": "add.f32", "mul.f32": "mul.f32", "fma.f32": "fma.rn.f32"},
        **{"add.s32": "xor.b32", "mul.s32": "mul.lo.s32", "fma.f64": "fma.rn.f64"},
    }
    source = CUDA_PRELUDE + "".join(_TESTS[name].source(1) for name in instructions)
    _, ptx = run_nvcc(source, "9.0", "-ptx")
    texts = ptx.decode().split(".entry ")[1:]
    assert len(texts) == len(instructions)
    for text, instruction in zip(texts, instructions.values(), strict=True):
        steps = text.count(f"\t{instruction} ") + text.count(f"\t{instruction}\t")
        assert steps >= UNROLLED, instruction


def test_a_chase_visits_every_line_once() -> None:
    following = chase_order(64)
    word, seen = 0, set[int]()
    for _ in range(64):
        seen.add(word)
        word = int(following[word])
    assert word == 0
    assert seen == {32 * line for line in range(64)}


def test_launching_and_other_load_do_not_count() -> None:
    random, calls = np.random.default_rng(0), list[int]()

    def quiet(turns: int) -> float:
        calls.append(turns)
        return 5e-6 + 2e-8 * turns

    def busy(turns: int) -> float:
        return quiet(turns) + float(random.exponential(1e-5))

    turn = time_per_turn(quiet, replace(FULL, shortest_s=1e-4))
    assert turn == pytest.approx((2e-8, 0), abs=1e-14)
    assert 5e-6 + 2e-8 * max(calls) / 3 >= 1e-4
    turn = time_per_turn(busy, replace(FULL, tries=5))
    assert turn[0] == pytest.approx(2e-8, rel=0.05)
