"""Variants built and timed by processes of their own; real processes on a real device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from countperf.errors import MeasurementError, WrongResultError
from countperf.harness.clock import FakeClock
from countperf.harness.device import Device
from countperf.harness.runner import KernelRunner
from countperf.tuning import SearchSpace
from countperf.tuning.build_workers import BuildWorkers
from countperf.tuning.points import PredictionTask
from countperf.tuning.pools import Pool, process_pool
from countperf.tuning.result import Budget, Plan
from countperf.tuning.search import tune_space
from countperf.tuning.sending import Packed
from tests.tuning.spaces import DOUBLE, FATAL, WRONG
from tests.tuning.test_ranking import Inline
from tests.tuning.test_search import QUESTION

FIRST = {"group": 16, "each": 1, "fetch": False}
SECOND = {"group": 32, "each": 2, "fetch": False}
THIRD = {"group": 64, "each": 2, "fetch": False}
UNDONE = {"group": 16, "each": 8, "fetch": True}
PLAN = Plan(runs=3)


def _question(space: SearchSpace) -> PredictionTask:
    return replace(QUESTION, space=space, sizes={"n": 4096})


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with process_pool(2) as found:
        yield found


def _elsewhere(pool: Pool, space: SearchSpace, device: Device) -> BuildWorkers:
    asked = Packed.of(_question(space))
    found = BuildWorkers.of(pool, asked, KernelRunner.open(device), PLAN, PLAN.max_case_s)
    assert isinstance(found, BuildWorkers)
    assert found.processes == 2
    return found


@pytest.mark.device
def test_variants_are_built_at_a_time_and_timed_one_by_one(pool: Pool, device: Device) -> None:
    with _elsewhere(pool, DOUBLE, device) as elsewhere:
        elsewhere.begin([FIRST, SECOND, UNDONE])  # the last one waits for a process
        assert len(elsewhere.building) == 3
        assert not elsewhere.is_free(FIRST)
        assert elsewhere.built_s(FIRST) is None
        elsewhere.wait(60.0)
        assert len(elsewhere.building) < 3
        elsewhere.pause()
        assert not elsewhere.building
        assert elsewhere.is_free(FIRST)
        assert (elsewhere.built_s(FIRST) or 0.0) > 0
        assert elsewhere.built_s(UNDONE) is None
        elsewhere.load(UNDONE)
        for choice in (FIRST, SECOND, THIRD, FIRST):  # one is not built, one is timed again
            elsewhere.load(choice if choice is not SECOND else FIRST)
            samples, cut_short = elsewhere.time(choice, None, 60.0)
            assert len(samples) == 3
            assert min(samples) > 0
            assert not cut_short
        with pytest.raises(MeasurementError, match="no fetch of eight"):
            elsewhere.time(UNDONE, None, 60.0)
        assert len(elsewhere.time(SECOND, None, 0.0)[0]) == 2  # the fewest: the time is up


@pytest.mark.device
def test_wrong_numbers_come_when_it_is_the_variants_turn(pool: Pool, device: Device) -> None:
    with _elsewhere(pool, WRONG, device) as elsewhere:
        elsewhere.begin([FIRST])
        elsewhere.pause()
        with pytest.raises(WrongResultError):
            elsewhere.time(FIRST, None, 60.0)


@pytest.mark.device
def test_a_variant_that_ends_its_process_fails_alone(pool: Pool, device: Device) -> None:
    with _elsewhere(pool, FATAL, device) as elsewhere:
        elsewhere.begin([FIRST, {**UNDONE, "fetch": False}])
        elsewhere.pause()
        with pytest.raises(MeasurementError, match="was lost: it ended with status 1"):
            elsewhere.time({**UNDONE, "fetch": False}, None, 60.0)
        elsewhere.load({**UNDONE, "fetch": False})
        for choice in (FIRST, SECOND, THIRD):
            elsewhere.load(choice)
            assert len(elsewhere.time(choice, None, 60.0)[0]) == 3


@pytest.mark.device
def test_a_search_tries_what_others_built(pool: Pool, device: Device) -> None:
    found = tune_space(
        _question(DOUBLE),
        KernelRunner.open(device),
        Budget(measurements=5),
        executor=pool,
        plan=replace(PLAN, confidence=0.999),
    )

    assert len(found.tried) + len(found.failed) == 5 or found.stopped == "confident"
    assert found.winner.time_s == min(tried.time_s for tried in found.tried)


@pytest.mark.device
def test_others_are_left_alone(pool: Pool, device: Device) -> None:
    question = _question(DOUBLE)
    runner = KernelRunner.open(device)

    asked = Packed.of(question)
    assert BuildWorkers.of(Inline(), asked, runner, PLAN, 1.0) is None
    other = KernelRunner(runner.session, FakeClock())
    assert BuildWorkers.of(pool, asked, other, PLAN, 1.0) is None
    assert BuildWorkers.of(pool, question, runner, PLAN, 1.0) is None  # that cannot be sent


def test_a_question_is_unpacked_once_in_each_process() -> None:
    packed = Packed.of(QUESTION)
    again = Packed.of(QUESTION)

    assert packed == again
    assert packed.question() is again.question()
    assert packed.question() is not QUESTION
    assert packed.question().sizes == QUESTION.sizes
