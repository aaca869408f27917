from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countperf.errors import ParameterError, SearchSpaceError, TuningError
from countperf.harness.device import DeviceLimits
from countperf.tuning.points import Point, Predicted, PredictionTask, Refused, predict_point
from countperf.tuning.ranker import Ranker, by_stage, rank_points
from countperf.tuning.sending import checked_space
from countperf.workflow.tuning import load_space
from tests.harness.fakes import LIMITS as FAKE_LIMITS
from tests.models.builders import make_weights
from tests.tuning.spaces import DOUBLE, N, make_space

WEIGHTS = make_weights(
    {
        "flop.mul.f32": 1e-9,
        "gmem.load.32.stride1": 1e-9,
        "gmem.store.32.stride1": 1e-9,
        "gmem.min.32.stride1": 1e-9,
        "groups": 1e-7,
        "launches": 1e-6,
    }
)
LIMITS = replace(
    FAKE_LIMITS, max_group_size=32, max_group_shape=(32, 32, 32), local_memory_bytes=2**15
)


class Inline(Executor):
    """Runs a task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _question(**changes: Any) -> PredictionTask:
    fields: dict[str, Any] = {"space": DOUBLE, "weights": WEIGHTS, "sizes": {}}
    return PredictionTask(**{**fields, **changes})


def test_points_are_ranked_by_predicted_time_and_the_refused_summed_up() -> None:
    ranking = rank_points(_question(), executor=Inline())

    assert (ranking.predicted, ranking.refused, ranking.complete) == (15, 3, True)
    assert [point.time_s for point in ranking.best] == sorted(p.time_s for p in ranking.best)
    first = ranking.best[0]
    assert (first.choice["group"], first.choice["each"]) == (64, 8)
    assert first.time_s == pytest.approx(1e-6 + N * 4e-9 + 1e-7 * N / (64 * 8))
    assert sum(first.parts.values()) == pytest.approx(1.0, abs=0.02)
    assert ranking.refusals["build"].count == 3
    assert ranking.refusals["build"].examples[0].reason == "ValueError: no fetch of eight"


def _refuse(kind: str, x: int, y: int) -> Any:
    if kind == "fancy":
        raise (KeyError if x % 3 == 0 else ValueError)(f"{x} is not {y}")
    raise TypeError("plain")


def test_reasons_are_counted_and_those_that_differ_in_numbers_alone_are_one() -> None:
    """Of 12 x and 4 y half are plain; of the others a third are keys."""
    question = _question(space=make_space(build=_refuse))

    whole = rank_points(question, executor=Inline())

    build = whole.refusals["build"]
    assert build.count == 96
    assert [(each.count, each.example.reason.split(":")[0]) for each in build.reasons] == [
        (48, "TypeError"),
        (32, "ValueError"),
        (16, "KeyError"),
    ]
    assert by_stage(each for each in build.examples)["build"].count == 3
    with pytest.raises(TuningError, match=r"96 refused: 48 \(build\): TypeError: plain; 32 \(bui"):
        whole.check_predicted()


def test_very_many_kinds_of_reasons_do_not_pile_up() -> None:
    texts = [f"{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(300)]
    refused = [Refused(choice={}, stage="build", reason=text) for text in texts * 2]

    found = by_stage(refused)["build"]

    assert found.count == 600
    assert len(found.reasons) == 50
    assert all(reason.count == 2 for reason in found.reasons)


def test_what_exceeds_the_limits_is_refused_with_the_reason() -> None:
    ranking = rank_points(_question(limits=LIMITS), executor=Inline())

    assert ranking.refusals["limits"].count == 5
    reasons = {each.reason for each in ranking.refusals["limits"].examples}
    assert reasons == {"groups of 64 work items; the device takes up to 32"}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (replace(LIMITS, max_group_size=99, max_group_shape=(8,)), "along axis 0"),
        (
            replace(LIMITS, max_group_size=999, local_memory_bytes=9),
            "10240 byte",
        ),
    ],
)
def test_each_limit_is_looked_at(limits: DeviceLimits, said: str) -> None:
    space = load_space("matmul")
    choice = {
        "items_i": 4,
        "items_j": 16,
        "rows": 4,
        "columns": 4,
        "step": 32,
        "fetch": "ab",
        "block": "ilp",
        "lanes": "j",
        "unroll": False,
    }
    point = predict_point(_question(space=space, limits=limits), space, choice)

    assert isinstance(point, Refused)
    assert point.stage == "limits"
    assert said in point.reason


def test_sizes_that_a_variant_does_not_take_are_a_refusal() -> None:
    ranking = rank_points(_question(sizes={"n": 32}), executor=Inline())

    assert ranking.refusals["sizes"].count == 9
    assert {point.choice["group"] for point in ranking.best} == {16, 32}


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        pytest.param({"q": 4}, "space 'double' has no size q; there are n", id="misspelt"),
        pytest.param({"n": -4}, "space 'double': n = -4; sizes are positive", id="negative"),
        pytest.param({"n": 0}, "space 'double': n = 0; sizes are positive", id="zero"),
    ],
)
def test_sizes_that_no_variant_can_have_are_refused_before_any_is_predicted(
    sizes: dict[str, int], said: str
) -> None:
    passed: list[Point] = []

    with pytest.raises(ParameterError, match=said) as caught:
        rank_points(_question(sizes=sizes), executor=Inline(), on_point=passed.append)

    assert [caught.value.parameter] == list(sizes)
    assert passed == []


def test_sizes_of_the_kernel_may_be_none_of_the_space() -> None:
    space = replace(DOUBLE, sizes={})

    assert rank_points(_question(space=space, sizes={"n": N}), executor=Inline()).predicted == 15
    with pytest.raises(ParameterError, match="has no size m; there are n"):
        checked_space(space, {"n": N, "m": N})
    assert checked_space(make_space(sizes={}), {"any": 1})  # its variants are no kernels


def test_properties_without_a_weight_are_a_refusal_unless_they_may_be_left_out() -> None:
    poor = make_weights({"flop.mul.f32": 1e-9})

    strict = rank_points(_question(weights=poor), executor=Inline())
    lenient = rank_points(_question(weights=poor, incomplete_ok=True), executor=Inline())

    assert strict.best == ()
    assert strict.refusals["predict"].count == 15
    assert len(lenient.best) == 15
    assert "groups" in lenient.best[0].missing


def test_a_time_that_is_not_positive_is_none() -> None:
    ranking = rank_points(
        _question(weights=make_weights({"flop.mul.f32": -1e-9}), incomplete_ok=True),
        executor=Inline(),
    )

    assert "which is no time" in ranking.refusals["predict"].examples[0].reason


def test_only_the_best_are_kept_and_every_point_passes_by() -> None:
    whole = rank_points(_question(), executor=Inline())
    passed: list[Point] = []

    few = rank_points(_question(), executor=Inline(), keep=4, on_point=passed.append)

    assert few.best == whole.best[:4]
    assert few.predicted == 15
    assert len(passed) == 18
    assert sum(isinstance(point, Predicted) for point in passed) == 15


def test_any_executor_gives_the_same() -> None:
    inline = rank_points(_question(), executor=Inline())
    with ThreadPoolExecutor(1) as pool:
        assert rank_points(_question(), executor=pool).best == inline.best
    default = rank_points(_question(space="tests.tuning.spaces:DOUBLE"))
    assert default.best == inline.best
    assert default.refusals == inline.refusals


def test_a_paused_ranking_leaves_the_executor_idle_and_goes_on() -> None:
    whole = rank_points(_question(), executor=Inline())
    with (
        ThreadPoolExecutor(1) as pool,
        Ranker(_question(), pool, keep=100) as ranker,
    ):
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


def test_a_number_of_points_is_a_sample_of_the_space() -> None:
    part = rank_points(_question(), executor=Inline(), points=7)

    assert part.predicted + part.refused == 7
    assert not part.complete


def test_a_huge_space_is_sampled_without_looking_at_all_of_it() -> None:
    space = make_space(parameters={name: range(1000) for name in "abcdef"})

    ranking = rank_points(_question(space=space), executor=Inline(), points=4)

    assert ranking.refusals["schedule"].count == 4


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
        f"{file}:x": "no countperf.SearchSpace and no function of the name 'x' .there: space, bad",
        f"{file}:y": "no function of the name 'y'",
        f"{file}:bad": "no luck",
        f"{file}x.py:y": "there is no file",
        "no.such.module:x": "no.such.module cannot be imported",
        "matmull": "there are matmul, stencil",
    }.items():
        with pytest.raises(SearchSpaceError, match=said):
            load_space(text)
