"""The file of a search: it goes on after any end, Ctrl-C included, and holds one search."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countperf.errors import DocumentError, MeasurementError
from countperf.tuning.result import Budget, Plan, SearchInterrupt
from countperf.tuning.search import tune_space
from tests.devices.fakes import FakeRunner
from tests.tuning import test_search
from tests.tuning.test_search import LARGE, MANY, QUESTION, Inline, scripted, search, usual_time_s

PLAN = Plan(runs=2, warm_up_s=0.0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "search.jsonl"


def _interrupting(after: int) -> FakeRunner:
    left = iter(range(after))

    def time_of(name: str) -> float:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return usual_time_s(name)

    return scripted(time_of)


def _lines(store: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.read_text().splitlines()]


def test_an_interrupted_search_says_what_it_measured_and_resumes(store: Path) -> None:
    with pytest.raises(SearchInterrupt) as caught:
        search(_interrupting(7), store=store, plan=PLAN)
    kept = [line["choice"] for line in _lines(store) if line.get("kind") == "tried"]
    runner = scripted()
    whole = search(runner, store=store, plan=PLAN)
    partial = caught.value.result
    assert partial is not None
    assert caught.value.store == str(store)
    said = f"16 variants predicted, {len(kept)} ran, 0 failed; kept in {store}: the same call"
    assert said in str(caught.value)
    assert (partial.stopped, partial.predicted) == ("interrupted", 16)
    assert [tried.choice for tried in partial.tried] == kept
    assert partial.winner.time_s == min(tried.time_s for tried in partial.tried)
    assert whole.tried[: len(kept)] == partial.tried
    assert whole.winner == replace(search(scripted(), plan=PLAN).winner, at_s=whole.winner.at_s)
    once = {name.split("/")[1] for name in runner.rounds if runner.rounds.count(name) == 1}
    assert once & {LARGE.label(choice) for choice in kept} <= {LARGE.label(test_search.BEST)}


class _Interrupted(Inline):
    def submit(self, *_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("runner", "executor", "said"),
    [
        (scripted(), _Interrupted(), "0 variants predicted, 0 ran, 0 failed"),
        (_interrupting(0), Inline(), "16 variants predicted, 0 ran, 0 failed; nothing is kept"),
        (_interrupting(7), Inline(), "4 ran, 0 failed; nothing is kept"),
    ],
    ids=["predicting", "at the first run", "later"],
)
def test_ctrl_c_without_a_file_says_losses(runner: FakeRunner, executor: Inline, said: str) -> None:
    with pytest.raises(SearchInterrupt, match=said) as caught:
        tune_space(QUESTION, runner, MANY, executor=executor, plan=PLAN)
    assert (caught.value.result is None) == (", 0 ran" in str(caught.value))


@pytest.mark.parametrize(("kind", "slow"), [("tried", 4), ("refused", 2), ("end", 1)])
def test_ctrl_c_while_a_line_is_written_leaves_it_in_file_and_result(
    kind: str, slow: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        search(scripted(time_of), store=store)
    kinds = [line.get("kind") for line in _lines(store)]
    ran, failed = len({*map(_choice, _tried(store))}), kinds.count("refused")
    assert kinds.count(kind) == slow
    assert f"{ran} ran, {failed} failed" in str(caught.value)
    assert caught.value.result is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = search(scripted(time_of), store=store)
    assert {_choice(t.choice) for t in caught.value.result.tried} <= {
        _choice(t.choice) for t in again.tried
    }


def _choice(choice: Any) -> str:
    return json.dumps(choice)


def _tried(store: Path) -> Iterator[dict[str, Any]]:
    return (line["choice"] for line in _lines(store) if line.get("kind") == "tried")


def test_a_search_resumes_after_any_cut_and_answers_at_once_when_it_has_ended(store: Path) -> None:
    whole = search(scripted(), store=store)
    content = store.read_bytes()
    runner = scripted()
    assert search(runner, store=store, began_s=-3.0) == whole  # what comes before takes its time
    assert runner.rounds == []
    for cut in range(0, len(content), len(content) // 5):
        store.write_bytes(content[:cut])
        assert search(scripted(), store=store).winner.choice == whole.winner.choice


def test_a_search_whose_budget_was_spent_answers_the_same_until_there_is_more(store: Path) -> None:
    first = search(scripted(), Budget(measurements=3), store=store, began_s=-2.0)
    same, less, more = (
        search(scripted(), Budget(measurements=most), store=store, began_s=-3.0)
        for most in (3, 2, 4)
    )
    assert first.spent_s > 2.0
    assert same == less == first
    assert [t.choice for t in more.tried[:3]] == [t.choice for t in first.tried]
    assert len(more.tried) == 4
    assert more.spent_s > first.spent_s + 3.0
    assert search(scripted(), Budget(measurements=4), store=store) == more


_BUILDER = "digest of the space's values, constraints and builder is "


@pytest.mark.parametrize(
    ("change", "device", "said"),
    [
        ({"sizes": {"n": 8192}}, "", "n of sizes is 4096 there and 8192 now; use another file"),
        (
            {"incomplete_ok": True},
            "",
            "digest of the weights, and of whether they may leave properties out is ",
        ),
        ({"space": replace(LARGE, constraints=("group > 16",))}, "", _BUILDER),
        ({"space": replace(LARGE, build=dict)}, "", _BUILDER),
        ({"statistics": {"j": 3}}, "", "statistics is None there and {'j': 3.0} now"),
        ({}, "other", "name of device is 'Abacus' there and 'other' now"),
    ],
    ids=["sizes", "weights", "space", "builder", "statistics", "device"],
)
def test_other_searches_are_refused(
    store: Path, change: dict[str, Any], device: str, said: str
) -> None:
    search(scripted(), store=store)
    before = store.read_bytes()
    runner = scripted()
    if device:
        runner.identity = runner.identity.model_copy(update={"name": device})
    with pytest.raises(MeasurementError) as caught:
        tune_space(replace(QUESTION, **change), runner, MANY, executor=Inline(), store=store)
    assert str(caught.value).startswith(f"{store} holds other trials: {said}")
    assert str(caught.value).count(" there and ") == 1
    assert store.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        "my notes\n",
        '{"my": 3}\n',
        *(f'{{"format": "countperf-tuning", "version": {v}}}\n' for v in ("9", "true", "2.0")),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    store = tmp_path / "search.jsonl"
    store.write_text(content)
    with pytest.raises(DocumentError):
        search(scripted(), store=store)
    assert store.read_text() == content
