from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from countperf.errors import (
    DocumentError,
    KernelBuildError,
    MeasurementError,
    ParameterError,
    TuningError,
    WrongResultError,
)
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.device import Device
from countperf.harness.runner import KernelRunner
from countperf.measurements import KernelCase
from countperf.tuning import SearchSpace
from countperf.tuning.points import PredictionTask, Refused
from countperf.tuning.result import Budget, Plan, Trial, TuningResult, ties
from countperf.tuning.search import tune_space
from tests.harness.fakes import FakeRunner
from tests.printing import object_of, text_of
from tests.tuning.spaces import DOUBLE, build_double
from tests.tuning.test_ranking import WEIGHTS, Inline

LARGE = SearchSpace(
    name="double",
    parameters={"group": [16, 32, 64, 128], "each": [1, 2, 4, 8], "fetch": [False]},
    build=build_double,
    sizes={"n": 4096},
    make_arguments=DOUBLE.make_arguments,
    reference=DOUBLE.reference,
)
QUESTION = PredictionTask(space=LARGE, weights=WEIGHTS, sizes={})
MANY = Budget(measurements=100)


def _factors(name: str) -> dict[str, str]:
    return dict(part.split("=") for part in name.split("/")[1].split(","))


def usual_time_s(name: str) -> float:
    """A device on which everything takes about 3 ms, small groups longer, each=4 shorter."""
    factors = _factors(name)
    return 3e-3 * (1 + 16 / int(factors["group"])) * (0.5 if factors["each"] == "4" else 1.0)


BEST = {"group": 128, "each": 4, "fetch": False}
BEST_S = 3e-3 * (1 + 16 / 128) * 0.5


def scripted(time_of: Callable[[str], float] = usual_time_s, **more: Any) -> FakeRunner:
    return FakeRunner(lambda name, _turn, run: time_of(name) * (1.3 if run == 0 else 1), **more)


def search(runner: FakeRunner, budget: Budget = MANY, **more: Any) -> TuningResult:
    return tune_space(QUESTION, runner, budget, executor=Inline(), **more)


class Never(Executor):
    """Takes on nothing."""


def test_the_fastest_is_found_and_no_other_variant_is_measured_more_than_once() -> None:
    runner = scripted()

    found = search(runner)

    assert found.winner.choice == BEST
    assert found.winner.time_s == pytest.approx(BEST_S)
    assert found.winner.interval_s is not None
    assert found.winner.interval_s[0] < found.winner.predicted_s < found.winner.interval_s[1]
    assert found.regret_bound is not None
    assert found.regret_bound <= 0.02
    assert found.stopped in ("confident", "exhausted")
    best = f"double/{LARGE.label(BEST)}/n=4096"
    assert max(runner.rounds.count(name) for name in runner.rounds if name != best) == 1
    assert set(runner.rounds) <= set(runner.checked) | {f"{c}/n=4096" for c in runner.checked}


def test_every_variant_is_checked_before_it_is_timed() -> None:
    runner = scripted()

    search(runner)

    assert {f"{kernel}/n=4096" for kernel in runner.checked} == set(runner.rounds)


def test_with_good_predictions_it_stops_early_and_says_that_it_is_sure() -> None:
    """Where measured times are the predicted ones but for a factor, few measurements do."""
    space = replace(
        LARGE, parameters={"group": [16, 32, 64, 128], "each": [1, 8], "fetch": [False]}
    )
    weights = WEIGHTS.model_copy(
        update={
            "weights": tuple(
                w.model_copy(update={"value_s": 1e-4 if w.feature == "groups" else 1e-12})
                for w in WEIGHTS.weights
            )
        }
    )
    question = PredictionTask(space=space, weights=weights, sizes={"n": 2**20})

    def time_of(name: str) -> float:
        factors = _factors(name)
        return 3e-4 * 2**20 / (int(factors["group"]) * int(factors["each"]))

    found = tune_space(question, scripted(time_of), MANY, executor=Inline())

    assert found.stopped == "confident"
    assert found.winner.choice == {"group": 128, "each": 8, "fetch": False}
    assert len(found.tried) < 8
    assert found.regret_bound is not None
    assert found.regret_bound <= 0.02


def test_hopeless_variants_are_stopped_after_their_first_runs() -> None:
    def time_of(name: str) -> float:
        return 1e-3 if _factors(name)["each"] == "8" else 1.0

    found = search(scripted(time_of))

    slow = [tried for tried in found.tried if tried.time_s > 0.1 and tried is not found.tried[0]]
    assert slow
    assert all(tried.cut_short and len(tried.samples_s) == 1 for tried in slow)
    assert not found.winner.cut_short


class _SlowToBuild(FakeRunner):
    """Building and checking a variant takes a second."""

    def check(self, case: KernelCase) -> None:
        self.clock.sleep(1.0)
        super().check(case)


def test_runs_that_cost_nothing_beside_building_are_not_spared() -> None:
    """The first runs of the fastest variant take four times as long as the others."""

    def time_of(name: str, _turn: int, run: int) -> float:
        first = _factors(name) == {"group": "128", "each": "4", "fetch": "False"} and run < 3
        return usual_time_s(name) * (4.0 if first else 1.0)

    found = search(_SlowToBuild(time_of))

    assert found.winner.choice == BEST
    assert len(found.winner.samples_s) >= Plan().runs


def test_what_fails_is_recorded_with_the_reason_and_does_not_stop_the_search() -> None:
    kernel = "double/group=128,each=4,fetch=False"
    slower = "double/group=64,each=4,fetch=False"
    runner = scripted(
        broken={
            kernel: WrongResultError(f"{kernel}: wrong numbers: out[0] is 1, not 2"),
            slower: KernelBuildError(f"{slower}: no registers left"),
        }
    )

    found = search(runner)

    assert found.winner.choice == {"group": 32, "each": 4, "fetch": False}
    assert {refused.stage: refused.reason for refused in found.failed} == {
        "results": f"{kernel}: wrong numbers: out[0] is 1, not 2",
        "compile": f"{slower}: no registers left",
    }
    assert (found.refusals["results"].count, found.refusals["compile"].count) == (1, 1)


def test_if_nothing_runs_that_is_an_error_with_the_reasons() -> None:
    broken = {
        f"double/{LARGE.label(choice)}": KernelBuildError("no compiler")
        for choice in LARGE.choices()
    }

    with pytest.raises(TuningError, match="no variant of 'double' ran") as caught:
        search(scripted(broken=broken))

    assert caught.value.refusals[0] == "no compiler"


def test_if_nothing_is_predicted_that_is_an_error_with_the_reasons() -> None:
    question = PredictionTask(space=LARGE, weights=WEIGHTS, sizes={"n": 3})

    with pytest.raises(TuningError, match="no variant of 'double' has a prediction"):
        tune_space(question, scripted(), MANY, executor=Inline())


def test_a_space_without_a_reference_is_searched_and_the_result_says_so() -> None:
    question = replace(QUESTION, space=replace(LARGE, reference=None))

    result = tune_space(question, scripted(), Budget(measurements=3), executor=Inline())

    assert not result.numbers_checked
    assert "numbers not checked, for the space has no reference" in text_of(result)
    assert object_of(result)["numbers_checked"] is False


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"sizes": {"q": 4}}, ParameterError, "has no size q; there are n"),
        ({"sizes": {"n": -4}}, ParameterError, "n = -4; sizes are positive"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_predicted(
    tmp_path: Path, changes: dict[str, Any], kind: type[Exception], said: str
) -> None:
    store = tmp_path / "search.jsonl"

    with pytest.raises(kind, match=said):
        tune_space(replace(QUESTION, **changes), scripted(), MANY, executor=Never(), store=store)

    assert not store.exists()


def test_a_budget_of_measurements_is_kept() -> None:
    found = search(scripted(), Budget(measurements=3))

    assert len(found.tried) == 3
    assert found.stopped == "budget"
    assert found.regret_bound is not None
    assert found.regret_bound > 0


@pytest.mark.parametrize("seconds", [0.2, 1.0, 5.0])
def test_a_budget_of_seconds_is_kept(seconds: float) -> None:
    runner = scripted(lambda name: 30 * usual_time_s(name))
    runner.setup_s = 0.05

    found = search(runner, Budget(seconds=seconds))

    # what is under way when the time is up is finished: a variant is built, or runs
    longest_run = 30 * usual_time_s("double/group=16,each=1,fetch=False") * 1.3
    assert found.spent_s <= seconds + 0.05 + longest_run
    assert found.spent_s == pytest.approx(runner.clock.now())
    assert found.tried


def test_one_variant_is_measured_even_if_ranking_took_all_the_time() -> None:
    found = search(scripted(), Budget(seconds=1e-9))

    assert len(found.tried) == 1
    assert found.stopped == "budget"
    assert (found.bounded, found.unbounded) == (16, 0)
    # predictions are of microseconds, the one measurement of milliseconds: anything is possible
    assert found.winner.time_s > 100 * found.winner.predicted_s
    assert found.regret_bound == 1.0


def test_where_nothing_but_the_winner_is_known_no_regret_is_bounded() -> None:
    class One(Inline):
        """Predicts one point of its first task, and ends no other one."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future, self.future = self.future, Future()
            if not runner.clock.now():
                runner.clock.sleep(1.0)
                asked, (first, *others) = args
                unknown = [Refused(choice=c, stage="count", reason="unknown") for c in others]
                future.set_result([*fn(asked, [first], **kwargs), *unknown])
            return future

        future: Future[Any] = Future()

    runner = scripted()

    found = tune_space(QUESTION, runner, Budget(seconds=1e-9), executor=One())

    assert (len(found.tried), found.bounded, found.unbounded) == (1, 1, 15)
    assert found.regret_bound is None


def test_of_a_space_with_one_variant_the_regret_is_none() -> None:
    space = replace(LARGE, parameters={"group": [64], "each": [4], "fetch": [False]})

    found = tune_space(replace(QUESTION, space=space), scripted(), MANY, executor=Inline())

    assert (found.regret_bound, found.bounded, found.unbounded) == (0.0, 1, 0)


def test_the_regret_is_of_a_median_run_of_the_winner_against_the_shortest_of_others() -> None:
    def duration(name: str, _turn: int, run: int) -> float:
        factors = _factors(name)
        is_best = (factors["group"], factors["each"]) == ("128", "4")
        if is_best and run > 0:
            return 1.6 * BEST_S  # it was lucky once
        return BEST_S if is_best else (1.28 if factors["each"] == "4" else 1.3) * BEST_S

    found = search(FakeRunner(duration), Budget(measurements=16), plan=Plan(warm_up_s=0.0))

    assert found.winner.choice == BEST
    assert len(found.tried) == 16
    assert found.regret_bound == pytest.approx(1 - 1.28 / 1.6)


def test_the_fastest_is_run_again_at_the_end_until_it_was_in_all_rounds() -> None:
    runner = scripted()

    found = search(runner)

    assert found.winner.choice == BEST
    assert found.winner.rounds == (10,) * Plan().rounds
    assert len(found.winner.samples_s) == 10 * Plan().rounds
    kernel = f"double/{LARGE.label(BEST)}/n=4096"
    assert {n for n, times in Counter(runner.rounds).items() if times > 1} == {kernel}


def test_a_variant_that_was_lucky_in_its_first_round_does_not_win() -> None:
    lucky = {"group": "64", "each": "4", "fetch": "False"}

    def duration(name: str, turn: int, run: int) -> float:
        del run
        is_lucky = turn == 0 and _factors(name) == lucky
        return usual_time_s(name) * (0.3 if is_lucky else 1.0)

    found = search(FakeRunner(duration))

    (loser,) = (t for t in found.tried if {n: str(v) for n, v in t.choice.items()} == lucky)
    assert loser.rounds_s[0] < BEST_S < loser.time_s
    assert loser.time_s == median(loser.rounds_s)
    assert found.winner.choice == BEST
    assert len(found.winner.rounds) == Plan().rounds


def test_there_is_time_to_run_the_best_again_when_the_seconds_are_spent() -> None:
    runner = scripted(lambda name: 10 * usual_time_s(name))
    runner.setup_s = 0.01

    found = search(runner, Budget(seconds=1.0))

    rounds = Counter(runner.rounds)
    assert found.stopped == "budget"
    again = [_factors(name) for name, times in rounds.items() if times > 1]
    assert {name: str(value) for name, value in found.winner.choice.items()} in again
    assert found.spent_s <= 1.0 + 0.1


def test_variants_within_the_noise_are_reported_as_ties() -> None:
    def tried(group: int, *samples: float, cut_short: bool = False) -> Trial:
        return Trial(
            choice={"group": group}, predicted_s=1.0, samples_s=samples, cut_short=cut_short
        )

    best, near, far, stopped = (
        tried(1, 1.0, 1.1, 1.1),
        tried(2, 1.05, 1.06, 1.06),
        tried(3, 1.3, 1.31, 1.31),
        tried(4, 1.01, cut_short=True),
    )

    assert ties((far, near, best, stopped), floor=0.0) == (best, (near,))
    assert ties((far, near, best), floor=0.5) == (best, (near, far))


# {{{ resuming


class InterruptedSearchError(Exception):
    pass


def _interrupting(after: int) -> FakeRunner:
    left = iter(range(after))

    def time_of(name: str, _turn: int, run: int) -> float:
        if run == 0 and next(left, None) is None:
            raise InterruptedSearchError
        return usual_time_s(name) * (1.3 if run == 0 else 1)

    return FakeRunner(time_of)


def _lines(store: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.read_text().splitlines()]


def test_an_interrupted_search_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    store = tmp_path / "folder" / "search.jsonl"
    plan = Plan(warm_up_s=0.0)  # so that first runs, which differ from the others, are kept
    whole = search(scripted(), plan=plan)
    with pytest.raises(InterruptedSearchError):
        search(_interrupting(4), store=store, plan=plan)
    finished = (
        {LARGE.label(e["choice"]) for e in _lines(store) if e.get("kind") == "tried"}
        if (store.exists())
        else set[str]()
    )
    runner = scripted()

    found = search(runner, store=store, plan=plan)

    assert len(finished) == 4
    assert found.winner == replace(whole.winner, at_s=found.winner.at_s)
    first = [name for name in runner.rounds if runner.rounds.count(name) == 1]
    again = {name.split("/")[1] for name in first} & finished
    assert again <= {LARGE.label(BEST)}  # run again at the end, as in any search
    assert {LARGE.label(t.choice) for t in found.tried} == {
        LARGE.label(t.choice) for t in whole.tried
    }


def test_a_search_resumes_after_any_cut(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    whole = search(scripted(), store=store)
    content = store.read_bytes()

    for cut in range(0, len(content), len(content) // 11):
        store.write_bytes(content[:cut])

        found = search(scripted(), store=store)

        assert found.winner.choice == whole.winner.choice


def test_a_finished_search_answers_at_once(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    first = search(scripted(), store=store)
    runner = scripted()

    again = search(runner, store=store, began_s=-3.0)  # what comes before takes its time

    assert runner.rounds == []
    assert again == first


def test_a_search_whose_budget_was_spent_answers_the_same_until_there_is_more(
    tmp_path: Path,
) -> None:
    store = tmp_path / "search.jsonl"
    first = search(scripted(), Budget(measurements=3), store=store, began_s=-2.0)

    same, less, more = (
        search(scripted(), Budget(measurements=most), store=store, began_s=-3.0)
        for most in (3, 2, 4)
    )

    assert first.spent_s > 2.0
    assert same == less == first
    assert len(more.tried) == 4
    assert more.spent_s > first.spent_s + 3.0
    assert search(scripted(), Budget(measurements=4), store=store) == more


def test_a_larger_budget_goes_on_where_the_smaller_one_ended(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    first = search(scripted(), Budget(measurements=2), store=store)
    runner = scripted()

    found = search(runner, Budget(measurements=5), store=store)

    assert [t.choice for t in found.tried[:2]] == [t.choice for t in first.tried]
    assert len(found.tried) == 5
    assert len(set(runner.rounds)) <= 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"sizes": {"n": 8192}}, "n of sizes is 4096 there, 8192 now", id="sizes"),
        pytest.param(
            {"incomplete_ok": True},
            "the weights, or whether they may leave properties out, have changed",
            id="weights",
        ),
        pytest.param(
            {"space": replace(LARGE, constraints=("group > 16",))},
            "the values, constraints or builder of the space have changed",
            id="space",
        ),
    ],
)
def test_the_file_of_another_search_is_refused(
    tmp_path: Path, change: Mapping[str, Any], said: str
) -> None:
    store = tmp_path / "search.jsonl"
    search(scripted(), store=store)
    before = store.read_bytes()

    with pytest.raises(MeasurementError) as caught:
        tune_space(replace(QUESTION, **change), scripted(), MANY, executor=Inline(), store=store)

    mend = "name another file, or ask for what it holds"
    assert str(caught.value) == f"{store} holds another search: {said}; {mend}"
    assert store.read_bytes() == before


def test_the_file_of_another_device_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    search(scripted(), store=store)
    runner = scripted()
    identity: DeviceIdentity = runner.identity.model_copy(update={"name": "other"})
    runner.identity = identity

    with pytest.raises(MeasurementError, match="is Abacus there, other now"):
        search(runner, store=store)


@pytest.mark.parametrize(
    "content",
    [
        "my notes\n",
        '{"my": 3}\n',
        '{"format": "countperf-tuning", "version": 9}\n',
        '{"format": "countperf-tuning", "version": true}\n',
        '{"format": "countperf-tuning", "version": 2.0}\n',
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    store = tmp_path / "search.jsonl"
    store.write_text(content)

    with pytest.raises(DocumentError):
        search(scripted(), store=store)

    assert store.read_text() == content


def test_two_searches_do_not_write_to_one_file(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"

    def start_another(text: str) -> None:
        del text
        with pytest.raises(MeasurementError, match="in use by another"):
            search(scripted(), store=store)

    search(scripted(), store=store, progress=start_another)


# }}}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Budget(), "no budget"),
        (lambda: Budget(seconds=0.0), "a budget of 0.0 seconds"),
        (lambda: Plan(confidence=1.0), "confidence is 1.0"),
        (lambda: Plan(tolerance=1.0), "tolerance is 1.0"),
        (lambda: Plan(warm_up_s=-0.01), "warm_up_s is -0.01"),
        (lambda: Plan(warm_up_s=float("inf")), "warm_up_s is inf"),
        (lambda: Plan(runs=0), "have to be positive"),
    ],
)
def test_impossible_wishes_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make()


def test_candidates_that_were_not_kept_count_in_the_regret_bound() -> None:
    few = search(scripted(), keep=2)

    assert len(few.tried) == 2
    assert few.predicted == 16
    assert few.bounded == 16
    assert few.regret_bound is not None
    assert few.regret_bound > 0


@pytest.mark.device
def test_a_real_device_finds_a_variant_in_seconds(device: Device, tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"

    found = tune_space(
        replace(QUESTION, sizes={"n": 2**16}),
        KernelRunner.open(device),
        Budget(measurements=3),
        executor=Inline(),
        store=store,
    )

    assert len(found.tried) == 3
    assert found.device == device.identity.slug
    assert found.winner.time_s == min(tried.time_s for tried in found.tried)


def test_a_changed_builder_is_another_space(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    search(scripted(), store=store)
    changed = replace(QUESTION, space=replace(LARGE, build=dict))

    with pytest.raises(MeasurementError, match="builder of the space have changed"):
        tune_space(changed, scripted(), MANY, executor=Inline(), store=store)
