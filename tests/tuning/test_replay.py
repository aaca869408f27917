"""Searches played again from records, against what the records say."""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from scipy.stats import binom

from countperf.errors import (
    DocumentError,
    IncompatibleMeasurementsError,
    KernelBuildError,
    TuningError,
)
from countperf.harness.clock import FakeClock
from countperf.models.library import load_weights
from countperf.models.weights import WeightSet
from countperf.tuning.points import Predicted, PredictionTask, Refused
from countperf.tuning.result import Budget, Plan, TuningResult, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.space import SearchSpace
from tests.harness.conftest import _needs_device, device  # pyright: ignore[reportPrivateUsage]
from tests.harness.fakes import IDENTITY
from tests.tuning.spaces import DOUBLE
from tests.tuning.test_ranking import CPU, WEIGHTS
from tests.tuning.test_search import BEST, BEST_S, LARGE, QUESTION, scripted
from tuning_replay.records import Measured, Record, read_record, record
from tuning_replay.replay import (
    Answer,
    Recording,
    ReplayBuilders,
    ReplayExecutor,
    ReplayProcessors,
    ReplayRunner,
    ThinkingClock,
    predicted_record,
    random_search,
    replayed_tuning,
)

__all__ = ["_needs_device", "device"]

ROOT = Path(__file__).parents[2]


def _recording(
    count_s: float = 0.01, build_s: float = 1.0, space: SearchSpace = LARGE
) -> Recording:
    """Variants of 2 s each (1 s to build, ten runs of 0.1 s), the last ones slightly faster."""
    choices = list(space.choices())
    part = 16 / len(choices)
    return Recording(
        record=Record(
            space=space,
            sizes=space.sizes,
            device=IDENTITY,
            variants=tuple(
                Measured(
                    choice=choice, build_s=build_s, samples_s=(0.1 - part * number / 1000,) * 10
                )
                for number, choice in enumerate(choices)
            ),
        ),
        question=replace(QUESTION, space=space),
        answers={
            as_key(choice): Answer(
                point=Predicted(choice=choice, time_s=1.0 - part * number / 100, group_shape=(8,)),
                count_s=count_s,
            )
            for number, choice in enumerate(choices)
        },
        count_s=count_s * len(choices),
    )


def test_what_a_search_computes_can_be_counted() -> None:
    clock = ThinkingClock()
    before_s = clock.now()
    clock.sleep(5.0)
    computing_s = time.thread_time()
    while time.thread_time() < computing_s + 0.02:
        pass

    assert clock.now() - before_s >= 5.02


def test_a_record_holds_what_was_measured_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    broken = {"double/group=16,each=1,fetch=False": KernelBuildError("no registers left")}

    runner = scripted(broken=broken)
    first = record(LARGE, runner, path, points=10, plan=Plan(runs=3))
    again = scripted(broken=broken)
    whole = record(LARGE, again, path, points=16, plan=Plan(runs=3, tolerance=0.1))

    assert len(first.variants) == len(runner.checked) == 9  # three values of each parameter
    assert len(again.checked) + len(runner.checked) == 16
    assert len(whole.variants) == 16
    assert whole.best_s == pytest.approx(BEST_S)
    assert whole.quality(BEST) == 1.0
    failed = [each for each in whole.variants if not each.samples_s]
    assert [(each.stage, each.reason) for each in failed] == [("compile", "no registers left")]
    assert all(len(each.samples_s) == 3 for each in whole.variants if each not in failed)
    with pytest.raises(IncompatibleMeasurementsError):
        record(LARGE, scripted(), path, points=16, plan=Plan(runs=4))


def test_a_record_is_read_without_a_device(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    measured = record(LARGE, scripted(), path, points=9)

    found = read_record(path, points=9, space=LARGE)

    assert (found.sizes, found.device) == (measured.sizes, measured.device)
    assert [each.choice for each in found.variants] == [each.choice for each in measured.variants]
    assert found.variants[-1].samples_s == pytest.approx(measured.variants[-1].samples_s, abs=1e-9)
    with pytest.raises(DocumentError, match="lacks 7 of 16 variants"):
        read_record(path, points=16, space=LARGE)
    path.write_text(path.read_text() + '{"choice": [1]}\n')
    with pytest.raises(DocumentError, match=r"line 11: \$\.build_s: Field required"):
        read_record(path, space=LARGE)


def test_variants_are_measured_that_no_model_predicts_and_any_model_is_asked_later(
    tmp_path: Path,
) -> None:
    """Loopy refuses a fetch of eight; the first model has no weight for memory accesses."""
    path = tmp_path / "record.jsonl"
    content = WEIGHTS.to_object()
    kept = [each for each in content["weights"] if each["feature"] == "groups"]
    unweighted = WeightSet.from_object({**content, "weights": kept, "covariance_s2": None})

    def answers(weights: WeightSet) -> list[type]:
        question = PredictionTask(space=DOUBLE, weights=weights, sizes={})
        recording = predicted_record(found, question)
        assert 0 < recording.count_s < 60
        return [type(recording.answers[as_key(v.choice)].point) for v in found.variants]

    eights = [f"double/group={group},each=8,fetch=True" for group in (16, 32, 64)]
    broken = {name: KernelBuildError("no fetch of eight") for name in eights}
    found = record(DOUBLE, scripted(broken=broken), path, points=100)

    refused = [each for each in found.variants if each.stage == "compile"]
    assert [each.choice["each"] for each in refused] == [8, 8, 8]
    assert all(each.samples_s for each in found.variants if each not in refused)
    assert answers(unweighted) == [Refused] * 18
    assert answers(WEIGHTS) == [Refused if v in refused else Predicted for v in found.variants]


def test_a_replayed_device_takes_the_recorded_time() -> None:
    record = _recording().record
    runner = ReplayRunner(record)
    recorded = record.variants[3]
    case = record.space.case(recorded.choice)

    runner.check(case)
    runner.check(case)
    with runner.loaded(case) as run:
        samples = [run().time_s for _ in range(4)]

    assert samples == list(recorded.samples_s[:4])
    assert runner.clock.now() == pytest.approx(1.0 + sum(samples))


def test_a_replayed_failure_is_of_the_recorded_kind() -> None:
    failed = Measured(choice=dict(BEST), build_s=0.5, stage="compile", reason="no registers left")
    whole = _recording().record
    others = tuple(each for each in whole.variants if each.choice != BEST)
    runner = ReplayRunner(replace(whole, variants=(failed, *others)))

    with pytest.raises(KernelBuildError, match="no registers left"):
        runner.check(LARGE.case(BEST))
    assert runner.clock.now() == 0.5
    with pytest.raises(TuningError, match="no variant that was recorded ran"):
        replace(whole, variants=(failed,))


def test_replayed_predictions_take_processor_time_while_somebody_waits() -> None:
    recording = _recording()
    clock = FakeClock()
    executor = ReplayExecutor(recording, ReplayProcessors(clock, 2))
    choices = [each.choice for each in recording.record.variants]

    first, second, third, last = (
        executor.submit(print, QUESTION, choices[start : start + 4]) for start in (0, 4, 8, 12)
    )
    tasks = [first, second, third, last]

    assert executor.wait_in_replay(tasks, 0.03, FIRST_COMPLETED)[0] == set()
    assert executor.wait_in_replay(tasks, None, FIRST_COMPLETED)[0] == {first, second}
    assert first.result() == [recording.answers[as_key(c)].point for c in choices[:4]]
    assert clock.now() == pytest.approx(0.04)
    assert last.cancel()
    assert executor.wait_in_replay([third], None, FIRST_COMPLETED)[0] == {third}
    assert clock.now() == pytest.approx(0.08)


def test_what_is_built_shares_the_processors_with_predictions() -> None:
    """One of 1 s beside two tasks of predictions of 0.4 s each, on two processors."""
    recording = _recording(count_s=0.05)
    clock = FakeClock()
    processors = ReplayProcessors(clock, 2)
    executor = ReplayExecutor(recording, processors)
    choices = [each.choice for each in recording.record.variants]
    builders = ReplayBuilders(recording.record, processors, Plan(), 1.0, seed=0)

    with builders:
        builders.begin([BEST])
        tasks = [executor.submit(print, QUESTION, choices[:8]) for _ in range(2)]
        executor.wait_in_replay(tasks, None, FIRST_COMPLETED)
        assert all(task.done() for task in tasks)
        assert clock.now() == pytest.approx(0.6)
        assert not builders.is_free(BEST)
        builders.wait(0.1)
        assert clock.now() == pytest.approx(0.7)
        builders.wait(60.0)
        assert builders.is_free(BEST)
        assert builders.built_s(BEST) == pytest.approx(1.0)
        assert clock.now() == pytest.approx(1.2)
        samples, cut_short = builders.time(BEST, None, 60.0)
        assert not cut_short
        assert clock.now() == pytest.approx(1.2 + sum(samples))
        builders.begin(choices[:2])
        builders.pause()
        assert clock.now() == pytest.approx(2.2 + sum(samples))


def test_predictions_keep_coming_while_a_build_is_waited_for() -> None:
    """Of .05 s each, in 3 s of two processors, and two thirds of the next 7 s: 306."""
    wide = replace(LARGE, parameters={**LARGE.parameters, "group": range(8, 208)})
    recording = _recording(count_s=0.05, build_s=5.0, space=wide)
    assert len(recording.answers) > 600
    record = replace(recording.record, device=CPU)

    found = replayed_tuning(replace(recording, record=record), 20.0, seed=0, workers=2).result

    assert 280 < found.predicted < 320
    assert len(found.tried) >= 3


def test_searches_keep_their_budget() -> None:
    """Of variants of 2 s, two at a time, 4.5 s allow four; what is under way may end later."""
    recording = _recording()
    record = recording.record

    found = replayed_tuning(recording, 4.5, seed=0, workers=2).result
    lucky = record.variants[-1].choice

    assert found.predicted == 16
    assert 1 <= len(found.tried) <= 4
    assert found.spent_s <= 4.5 + 2.0
    assert found.winner.choice == recording.first_pick == lucky
    picks = [random_search(record, 4.5, seed=seed) for seed in range(20)]
    assert len({LARGE.label(pick) for pick in picks}) > 4
    assert all(record.quality(random_search(record, 1e6, seed=s)) == 1.0 for s in range(3))
    one, two = (
        [record.quality(random_search(record, 3.5, seed=s, workers=n)) for s in range(20)]
        for n in (1, 2)
    )  # two are built at a time, so that there is time to run the second
    assert all(more >= less for less, more in zip(one, two, strict=True))
    assert sum(two) > sum(one)


def test_a_first_variant_that_takes_more_than_the_budget_is_waited_for() -> None:
    slow = _recording(build_s=5.0)
    record = replace(slow.record, device=CPU)

    found = replayed_tuning(replace(slow, record=record), 1.0, seed=0, workers=2).result

    assert len(found.tried) == 1
    assert found.spent_s == pytest.approx(5.0, abs=0.5)


def test_on_processors_several_variants_are_built_at_a_time() -> None:
    """On other devices one is built after the other."""
    other = _recording()
    processor = replace(other, record=replace(other.record, device=CPU))

    one = replayed_tuning(other, 8.0, seed=0, workers=4).result
    several = replayed_tuning(processor, 8.0, seed=0, workers=4).result

    assert len(several.tried) > len(one.tried) > 0
    assert several.spent_s <= 8.0 + 2.0


def test_what_is_left_of_the_budget_goes_into_predictions_before_a_search_is_sure() -> None:
    """Predictions are right, so that few measurements do, and slow."""
    slow = _recording(count_s=1.0, build_s=0.01)
    times = {key: 1e-3 * 1.5**number for number, key in enumerate(slow.answers)}
    right = replace(
        slow,
        record=replace(
            slow.record,
            variants=tuple(
                replace(each, samples_s=(times[as_key(each.choice)],) * 10)
                for each in slow.record.variants
            ),
        ),
        answers={
            key: replace(answer, point=Predicted(choice=dict(key), time_s=times[key]))
            for key, answer in slow.answers.items()
        },
    )

    found = replayed_tuning(right, 12.0, seed=0, workers=2).result

    assert found.stopped in ("confident", "exhausted")
    assert found.ranking_complete
    assert found.predicted == len(times)


@pytest.mark.parametrize(
    ("seconds", "predicted", "tried"),
    [(5.0, range(1, 9), 1), (10.0, range(1, 13), 3), (60.0, range(16, 17), 5)],
)
def test_any_budget_goes_partly_into_predictions_and_partly_into_measurements(
    seconds: float, predicted: range, tried: int
) -> None:
    """Predicting all takes 16 s on two processors, building a variant 0.4 s."""
    slow = _recording(count_s=2.0, build_s=0.4)

    found = replayed_tuning(slow, seconds, seed=0, workers=2).result

    assert found.predicted in predicted
    assert len(found.tried) >= tried
    assert found.spent_s <= seconds + 1.0
    assert slow.record.quality(found.winner.choice) > 0.9


def test_a_replay_tells_the_regret_of_what_was_predicted_and_of_all() -> None:
    """The three fastest have no prediction; of what was predicted the best one is found."""
    whole = _recording(build_s=0.01)
    *_, third, second, first = whole.answers
    times = {as_key(each.choice): each.time_s for each in whole.record.variants}
    refused = Refused(choice={}, stage="predict", reason="no weight")
    answers = {
        key: replace(answer, point=refused) if key in (first, second, third) else answer
        for key, answer in whole.answers.items()
    }

    found = replayed_tuning(replace(whole, answers=answers), 60.0, seed=0, workers=2)

    winner_s = times[as_key(found.result.winner.choice)]
    assert found.regret == 0.0
    assert found.whole_regret == pytest.approx(1 - times[first] / winner_s)
    assert (found.result.bounded, found.result.unbounded) == (13, 3)
    assert found.bound_holds
    assert replace(found, regret=1.0).bound_holds is False
    nothing = replace(found, result=replace(found.result, regret_bound=None))
    assert nothing.bound_holds is None


@pytest.mark.parametrize(
    ("device", "family", "model"),
    [
        pytest.param("pocl-epyc-zen5", "transpose", None, id="noisy, good predictions"),
        pytest.param("intel-epyc-zen5", "stencil", "linear", id="quiet, poor predictions"),
    ],
)
def test_regrets_are_within_their_bounds_as_often_as_the_confidence_says(
    device: str, family: str, model: str | None
) -> None:
    """By a record: no more misses than come up by chance once in a hundred times."""
    path = ROOT / "fits" / device / "tuning" / f"{family}.jsonl"
    record = read_record(path, points=100)
    question = PredictionTask(
        space=record.space,
        weights=load_weights(device, model=model),
        sizes={},
        incomplete_ok=True,
    )
    recording = predicted_record(record, question)
    answers = {key: replace(each, count_s=0.05) for key, each in recording.answers.items()}
    recording = replace(recording, answers=answers)  # the same on any machine

    replays = [
        replayed_tuning(recording, share * record.exhaustive_s, seed=seed, workers=2)
        for share in (0.05, 0.1, 0.2)
        for seed in range(8)
    ]

    bounds = [replay.result.regret_bound for replay in replays]
    claims = [(b, r.regret) for b, r in zip(bounds, replays, strict=True) if b is not None]
    misses = sum(not replay.bound_holds for replay in replays if replay.bound_holds is not None)
    assert len(claims) == 24
    assert misses <= binom.ppf(0.99, len(claims), 1 - Plan().confidence)
    assert sum(regret > 0 for _, regret in claims) >= 12  # so that there is something to bound
    assert median(bound for bound, _ in claims[-8:]) < 0.9  # and the bounds say something
    assert any(regret > bound / 2 for bound, regret in claims)


def test_variants_without_a_prediction_are_not_bounded() -> None:
    """One that cannot be counted may be the fastest; one that Loopy refuses is none."""
    whole = _recording(build_s=0.01)
    uncounted, refused, *_ = whole.answers
    answers = {
        **whole.answers,
        uncounted: Answer(point=Refused(choice={}, stage="count", reason="modulo"), count_s=0.1),
        refused: Answer(point=Refused(choice={}, stage="schedule", reason="cycle"), count_s=0.1),
    }

    found = replayed_tuning(replace(whole, answers=answers), 60.0, seed=0, workers=2).result

    assert found.ranking_complete
    assert (found.bounded, found.unbounded) == (14, 1)


def test_a_search_that_did_not_look_at_all_answers_the_same_from_its_file(tmp_path: Path) -> None:
    """Predicting all takes 16 s on two processors: what came last is in the file as well."""
    recording = _recording(count_s=2.0, build_s=0.4)

    def search(clock: FakeClock) -> TuningResult:
        processors = ReplayProcessors(clock, 2)
        return tune_space(
            recording.question,
            ReplayRunner(recording.record, 0, clock),
            Budget(seconds=10.0),
            store=tmp_path / "search.jsonl",
            executor=ReplayExecutor(recording, processors),
            began_s=clock.now() - 1.5,
        )

    clock = FakeClock()
    first, second, third = (search(clock) for _ in range(3))

    assert 0 < first.predicted < 16
    assert not first.ranking_complete
    assert second == third == first


@pytest.mark.long
@pytest.mark.device
@pytest.mark.extra("tuners")
def test_the_benchmark_compares_all_searches(tmp_path: Path) -> None:
    output = tmp_path / "tuning.json"
    options = ["--points", "12", "--sizes", "n=256", "m=256", "--repetitions", "2"]
    options += ["--strategies", "random_sample", "genetic_algorithm"]

    printed = _run("benchmark_tuning.py", tmp_path, output, *options)

    found = json.loads(output.read_text())
    assert set(found["families"]) == {"transpose", "stencil"}
    searches = {"model alone", "tune", "random search", "Kernel Tuner, random_sample"}
    assert searches < set(found["geometric_mean"])
    assert all(0 < value <= 1 for value in found["geometric_mean"].values())
    for family in found["families"].values():
        assert len(family["repetitions"]["tune"]) == 2
        assert family["exhaustive_over_ranking"] > 0
        assert len(family["regret_bounds"]) == len(family["regrets"]) == 2
        assert family["bounds_hold"] in (0.0, 0.5, 1.0)
    assert "geometric mean" in printed

    live = _searched_live(tmp_path)
    assert set(live["families"]) == {"transpose"}
    assert set(live["geometric_mean"]) == {"tune, on the device", "model alone, on the device"}
    assert all(0 < share <= 1 for share in live["geometric_mean"].values())
    assert all(pace > 0 for each in live["paces"] for pace in each.values())
    for family in live["families"].values():
        assert [each["tried"] > 0 for each in family["repetitions"]] == [True]


def test_results_of_strategies_without_weights_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of our own searches are new; a file of other budgets is refused."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    benchmark = importlib.import_module("benchmark_tuning")
    told = ("quality", "repetitions", "evaluations")
    names = ("tune", "Kernel Tuner, mls")

    def family(*values: float) -> dict[str, Any]:
        each = dict(zip(names, values, strict=False))
        return {"variants": 9, "best_s": 1e-3, "budget_s": 2.0, **{f: dict(each) for f in told}}

    path = tmp_path / "tuning.json"
    benchmark.keep_strategies({"stencil": family(0.9)}, path)  # of no earlier file
    path.write_text(json.dumps({"families": {"stencil": family(0.7, 0.5)}}))
    new = {"stencil": family(0.9)}
    benchmark.keep_strategies(new, path)
    assert all(new["stencil"][field] == family(0.9, 0.5)[field] for field in told)

    other = {"stencil": {**family(0.9), "budget_s": 2.1}}
    with pytest.raises(DocumentError, match=r"families\.stencil\.budget_s is 2.0, and 2.1 now"):
        benchmark.keep_strategies(other, path)


def test_of_variants_that_are_as_fast_luck_makes_none_the_fastest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixteen recorded variants take the same but for noise, a seventeenth a quarter more."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    benchmark = importlib.import_module("benchmark_live_tuning")
    record = _recording().record
    draw = random.Random(0)
    slow = {"group": 0, "each": 0, "fetch": False}

    def repetition(found: dict[str, Any]) -> dict[str, Any]:
        logs = [([draw.gauss(0.0, 0.1) for _ in range(12)], e.choice) for e in record.variants]
        extra = [draw.gauss(math.log(1.25), 0.1) for _ in range(12)]
        turns = [(choice, each) for each, choice in logs] + [(slow, extra)]
        return {"found": {"fast": found, "slow": slow}, "turns": turns}

    def searched() -> list[dict[str, float]]:
        choices = [draw.choice(record.variants).choice for _ in range(5)]
        return benchmark.judged(record, [repetition(choice) for choice in choices])

    shares = [share for _ in range(8) for share in searched()]

    assert fmean(each["fast"] for each in shares) > 0.97
    assert fmean(each["slow"] for each in shares) == pytest.approx(0.8, abs=0.02)


def _searched_live(folder: Path) -> Any:
    """Search one of the recorded spaces on the device itself."""
    output = folder / "live.json"
    options = ["--families", "transpose", "--sample", "2", "--repetitions", "1"]
    _run("benchmark_live_tuning.py", folder, output, *options)
    return json.loads(output.read_text())


def _run(script: str, folder: Path, output: Path, *options: str) -> str:
    """Run a benchmark of two small spaces; return what it prints."""
    command = [sys.executable, "-W", "ignore", str(ROOT / "scripts" / script)]
    command += ["--families", "transpose", "stencil", "--folder", str(folder)]
    command += ["--share", "0.5", "--weights", "pocl-epyc-zen5", "--output", str(output)]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
