from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from countperf import errors
from countperf.errors import KernelBuildError, MeasurementError, ParameterError, TuningError
from countperf.figures import draw
from countperf.measuring import KernelCase
from countperf.measuring.runner import Run
from countperf.steps import listening
from countperf.tuning import SearchSpace
from countperf.tuning import result as results
from countperf.tuning.ranker import Predicted, PredictionTask, Ranking
from countperf.tuning.refusals import Refused, count_refusals
from countperf.tuning.result import Budget, Plan, Trial, TuningResult, fastest_of, ties
from countperf.tuning.search import VariantBench, tune_space
from tests.devices.fakes import FakeRunner
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


def test_the_fastest_is_found_and_run_in_all_rounds_and_each_checked_variant_in_one() -> None:
    runner = scripted()
    result = search(runner)
    assert result.winner.choice == BEST
    assert result.winner.time_s == pytest.approx(BEST_S)
    assert result.winner.interval_s is not None
    assert result.winner.interval_s[0] < result.winner.predicted_s < result.winner.interval_s[1]
    assert result.regret_bound is not None
    assert result.regret_bound <= 0.02
    assert result.stopped in ("confident", "exhausted")
    assert result.winner.rounds == (10,) * Plan().rounds
    assert len(result.winner.samples_s) == 10 * Plan().rounds
    best = f"double/{LARGE.label(BEST)}/n=4096"
    assert {n for n, times in Counter(runner.rounds).items() if times > 1} == {best}
    assert {f"{kernel}/n=4096" for kernel in runner.checked} == set(runner.rounds)


def test_with_good_predictions_it_stops_early_and_says_that_it_is_sure() -> None:
    """Where measured times are the predicted ones but for a factor, few measurements do."""
    space = replace(
        LARGE, parameters={"group": [16, 32, 64, 128], "each": [1, 8], "fetch": [False]}
    )
    costs = {w: 1e-4 if w.feature == "groups" else 1e-12 for w in WEIGHTS.weights}
    changed = tuple(w.model_copy(update={"value_s": value}) for w, value in costs.items())
    weights = WEIGHTS.model_copy(update={"weights": changed})
    question = PredictionTask(space=space, weights=weights, sizes={"n": 2**20})

    def time_of(name: str) -> float:
        factors = _factors(name)
        return 3e-4 * 2**20 / (int(factors["group"]) * int(factors["each"]))

    result = tune_space(question, scripted(time_of), MANY, executor=Inline())
    assert result.stopped == "confident"
    assert result.winner.choice == {"group": 128, "each": 8, "fetch": False}
    assert len(result.tried) < 8
    assert result.regret_bound is not None
    assert result.regret_bound <= 0.02


def test_hopeless_variants_are_stopped_after_their_first_runs() -> None:
    def time_of(name: str) -> float:
        return 1e-3 if _factors(name)["each"] == "8" else 1.0

    result = search(scripted(time_of))
    slow = [tried for tried in result.tried if tried.time_s > 0.1 and tried is not result.tried[0]]
    assert slow
    assert all(tried.cut_short and len(tried.samples_s) == 1 for tried in slow)
    assert not result.winner.cut_short


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

    result = search(_SlowToBuild(time_of))
    assert result.winner.choice == BEST
    assert len(result.winner.samples_s) >= Plan().runs


def test_what_fails_is_recorded_with_the_reason_and_does_not_stop_the_search() -> None:
    kernel = "double/group=128,each=4,fetch=False"
    slower = "double/group=64,each=4,fetch=False"
    runner = scripted(
        broken={
            kernel: errors.WrongResultError(f"{kernel}: wrong numbers: out[0] is 1, not 2"),
            slower: KernelBuildError(f"{slower}: no registers left"),
        }
    )
    result = search(runner)
    assert result.winner.choice == {"group": 32, "each": 4, "fetch": False}
    assert {refused.stage: refused.reason for refused in result.failed} == {
        "results": f"{kernel}: wrong numbers: out[0] is 1, not 2",
        "compile": f"{slower}: no registers left",
    }
    assert (result.refusals["results"].count, result.refusals["compile"].count) == (1, 1)


def test_if_nothing_runs_that_is_an_error_with_the_reasons() -> None:
    names = (f"double/{LARGE.label(choice)}" for choice in LARGE.choices())
    broken = dict.fromkeys(names, KernelBuildError("no compiler"))
    with pytest.raises(TuningError, match="no variant of 'double' ran") as caught:
        search(scripted(broken=broken))
    assert caught.value.refusals[0] == "no compiler"


def test_a_space_without_a_reference_is_searched_and_the_result_says_so() -> None:
    question = replace(QUESTION, space=replace(LARGE, reference=None))
    result = tune_space(question, scripted(), Budget(measurements=3), executor=Inline())
    assert not result.numbers_checked
    assert "numbers not checked, for the space has no reference" in text_of(result)
    assert object_of(result)["numbers_checked"] is False


@pytest.mark.parametrize("seconds", [0.2, 1.0, 5.0])
def test_a_budget_of_seconds_is_kept(seconds: float) -> None:
    runner = scripted(lambda name: 30 * usual_time_s(name))
    runner.setup_s = 0.05
    result = search(runner, Budget(seconds=seconds))
    # what is under way when the time is up is finished: a variant is built, or runs
    longest_run = 30 * usual_time_s("double/group=16,each=1,fetch=False") * 1.3
    assert result.spent_s <= seconds + 0.05 + longest_run
    assert result.spent_s == pytest.approx(runner.clock.now())
    assert result.tried


def test_one_variant_is_measured_even_if_ranking_took_all_the_time() -> None:
    result = search(scripted(), Budget(seconds=1e-9))
    assert len(result.tried) == 1
    assert result.stopped == "budget"
    assert (result.bounded, result.unbounded) == (16, 0)
    # predictions are of microseconds, the one measurement of milliseconds: anything is possible
    assert result.winner.time_s > 100 * result.winner.predicted_s
    assert result.regret_bound == 1.0


def test_the_regret_is_of_a_median_run_of_the_winner_against_the_shortest_of_others() -> None:
    def duration(name: str, _turn: int, run: int) -> float:
        factors = _factors(name)
        is_best = (factors["group"], factors["each"]) == ("128", "4")
        if is_best and run > 0:
            return 1.6 * BEST_S  # it was lucky once
        return BEST_S if is_best else (1.28 if factors["each"] == "4" else 1.3) * BEST_S

    result = search(FakeRunner(duration), Budget(measurements=16), plan=Plan(warm_up_s=0.0))
    assert result.winner.choice == BEST
    assert len(result.tried) == 16
    assert result.regret_bound == pytest.approx(1 - 1.28 / 1.6)


def test_a_variant_that_was_lucky_in_its_first_round_does_not_win(tmp_path: Path) -> None:
    lucky = {"group": "64", "each": "4", "fetch": "False"}

    def duration(name: str, turn: int, run: int) -> float:
        del run
        return usual_time_s(name) * (0.3 if turn == 0 and _factors(name) == lucky else 1.0)

    store = tmp_path / "search.jsonl"
    result = search(FakeRunner(duration), store=store)
    (loser,) = (t for t in result.tried if {n: str(v) for n, v in t.choice.items()} == lucky)
    assert loser.rounds_s[0] < BEST_S < loser.time_s
    assert loser.time_s == median(loser.rounds_s)
    assert result.winner.choice == BEST
    assert len(result.winner.rounds) == Plan().rounds
    assert results.read_journal(store)[1] == result.tried
    assert fastest_of(result.tried) == result.winner


def test_there_is_time_to_run_the_best_again_when_the_seconds_are_spent() -> None:
    runner = scripted(lambda name: 10 * usual_time_s(name))
    runner.setup_s = 0.01
    result = search(runner, Budget(seconds=1.0))
    rounds = Counter(runner.rounds)
    assert result.stopped == "budget"
    again = [_factors(name) for name, times in rounds.items() if times > 1]
    assert {name: str(value) for name, value in result.winner.choice.items()} in again
    assert result.spent_s <= 1.0 + 0.1


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


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Budget(), "no budget"),
        (lambda: Budget(seconds=0.0), "a budget of 0.0 seconds"),
        (lambda: Plan(confidence=1.0), "confidence is 1.0"),
        (lambda: Plan(tolerance=1.0), "tolerance is 1.0"),
        (lambda: Plan(warm_up_s=-0.01), "warm_up_s is -0.01"),
        (lambda: Plan(warm_up_s=float("inf")), "warm_up_s is inf"),
        (lambda: Plan(runs=0), "runs is 0; it should be greater than 0"),
    ],
)
def test_impossible_wishes_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make()


def test_dropped_candidates_count_in_the_regret_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countperf.tuning.candidates._MOST", 2)
    few = search(scripted())
    assert (len(few.tried), few.predicted, few.bounded) == (2, 16, 16)
    assert few.regret_bound is not None
    assert few.regret_bound > 0


@pytest.fixture(scope="module")
def result() -> TuningResult:
    return search(scripted(), Budget(measurements=12))


@pytest.mark.extra("plot")
def test_the_figure_shows_what_ran_and_the_best(result: TuningResult, tmp_path: Path) -> None:
    figure = draw(result, tmp_path / "search.svg")
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"ran", "winner", "best so far"} <= labels
    assert (tmp_path / "search.svg").read_text().count("<svg") == 1
    with pytest.raises(ParameterError, match="cannot be written as 'doc'"):
        draw(result, tmp_path / "search.doc")


# --- what rankings and searches say

WINNER = Trial(choice={"tile": 8}, predicted_s=1.2e-3, samples_s=(1e-3, 1.1e-3, 1.2e-3))
RESULT = TuningResult(
    space="toy",
    device="pocl-testchip",
    weights="mine/run",
    model="structural",
    sizes={"n": 64},
    winner=WINNER,
    within_noise=(),
    tried=(WINNER,),
    predicted=182,
    ranking_complete=True,
    stopped="confident",
    confidence=0.95,
    regret_bound=0.12,
    bounded=182,
    unbounded=0,
    spent_s=5.0,
    ranking_s=1.0,
)


def ranking_of(points: tuple[Predicted, ...], refusals: dict[str, Any] | None = None) -> Ranking:
    return Ranking(
        space="toy",
        sizes={},
        device="fake",
        weights="fake",
        model="linear",
        best=points,
        predicted=len(points),
        refusals=refusals or {},
        complete=True,
        seconds=0.0,
    )


def test_refusals_are_told_by_their_most_frequent_reasons() -> None:
    kinds = [("KeyError: x", 5), ("ValueError: y", 3), ("TypeError: z", 2), ("IndexError: w", 1)]
    refused = [
        Refused(choice={"tile": number}, stage="build", reason=reason)
        for reason, count in kinds
        for number in range(count)
    ]
    ranking = ranking_of((), count_refusals(refused))
    assert text_of(ranking, kept="all.jsonl has").splitlines()[-4:] == [
        "refused (build): 5 of 11, such as tile=0: KeyError: x",
        "refused (build): 3 of 11, such as tile=0: ValueError: y",
        "refused (build): 2 of 11, such as tile=0: TypeError: z",
        "all.jsonl has every refused one with its reason",
    ]
    reasons = object_of(ranking)["refused"]["build"]["reasons"]
    assert [reason["count"] for reason in reasons] == [5, 3, 2, 1]


def test_predictions_come_with_their_intervals_where_there_are_any() -> None:
    with_one = replace(WINNER, interval_s=(0.8e-3, 2e-3), interval_level=0.9)
    said, without = (text_of(replace(RESULT, winner=w)).splitlines()[0] for w in (with_one, WINNER))
    assert said == "1.00 ms (noise 10 %, predicted 1.20 ms, 800 µs to 2.00 ms at 90 %)"
    assert without == "1.00 ms (noise 10 %, predicted 1.20 ms)"
    printed = object_of(replace(RESULT, winner=with_one))["winner"]
    assert (printed["interval_s"], printed["interval_level"]) == ([0.8e-3, 2e-3], 0.9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "\nthe fastest of the space takes at most 12 % less than a median run of this one, at "
            "95 % confidence\n",
        ),
        (
            {"ranking_complete": False, "unbounded": 974},
            "\nthe fastest of the 182 variants that have a prediction takes at most 12 % less than "
            "a median run of this one, at 95 % confidence\nnothing is known of the 974 others that "
            "the space may have\n",
        ),
        (
            {"bounded": 1, "unbounded": 99, "regret_bound": None},
            "\ntoo little was measured to bound the fastest of toy\nnothing is known of the 99",
        ),
        ({"regret_bound": 1.0}, "\ntoo little was measured to bound the fastest of toy\n"),
    ],
)
def test_a_bound_of_the_regret_says_of_what_it_is(changes: dict[str, object], said: str) -> None:
    result = replace(RESULT, **changes)
    assert said in text_of(result)
    assert ("of the space takes" in text_of(result)) is (not changes)
    printed = object_of(result)
    fields = ("regret_bound", "bounded", "unbounded")
    assert [printed[name] for name in fields] == [getattr(result, name) for name in fields]


def test_a_search_tells_its_state() -> None:
    told: list[tuple[str, int, int | None]] = []
    with listening(lambda *step: told.append(step)):
        result = tune_space(QUESTION, scripted(), Budget(seconds=100), executor=Inline())
    predicted = [step[1:] for step in told if step[0] == "predicting variants"]
    assert predicted == [(0, 16), (8, 16)]
    states = [(work, done) for work, done, _ in told[len(predicted) :]]
    ran = [done for _, done in states]
    assert ran == sorted({*ran})
    assert states[0][0].startswith("searching double; ")
    assert (ran[0], ran[-1]) == (0, len(result.tried))
    assert states[-1][0].startswith("searching double: best 1.69 ms (group=128 each=4 fetch=no);")
    chances = [int(found) for work, _ in states for found in re.findall(r"(\d+) % chance", work)]
    assert len(chances) == len(states) - 1
    assert chances[-1] <= 5  # it stops at 95 % confidence
    assert re.fullmatch(r".* s left; variants that ran", states[-1][0])


# --- one variant at a time

CHOICE = {"group": 16, "each": 1, "fetch": False}
BENCH_PLAN = Plan(runs=3, warm_up_s=0.05)
BENCH_TASK = PredictionTask(space=DOUBLE, weights=WEIGHTS, sizes={"n": 4096})


def _time(
    time_s: float, best_s: float | None, left_s: float = 1e3
) -> tuple[tuple[float, ...], bool, list[float]]:
    """Time a variant on a device that takes 2.6 times as long for its first .02 s."""
    runs: list[float] = []

    def duration(_name: str, _turn: int, _run: int) -> float:
        runs.append(time_s * (2.6 if sum(runs) < 0.02 else 1))
        return runs[-1]

    bench = VariantBench(BENCH_TASK, FakeRunner(duration), BENCH_PLAN, left_s=lambda: left_s)
    return *bench.time(CHOICE, best_s), runs


@pytest.mark.parametrize(
    ("given", "samples", "hopeless", "runs"),
    [
        ((1e-3, 1.1e-3), (1e-3,) * 3, False, range(20, 60)),
        ((1e-3, 0.8e-3), (2.6e-3,), True, [1]),
        ((0.2, None), (0.52, 0.2, 0.2), False, [3]),
        ((1e-3, None, 0.0), (2.6e-3,) * 2, False, [2]),
    ],
    ids=["cold runs are not kept", "cold and three times the best", "a long run", "no time left"],
)
def test_runs_of_a_device_that_warms_up(
    given: tuple[Any, ...], samples: tuple[float, ...], hopeless: bool, runs: Sequence[int]
) -> None:
    kept, is_hopeless, all_runs = _time(*given)
    assert (kept, is_hopeless) == (pytest.approx(samples), hopeless)
    assert len(all_runs) in runs
    assert all_runs[-len(kept) :] == list(kept)


class _Failing(FakeRunner):
    """Its first run fails; notes what is in memory."""

    in_memory = 0

    @contextmanager
    def load_case(self, case: KernelCase) -> Generator[Run]:
        self.in_memory += 1
        try:
            with super().load_case(case) as run:
                yield run
        except RuntimeError as error:
            raise MeasurementError("the driver is gone", case=case.name) from error
        finally:
            self.in_memory -= 1


def test_what_fails_in_a_run_fails_as_the_device_says_and_leaves_no_memory() -> None:
    first = iter([RuntimeError("run 0")])

    def duration(_name: str, _turn: int, _run: int) -> float:
        for error in first:
            raise error
        return 0.1

    runner = _Failing(duration)
    bench = VariantBench(BENCH_TASK, runner, BENCH_PLAN)
    with pytest.raises(MeasurementError, match="the driver is gone"):
        bench.time(CHOICE, None)
    assert runner.in_memory == 0
    assert len(bench.time(CHOICE, None)[0]) == 3
