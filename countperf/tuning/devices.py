"""Tuning on several devices at a time: a thread, a journal and a result for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from countperf.display import Table, printed
from countperf.errors import CountperfError, ParameterError, TuningError
from countperf.harness.runner import CaseRunner
from countperf.tuning.exclusive_timing import TimingLock
from countperf.tuning.points import PredictionTask
from countperf.tuning.pools import pool_or
from countperf.tuning.result import Budget, Plan, SearchInterrupt, TuningResult
from countperf.tuning.search import Progress, tune_space


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSearch:
    """Search on one device."""

    label: str  # the device, as ``pocl:0``
    question: PredictionTask  # space, weights, sizes, limits of the device
    open_runner: Callable[[], CaseRunner]  # opens the device, in the thread that uses it


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResults(Table):
    """Results of a search on each of several devices."""

    found: dict[str, TuningResult]  # by the device's label
    failed: dict[str, CountperfError]  # devices without a result, and why

    __repr__ = printed


class DevicesInterrupt(KeyboardInterrupt):
    """Ctrl-C in searches on several devices; what was found by then comes with it."""

    def __init__(self, results: DeviceResults, said: Sequence[str]) -> None:
        super().__init__("; ".join(said))
        self.results = results


def tune_devices(
    searches: Sequence[DeviceSearch],
    budget: Budget,
    *,
    store: Path | str | None = None,
    plan: Plan | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    longest_s: float | None = None,
) -> DeviceResults:
    """Search on several devices at a time; each is timed on by one run at a time.

    Devices that are made of this machine's processors take turns: a run on one of them excludes
    whatever else the searches do.
    """
    labels = [search.label for search in searches]
    if len({*labels}) < len(labels) or not labels:
        named = ", ".join(labels) or "none"
        raise ParameterError(f"name each device once, not {named}", parameter="devices")
    gate = TimingLock()
    found: dict[str, TuningResult] = {}
    failed: dict[str, CountperfError] = {}
    with pool_or(executor, workers) as pool, ThreadPoolExecutor(len(searches)) as threads:

        def run(search: DeviceSearch) -> TuningResult:
            def say(text: str) -> None:
                if progress is not None:
                    progress(f"{search.label}: {text}")

            return tune_space(
                search.question,
                search.open_runner(),
                budget,
                store=None if store is None else device_store(store, search.label),
                plan=plan,
                executor=pool,
                progress=say,
                longest_s=longest_s,
                gate=gate,
            )

        tasks = [threads.submit(run, search) for search in searches]
        try:
            for label, task in zip(labels, tasks, strict=True):
                try:
                    found[label] = task.result()
                except CountperfError as error:
                    failed[label] = error
        except BaseException as error:
            gate.close()  # the other searches end where they are; their journals are whole
            if isinstance(error, KeyboardInterrupt):
                raise _interrupted(dict(zip(labels, tasks, strict=True))) from error
            raise
    if not found:
        reasons = [f"{label}: {error}" for label, error in failed.items()]
        raise TuningError(f"no device has a result: {'; '.join(reasons)}", refusals=reasons)
    return DeviceResults(found=found, failed=failed)


def _interrupted(tasks: Mapping[str, Future[TuningResult]]) -> DevicesInterrupt:
    """Sum up searches that end where they are."""
    found: dict[str, TuningResult] = {}
    failed: dict[str, CountperfError] = {}
    said: list[str] = []
    for label, task in tasks.items():
        error = task.exception()
        result = error.result if isinstance(error, SearchInterrupt) else None
        if error is None:
            found[label] = task.result()
        elif result is not None:
            found[label] = result
        else:
            text = str(error) or "interrupted before the search began"
            failed[label] = TuningError(text)
        ended = "the search has ended" if error is None else str(error)
        said.append(f"{label}: {ended or 'interrupted before the search began'}")
    return DevicesInterrupt(DeviceResults(found=found, failed=failed), said)


def device_store(store: Path | str, label: str) -> Path:
    """Return the file of a device's search."""
    path = Path(store)
    return path.with_name(f"{path.stem}-{label.replace(':', '-')}{path.suffix}")
