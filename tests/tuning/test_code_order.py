"""Searches that read the code of the first variants before they time any."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from countperf.errors import DeviceError
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.harness.runner import KernelRunner
from countperf.models.library import load_weights
from countperf.tuning import code_order
from countperf.tuning.candidates import Candidates
from countperf.tuning.code_order import CodeOrder, CodeReader, ranked_by_code, read_order
from countperf.tuning.points import Predicted, PredictionTask
from countperf.tuning.pools import process_pool
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import Budget, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.space import SearchSpace
from countperf.workflow import tuning
from measurement_kernels.variants import spaces

SLUG, DEVICE = "pocl-epyc-zen5", "pocl:0"
SIZES = {"n": 256, "m": 256}


FEW = {
    "items_i": [8, 16],
    "items_j": [8, 16],
    "rows": [1],
    "columns": [1, 2],
    "tile": [False],
    "lanes": ["j"],
    "block": ["for"],
}


def few() -> SearchSpace:
    return replace(spaces()["transpose"], parameters=FEW)


def task() -> PredictionTask:
    return PredictionTask(space=few(), weights=load_weights(SLUG), sizes=SIZES, incomplete_ok=True)


def ranked(keep: int = 6) -> Ranking:
    return tuning.rank(few(), SIZES, weights=SLUG, incomplete_ok=True, keep=keep, by_code=0)


def reader() -> CodeReader:
    return CodeReader(weights=load_weights(SLUG, model="compiled"), label=DEVICE)


def point(number: int, time_s: float) -> Predicted:
    return Predicted(choice={"k": number}, time_s=time_s)


def test_variants_that_were_read_share_out_their_times() -> None:
    plain = replace(ranked(), best=tuple(point(k, float(k)) for k in range(1, 6)))
    read = [point(1, 70.0), point(2, 50.0), point(4, 60.0)]  # by code: 2, 4, 1
    order = CodeOrder(code_order._permuted(plain.best[:4], read))  # pyright: ignore[reportPrivateUsage]
    found = order.applied(plain)
    assert [p.choice["k"] for p in found.best] == [2, 4, 3, 1, 5]
    assert [p.time_s for p in found.best] == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    alike = replace(plain, best=tuple(point(k, 1.0) for k in range(1, 6)))
    order = CodeOrder(code_order._permuted(alike.best[:4], read))  # pyright: ignore[reportPrivateUsage]
    assert [p.choice["k"] for p in order.applied(alike).best] == [2, 3, 5, 4, 1]
    assert CodeOrder().applied(plain) is plain


def test_nothing_is_read_without_time_or_processes(device: Device) -> None:
    del device
    plain = ranked()
    with process_pool(2) as pool:
        assert not read_order(plain, task(), reader(), pool, seconds=1.0).times_s
    with ThreadPoolExecutor(2) as threads:
        assert not read_order(plain, task(), reader(), threads, seconds=100.0).times_s


def test_processes_that_take_too_long_are_ended(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    del device
    monkeypatch.setattr(code_order, "_READ_S", 1e-3)
    with process_pool(1) as pool:
        order = read_order(ranked(), task(), reader(), pool, seconds=0.05)
    assert not order.times_s
    assert order.seconds < 20


def test_a_search_begins_with_what_its_code_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        device = find_device(DEVICE)
    except DeviceError as error:
        pytest.skip(str(error))
    said: list[str] = []
    seen: list[Ranking] = []
    look = Candidates.look

    def looked(self: Candidates, ranking: Ranking, *, is_reordered: bool = False) -> None:
        seen.append(ranking)
        look(self, ranking, is_reordered=is_reordered)

    monkeypatch.setattr(Candidates, "look", looked)
    result = tune_space(
        task(),
        KernelRunner.open(device),
        Budget(measurements=1),
        store=tmp_path / "search.jsonl",
        progress=said.append,
        keep=6,
        reader=reader(),
    )
    line = next(text for text in said if "whose code was read" in text)
    assert line.startswith("model compiled orders the first 6 variants")
    assert line.endswith("model structural orders the others")
    plain = ranked()
    by_code = ranked_by_code(plain, few(), reader().weights, device, first=len(plain.best))
    assert result.winner.time_s > 0
    assert [as_key(p.choice) for p in seen[-1].best] == [as_key(p.choice) for p in by_code.best]
    assert [p.time_s for p in seen[-1].best] == pytest.approx([p.time_s for p in plain.best])
