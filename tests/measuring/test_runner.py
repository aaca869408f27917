"""Rounds and their order, and kernels on a real device: built, checked, timed, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.devices.device import Device, EventClock, RunTime, check_clocks
from countperf.errors import KernelBuildError, MeasurementError, WrongResultError
from countperf.measuring import KernelCase, Protocol, summarize
from countperf.measuring.runner import (
    BROAD,
    PROTOCOLS,
    QUICK,
    KernelRunner,
    Repeats,
    Round,
    RoundSchedule,
    compare,
    in_mixed_order,
    time_round,
)
from tests.devices.fakes import PROTOCOL, FakeClock, make_case
from tests.devices.loopy_cases import ROW_SUMS, TWO_LAUNCHES, double, make_loopy_case
from tests.kernels import made

SEPARATION_S = PROTOCOL.separation_s


def _round(*times: float) -> Round:
    return Round(samples_s=times, host_s=times, cut_short=False, disturbed=False)


def test_families_are_mixed_and_cases_of_a_kernel_come_together() -> None:
    kernels = [f"{family}/{number}" for family in ("walks", "stencil") for number in range(50)]
    cases = [make_case(kernel, n) for n in (1, 2) for kernel in kernels]
    mixed = in_mixed_order(cases)
    assert mixed == in_mixed_order(iter(cases))
    assert sorted(case.name for case in mixed[::2]) == sorted(f"{name}/n=1" for name in kernels)
    assert [case.name for case in mixed[1::2]] == [f"{case.kernel}/n=2" for case in mixed[::2]]
    first_half = [case.kernel.partition("/")[0] for case in mixed[: len(mixed) // 2]]
    assert 30 <= first_half.count("walks") <= 70


def test_a_due_round_goes_before_a_fresh_case_and_an_early_one_after() -> None:
    first, second, third = states = [Repeats(make_case(n=n), PROTOCOL) for n in (1, 2, 3)]
    schedule = RoundSchedule(states)
    assert schedule.take(0.0) == (first, 0)
    first.rounds.append(_round(1))
    schedule.again(first, 0.0)
    assert schedule.take(SEPARATION_S / 2) == (second, 0)
    assert schedule.take(SEPARATION_S + 1) == (first, 0)
    assert schedule.take(SEPARATION_S + 2) == (third, 0)
    assert schedule.take(SEPARATION_S + 3) == (None, 0)


def test_second_rounds_need_not_wait_when_nothing_else_is_left_but_extra_ones_do() -> None:
    unstable, early = (Repeats(make_case(n=n), PROTOCOL) for n in (1, 2))
    schedule = RoundSchedule([])
    unstable.rounds += [_round(1), _round(2)]
    early.rounds.append(_round(1))
    schedule.again(unstable, 0.0)
    schedule.again(early, 1.0)
    assert schedule.take(2.0) == (early, 0)
    assert schedule.take(3.0) == (unstable, pytest.approx(SEPARATION_S - 3))
    schedule.again(unstable, 0.0)
    assert schedule.take(SEPARATION_S) == (unstable, 0)


@pytest.mark.parametrize(
    ("rounds", "finished"),
    [
        pytest.param([(9, 1, 1)], False, id="one of two rounds"),
        pytest.param([(9, 1, 1), (9, 1, 1)], True, id="two that agree"),
        pytest.param([(9, 1, 1), (9, 2, 2)], False, id="two that disagree get a third"),
        pytest.param([(9, 1, 2, 2), (9, 1, 2, 2)], False, id="too much spread gets a third"),
        pytest.param([(9, 1, 1), (9, 2, 2), (9, 2, 2)], True, id="no fourth"),
    ],
)
def test_when_a_case_is_finished(rounds: list[tuple[float, ...]], finished: bool) -> None:
    turns = [_round(*times) for times in rounds]
    assert Repeats(case=make_case(), protocol=PROTOCOL, rounds=turns).is_finished() is finished


def _timed(protocol: Protocol, durations: list[float]) -> Round:
    clock = FakeClock(durations)
    run: Callable[[], RunTime] = lambda: clock.time_run(list)  # noqa: E731 - reads as what it is
    return time_round(run, protocol, clock.now)


@pytest.mark.parametrize(
    ("protocol", "durations", "kept"),
    [
        # the first is longer than the time to warm up
        (BROAD.with_values(runs=30, max_seconds=None), range(1, 41), range(2, 32)),
        (PROTOCOLS["paper"], range(1, 41), range(1, 31)),  # 30 runs, however long
        (BROAD.with_values(warm_up_s=0.02, runs=6), [0.0026] * 8 + [0.001] * 6, [0.001] * 6),
        (BROAD.with_values(warm_up_s=0.0, max_seconds=None), range(1, 31), range(1, 9)),
    ],
)
def test_runs_that_warm_up_are_not_kept_and_all_others_are(
    protocol: Protocol, durations: Iterable[float], kept: Iterable[float]
) -> None:
    done = _timed(protocol, list(durations))
    assert done.samples_s == tuple(kept)
    assert not done.cut_short


def test_the_papers_time_is_the_smallest_of_26_runs() -> None:
    times = (*(1e-3, 1e-3, 1e-3, 1e-3), *(k * 1e-3 for k in range(30, 4, -1)))
    paper = PROTOCOLS["paper"]
    state = Repeats(case=make_case(), protocol=paper, rounds=[_timed(paper, list(times))])
    assert state.is_finished()
    assert len(state.runs_that_count) == 26
    assert summarize(state.samples_s, paper.drops).time_s == 5e-3


@pytest.mark.parametrize(
    ("duration", "runs"), [(0.001, 7), (0.06, 5), (10.0, 4)], ids=["all", "in time", "that count"]
)
def test_quick_stops_slow_cases(duration: float, runs: int) -> None:
    done = _timed(QUICK, [duration] * 100)
    assert len(done.samples_s) == runs
    assert done.cut_short is (runs < QUICK.runs)


@pytest.mark.parametrize(
    ("event_s", "host_s", "said"),
    [
        pytest.param(1e-5, 4.6e-5, "", id="PoCL: 36 us to launch and wake up"),
        pytest.param(1e-3, 1.005e-3, "", id="Intel: 5 us"),
        pytest.param(1e-5, 9e-4, "", id="a slow launch, still below 1 ms"),
        pytest.param(1.0, 0.995, "", id="clocks whose rates differ a little"),
        pytest.param(1.0, 1.2, "", id="a busy machine wakes us late"),
        pytest.param(1.1, 1.0, "exceeds the host's", id="an event longer than the host saw"),
        pytest.param(1e-3, 1.0, "far below", id="ticks taken for nanoseconds"),
        pytest.param(1e-6, 2e-3, "far below", id="more than any launch takes"),
    ],
)
def test_clocks_agree_or_not(event_s: float, host_s: float, said: str) -> None:
    # one odd run does not decide
    overhead_s, remark = check_clocks([*[(event_s, host_s)] * 4, (1.0, 5.0)])
    assert overhead_s == pytest.approx(host_s - event_s)
    assert said in remark
    assert bool(said) == bool(remark)


def test_several_launches_last_from_the_first_start_to_the_last_end() -> None:
    waited: list[int] = []
    events = [
        SimpleNamespace(profile=SimpleNamespace(start=s, end=e), wait=lambda: waited.append(1))
        for s, e in ((1000, 2000), (2500, 4000))
    ]
    assert EventClock().time_run(lambda: events).time_s == pytest.approx(3e-6)
    assert waited


DOUBLE = make_loopy_case()


@pytest.fixture(scope="module")
def runners() -> dict[str, KernelRunner]:
    return {}


@pytest.fixture
def runner(device: Device, runners: dict[str, KernelRunner]) -> KernelRunner:
    return runners.setdefault(device.label, KernelRunner.open(device))


@pytest.mark.device
@pytest.mark.parametrize("case", [DOUBLE, ROW_SUMS, TWO_LAUNCHES], ids=lambda case: case.kernel)
def test_right_numbers_are_accepted_and_runs_timed(runner: KernelRunner, case: KernelCase) -> None:
    runner.check(case)
    with runner.load_case(case) as run:
        timings = [run() for _ in range(3)]
    assert all(0 < timing.time_s < timing.host_s < 10 for timing in timings)


def _note_calls(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Return a list to which the arguments of a method's calls are added."""
    noted, method = list[Any](), getattr(owner, name)
    patch.setattr(owner, name, lambda argument: noted.append(argument) or method(argument))
    return noted


@pytest.mark.device
def test_arrays_of_another_round_lie_behind_memory_of_another_size(
    runner: KernelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _note_calls(monkeypatch, runner.session, "allocate")
    for _ in range(2):
        with runner.load_case(DOUBLE) as run:
            run()
    assert sizes[0] != sizes[len(sizes) // 2]


@pytest.mark.device
def test_cases_that_share_inputs_draw_them_once_and_alike(
    runner: KernelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def draw(random: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
        drawn.append(random.random(parameters["n"], dtype=np.float32))
        return {"a": drawn[-1]}

    first = make_loopy_case("one", make_arguments=draw, inputs="shared")
    second = replace(first, name="other/n=1024", kernel="other")
    larger = replace(second, name="other/n=2048", parameters={"n": 2048})
    uploaded = _note_calls(monkeypatch, runner.session, "upload")
    for case in (first, second, larger, first):
        with runner.load_case(case) as run:
            run()
    assert [each.size for each in drawn] == [1024, 2048, 1024]
    assert np.shares_memory(uploaded[0], uploaded[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


@pytest.mark.device
def test_a_kernel_is_built_and_checked_once(runner: KernelRunner) -> None:
    built: list[None] = []
    case = make_loopy_case("counted", lambda: built.append(None) or double())
    for _ in range(2):
        runner.check(case)
        runner.check(replace(case, name="other", parameters={"n": 2048}))
    assert len(built) == 1


def _raise(*_: object) -> Any:
    raise RuntimeError("a mistake of the author")


def _inputs(name: str, dtype: Any) -> dict[str, Any]:
    return {"make_arguments": lambda *_: {name: np.zeros(64, dtype)}}


def _referring(**factors: int) -> dict[str, Any]:
    return {"reference": lambda given, _: {name: k * given["a"] for name, k in factors.items()}}


_LARGE = {"build": lambda: double(2**20), "check_parameters": {"n": 2**20}}
_NOTHING = {"check_parameters": {}, "make_arguments": lambda *_: {}}


@pytest.mark.device
@pytest.mark.parametrize(
    ("name", "changes", "kind", "said"),
    [
        ("raises", {"build": _raise}, KernelBuildError, "does not build: RuntimeError: a mistake"),
        ("large", _LARGE, KernelBuildError, "work items"),
        ("no inputs", {"make_arguments": _raise}, KernelBuildError, "gets no inputs"),
        ("no n", _NOTHING, KernelBuildError, "no value for argument n"),
        ("more", _inputs("b", np.float32), KernelBuildError, "has no argument 'b'"),
        ("f64", _inputs("a", np.float64), KernelBuildError, "wants float32 of shape (64,)"),
        ("no reference", {"reference": _raise}, WrongResultError, "cannot be compared"),
        ("other", _referring(b=0), WrongResultError, "the reference gives 'b'"),
        ("wrong", _referring(out=3), WrongResultError, "wrong numbers: out["),
    ],
)
def test_what_goes_wrong_before_timing(
    runner: KernelRunner, name: str, changes: Any, kind: type[MeasurementError], said: str
) -> None:
    case = make_loopy_case(name, **changes)
    with pytest.raises(kind) as caught:
        runner.check(case)
    assert said in str(caught.value)
    assert str(caught.value).startswith(case.name)
    assert caught.value.case == case.name


@pytest.mark.device
def test_what_the_compiler_or_the_device_refuses_is_a_build_error(runner: KernelRunner) -> None:
    with pytest.raises(KernelBuildError, match="does not build on"):
        runner.session.load("KERNEL broken(GLOBAL float *out) { out[0] = nothing; }")
    size, space = runner.limits.local_memory_bytes // 4 + 1024, lp.AddressSpace.LOCAL
    held = lp.TemporaryVariable("tmp", np.float32, shape=(size + 1,), address_space=space)
    body = "tmp[i] = a[j] {id=fill}\n... lbarrier {id=wait, dep=fill}\n"
    body = f"for j\n{body}out[j] = tmp[{size} - 1 - i + j % 2] {{dep=wait}}\nend"
    options: Any = {"silenced_warnings": ["write_race(*)"]}
    unit = made("{[i,j]: 0<=i<16 and 0<=j<n}", body, "a,out f32 n; n i32", held, **options)
    greedy = make_loopy_case("greedy", lambda: lp.tag_inames(unit, {"i": "l.0"}))
    with pytest.raises(KernelBuildError):
        runner.check(greedy)


@pytest.mark.device
def test_a_campaign_on_a_real_device(device: Device, tmp_path: Path) -> None:
    cases = [DOUBLE, ROW_SUMS, make_loopy_case("wrong", **_referring(out=1))]
    protocol = QUICK.with_values(name="test", extra_rounds=0)
    store = tmp_path / "store.jsonl"
    found = countperf.measure(cases, device=device, store=store, protocol=protocol)
    assert [entry.case for entry in found] == [DOUBLE.name, ROW_SUMS.name]
    assert [entry.stage for entry in found.failures] == ["check"]
    probes = 1 if device.identity.device_type == "cpu" else 0
    assert all(len(e.memory_s) == probes * len(e.samples_s) for e in found)
    assert all(len(entry.samples_s) <= QUICK.rounds for entry in found)
    assert len(found.header.environment.memory_s) == 2 * probes
    assert found.device == device.identity


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        ([1.0, 2.0], [1.0, 2.1], r"out\[1\] is 2.0, the reference says 2.1"),
        ([1.0, np.nan], [1.0, 2.0], r"out\[1\] is nan"),
        ([1.0, np.inf], [1.0, 2.0], r"out\[1\] is inf"),
        ([1.0], [1.0, 2.0], r"shape \(1,\), the reference \(2,\)"),
        ([1000.0005], [1000.0], ""),  # relative to the largest
        ([1e-7, 1.0], [0.0, 1.0], ""),  # not to each element
        ([5], [5], ""),
        ([], [], ""),
    ],
)
def test_numbers_are_right_within_the_tolerance(
    got: list[float], want: list[float], said: str
) -> None:
    with pytest.raises(WrongResultError, match=said) if said else nullcontext():
        compare(make_case(), "out", np.array(got), np.array(want))
