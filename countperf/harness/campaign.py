"""Measurement of many cases, which survives failures of single cases and interruptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from countperf.errors import (
    CountingError,
    DeviceLostError,
    KernelBuildError,
    MeasurementError,
    WrongResultError,
)
from countperf.harness.clock import check_clocks
from countperf.harness.environment import gather_environment, timestamp
from countperf.harness.progress import Progress, ProgressEvent, silent
from countperf.harness.repeats import BROAD, Repeats, Schedule, in_mixed_order
from countperf.harness.runner import CaseRunner
from countperf.harness.store import Store
from countperf.measurements import (
    FailedCase,
    Header,
    KernelCase,
    Measurement,
    MeasurementSet,
    Protocol,
)
from countperf.measurements.lines import BUSY, case_fields
from countperf.properties.taxonomy import COUNTING_RULES_VERSION

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector

CountKernel = Callable[..., "PropertyVector"]
"""From a translation unit, and its ``statistics`` where there are any, to its property vector."""


def measure(
    cases: Sequence[KernelCase],
    *,
    store: Store | Path | str,
    runner: CaseRunner,
    protocol: Protocol = BROAD,
    count: CountKernel | None = None,
    progress: Progress = silent,
    retry_failed: bool = False,
    begin_no_more: Callable[[], bool] | None = None,
) -> MeasurementSet:
    """Measure cases by a runner, as `countperf.measure` does; a store that is open stays open."""
    _check_names(cases)
    with ExitStack() as stack:
        file = store
        if not isinstance(file, Store):
            file = stack.enter_context(open_store(file, runner, protocol))
        _check_content(file, cases, counting=count is not None)
        finished = {entry.case for entry in file.content.measurements}
        if not retry_failed:
            finished |= {entry.case for entry in file.content.failures}
        waiting = [case for case in cases if case.name not in finished]
        if begin_no_more is None:
            waiting = in_mixed_order(waiting)
        if file.resumption is not None:
            file.append(file.resumption)
        campaign = _Campaign(runner, file, protocol, count, progress, len(cases))
        campaign.run(waiting, begin_no_more or _never)
        return MeasurementSet.read_file(file.path)


def open_store(path: Path | str, runner: CaseRunner, protocol: Protocol) -> Store:
    """Open the file of a campaign before any work for it begins; other processes are kept out."""
    environment = gather_environment(runner.limits, runner.versions())
    header = Header(device=runner.identity, protocol=protocol, environment=environment)
    return Store(path, header)


class _Campaign:
    """The state of one call of `measure`."""

    def __init__(
        self,
        runner: CaseRunner,
        store: Store,
        protocol: Protocol,
        count: CountKernel | None,
        progress: Progress,
        total: int,
    ) -> None:
        self._runner = runner
        self._store = store
        self._protocol = protocol
        self._count = count
        self._progress = progress
        self._total = total
        self._done = 0
        self._vectors: dict[object, tuple[dict[str, Any] | None, str]] = {}
        self._broken: dict[str, MeasurementError] = {}
        self._resolution_s = runner.limits.timer_resolution_s
        self._spent_s: list[float] = []
        self._remaining_s: float | None = None
        self._ahead = _BuildAhead(runner)

    def run(self, cases: Sequence[KernelCase], begin_no_more: Callable[[], bool]) -> None:
        """Measure cases until none is left."""
        self._done = self._total - len(cases)
        self._tell("started" if self._store.resumption is None else "resumed")
        clock = self._runner.clock
        schedule = Schedule(cases, self._protocol)
        while True:
            if begin_no_more():
                schedule.begin_no_more()
            if pause_s := schedule.pause_s(clock.now()):
                clock.sleep(pause_s)
            state = schedule.next(clock.now())
            if state is None:
                break
            self._expect([state, *schedule.left()])
            self._tell("round", state.case)
            began = clock.now()
            try:
                failure = self._run_round(state, schedule.following())
            except DeviceLostError as error:
                # whoever goes on in a new process shall not lose the device to the same case again
                lost = MeasurementError(f"{state.case.name}: {error}", case=state.case.name)
                self._record_failure(state.case, lost)
                raise
            if failure is None:
                self._spent_s.append(clock.now() - began)
            self._expect(schedule.left())
            if failure is not None:
                self._record_failure(state.case, failure)
            elif state.is_finished(self._protocol, self._resolution_s):
                self._record(state)
            else:
                schedule.again(state, clock.now())
        self._ahead.close()
        self._tell("finished")

    def _expect(self, left: Sequence[Repeats]) -> None:
        """Estimate the time left; rounds take as long as those before them on average."""
        if self._spent_s:
            rounds = sum(max(1, self._protocol.rounds - len(state.rounds)) for state in left)
            self._remaining_s = rounds * mean(self._spent_s)

    def _tell(self, kind: Any, case: KernelCase | None = None, message: str = "") -> None:
        self._progress(
            ProgressEvent(
                kind=kind,
                case="" if case is None else case.name,
                done=self._done,
                total=self._total,
                remaining_s=self._remaining_s,
                message=message,
            )
        )

    def _run_round(
        self, state: Repeats, following: KernelCase | None = None
    ) -> MeasurementError | None:
        case = state.case
        if case.kernel in self._broken:
            return self._broken[case.kernel]
        try:
            self._ahead.finish(case)
            self._runner.check(case)
        except MeasurementError as error:
            self._broken[case.kernel] = error
            return error
        self._ahead.begin(case, following)
        try:
            turn = self._runner.time_round(case, self._protocol)
        except MeasurementError as error:
            return error
        state.rounds.append(turn)
        if min(time_s for time_s, _ in state.counted(self._protocol.drops)) <= 0:
            message = f"{case.name}: the event timer gives a time of zero"
            return MeasurementError(message, case=case.name)
        return None

    def _record(self, state: Repeats) -> None:
        summary = state.summary(self._protocol, self._resolution_s)
        stable = state.is_stable(self._protocol, self._resolution_s)
        overhead_s, doubt = check_clocks(state.counted(self._protocol.drops))
        properties, trouble = self._properties(state.case)
        cut = "cut short by the protocol" if any(turn.cut_short for turn in state.rounds) else ""
        levels = ""
        if summary.level_ratio is not None:
            levels = f"bimodal: two levels, a factor of {summary.level_ratio:.2f} apart"
        busy = ""
        if number := sum(turn.disturbed for turn in state.rounds):
            busy = f"{BUSY} in {number} of {len(state.rounds)} rounds"
        measurement = Measurement.from_samples(
            state.case,
            state.samples_s(),
            dropped=self._protocol.drops,
            stable=stable,
            recorded_at=timestamp(),
            resolution_s=self._resolution_s,
            clocks_agree=not doubt,
            remarks=tuple(remark for remark in (doubt, levels, cut, busy, trouble) if remark),
            host_overhead_s=overhead_s,
            properties=properties,
        )
        self._store.append(measurement)
        self._done += 1
        if stable:
            self._tell("measured", state.case, trouble or doubt)
            return
        message = f"spread {summary.spread:.0%}, between rounds {summary.noise_floor:.0%}"
        message += "".join(f"; {remark}" for remark in (levels, busy) if remark)
        self._tell("unstable", state.case, message)

    def _record_failure(self, case: KernelCase, error: MeasurementError) -> None:
        stage = "run"
        if isinstance(error, KernelBuildError):
            stage = "build"
        elif isinstance(error, WrongResultError):
            stage = "check"
        entry = FailedCase(
            **case_fields(case), recorded_at=timestamp(), stage=stage, reason=str(error)
        )
        self._store.append(entry)
        self._done += 1
        self._tell("failed", case, str(error))

    def _properties(self, case: KernelCase) -> tuple[dict[str, Any] | None, str]:
        if self._count is None:
            return None, ""
        key = (case.kernel, tuple(sorted(case.statistics.items())))
        if key not in self._vectors:
            known = {"statistics": case.statistics} if case.statistics else {}
            try:
                document = self._count(case.build(), **known).to_document()
            except CountingError as error:
                self._vectors[key] = (None, f"not counted: {error}")
            else:
                self._vectors[key] = (document, "")
        return self._vectors[key]


class _BuildAhead:
    """Builds the kernel that a campaign begins next, where that does not disturb the timing.

    It does not where the device has a processor of its own (a GPU). On a CPU the compiler would
    take a core from the kernel that is timed: nothing is built ahead.
    """

    def __init__(self, runner: CaseRunner) -> None:
        self._runner = runner
        self._may_build = runner.identity.device_type != "cpu"
        self._helper = ThreadPoolExecutor(1, "countperf-build")
        self._begun: dict[str, Future[None]] = {}

    def begin(self, now: KernelCase, following: KernelCase | None) -> None:
        """Begin to build the kernel of the next case, while the case of now is timed."""
        if not self._may_build or following is None or following.kernel == now.kernel:
            return
        if following.kernel not in self._begun:
            self._begun[following.kernel] = self._helper.submit(self._runner.prepare, following)

    def finish(self, now: KernelCase) -> None:
        """Wait for the kernel of a case if it is being built."""
        building = self._begun.pop(now.kernel, None)
        if building is not None:
            building.result()

    def close(self) -> None:
        """Wait for what is being built."""
        self._helper.shutdown()


def _never() -> bool:
    return False


def _check_names(cases: Sequence[KernelCase]) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise MeasurementError(f"two cases are named {case.name!r}", case=case.name)
        seen.add(case.name)


def _check_content(store: Store, cases: Sequence[KernelCase], *, counting: bool) -> None:
    known = {entry.case: entry for entry in store.content.measurements}
    for case in cases:
        entry = known.get(case.name)
        if entry is None:
            continue
        if entry.parameters != dict(case.parameters):
            message = (
                f"{store.path}: {case.name} was measured at {entry.parameters}, not at"
                f" {dict(case.parameters)}; use another file"
            )
            raise MeasurementError(message, case=case.name)
        rules = (entry.properties or {}).get("counting_rules", COUNTING_RULES_VERSION)
        if counting and rules != COUNTING_RULES_VERSION:
            message = (
                f"{store.path}: {case.name} was counted by rules of version {rules}, now"
                f" {COUNTING_RULES_VERSION} holds; use another file"
            )
            raise MeasurementError(message, case=case.name)
