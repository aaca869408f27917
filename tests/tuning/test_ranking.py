"""Which points are predicted, in which order, why some are refused, and which are tried next."""

from __future__ import annotations

import multiprocessing
import pickle
import re
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countperf.api.searching import load_space
from countperf.devices.workers import WorkerLostError
from countperf.errors import ParameterError, SearchSpaceError, TuningError
from countperf.steps import listening
from countperf.tuning import ranker as rankers
from countperf.tuning.candidates import Candidates
from countperf.tuning.ranker import Point, Predicted, Ranker, Ranking, rank_points
from countperf.tuning.refusals import Refused, Stage, count_refusals
from countperf.tuning.result import Budget, Plan, Trial, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.space import Choice, SearchSpace
from tests.devices.fakes import LIMITS as FAKE_LIMITS
from tests.devices.fakes import FakeRunner
from tests.models.builders import make_weights
from tests.printing import text_of
from tests.tuning.spaces import CHOOSY, DOUBLE, N, chances, make_space

WEIGHTS = make_weights(
    {
        **{"flop.mul.f32": 1e-9, "gmem.load.32.stride1": 1e-9, "gmem.store.32.stride1": 1e-9},
        **{"gmem.min.32.stride1": 1e-9, "groups": 1e-7, "launches": 1e-6},
    }
)
LIMITS = replace(
    FAKE_LIMITS, max_group_size=32, max_group_shape=(32, 32, 32), local_memory_bytes=2**15
)
_answers: dict[tuple[bytes, str], list[Point]] = {}


class Inline(Executor):
    """Predicts points when they are submitted, those of a question once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        assert not kwargs
        future: Future[Any] = Future()
        asked, choices = args
        key = asked, repr(choices)
        if key not in _answers:
            _answers[key] = fn(asked, choices)
        future.set_result(_answers[key])
        return future


def _question(**changes: Any) -> rankers.PredictionTask:
    fields: dict[str, Any] = {"space": DOUBLE, "weights": WEIGHTS, "sizes": {}}
    return rankers.PredictionTask(**{**fields, **changes})


def _ranking(**changes: Any) -> Ranking:
    return rank_points(_question(**changes), executor=Inline())


def test_what_counts_have_no_weight_for_is_predicted_by_code() -> None:
    given = [{"weights": make_weights({"launches": 1e-6}), "reading": by} for by in (None, WEIGHTS)]
    points = [rankers.predict_point(_question(**some), next(DOUBLE.choices())) for some in given]
    assert [type(point) for point in points] == [Refused, Predicted]


def test_points_are_ranked_by_predicted_time_and_the_refused_summed_up() -> None:
    passed: list[Point] = []
    ranking = rank_points(_question(), executor=Inline(), on_point=passed.append)
    assert (ranking.predicted, ranking.refused, ranking.complete) == (15, 3, True)
    assert [point.time_s for point in ranking.best] == sorted(p.time_s for p in ranking.best)
    first = ranking.best[0]
    assert (first.choice["group"], first.choice["each"]) == (64, 8)
    assert first.time_s == pytest.approx(1e-6 + N * 4e-9 + 1e-7 * N / (64 * 8))
    assert sum(first.parts.values()) == pytest.approx(1.0, abs=0.02)
    assert ranking.refusals["build"].count == 3
    assert ranking.refusals["build"].reasons[0].example.reason == "ValueError: no fetch of eight"
    few = rank_points(_question(), executor=Inline(), keep=4)
    assert (few.best, few.predicted) == (ranking.best[:4], 15)
    assert len(passed) == 18
    assert sum(isinstance(point, Predicted) for point in passed) == 15


def _refuse(kind: str, x: int, y: int) -> Any:
    if kind == "fancy":
        raise (KeyError if x % 3 == 0 else ValueError)(f"{x} is not {y}")
    raise TypeError("plain")


def test_reasons_are_counted_and_those_that_differ_in_numbers_alone_are_one() -> None:
    """Of 12 x and 4 y half are plain; of the others a third are keys."""
    whole = _ranking(space=make_space(build=_refuse))
    build = whole.refusals["build"]
    assert build.count == 96
    assert [(reason.count, reason.example.reason.split(":")[0]) for reason in build.reasons] == [
        (48, "TypeError"),
        (32, "ValueError"),
        (16, "KeyError"),
    ]
    with pytest.raises(TuningError, match=r"96 refused: 48 \(build\): TypeError: plain; 32 \(bui"):
        whole.check_predicted()


def test_very_many_kinds_of_reasons_do_not_pile_up() -> None:
    texts = [f"{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(300)]
    refused = [Refused(choice={}, stage="build", reason=text) for text in texts * 2]
    build = count_refusals(refused)["build"]
    assert build.count == 600
    assert [reason.count for reason in build.reasons] == [2] * 50


@pytest.mark.parametrize(
    ("changes", "stage", "count", "reason"),
    [
        ({"limits": LIMITS}, "limits", 5, "groups of 64 work items; the device takes up to 32"),
        ({"sizes": {"n": 32}}, "sizes", 9, "kernel 'double_it' assumes"),
        ({"weights": make_weights({"flop.mul.f32": 1e-9})}, "predict", 15, ""),
        (
            {"weights": make_weights({"flop.mul.f32": -1e-9}), "incomplete_ok": True},
            "predict",
            15,
            "which is no time",
        ),
    ],
    ids=["limits", "sizes", "no weight", "negative time"],
)
def test_variants_that_cannot_be_are_refused_with_stage_and_reason(
    changes: dict[str, Any], stage: str, count: int, reason: str
) -> None:
    ranking = _ranking(**changes)
    assert ranking.refusals[stage].count == count
    assert all(reason in r.example.reason for r in ranking.refusals[stage].reasons)
    assert ranking.predicted == 15 - count


def _fail(choice: Choice) -> dict[str, float]:
    return {"a": 1 / (int(choice["tile"]) - 16), "b": 1 / 0}


@pytest.mark.parametrize(
    ("of_space", "given"),
    [(chances, None), ({}, chances), (_fail, {})],
    ids=["of the space", "of the call", "that fail"],
)
def test_statistics_are_those_of_the_variant(of_space: Any, given: Any) -> None:
    """An element in 16 or 64 is multiplied."""
    space = replace(CHOOSY, statistics=of_space)
    ranking = _ranking(space=space, statistics=given, incomplete_ok=True)
    if of_space is _fail:
        said = "space 'choosy': the function of its statistics fails at tile="
        reason = ranking.refusals["count"].reasons[0].example.reason
        assert reason.startswith(said)
        assert reason.endswith("ZeroDivisionError: division by zero")
        return
    times = {point.choice["tile"]: point.time_s for point in ranking.best}
    assert times == {t: pytest.approx(1e-6 + 1e-7 + 1e-9 * N / t) for t in (16, 64)}
    assert space.case({"tile": 16}, statistics=given).statistics == {"a[i] > 16": 1 / 16}


def test_an_error_for_want_of_statistics_says_which() -> None:
    ranking = _ranking(space=CHOOSY, incomplete_ok=True)
    with pytest.raises(TuningError) as caught:
        ranking.check_predicted()
    example = ranking.refusals["count"].reasons[0].example.choice["tile"]
    assert caught.value.statistics == {f"a[i] > {example}": 0.5}


def test_properties_without_a_weight_may_be_left_out() -> None:
    lenient = _ranking(weights=make_weights({"flop.mul.f32": 1e-9}), incomplete_ok=True)
    assert len(lenient.best) == 15
    assert "groups" in lenient.best[0].missing


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_group_size": 99, "max_group_shape": (8,)}, "along axis 0"),
        ({"max_group_size": 999, "local_memory_bytes": 9}, "10240 byte"),
    ],
)
def test_each_limit_is_looked_at(changes: dict[str, Any], said: str) -> None:
    space = load_space("matmul")
    choice: dict[str, Any] = {"items_i": 4, "items_j": 16, "rows": 4, "columns": 4, "step": 32}
    choice |= {"fetch": "ab", "block": "ilp", "lanes": "j", "unroll": False}
    point = rankers.predict_point(_question(space=space, limits=replace(LIMITS, **changes)), choice)
    assert isinstance(point, Refused)
    assert point.stage == "limits"
    assert said in point.reason


class _Never(Executor):
    """Takes on nothing."""


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"q": 4}, "space 'double' has no size q; there are n"),
        ({"n": -4}, "space 'double': n = -4; sizes are positive"),
        ({"n": 0}, "space 'double': n = 0; sizes are positive"),
    ],
    ids=["misspelt", "negative", "zero"],
)
def test_sizes_that_no_variant_can_have_are_refused_before_any_is_predicted(
    sizes: dict[str, int], said: str, tmp_path: Path
) -> None:
    store = tmp_path / "search.jsonl"
    with pytest.raises(ParameterError, match=said) as caught:
        rank_points(_question(sizes=sizes), executor=_Never())
    budget = Budget(measurements=9)
    with pytest.raises(ParameterError, match=said):
        tune_space(_question(sizes=sizes), FakeRunner(), budget, executor=_Never(), store=store)
    assert [caught.value.parameter] == list(sizes)
    assert not store.exists()


def test_a_space_without_sizes_takes_those_of_its_kernels() -> None:
    space = replace(DOUBLE, sizes={})
    ranking = _ranking(space=space, sizes={"n": N, "m": N})
    assert _ranking(space=space, sizes={"n": N}).predicted == 15
    assert (ranking.predicted, ranking.refusals["sizes"].count) == (0, 15)
    assert "m" in ranking.refusals["sizes"].reasons[0].example.reason


def test_any_executor_gives_the_same() -> None:
    inline = _ranking()
    with ThreadPoolExecutor(1) as pool:
        assert rank_points(_question(), executor=pool).best == inline.best
    default = rank_points(_question(space=load_space("tests.tuning.spaces:DOUBLE")))
    assert default.best == inline.best
    assert default.refusals == inline.refusals


def test_a_paused_ranking_leaves_the_executor_idle_and_goes_on() -> None:
    whole = _ranking()
    with ThreadPoolExecutor(1) as pool, Ranker(_question(), pool, keep=100) as ranker:
        ranker.work(0.0)
        ranker.pause()
        answered = ranker.answered
        pool.submit(int).result()
        paused = ranker.ranking()
        while not ranker.is_done:
            ranker.work(None)
        done = ranker.ranking()
    assert paused.predicted + paused.refused == answered < 18
    assert (done.best, done.refusals, done.complete) == (whole.best, whole.refusals, True)


def test_a_space_that_cannot_be_sent_is_an_error_that_says_so() -> None:
    lock = threading.Lock()
    space = replace(DOUBLE, build=lambda **_: lock)
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(SearchSpaceError, match="cannot be sent to the processes that count"),
    ):
        rank_points(_question(space=space), executor=pool)


def test_a_number_of_points_is_a_sample_of_a_space_however_large() -> None:
    space = make_space(parameters={name: range(1000) for name in "abcdef"})
    part = rank_points(_question(space=space), executor=Inline(), points=4)
    assert part.refusals["schedule"].count == 4
    assert not part.complete


SPACES = {
    ":x": "no countperf.SearchSpace and no function of the name 'x' .there: space, bad",
    **{":y": "no function of the name 'y'", ":bad": "no luck", "x.py:y": "there is no file"},
}


def test_spaces_are_found_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from countperf.tuning import SearchSpace\n"
        "def space():\n    return SearchSpace(name='s', parameters={'x': [1]}, build=dict)\n"
        "x = 3\n"
        "def bad():\n    raise OSError('no luck')\n"
    )
    assert load_space(f"{file}:space").name == "s"
    for text, said in {
        **{f"{file}{name}": said for name, said in SPACES.items()},
        "no.such.module:x": "no.such.module cannot be imported",
        "matmull": "there are matmul, stencil",
    }.items():
        with pytest.raises(SearchSpaceError, match=said):
            load_space(text)


SPACE = make_space(parameters={"x": range(8), "y": [1, 2]}, sizes={})


def _known(*points: Predicted) -> Candidates:
    candidates = Candidates(SPACE.parameters, Plan())
    candidates.look(
        Ranking(
            space="toy",
            sizes={},
            device="abacus",
            weights="abacus",
            model="linear",
            best=tuple(sorted(points, key=lambda point: point.time_s)),
            predicted=len(points),
            refusals={},
            complete=True,
            seconds=0.0,
        )
    )
    return candidates


FIRST, SECOND = (Predicted(choice={"x": x, "y": 1}, time_s=1e-3 + 1e-4 * (x - 1)) for x in (1, 2))


@pytest.mark.parametrize(
    ("other_s", "cut_short", "regret"),
    [
        pytest.param((2.2e-3,), True, 1 - 1.1 / 1.5, id="half of it after one run"),
        pytest.param((1.8e-3, 1.65e-3), True, 1 - 1.1 / 1.5, id="two thirds after two"),
        pytest.param((1.2e-3,) * 10, False, 1 - 1.2 / 1.5, id="what there is after all"),
        pytest.param((2.2e-3,) * 10, False, 0.0, id="slower than any run of the winner"),
    ],
)
def test_of_measured_variants_those_cut_short_may_have_been_faster_than_the_winner(
    other_s: tuple[float, ...], cut_short: bool, regret: float
) -> None:
    """Every other run of the winner takes half as long again, so that its median may."""
    candidates = _known(FIRST, SECOND)
    winner = Trial(choice=FIRST.choice, predicted_s=1e-3, samples_s=(1e-3, 1.5e-3) * 5)
    other = Trial(choice=SECOND.choice, predicted_s=1e-3, samples_s=other_s, cut_short=cut_short)
    candidates.learn(winner)
    candidates.learn(other)
    assert candidates.regret(winner) == pytest.approx(regret)


def test_what_there_is_no_time_for_is_not_tried_but_the_first_one_always_is() -> None:
    candidates = _known(FIRST, SECOND)
    assert candidates.promising(0.01, 1)
    tried = Trial(choice=SECOND.choice, predicted_s=1.1e-3, samples_s=(1e-3,))
    candidates.learn(tried, build_s=2.0)
    assert candidates.promising(1.0, 1) == []
    assert candidates.promising(10.0, 2) == [FIRST]


class _Told(Executor):
    """Times are short for large x and y; a corner has no prediction."""

    def submit(self, _: Callable[..., Any], /, *args: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result([self.point(choice) for choice in args[1]])
        return future

    @staticmethod
    def point(choice: Choice) -> Point:
        x, y = int(choice["x"]), int(choice["y"])
        if x == 0:
            return Refused(choice=dict(choice), stage="build", reason="no corner")
        return Predicted(choice=dict(choice), time_s=2.0 ** -(x + y))


def _ranked(space: SearchSpace, points: int, *, by_promise: bool) -> tuple[float, Ranking]:
    """Return the shortest time among so many points of a space, and the ranking."""
    with Ranker(_question(space=space), _Told(), points=points, by_promise=by_promise) as ranker:
        while not ranker.is_done:
            ranker.work(None)
        ranking = ranker.ranking()
    return ranking.best[0].time_s, ranking


class _Read(_Told):
    """By counts times grow with x. By code x = 1 fails, 2 does not compile, 3 ends the process."""

    def submit(self, _: Callable[..., Any], /, *args: Any, **__: Any) -> Future[Any]:
        packed, choices = args
        model = pickle.loads(zlib.decompress(packed)).weights.model
        future: Future[Any] = Future()
        if model == "compiled" and any(choice["x"] == 3 for choice in choices):
            future.set_exception(WorkerLostError("it is gone"))
        else:
            future.set_result([self._find(model, choice) for choice in choices])
        return future

    @staticmethod
    def _find(model: str, choice: Choice) -> Point:
        x, y = int(choice["x"]), int(choice["y"])
        stages: dict[int, Stage] = {1: "count", 2: "compile"}
        if model == "compiled" and x in stages:
            return Refused(choice=dict(choice), stage=stages[x], reason=f"x is {x}")
        time_s = 1e-6 * (9 - y) if model == "compiled" else 1e-3 * (x + 1) + 1e-4 * y
        return Predicted(choice=dict(choice), time_s=time_s, model=model)


READING = make_weights({"launches": 1e-6}, model="compiled")


def test_the_most_promising_are_predicted_again_by_code_and_stand_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 16 eight are read: two predicted, two not followed, two not compiled, two lost."""
    monkeypatch.setattr(rankers, "READ", 8)
    task = _question(space=SPACE, reading=READING, model_choice="model compiled: it is here")
    told: list[Point] = []
    steps: list[tuple[str, int, int | None]] = []
    with listening(lambda *step: steps.append(step)):
        ranking = rank_points(task, executor=_Read(), keep=9, on_point=told.append)
    found = [(point.choice["x"], point.choice["y"], point.model) for point in ranking.best]
    others = [(x, y, "linear") for x in (1, 3, 4, 5) for y in (1, 2)]
    assert found == [(0, 2, "compiled"), (0, 1, "compiled"), *others[:7]]
    assert (ranking.predicted, ranking.refused, ranking.read, len(told)) == (14, 2, 2, 20)
    assert {stage: why.count for stage, why in ranking.refusals.items()} == {"compile": 2}
    assert {stage: why.count for stage, why in ranking.unread.items()} == {"build": 2, "count": 2}
    assert {step[::2] for step in steps[1:]} == {
        ("predicting variants", 16),
        ("reading compiled code of variants", 8),
    }
    assert (ranking.model, ranking.model_choice) == ("compiled", "model compiled: it is here")
    printed = text_of(ranking)
    assert re.search(r"predicted +model +x +y\n +7.00 µs +compiled +0 +2\n", printed)
    assert "2 of the most promising, predicted from their compiled code, stand first" in printed
    assert "by counts alone (count): 2 of 2, such as x=1 y=1: x is 1" in printed


@pytest.mark.parametrize(("seconds", "read"), [(1.9, 0), (3.0, 6), (100.0, 8)])
def test_a_search_reads_as_many_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch, seconds: float, read: int
) -> None:
    monkeypatch.setattr(rankers, "READ", 8)
    monkeypatch.setattr(rankers, "capacity", lambda _: 2)
    with Ranker(_question(space=SPACE, reading=READING), _Read(), by_promise=True) as ranker:
        while not ranker.is_done:
            ranker.work(None)
        ranker.read_code(seconds)
        assert ranker.to_read == read
        while ranker.tried < ranker.to_read:
            ranker.work(None)
        assert ranker.ranking().read == min(read, 2)


def test_promising_points_are_predicted_early_and_none_twice() -> None:
    space = replace(SPACE, parameters={"x": range(24), "y": range(8)})
    spread_s, _ = _ranked(space, 30, by_promise=False)
    chosen_s, part = _ranked(space, 30, by_promise=True)
    _, whole = _ranked(space, 10**6, by_promise=True)
    assert chosen_s < spread_s
    assert part.predicted + part.refused == 30
    assert (part.complete, whole.complete) == (False, True)
    assert whole.predicted + whole.refused == space.cardinality
    assert len({as_key(point.choice) for point in whole.best}) == whole.predicted
