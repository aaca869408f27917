"""Campaigns: every case is measured once, whatever happens."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countperf.api import catalogue as measuring
from countperf.api.evaluation import recount
from countperf.counting.count_properties import count_kernel
from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.counting.vector import PropertyVector
from countperf.errors import (
    CountingError,
    DocumentError,
    KernelBuildError,
    MeasurementError,
    OutputError,
    WrongResultError,
)
from countperf.measuring import Measurement, MeasurementSet
from countperf.measuring.campaign import measure, rewrite_file
from countperf.measuring.runner import KernelRunner
from countperf.steps import listening
from countperf.store import lock_file
from measurement_kernels import catalog
from tests.devices.fakes import PROTOCOL, FakeRunner, make_case, make_device

RULES = f'"counting_rules": {COUNTING_RULES_VERSION}'

CASES = [make_case(kernel, n) for kernel in ("a", "b") for n in (16, 32)]
NAMES = [case.name for case in CASES]
IN_USE = "in use by another campaign"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "store.jsonl"


def _measure(store: Path, runner: FakeRunner, **more: Any) -> MeasurementSet:
    return measure(CASES, store=store, runner=runner, protocol=PROTOCOL, **more)


def test_each_case_gets_its_rounds_and_every_sample_is_kept(store: Path) -> None:
    runner = FakeRunner(lambda _, turn, run: 1e-3 * (1 + turn * 0.01 + (5 if run == 0 else 0)))
    found = _measure(store, runner)
    assert [entry.case for entry in found] == NAMES
    assert runner.rounds == [*NAMES, *NAMES]  # those of a case are apart
    first = found.measurements[0]
    assert first.samples_s[0] == pytest.approx((6e-3, 1e-3, 1e-3, 1e-3))
    assert first.samples_s[1] == pytest.approx((6.01e-3, 1.01e-3, 1.01e-3, 1.01e-3))
    assert first.time_s == pytest.approx(1e-3)
    assert first.noise_floor == pytest.approx(0.005)
    assert first.host_overhead_s == pytest.approx(1e-5)
    assert first.stable
    assert first.clocks_agree
    assert MeasurementSet.read_file(store) == found


def _first(measured: MeasurementSet) -> Measurement:
    """Return the measurement of the first case, which alone may be unstable."""
    (first,) = (entry for entry in measured if entry.case == NAMES[0])
    assert all(entry.stable for entry in measured if entry is not first)
    return first


@pytest.mark.parametrize(("times", "stable"), [((2, 1, 1), True), ((1, 2, 4), False)])
def test_an_unstable_case_is_measured_again_later_and_may_become_stable(
    store: Path, times: tuple[int, ...], stable: bool
) -> None:
    runner = FakeRunner(lambda case, turn, _: 1e-3 * (times[turn] if case == NAMES[0] else 1))
    began = runner.clock.now()
    first = _first(_measure(store, runner))
    assert runner.rounds == [*NAMES, *NAMES, NAMES[0]]
    assert [runs[0] for runs in first.samples_s] == [1e-3 * time for time in times]
    assert first.stable == stable
    assert runner.clock.now() - began > PROTOCOL.separation_s


def test_a_case_beside_busy_programs_is_measured_again_and_says_so(store: Path) -> None:
    began = FakeRunner().clock.now()
    for calm_s, stable in ((5.0, True), (1e6, False)):  # until when they keep one core busy
        runner = FakeRunner(lambda *_: 0.6)
        runner.others_s = lambda runner=runner, calm_s=calm_s: min(
            runner.clock.now() - began, calm_s
        )
        measured = _measure(store.with_name(f"{stable}.jsonl"), runner)
        entry = next(entry for entry in measured if entry.case == NAMES[0])
        assert entry.stable == stable
        rounds = PROTOCOL.rounds + (0 if stable else PROTOCOL.extra_rounds)
        assert len(entry.samples_s) == rounds
        number = 1 if stable else rounds
        assert entry.remarks == (f"other programs kept cores busy in {number} of {rounds} rounds",)


@pytest.mark.parametrize(
    ("copies_s", "times", "remark"),
    [
        ((1.0, 1.0), (1, 2), ""),
        ((1.3, 1.1, 1.0), (2, 3), ""),  # the first round is left out
        ((1.0, 1.3, 1.3), (1,), ""),  # one is enough
        ((1.4, 1.3, 1.2), (1, 2, 3), "memory was 1.2 times slower in all rounds than at its best"),
    ],
)
def test_rounds_beside_slow_memory_are_repeated_and_left_out(
    store: Path, copies_s: tuple[float, ...], times: tuple[int, ...], remark: str
) -> None:
    """Times of the first case depend on the round: the first takes 1 ms, the second 2 ms."""
    runner = FakeRunner(lambda case, turn, _: 1e-3 * (1 + turn if case == NAMES[0] else 1))

    def probe() -> tuple[float, ...]:
        turn = runner.rounds.count(NAMES[0]) - 1
        is_first = runner.rounds[-1:] == [NAMES[0]]
        return (1e-4, 2e-4 * (copies_s[turn] if is_first else 1.0))

    runner.memory_s = probe
    protocol = PROTOCOL.with_values(noise_limit=2.0)
    measured = measure(CASES, store=store, runner=runner, protocol=protocol)
    entry = next(entry for entry in measured if entry.case == NAMES[0])
    assert runner.rounds.count(NAMES[0]) == len(copies_s)
    assert [round(1e3 * min(runs)) for runs in entry.samples_s] == [*times]
    assert entry.remarks == ((remark,) if remark else ())
    assert [memory_s[1] for memory_s in entry.memory_s] == pytest.approx(
        [2e-4 * copies_s[time - 1] for time in times]
    )
    assert entry.noise >= (math.log(1.2) if remark else 0.0)


def test_a_resumed_campaign_knows_the_best_state_of_memory(store: Path) -> None:
    for copies_s, remarks in ((1e-4, set()), (2e-4, {"memory was 2.0 times slower"})):
        runner = FakeRunner()
        runner.memory_s = lambda copies_s=copies_s: (copies_s,)
        cases = CASES[:2] if not remarks else CASES
        measured = measure(cases, store=store, runner=runner, protocol=PROTOCOL)
        said = {" ".join(r.split()[:5]) for entry in measured for r in entry.remarks}
        assert said == remarks


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (WrongResultError("wrong numbers"), "check"),
        (KernelBuildError("no"), "build"),
        (MeasurementError("out of memory"), "run"),
    ],
)
def test_a_kernel_that_fails_is_recorded_and_the_others_go_on(
    store: Path, error: MeasurementError, stage: str
) -> None:
    runner = FakeRunner(broken={"a": error})
    found = _measure(store, runner)
    assert [entry.case for entry in found] == ["b/n=16", "b/n=32"]
    failed = [(entry.case, entry.stage, entry.reason) for entry in found.failures]
    assert failed == [(name, stage, str(error)) for name in ("a/n=16", "a/n=32")]
    assert runner.checked.count("a") == 1
    runner = FakeRunner()  # nothing is run again
    assert [entry.case for entry in _measure(store, runner)] == ["b/n=16", "b/n=32"]
    assert runner.rounds == runner.checked == []


def test_a_timer_without_ticks_is_a_failure(store: Path) -> None:
    found = _measure(store, FakeRunner(lambda case, *_: 0.0 if case == "a/n=16" else 1e-3))
    ((name, reason),) = ((entry.case, entry.reason) for entry in found.failures)
    assert name == "a/n=16"
    assert "a time of zero" in reason


def test_a_campaign_resumes_after_any_cut(store: Path) -> None:
    _measure(store, FakeRunner())
    whole = store.read_bytes()
    for cut in range(0, len(whole), len(whole) // 23):
        store.write_bytes(whole[:cut])
        kept = whole[: cut + 1].count(b"\n") - 1
        runner = FakeRunner()
        found = _measure(store, runner)
        assert sorted(entry.case for entry in found) == NAMES
        assert len(set(runner.rounds)) == 4 - max(0, kept)


_KILLED = """
import os, signal, sys
from pathlib import Path
from countperf.steps import listening
from tests.devices.fakes import FakeRunner
from tests.measuring.test_campaign import _measure

store = Path(sys.argv[1])

def kill(work, done, total):
    if done == 3:
        with store.open("ab") as file:
            file.write(b'{"case": "torn')
        os.kill(os.getpid(), signal.SIGKILL)

with listening(kill):
    _measure(store, FakeRunner())
"""


def test_a_killed_campaign_resumes_and_repeats_nothing(store: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(store)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    finished = {entry.case for entry in MeasurementSet.read_file(store)}
    runner = FakeRunner()
    found = _measure(store, runner)
    assert killed.returncode == -signal.SIGKILL
    assert len(finished) == 3
    assert set(runner.rounds) == set(NAMES) - finished
    assert all(len(entry.samples_s) == PROTOCOL.rounds for entry in found)
    assert len(found.resumptions) == 1
    assert [path.name for path in store.parent.glob("[!.]*")] == [store.name]
    assert sorted(entry.case for entry in found) == NAMES
    assert MeasurementSet.read_file(store) == found


@pytest.mark.parametrize(
    ("device", "changes", "said"),
    [
        ({"name": "other"}, {}, "Abacus' there and 'other' now"),
        ({"driver_version": "2"}, {}, "driver_version is '1'"),
        ({}, {"protocol": PROTOCOL.with_values(runs=9)}, "protocol's runs is 4 there and 9 now"),
        ({}, {"cases": [make_case("a", 16, parameters={"n": 17})]}, "a/n=16 was measured at "),
    ],
    ids=["device", "driver", "protocol", "sizes"],
)
def test_a_store_of_other_measurements_is_refused(
    store: Path, device: dict[str, str], changes: dict[str, Any], said: str
) -> None:
    _measure(store, FakeRunner())
    before, runner = store.read_bytes(), FakeRunner()
    runner.identity = runner.identity.model_copy(update=device)
    given: dict[str, Any] = {"cases": CASES, "protocol": PROTOCOL, **changes}
    with pytest.raises(MeasurementError, match=rf"{said}.*use another file"):
        measure(store=store, runner=runner, **given)
    assert store.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    ['{"my": "notes"}\n', "my notes", '{"format": "poem"}', '{"format": "countperf- of a day\n'],
)
def test_a_foreign_file_is_refused_and_left_alone(store: Path, text: str) -> None:
    store.parent.mkdir()
    store.write_text(text)
    with pytest.raises(DocumentError):
        _measure(store, FakeRunner())
    assert store.read_text() == text


def test_two_campaigns_do_not_write_to_one_file(store: Path) -> None:
    def start_another(_: str, done: int, __: int | None) -> None:
        if not done:
            with pytest.raises(MeasurementError, match=IN_USE):
                _measure(store, FakeRunner())

    with listening(start_another):
        assert len(_measure(store, FakeRunner())) == 4


def test_two_cases_of_one_name_and_a_file_that_cannot_be_written_are_refused(store: Path) -> None:
    with pytest.raises(MeasurementError, match="two cases are named 'a/n=16'"):
        measure([CASES[0], CASES[0]], store=store, runner=FakeRunner())
    store.parent.touch()
    with pytest.raises(OutputError, match="cannot write "):
        _measure(store, FakeRunner())


def test_each_kernel_is_counted_once_and_its_vector_stored(store: Path) -> None:
    units: list[object] = []

    def count(unit: object) -> PropertyVector:
        units.append(unit)
        return PropertyVector.from_mapping({"flop.add.f32": "[n] -> { n : n > 0 }"})

    cases = [replace(case, build=lambda case=case: f"unit {case.kernel}") for case in CASES]
    found = measure(cases, store=store, runner=FakeRunner(), protocol=PROTOCOL, count=count)
    assert units == ["unit a", "unit b"]
    for entry in found:
        vector = entry.property_vector()
        assert vector is not None
        assert vector.evaluate(entry.parameters)["flop.add.f32"] == entry.parameters["n"]
    store.write_text(store.read_text().replace(RULES, '"counting_rules": 1'))
    with pytest.raises(MeasurementError, match="rules of version 1"):
        _measure(store, FakeRunner(), count=count)


def test_what_data_decides_is_passed_to_counting_and_leaves_estimates(store: Path) -> None:
    kernel = catalog.entry("spmv/banded")
    cases = [kernel.case_at(n=n) for n in (100, 1000)]
    found = measure(cases, store=store, runner=FakeRunner(), protocol=PROTOCOL, count=count_kernel)
    for measured, case in zip(found, cases, strict=True):
        vector = measured.property_vector()
        assert vector is not None
        assert not vector.is_exact
        assert "statistic for 'j'" in vector["gmem.load.32.stride1"].reason
        # 17 in a row, of which both ends lack 8 + ... + 1
        nonzeros = 17 * case.parameters["n"] - 72
        assert vector.evaluate(case.parameters)["gmem.load.32.4ofn"] == 2 * nonzeros


def test_a_kernel_that_cannot_be_counted_is_measured_all_the_same(store: Path) -> None:
    def refuse(unit: object) -> PropertyVector:
        raise CountingError(f"cannot count {unit}")

    found = _measure(store, FakeRunner(), count=refuse)
    assert [entry.properties for entry in found] == [None] * 4
    assert found.measurements[0].remarks == ("not counted: cannot count unit",)


def test_progress_counts_up_and_clocks_that_disagree_are_flagged(store: Path) -> None:
    steps: list[tuple[str, int, int | None]] = []
    runner = FakeRunner(lambda *_: 1.0)
    runner.overhead_s = -0.5
    with listening(lambda *step: steps.append(step)):
        first, *_ = _measure(store, runner)
    assert {(work, total) for work, _, total in steps} == {("measuring", 4)}
    assert [done for _, done, _ in steps] == [0, 0, 0, 0, 0, 1, 2, 3, 4]
    assert not first.clocks_agree
    assert "exceeds the host's" in first.remarks[0]


def test_once_no_case_is_to_begin_those_that_have_begun_are_finished(store: Path) -> None:
    runner = FakeRunner()
    asked: list[bool] = []

    def over(*_: object) -> bool:
        asked.append(len(asked) >= 2)
        return asked[-1]

    found = _measure(store, runner, begin_no_more=over)
    assert [entry.case for entry in found] == NAMES[:2]
    assert Counter(runner.rounds) == dict.fromkeys(NAMES[:2], 2)
    # later it goes on with the next case, in order
    found = _measure(store, runner, begin_no_more=lambda *_: False)
    assert [entry.case for entry in found] == NAMES
    assert Counter(runner.rounds)[NAMES[0]] == 2


def test_no_sizes_are_chosen_while_another_campaign_has_the_store(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = make_device("fake:0", "Abacus")
    monkeypatch.setattr("countperf.api.catalogue.find_device", lambda _: device)
    monkeypatch.setattr(KernelRunner, "open", lambda _: FakeRunner())
    with lock_file(store), pytest.raises(MeasurementError, match=IN_USE):
        measuring.measure_catalogue(store=store, device="fake:0")
    assert not [*store.parent.glob("[!.]*")]


def test_a_file_that_is_written_anew_stays_locked(store: Path) -> None:
    found = _measure(store, FakeRunner())
    with rewrite_file(store) as write:
        for _ in range(3):
            with pytest.raises(MeasurementError, match=IN_USE):
                _measure(store, FakeRunner())
            write(found)
    assert _measure(store, FakeRunner()).measurements == found.measurements
    assert [path.name for path in store.parent.glob("[!.]*")] == ["store.jsonl"]


def test_a_file_that_is_measured_or_missing_is_not_written_anew(store: Path) -> None:
    store.parent.mkdir()
    with pytest.raises(DocumentError, match="No such file"):
        recount(store)
    assert not list(store.parent.iterdir())
    _measure(store, FakeRunner())
    with lock_file(store), pytest.raises(MeasurementError, match=IN_USE):
        recount(store)
