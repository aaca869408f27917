"""Several devices side by side: fakes that note when they are timed, and real ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from countperf.display import MOST_LINES
from countperf.errors import KernelBuildError, ParameterError, TuningError
from countperf.hardware.identity import DeviceType
from countperf.harness.clock import Timing
from countperf.harness.device import Device
from countperf.harness.runner import KernelRunner, Run
from countperf.measurements import KernelCase
from countperf.report.tuning import device_results_object, device_results_text
from countperf.tuning.devices import DeviceResults, DeviceSearch, tune_devices
from countperf.tuning.points import PredictionTask
from countperf.tuning.result import Budget, Plan
from tests.harness.fakes import FakeRunner
from tests.tuning.test_ranking import WEIGHTS, Inline
from tests.tuning.test_search import BEST, LARGE, QUESTION, scripted, usual_time_s


class Watched(FakeRunner):
    """A device that notes what is under way on all watched devices while it is timed."""

    lock = threading.Lock()

    def __init__(self, name: str, kind: DeviceType, under_way: dict[str, str], **more: Any) -> None:
        super().__init__(lambda case, _turn, _run: usual_time_s(case), **more)
        self.identity = self.identity.model_copy(
            update={"name": name, "slug": name, "device_type": kind}
        )
        self.name = name
        self.under_way = under_way
        self.beside: set[str] = set()

    @contextmanager
    def doing(self, what: str) -> Generator[None]:
        with self.lock:
            self.under_way[self.name] = what
        try:
            time.sleep(0.002)
            yield
        finally:
            with self.lock:
                del self.under_way[self.name]

    def check(self, case: KernelCase) -> None:
        with self.doing("building"):
            super().check(case)

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        with ExitStack() as stack:
            with self.doing("loading"):
                run = stack.enter_context(super().loaded(case))

            def watched() -> Timing:
                with self.doing("timing"):
                    for _ in range(3):
                        time.sleep(0.001)
                        with self.lock:
                            others = {n: w for n, w in self.under_way.items() if n != self.name}
                        self.beside |= set(others.values())
                    return run()

            yield watched


def _search(label: str, open_runner: Callable[[], Any]) -> DeviceSearch:
    return DeviceSearch(label=label, question=QUESTION, open_runner=open_runner)


def _both(kind: DeviceType, **more: Any) -> tuple[Watched, Watched, DeviceResults]:
    under_way: dict[str, str] = {}
    one, two = (Watched(name, kind, under_way) for name in ("one", "two"))
    searches = [_search("fake:0", lambda: one), _search("fake:1", lambda: two)]
    return (
        one,
        two,
        tune_devices(
            searches, Budget(measurements=100), executor=Inline(), plan=Plan(runs=3), **more
        ),
    )


def test_each_device_gets_a_result_and_a_journal(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"

    _, _, results = _both("gpu", store=store)

    assert {label: r.winner.choice for label, r in results.found.items()} == {
        "fake:0": BEST,
        "fake:1": BEST,
    }
    assert results.failed == {}
    assert {path.name for path in tmp_path.iterdir()} == {
        "search-fake-0.jsonl",
        "search-fake-1.jsonl",
    }
    one, two, again = _both("gpu", store=store)
    assert one.rounds == two.rounds == []
    assert again.found["fake:0"].winner == results.found["fake:0"].winner
    assert set(device_results_object(results)["devices"]) == {"fake:0", "fake:1"}
    assert device_results_text(results).count("numbers checked") == 2
    frame = results.to_frame()
    assert set(frame["device"]) == {"fake:0", "fake:1"}
    assert list(frame["is_winner"]).count(True) == 2
    assert len(repr(results).splitlines()) <= MOST_LINES


def test_a_run_on_the_processors_is_alone() -> None:
    one, two, _ = _both("cpu")

    assert len(one.rounds) > 2
    assert one.beside | two.beside == set()


def test_devices_of_their_own_do_not_wait_for_each_other() -> None:
    one, two, _ = _both("gpu")

    assert one.beside | two.beside


def test_a_device_that_fails_does_not_stop_the_others() -> None:
    broken = {
        f"double/{LARGE.label(choice)}": KernelBuildError("no compiler")
        for choice in LARGE.choices()
    }
    searches = [
        _search("fake:0", scripted),
        _search("fake:1", lambda: scripted(broken=broken)),
    ]

    results = tune_devices(searches, Budget(measurements=100), executor=Inline())

    assert set(results.found) == {"fake:0"}
    assert "no compiler" in str(results.failed["fake:1"])
    assert "fake:1: no result:" in device_results_text(results)
    with pytest.raises(TuningError, match="no device has a result: fake:1: "):
        tune_devices(searches[1:], Budget(measurements=100), executor=Inline())


def test_devices_are_named_once() -> None:
    with pytest.raises(ParameterError, match="name each device once, not fake:0, fake:0"):
        tune_devices([_search("fake:0", scripted)] * 2, Budget(measurements=1))


def test_an_interruption_ends_all_searches() -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    under_way: dict[str, str] = {}
    slow = Watched("slow", "cpu", under_way)
    searches = [_search("fake:0", interrupt), _search("fake:1", lambda: slow)]

    with pytest.raises(KeyboardInterrupt):
        tune_devices(searches, Budget(measurements=100), executor=Inline())

    assert len(slow.rounds) < 16


@pytest.mark.device
def test_two_real_devices_are_tuned_side_by_side(device: Device, tmp_path: Path) -> None:
    """The same PoCL device twice: two contexts, queues and journals."""
    question = PredictionTask(space=LARGE, weights=WEIGHTS, sizes={"n": 2**16})
    searches = [
        DeviceSearch(label=label, question=question, open_runner=lambda: KernelRunner.open(device))
        for label in ("pocl:0", "pocl:1")
    ]

    results = tune_devices(
        searches, Budget(measurements=3), executor=Inline(), store=tmp_path / "search.jsonl"
    )

    assert [len(r.tried) for r in results.found.values()] == [3, 3]
    assert len(list(tmp_path.iterdir())) == 2
