"""Measurement of many cases, which survives failures of single cases and interruptions."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.devices.device import Device, DeviceLimits, check_clocks
from countperf.devices.identity import available_cores, read_clocks, read_processor
from countperf.errors import CountingError, DeviceLostError, MeasurementError
from countperf.measuring import (
    FailedCase,
    Header,
    KernelCase,
    Measurement,
    MeasurementSet,
    Protocol,
    Resumption,
)
from countperf.measuring.cases import Environment, case_fields, format_line
from countperf.measuring.runner import (
    BROAD,
    LONGEST_S,
    PROBES,
    SLOW,
    CaseRunner,
    MemoryState,
    Repeats,
    RoundSchedule,
    in_mixed_order,
    open_runner,
)
from countperf.sizes import checks_keywords
from countperf.steps import report
from countperf.store import AppendedLines, lock_file, write_atomically

if TYPE_CHECKING:
    from countperf.counting.vector import PropertyVector


_PACKAGES = (
    *("countperf", "loopy", "islpy", "pymbolic", "pyopencl", "numpy", "intel-opencl-rt"),
    *("cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
)
_STORED_LIMITS = (
    *("max_group_size", "local_memory_bytes", "global_memory_bytes", "max_allocation_bytes"),
)


def gather_environment(
    limits: DeviceLimits, versions: Mapping[str, str], memory_s: tuple[float, ...] = ()
) -> Environment:
    """Describe the machine as it is now; versions are those that the device's driver gives."""
    clocks = read_clocks()
    if limits.max_clock_mhz > 0:
        clocks["device_max"] = float(limits.max_clock_mhz)
    return Environment(
        recorded_at=timestamp(),
        operating_system=platform.platform(),
        processor=read_processor(),
        cores=available_cores(),
        clocks_mhz=clocks,
        versions={**_list_versions(), **versions},
        device_limits={name: getattr(limits, name) for name in _STORED_LIMITS},
        memory_s=memory_s,
    )


def timestamp() -> str:
    """Return the time of day, UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _list_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


class Store(AppendedLines):
    """A measurement file that is open for appending, to begin a campaign or to go on with it."""

    def __init__(self, path: Path | str, header: Header) -> None:
        self.content = MeasurementSet(header=header)
        self.resumption: Resumption | None = None  # of a campaign that was begun before

        def read(lines: tuple[str, ...]) -> None:
            self.content = MeasurementSet.read_lines(lines, path=path)
            stored = self.content.header
            before, now = (each.protocol.model_dump() for each in (stored, header))
            pairs = stored.device.differences(header.device)
            pairs |= {f"protocol's {name}": (before[name], now[name]) for name in before}
            refuse_differences(pairs, Path(path), "measurements")
            self.resumption = Resumption(environment=header.environment)

        super().__init__(path, format_line(header), read)

    def append(self, entry: Measurement | FailedCase | Resumption) -> None:
        """Write a line; it is on the disk when this returns."""
        self.write(format_line(entry))


def refuse_differences(pairs: Mapping[str, tuple[object, object]], path: Path, what: str) -> None:
    """Refuse a file of something else, if of some pair what is there differs from what is now."""
    others = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if others:
        said = "; ".join(
            f"{name} is {old!r} there and {new!r} now" for name, (old, new) in others.items()
        )
        raise MeasurementError(f"{path} holds other {what}: {said}; use another file")


@contextmanager
def rewrite_file(path: Path | str) -> Generator[Callable[[MeasurementSet], None]]:
    """Give what replaces a measurement file at once; campaigns that ask for it are refused."""
    if not Path(path).exists():
        MeasurementSet.read_file(path)  # says what is wrong
    with lock_file(path):
        yield lambda content: write_atomically(path, content.to_text())


CountKernel = Callable[..., "PropertyVector"]
"""From a translation unit, and its ``statistics`` where there are any, to its property vector."""

IsOver = Callable[[Collection[str], Sequence[Measurement]], bool]
"""From the kernels that were begun, and what was measured, to whether no more are to begin."""


@checks_keywords
def measure(
    cases: Sequence[KernelCase],
    *,
    store: Store | Path | str,
    device: str | Device | None = None,
    protocol: Protocol = BROAD,
    count: CountKernel | None = None,
    runner: CaseRunner | None = None,
    begin_no_more: IsOver | None = None,
    longest_s: float = LONGEST_S,
) -> MeasurementSet:
    """Measure cases and keep the results in a file, going on where an earlier session stopped.

    Cases that the store holds already, failed ones included, are not run again. A case that fails
    is recorded, and the others go on.
    """
    twice = [name for name, number in Counter(case.name for case in cases).items() if number > 1]
    if twice:
        raise MeasurementError(f"two cases are named {twice[0]!r}", case=twice[0])
    with ExitStack() as stack:
        runner = stack.enter_context(open_runner(runner, device, longest_s))
        file = store
        if not isinstance(file, Store):  # one that is open stays open
            file = stack.enter_context(open_store(file, runner, protocol))
        _check_content(file, cases, counting=count is not None)
        finished = {entry.case for entry in (*file.content, *file.content.failures)}
        waiting = [case for case in cases if case.name not in finished]
        done, total = len(cases) - len(waiting), None
        # who ends a campaign before all is measured does not know how many cases it takes
        if begin_no_more is None:
            waiting, total = in_mixed_order(waiting), len(cases)
        if file.resumption is not None:
            file.append(file.resumption)
        campaign = _Campaign(runner, file, protocol, count, total, done)
        campaign.run(waiting, begin_no_more or (lambda *_: False))
        return MeasurementSet.read_file(file.path)


def open_store(path: Path | str, runner: CaseRunner, protocol: Protocol) -> Store:
    """Open the file of a campaign before any work for it begins; other processes are kept out."""
    memory_s = runner.probe_memory(PROBES)
    environment = gather_environment(runner.limits, runner.versions(), memory_s)
    return Store(path, Header(device=runner.identity, protocol=protocol, environment=environment))


@dataclass(slots=True)
class _Campaign:
    """The state of one call of `measure`."""

    runner: CaseRunner
    store: Store
    protocol: Protocol
    count: CountKernel | None
    total: int | None
    done: int
    vectors: dict[object, tuple[dict[str, Any] | None, str]] = field(default_factory=dict)
    broken: dict[str, MeasurementError] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    measured: list[Measurement] = field(default_factory=list)
    memory: MemoryState = field(default_factory=MemoryState)

    def run(self, cases: Sequence[KernelCase], begin_no_more: IsOver) -> None:
        """Measure cases until none is left."""
        clock, resolution_s = self.runner.clock, self.runner.limits.timer_resolution_s
        content = self.store.content
        sessions = [content.header, *filter(None, (*content.resumptions, self.store.resumption))]
        for memory_s in (
            *(session.environment.memory_s for session in sessions),
            *(memory_s for measurement in content for memory_s in measurement.memory_s),
        ):
            self.memory.note(memory_s)
        schedule = RoundSchedule(
            Repeats(case, self.protocol, resolution_s, self.memory) for case in cases
        )
        while True:
            if begin_no_more(self.begun, self.measured):
                schedule.fresh.clear()
            state, pause_s = schedule.take(clock.now())
            report("measuring", self.done, self.total)
            if state is None:
                break
            if pause_s:
                clock.sleep(pause_s)
            self.begun.add(state.case.kernel)
            try:
                self._run_round(state)
            except MeasurementError as error:
                self._record_failure(state.case, error)
            except DeviceLostError as error:
                # whoever goes on in a new process shall not lose the device to the same case again
                lost = MeasurementError(f"{state.case.name}: {error}", case=state.case.name)
                self._record_failure(state.case, lost)
                raise
            else:
                if state.is_finished():
                    self._record(state)
                else:
                    schedule.again(state, clock.now())

    def _run_round(self, state: Repeats) -> None:
        case = state.case
        if case.kernel in self.broken:
            raise self.broken[case.kernel]
        try:
            self.runner.check(case)
        except MeasurementError as error:
            self.broken[case.kernel] = error
            raise
        state.rounds.append(turn := self.runner.time_round(case, self.protocol))
        self.memory.note(turn.memory_s)
        if min(time_s for time_s, _ in state.runs_that_count) <= 0:
            message = f"{case.name}: the event timer gives a time of zero"
            raise MeasurementError(message, case=case.name)

    def _record(self, state: Repeats) -> None:
        overhead_s, doubt = check_clocks(state.runs_that_count)
        properties, trouble = self._count_properties(state.case)
        kept = state.rounds_that_count
        cut = "cut short by the protocol" if any(turn.cut_short for turn in kept) else ""
        busy = slow = ""
        if number := sum(turn.disturbed for turn in kept):
            busy = f"other programs kept cores busy in {number} of {len(kept)} rounds"
        if (slowness := state.slowness) > SLOW:
            slow = f"memory was {slowness:.1f} times slower in all rounds than at its best"
        measurement = Measurement.from_samples(
            state.case,
            state.samples_s,
            dropped=self.protocol.drops,
            stable=state.is_stable(),
            recorded_at=timestamp(),
            resolution_s=state.resolution_s,
            clocks_agree=not doubt,
            remarks=tuple(filter(None, (doubt, cut, busy, slow, trouble))),
            memory_s=tuple(turn.memory_s for turn in kept if turn.memory_s),
            slowness=slowness if slow else 1.0,
            host_overhead_s=overhead_s,
            properties=properties,
        )
        self.store.append(measurement)
        self.measured.append(measurement)
        self.done += 1

    def _record_failure(self, case: KernelCase, error: MeasurementError) -> None:
        entry = FailedCase(
            **case_fields(case), recorded_at=timestamp(), stage=error.stage, reason=str(error)
        )
        self.store.append(entry)
        self.done += 1

    def _count_properties(self, case: KernelCase) -> tuple[dict[str, Any] | None, str]:
        """Return the document of a case's property vector, or why there is none."""
        if self.count is None:
            return None, ""
        key = (case.kernel, tuple(sorted(case.statistics.items())))
        if key not in self.vectors:
            known = {"statistics": case.statistics} if case.statistics else {}
            try:
                self.vectors[key] = self.count(case.build(), **known).to_document(), ""
            except CountingError as error:
                self.vectors[key] = None, f"not counted: {error}"
        return self.vectors[key]


def _check_content(store: Store, cases: Sequence[KernelCase], *, counting: bool) -> None:
    """Refuse a file whose cases are of other sizes, or were counted by other rules."""
    wanted = {case.name: dict(case.parameters) for case in cases}
    for entry in store.content:
        if (parameters := wanted.get(entry.case)) is None:
            continue
        was = ""
        if entry.parameters != parameters:
            was = f"measured at {entry.parameters}, not at {parameters}"
        rules = (entry.properties or {}).get("counting_rules", COUNTING_RULES_VERSION)
        if counting and rules != COUNTING_RULES_VERSION:
            was = f"counted by rules of version {rules}, now {COUNTING_RULES_VERSION} holds"
        if was:
            message = f"{store.path}: {entry.case} was {was}; use another file"
            raise MeasurementError(message, case=entry.case)
