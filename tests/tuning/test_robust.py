"""Variants that bring down or hold up their process cost themselves alone; with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countperf.errors import MeasurementError, ParameterError, TuningError
from countperf.harness.device import Device
from countperf.harness.runner import KernelRunner
from countperf.tuning.points import Point, PredictionTask, Refused
from countperf.tuning.pools import Pool, process_pool
from countperf.tuning.posterior import Posterior
from countperf.tuning.ranker import rank_points
from countperf.tuning.result import Budget, Plan, SearchInterrupt
from countperf.tuning.search import tune_space
from countperf.tuning.sending import checked_space
from tests.patience import LONGEST_S
from tests.tuning.spaces import FAILING
from tests.tuning.test_ranking import WEIGHTS
from tests.tuning.test_search import MANY, QUESTION, Inline, scripted, usual_time_s

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")

ASKED = PredictionTask(space=FAILING, weights=WEIGHTS, sizes={})
PLAN = Plan(runs=2)
REASONS = {
    "end": "ended with status 7",
    "leave": "SystemExit: no more",
    "crash": "ended by SIGSEGV",
    "sleep": "took longer than",
    "hold": "took longer than",
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with process_pool(2) as found:
        yield found


def test_all_other_points_are_ranked(pool: Pool) -> None:
    points: list[Point] = []

    ranking = rank_points(ASKED, executor=pool, longest_s=8.0, on_point=points.append)

    refused = {p.choice["how"]: p for p in points if isinstance(p, Refused)}
    assert ranking.complete
    assert (ranking.predicted, ranking.refused) == (13, 5)
    assert {*refused} == {*REASONS}
    for how, reason in REASONS.items():
        assert refused[how].choice == {"group": 32, "how": how}
        assert refused[how].stage == "build"
        assert reason in refused[how].reason


def test_a_limit_is_positive(pool: Pool) -> None:
    with pytest.raises(ParameterError, match="longest_s is 0"):
        rank_points(ASKED, executor=pool, longest_s=0)


def test_sizes_of_kernels_are_found_beside_builders_that_fail() -> None:
    space = replace(FAILING, sizes={}, parameters={"group": [32, 16], "how": ["end", "crash"]})

    assert checked_space(space, {"n": 64}) is space
    with pytest.raises(ParameterError, match="has no size m; there are n"):
        checked_space(space, {"m": 64})


@pytest.mark.device
def test_a_search_keeps_its_budget_and_finds_something_where_the_first_variant_hangs(
    device: Device,
) -> None:
    question = replace(
        ASKED, space=replace(FAILING, parameters={**FAILING.parameters, "how": ["hold"]})
    )

    found = tune_space(
        question, KernelRunner.open(device), Budget(seconds=20), plan=PLAN, longest_s=5.0
    )

    assert {tried.choice["group"] for tried in found.tried} <= {16, 64}
    assert found.tried
    if found.stopped != "budget":  # on a slow machine it may end before the variant is given up
        assert found.refusals["build"].count == 1
        assert "took longer than 5 s" in found.refusals["build"].reasons[0].example.reason


def test_a_search_of_what_hangs_ends() -> None:
    space = replace(FAILING, parameters={"group": [32], "how": ["sleep", "hold", "end"]})

    with pytest.raises(TuningError, match="has a prediction: 3 refused"):
        tune_space(replace(ASKED, space=space), scripted(), Budget(seconds=8), longest_s=1.0)


def _interrupting(after: int) -> Any:
    left = iter(range(after))

    def time_of(name: str) -> float:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return usual_time_s(name)

    return scripted(time_of)


def _choices_tried(store: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in store.read_text().splitlines()]
    return [line["choice"] for line in lines if line.get("kind") == "tried"]


def test_an_interrupted_search_says_what_it_found_and_what_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    plan = Plan(runs=2, warm_up_s=0.0)
    given: dict[str, Any] = {"executor": Inline(), "plan": plan}

    with pytest.raises(SearchInterrupt) as caught:
        tune_space(QUESTION, _interrupting(7), MANY, store=store, **given)
    kept = _choices_tried(store)
    with pytest.raises(KeyboardInterrupt, match="nothing is kept"):
        tune_space(QUESTION, _interrupting(7), MANY, **given)
    with pytest.raises(SearchInterrupt, match="0 ran") as early:
        tune_space(QUESTION, _interrupting(0), MANY, **given)

    found = caught.value.result
    assert found is not None
    assert early.value.result is None
    assert caught.value.store == str(store)
    assert found.stopped == "interrupted"
    assert [tried.choice for tried in found.tried] == kept
    said = (
        f"16 variants predicted, {len(kept)} ran, 0 failed; kept in {store}: the same call goes on"
    )
    assert said in str(caught.value)
    assert found.winner.time_s == min(tried.time_s for tried in found.tried)
    assert found.predicted == 16
    whole = tune_space(QUESTION, scripted(), MANY, store=store, **given)
    assert whole.tried[: len(kept)] == found.tried
    assert whole.stopped != "interrupted"


@pytest.mark.parametrize(("kind", "slow"), [("tried", 4), ("refused", 2)])
def test_ctrl_c_while_a_line_is_written_leaves_it_in_file_and_result(
    kind: str, slow: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "search.jsonl"
    turns = iter(range(slow))
    sync = os.fsync

    def time_of(name: str) -> float:
        if kind == "refused" and "each=2" in name:
            raise MeasurementError("the device gave up")
        return usual_time_s(name)

    def interrupted_sync(file: int) -> None:
        last = store.read_bytes().splitlines()[-1:]
        if last and json.loads(last[0]).get("kind") == kind and next(turns, None) == slow - 1:
            signal.raise_signal(signal.SIGINT)
        sync(file)

    monkeypatch.setattr(os, "fsync", interrupted_sync)
    with pytest.raises(SearchInterrupt) as caught:
        tune_space(QUESTION, scripted(time_of), MANY, executor=Inline(), store=store)

    kinds = [json.loads(line).get("kind") for line in store.read_text().splitlines()]
    ran, failed = kinds.count("tried"), kinds.count("refused")
    assert kinds.count(kind) == slow
    assert f"{ran} ran, {failed} failed" in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_amid_an_update_of_what_is_known_shows_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "search.jsonl"
    plan = Plan(runs=2, warm_up_s=0.0)
    given: dict[str, Any] = {"executor": Inline(), "plan": plan, "store": store}
    with pytest.raises(SearchInterrupt) as before:
        tune_space(QUESTION, _interrupting(7), MANY, **given)
    updates = iter(range(1))

    def interrupted_update(*args: Any, **more: Any) -> Posterior:
        if next(updates, None) is not None:
            raise KeyboardInterrupt
        return Posterior(*args, **more)

    monkeypatch.setattr("countperf.tuning.candidates.Posterior", interrupted_update)
    with pytest.raises(SearchInterrupt) as caught:
        tune_space(QUESTION, scripted(), MANY, **given)

    assert before.value.result is not None
    assert caught.value.result is not None
    assert caught.value.result.tried == before.value.result.tried
    assert caught.value.result.regret_bound is not None


def test_ctrl_c_before_the_first_prediction_says_that_nothing_ran() -> None:
    class Interrupted(Inline):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(SearchInterrupt, match="0 variants predicted, 0 ran, 0 failed") as caught:
        tune_space(QUESTION, scripted(), MANY, executor=Interrupted())
    assert caught.value.result is None


def test_ctrl_c_at_the_end_shows_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "search.jsonl"
    sync = os.fsync

    def interrupted_sync(file: int) -> None:
        if store.read_bytes().splitlines()[-1].startswith(b'{"kind": "end"'):
            raise KeyboardInterrupt
        sync(file)

    monkeypatch.setattr(os, "fsync", interrupted_sync)
    with pytest.raises(SearchInterrupt) as caught:
        tune_space(QUESTION, scripted(), MANY, executor=Inline(), store=store)
    found = caught.value.result
    assert found is not None
    again = tune_space(QUESTION, scripted(), MANY, executor=Inline(), store=store)
    assert again.tried == found.tried


@pytest.mark.long
@pytest.mark.device
def test_ctrl_c_shows_the_result_and_leaves_a_search_that_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    command = [sys.executable, "-m", "countperf", "tune", "matmul", "n=64", "m=64", "l=64"]
    command += ["--budget", "60", "--store", str(store)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as search:
        while not (store.exists() and store.read_text().count('"kind": "tried"') >= 2):
            assert search.poll() is None
            time.sleep(0.1)
        os.killpg(search.pid, signal.SIGINT)  # as a terminal does
        out, err = search.communicate(timeout=LONGEST_S)

    ran = len({json.dumps(choice) for choice in _choices_tried(store)})
    assert search.returncode == 1
    assert "it was interrupted" in out
    failed = store.read_text().count('"kind": "refused"')  # too slow to build, on a busy machine
    assert f"{ran} ran, {failed} failed; kept in {store}: the same call goes on" in err
    assert f"{ran} of " in out
