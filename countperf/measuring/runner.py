"""Cases of a campaign on a device: built, checked, and run in rounds, also in another process."""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

import cloudpickle
import numpy as np

from countperf.devices.binding import bind_arguments, default_inputs
from countperf.devices.description import DeviceKernel, without_vectors
from countperf.devices.device import (
    Device,
    DeviceLimits,
    EventClock,
    RunTime,
    Session,
    check_process,
)
from countperf.devices.discovery import discover, find_device, open_session, select_device
from countperf.devices.identity import DeviceIdentity, Neighbors, time_of_others_s
from countperf.devices.workers import NOT_SENT, Pool, WorkerLostError
from countperf.errors import (
    DeviceLostError,
    KernelBuildError,
    MeasurementError,
    ParameterError,
    WrongResultError,
    option,
)
from countperf.measuring import KernelCase, Protocol, summarize
from countperf.user_code import describe_failure

if TYPE_CHECKING:
    from numpy.typing import NDArray

_T = TypeVar("_T")

BROAD = Protocol(
    name="broad",
    rounds=3,
    runs=8,
    drops=2,
    spread_limit=0.5,
    noise_limit=0.15,
    warm_up_s=0.05,  # PoCL's threads, which had slept, took up to 2.6 times as long for 40 ms
    extra_rounds=2,
    separation_s=20.0,
    max_seconds=0.1,
)
"""For hundreds of kernels; other load can hold up all runs of a round alike, but not all rounds."""

QUICK = BROAD.with_values(
    name="quick", rounds=2, runs=7, noise_limit=0.2, extra_rounds=1, separation_s=5, max_seconds=0.3
)
"""For a first look."""

PAPER = BROAD.with_values(
    **{"name": "paper", "rounds": 1, "runs": 30, "drops": 4, "warm_up_s": 0.0, "extra_rounds": 0},
    **{"separation_s": 0.0, "max_seconds": None},
)
"""That of Stevens & Klöckner (2016), section 4.2: the time is the smallest of 26 runs."""

PROTOCOLS = {protocol.name: protocol for protocol in (BROAD, QUICK, PAPER)}

TIMING = BROAD.with_values(
    name="timing", runs=12, noise_limit=0.1, separation_s=2.0, max_seconds=1.0
)
"""For one kernel of a user's at a few sizes (`countperf.time_kernel`), while they wait."""

CALIBRATION = QUICK.with_values(
    name="calibration", runs=6, drops=1, separation_s=4.0, max_seconds=0.1
)
"""For a device of which other devices say much already: many kernels rather than many runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Consecutive runs of a case."""

    # every run by the campaign's timer and by the host's clock, s
    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    cut_short: bool  # whether the protocol's time was up before its runs were done
    disturbed: bool = False  # whether other programs kept the processor busy meanwhile
    memory_s: tuple[float, ...] = ()  # the probes of memory beside it (`MemoryProbe`), s


_MIB = 2**20
_COPIES = 4


class MemoryProbe:
    """Copies in the last cache and in memory: their times say what others use of both."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._place = now, 0
        self._cached = np.ones((2, 2 * _MIB), np.uint8)  # more than most caches of a core
        self._far = np.ones((32, 2, 2 * _MIB), np.uint8)  # more than most last caches

    def run(self, times: int = 1) -> tuple[float, float]:
        """Return the shortest time of a copy of 2 MiB in the last cache, and in memory, s."""
        self._copy(self._cached)
        places = range(self._place, self._place + _COPIES * times)
        self._place = places.stop
        cached_s = min(self._copy(self._cached) for _ in places)
        return cached_s, min(self._copy(self._far[place % len(self._far)]) for place in places)

    def _copy(self, pair: NDArray[np.uint8]) -> float:
        began = self._now()
        np.copyto(pair[1], pair[0])
        return self._now() - began


SLOW = 1.15
"""Times of probes over the best of a campaign from which on memory counts as slow."""
PROBES = 64  # at the start of a campaign, of half a millisecond each


@dataclass(slots=True)
class MemoryState:
    """The shortest times of a campaign's probes so far, s."""

    best_s: tuple[float, ...] = ()

    def note(self, memory_s: Sequence[float]) -> None:
        """Take a probe into account."""
        self.best_s = tuple(map(min, memory_s, self.best_s or memory_s))

    def slowness(self, memory_s: Sequence[float]) -> float:
        """Return by which factor memory was slower than at its best; 1 where nothing is known."""
        return max((s / best for s, best in zip(memory_s, self.best_s, strict=False)), default=1.0)


def time_round(run: Callable[[], RunTime], protocol: Protocol, now: Callable[[], float]) -> Round:
    """Run a case as often as the protocol says, once it has warmed up."""
    warm = now() + protocol.warm_up_s
    while now() < warm:
        run()
    ends = now() + (protocol.max_seconds or float("inf"))
    timings: list[RunTime] = []
    fewest = min(protocol.runs, protocol.drops + 2)
    while len(timings) < fewest or (len(timings) < protocol.runs and now() < ends):
        timings.append(run())
    return Round(
        samples_s=tuple(timing.time_s for timing in timings),
        host_s=tuple(timing.host_s for timing in timings),
        cut_short=len(timings) < protocol.runs,
    )


@dataclass(slots=True, eq=False)
class Repeats:
    """The rounds of a case in the course of a campaign."""

    case: KernelCase
    protocol: Protocol
    resolution_s: float = 0.0  # of the timer
    memory: MemoryState = field(default_factory=MemoryState)  # of the campaign
    rounds: list[Round] = field(default_factory=list[Round])

    @property
    def rounds_that_count(self) -> list[Round]:
        """Those while memory was as fast as it can be, or all if there is none."""
        kept = [turn for turn in self.rounds if self.memory.slowness(turn.memory_s) <= SLOW]
        return kept or self.rounds

    @property
    def slowness(self) -> float:
        """Factor by which memory was slower, in the best round, than at its best."""
        return min(self.memory.slowness(turn.memory_s) for turn in self.rounds)

    @property
    def samples_s(self) -> list[tuple[float, ...]]:
        """All run times in rounds that count, s."""
        return [turn.samples_s for turn in self.rounds_that_count]

    @property
    def runs_that_count(self) -> list[tuple[float, float]]:
        """Their times by the timer and by the host's clock, s."""
        drops = self.protocol.drops
        rounds = [(turn.samples_s[drops:], turn.host_s[drops:]) for turn in self.rounds_that_count]
        return [pair for times in rounds for pair in zip(*times, strict=True)]

    def is_early(self) -> bool:
        """Tell whether the case has not all of the rounds that each case has."""
        return len(self.rounds) < self.protocol.rounds

    def is_finished(self) -> bool:
        """Tell whether the case has all its rounds, and more of them would not help."""
        if len(self.rounds) >= self.protocol.rounds + self.protocol.extra_rounds:
            return True
        is_gated = self.slowness <= SLOW and len(self.rounds_that_count) >= self.protocol.rounds
        return is_gated and self.is_stable()

    def is_stable(self) -> bool:
        """Tell whether the samples agree, and some round had the processor to itself."""
        if all(turn.disturbed for turn in self.rounds_that_count):
            return False
        drops = self.protocol.drops
        summary = summarize(self.samples_s, drops, resolution_s=self.resolution_s)
        return self.protocol.is_stable(summary)


class RoundSchedule:
    """Rounds in the order in which they are to run.

    What is due goes first, then what has not begun, then early rounds, then what is unstable.
    """

    def __init__(self, fresh: Iterable[Repeats]) -> None:
        self.fresh = deque(fresh)
        self._waiting: deque[tuple[float, Repeats]] = deque()

    def take(self, now: float) -> tuple[Repeats | None, float]:
        """Take the case that runs next, None when nothing is left; and how long to wait, s."""
        if self.fresh and not (self._waiting and self._waiting[0][0] <= now):
            return self.fresh.popleft(), 0.0
        if not self._waiting:
            return None, 0.0
        first = self._waiting[0]
        early = (entry for entry in self._waiting if entry[1].is_early())
        entry = first if first[0] <= now else next(early, first)
        self._waiting.remove(entry)
        due, state = entry
        return state, 0.0 if state.is_early() else max(0.0, due - now)

    def again(self, state: Repeats, now: float) -> None:
        """Put a case back for another round, later."""
        self._waiting.append((now + state.protocol.separation_s, state))


def in_mixed_order(cases: Iterable[KernelCase]) -> list[KernelCase]:
    """Put kernels, each with its cases, in an order that has nothing to do with what they are.

    A machine that others slow down for an hour shall not make a difference between families.
    """
    return sorted(cases, key=lambda case: hashlib.blake2b(case.kernel.encode()).digest())


Run = Callable[[], RunTime]
# no power of two, so that arrays shift against cache lines' sets and pages alike
_STEP_BYTES = 192
_PLACES = 2**12


class CaseRunner:
    """A runner of cases on a device; subclasses define `check` and `load_case`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.identity: DeviceIdentity = device.identity
        self.limits: DeviceLimits = device.limits
        self.clock: EventClock = EventClock()

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels, as `Session.versions`."""
        return {}

    def time_of_others_s(self) -> float | None:
        """Return the time that other programs have used so far, s; None if it does not matter."""
        return None

    def check(self, case: KernelCase) -> None:
        """Build the case's kernel and compare its numbers, once per kernel."""
        raise NotImplementedError(case.name)

    def load_case(self, case: KernelCase) -> AbstractContextManager[Run]:
        """Give what runs the case once, in fresh memory; only in the process that runs it."""
        raise NotImplementedError(case.name)

    def apply(self, function: Callable[..., _T], case: KernelCase, *more: Any) -> _T:
        """Call a function with the runner and a case, in the process that runs it."""
        return function(self, case, *more)

    def probe_memory(self, times: int = 1) -> tuple[float, ...]:
        """Return the times of copies in the last cache and in memory, s; none on GPUs."""
        del times
        return ()

    @cached_property
    def _neighbors(self) -> Neighbors:
        return Neighbors(self.time_of_others_s, self.clock.now)

    def time_round(self, case: KernelCase, protocol: Protocol) -> Round:
        """Put a case into memory, and run it as often as the protocol says."""
        with self.load_case(case) as run:
            self._neighbors.are_busy()
            before = self.probe_memory()
            turn = time_round(run, protocol, self.clock.now)
            memory_s = tuple(map(min, before, self.probe_memory()))
        return replace(turn, disturbed=self._neighbors.are_busy(), memory_s=memory_s)


class KernelRunner(CaseRunner):
    """Runs cases on a device."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.device)
        self.session = session
        self._displacements = np.random.default_rng(0)
        self._kernels: dict[str, DeviceKernel] = {}
        self._checked: set[tuple[str, tuple[tuple[str, int], ...]]] = set()
        self._drawn: tuple[object, dict[str, Any]] | None = None

    @classmethod
    def open(cls, device: Device) -> KernelRunner:
        """Open a device and return what runs cases on it."""
        return cls(open_session(device))

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels."""
        return self.session.versions()

    def time_of_others_s(self) -> float | None:
        """Return what other programs have used of the processor, if the device is one, s."""
        return time_of_others_s() if self.identity.device_type == "cpu" else None

    def probe_memory(self, times: int = 1) -> tuple[float, ...]:
        """Return the times of copies in the last cache and in memory, s; none on GPUs."""
        return self._probe.run(times) if self.identity.device_type == "cpu" else ()

    @cached_property
    def _probe(self) -> MemoryProbe:
        return MemoryProbe(self.clock.now)

    def check(self, case: KernelCase) -> None:
        """Build a kernel and compare its numbers with the reference, once per check sizes."""
        check_process(self.device.process, self.device.label)
        key = (case.kernel, tuple(sorted(case.check_parameters.items())))
        if key in self._checked:
            return
        kernel = self._kernel(case)
        inputs = self._inputs(case, kernel, case.check_parameters)
        with self._failing_as(KernelBuildError, case, "does not run at its check sizes"):
            bound = bind_arguments(
                self.session, kernel, case.check_parameters, inputs, unchecked=case.unchecked
            )
            kernel.launch(bound.arguments)
            self.session.finish()
        with self._failing_as(WrongResultError, case, "cannot be compared with its reference"):
            reference = case.reference or (lambda *_: {})
            wanted = reference(inputs, case.check_parameters)
        for name, want in wanted.items():
            if name not in {array.name for array in kernel.arrays}:
                message = f"{case.name}: the reference gives {name!r}, no array of the kernel"
                raise WrongResultError(message, case=case.name)
            compare(case, name, bound.read(name), want)
        self._checked.add(key)

    @contextmanager
    def load_case(self, case: KernelCase) -> Generator[Run]:
        """Give what runs a case once, in fresh memory: times depend on where arrays lie."""
        check_process(self.device.process, self.device.label)
        kernel = self._kernel(case)
        with self._failing_as(MeasurementError, case, "does not run"):
            inputs = self._inputs_at_full_size(case, kernel)
            # allocators like to give back what they got last
            held_bytes = int(self._displacements.integers(1, _PLACES)) * _STEP_BYTES
            held = self.session.allocate(held_bytes)
            arguments = bind_arguments(
                self.session, kernel, case.parameters, inputs, unchecked=case.unchecked
            ).arguments
            del inputs
            self.session.finish()
            assert kernel.prepare is not None
            launch = kernel.prepare(arguments)
            yield lambda: self.clock.time_run(launch)
            del held

    def _kernel(self, case: KernelCase) -> DeviceKernel:
        if case.kernel not in self._kernels:
            with self._failing_as(KernelBuildError, case, "does not build"):
                self._kernels[case.kernel] = self.session.build_kernel(
                    case.build(), case.unused_local_bytes
                )
        return self._kernels[case.kernel]

    def _inputs(
        self, case: KernelCase, kernel: DeviceKernel, parameters: Mapping[str, int]
    ) -> dict[str, Any]:
        seed = (0, zlib.crc32((case.inputs or case.kernel).encode()))
        rng, bound = np.random.default_rng(seed), case.bound_arguments
        with self._failing_as(KernelBuildError, case, "gets no inputs"):
            if case.make_arguments is None:
                return default_inputs(kernel, rng, parameters, bound, case.statistics)
            return {**bound, **case.make_arguments(rng, parameters)}

    def _inputs_at_full_size(self, case: KernelCase, kernel: DeviceKernel) -> dict[str, Any]:
        """Return a case's inputs; those that cases share are drawn once for all in a row."""
        if not case.inputs or case.make_arguments is None:
            return self._inputs(case, kernel, case.parameters)
        key = (case.inputs, case.make_arguments, dict(case.parameters))
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = None  # the memory goes first
            self._drawn = key, self._inputs(case, kernel, case.parameters)
        return self._drawn[1]

    @contextmanager
    def _failing_as(
        self, kind: type[MeasurementError], case: KernelCase, what: str
    ) -> Generator[None]:
        try:
            yield
        except DeviceLostError:
            raise  # no case of this process can run any more
        except MeasurementError as error:
            if error.case is not None:
                raise
            raise type(error)(f"{case.name}: {error}", case=case.name) from error
        except Exception as error:
            # of builders, inputs and references, which are anybody's code
            message = f"{case.name} {what}: {describe_failure(error)}"
            raise kind(message, case=case.name) from error


def compare(case: KernelCase, name: str, got: NDArray[Any], want: NDArray[Any]) -> None:
    """Compare an output with the reference."""
    got, expected = without_vectors(got), without_vectors(np.asarray(want))
    if got.shape != expected.shape:
        message = f"{case.name}: {name} has shape {got.shape}, the reference {expected.shape}"
        raise WrongResultError(message, case=case.name)
    if expected.size == 0:
        return
    wide = np.result_type(got.dtype, expected.dtype, np.float64)
    difference = np.abs(got.astype(wide) - expected.astype(wide))
    tolerance = case.tolerance
    if tolerance is None:  # sums of a million numbers in another order stay within it
        bits = 8 * np.real(got).dtype.itemsize if got.dtype.kind in "fc" else 0
        tolerance = {0: 0.0, 16: 1e-2, 32: 1e-4}.get(bits, 1e-10)
    allowed = tolerance * max(1.0, float(np.max(np.abs(expected))))
    wrong = ~(difference <= allowed)  # a NaN is wrong
    if not wrong.any():
        return
    index = tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    message = (
        f"{case.name}: wrong numbers: {name}{list(index)} is {got[index]}, the reference says"
        f" {expected[index]} (tolerance {allowed:.3g}; {int(wrong.sum())} of {wrong.size} differ)"
    )
    raise WrongResultError(message, case=case.name)


# --- in a process of its own: a kernel that crashes or never ends costs its case alone

LONGEST_S = 300.0  # by default, for building and checking a kernel, or for a round of its runs, s
_START_S = 60.0  # for a process to open the device, after which it is given up


class ApartRunner(CaseRunner):
    """Runs cases in a process of its own; a context manager, which begins and ends the process."""

    def __init__(self, device: Device, longest_s: float = LONGEST_S) -> None:
        super().__init__(device)
        if not 0 < longest_s < float("inf"):
            message = f"longest_s is {longest_s}; it is a finite time in seconds, more than 0"
            raise ParameterError(message, parameter="longest_s")
        self._longest_s = longest_s
        self._pool = Pool(1)

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels."""
        return self._call("", KernelRunner.versions, None)

    def probe_memory(self, times: int = 1) -> tuple[float, ...]:
        """Return the times of copies in the last cache and in memory, s; none on GPUs."""
        return self._call("", KernelRunner.probe_memory, None, times)

    def check(self, case: KernelCase) -> None:
        """Build a case's kernel and compare its numbers, once per kernel and process."""
        self._call("built and checked", KernelRunner.check, case)

    def time_round(self, case: KernelCase, protocol: Protocol) -> Round:
        """Run a case as often as a protocol says."""
        return self.apply(KernelRunner.time_round, case, protocol)

    def apply(self, function: Callable[..., _T], case: KernelCase, *more: Any) -> _T:
        """Call a function there, with the runner of the process and a case."""
        return self._call("run", function, case, *more)

    def _call(
        self, what: str, function: Callable[..., Any], case: KernelCase | None, *more: Any
    ) -> Any:
        name = "the device" if case is None else case.name
        try:
            content = None if case is None else cloudpickle.dumps(case)
        except NOT_SENT as error:
            raise KernelBuildError(
                f"{name}: it cannot be sent to the process that runs it: {error}; what cannot be"
                " pickled has to be made within the functions that make its inputs and its"
                " reference",
                case=name,
            ) from error
        call = _answer, self.device.label, function, content, *more
        try:
            printed, result, error = self._pool.submit_within(self._longest_s, *call).result()
        except WorkerLostError as lost:
            self._open()
            kernel = "" if case is None else f"kernel {case.kernel!r} is not {what}: "
            advice = f"; {option('longest_s')} gives it more" if lost.is_late else ""
            message = f"{name}: {kernel}the process of its own was lost: {lost}{advice}"
            raise MeasurementError(message, case=case and case.name) from lost
        sys.stderr.write(printed)
        if isinstance(error, DeviceLostError):
            self._pool.end()
            self._pool = Pool(1)
            self._open()
            raise MeasurementError(f"{name}: {error}", case=name) from error
        if error is not None:
            raise error
        return result

    def _open(self) -> None:
        """Have the process open the device, while the caller does something else."""
        self._pool.submit_within(_START_S, _open, self.device.label)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.end()


def open_runner(
    runner: CaseRunner | None, device: str | Device | None, longest_s: float = LONGEST_S
) -> AbstractContextManager[CaseRunner]:
    """Give a runner, or one on a device in a process of its own for as long as it is needed."""
    if runner is not None:
        return nullcontext(runner)
    return ApartRunner(device if isinstance(device, Device) else find_device(device), longest_s)


@lru_cache(maxsize=1)
def _open(label: str) -> KernelRunner:
    return KernelRunner.open(select_device(label, discover().devices))


@lru_cache(maxsize=64)
def _unpack(content: bytes) -> KernelCase:
    return pickle.loads(content)


def _answer(
    label: str, function: Callable[..., Any], content: bytes | None, *more: Any
) -> tuple[str, Any, Exception | None]:
    """Return, in the process, what code of the user's printed, and how a call ended."""
    printed, result, failure = io.StringIO(), None, None
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            given = more if content is None else (_unpack(content), *more)
            result = function(_open(label), *given)
        except Exception as error:  # noqa: BLE001  it goes to the caller
            failure = error
    return printed.getvalue(), result, failure
