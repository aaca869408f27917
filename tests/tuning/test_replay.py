"""Searches played again from records, against what the records say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from scipy.stats import binom

from countperf.harness.clock import FakeClock
from countperf.models.library import load_weights
from countperf.tuning.points import Predicted, PredictionTask, Refused
from countperf.tuning.result import Budget, Plan, TuningResult, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.space import SearchSpace
from tests.harness.fakes import IDENTITY
from tests.tuning.test_ranking import CPU
from tests.tuning.test_search import LARGE, QUESTION
from tuning_replay.records import Measured, Record, read_record
from tuning_replay.replay import (
    Answer,
    Recording,
    ReplayExecutor,
    ReplayProcessors,
    ReplayRunner,
    predicted_record,
    replayed_tuning,
)

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
        executor = ReplayExecutor(recording, processors)
        with executor.taking_over():
            return tune_space(
                recording.question,
                ReplayRunner(recording.record, 0, clock),
                Budget(seconds=10.0),
                store=tmp_path / "search.jsonl",
                executor=executor,
                began_s=clock.now() - 1.5,
            )

    clock = FakeClock()
    first, second, third = (search(clock) for _ in range(3))

    assert 0 < first.predicted < 16
    assert not first.ranking_complete
    assert second == third == first
