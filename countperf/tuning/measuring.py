"""Measurement of cases and variants in a process of its own.

A kernel that crashes or never ends costs its case alone: a process that is lost is replaced when
the next case needs one. Whole rounds are timed there, so that nothing is said between two runs. The
numbers of a variant are checked, then it runs while it may be the fastest.
"""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import cloudpickle

from countperf.counting.frontend.unattended import shared_by_threads
from countperf.devices.device import Device, EventClock, Timing
from countperf.devices.discovery import discover, find_device, select_device
from countperf.devices.workers import Remote, WorkerLostError
from countperf.errors import (
    DeviceLostError,
    KernelBuildError,
    MeasurementError,
    ParameterError,
    option,
)
from countperf.measuring import KernelCase, campaign
from countperf.measuring.runner import BROAD, CaseRunner, KernelRunner, Run
from countperf.sizes import checks_keywords
from countperf.tuning.points import NOT_SENT
from countperf.tuning.posterior import LogTimes
from countperf.tuning.result import Plan
from countperf.tuning.space import Choice, SearchSpace, Statistics

if TYPE_CHECKING:
    from pathlib import Path

    from countperf.measuring import KernelCase, MeasurementSet, Protocol
    from countperf.measuring.campaign import CountKernel, IsOver
    from countperf.measuring.runner import Round


LONGEST_S = 300.0
"""By default, what building and checking a kernel may take, or a round of its runs, s."""

_START_S = 60.0  # for a process to open the device, after which it is given up
_KEPT = 64  # cases that are pickled and unpickled once


class ApartRunner(CaseRunner):
    """Runs cases in a process of its own; a context manager, which ends the process."""

    def __init__(
        self,
        device: Device,
        clock: EventClock | None = None,
        *,
        longest_s: float = LONGEST_S,
    ) -> None:
        if not 0 < longest_s < float("inf"):
            message = f"longest_s is {longest_s}; it is a finite time in seconds, more than 0"
            raise ParameterError(message, parameter="longest_s")
        self.device = device
        self.identity = device.identity
        self.limits = device.limits
        self.clock: EventClock = clock or EventClock()
        self._longest_s = longest_s
        self._opening = device.label, cloudpickle.dumps(self.clock)
        self._cases: dict[str, tuple[KernelCase, bytes]] = {}
        self._remote = Remote(_Process, *self._opening)

    def begin(self) -> Self:
        """Have the process open the device, while the caller does something else."""
        self._remote.call(_START_S, "__repr__")
        return self

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels."""
        return self._call("versions", "its versions", None)

    def check(self, case: KernelCase) -> None:
        """Build a case's kernel and compare its numbers, once per kernel and process."""
        self._call("check", "built and checked", case)

    def time_round(self, case: KernelCase, protocol: Protocol) -> Round:
        """Run a case as often as a protocol says."""
        return self._call("time_round", "run", case, protocol)

    def apply(self, function: Callable[..., Any], case: KernelCase, *more: Any) -> Any:
        """Call a function there, with the runner and a case."""
        return self._call("apply", "run", case, function, *more)

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        """Give what runs a case once, as `KernelRunner.loaded`."""
        self._call("load", "loaded", case)
        yield lambda: cast("Timing", self._call("run_once", "run", case))

    def _call(self, method: str, what: str, case: KernelCase | None, *more: Any) -> Any:
        name = "the device" if case is None else case.name
        content = b"" if case is None else self._packed(case)
        task = self._remote.call(self._longest_s, "answer", method, content, *more)
        try:
            printed, result, error = task.result()
        except WorkerLostError as lost:
            self.begin()
            kernel = "" if case is None else f"kernel {case.kernel!r} is not {what}: "
            raise MeasurementError(
                f"{name}: {kernel}{_reason(lost)}", case=None if case is None else case.name
            ) from lost
        except DeviceLostError as lost:  # as it was opened
            printed, result, error = "", None, lost
        sys.stderr.write(printed)
        if isinstance(error, DeviceLostError):
            self._remote.pool.end()
            self._remote = Remote(_Process, *self._opening)
            self.begin()
            raise MeasurementError(f"{name}: {error}", case=name) from error
        if error is not None:
            raise error
        return result

    def _packed(self, case: KernelCase) -> bytes:
        """Pickle a case, once."""
        known = self._cases.get(case.name)
        if known is None or known[0] is not case:
            try:
                known = case, cloudpickle.dumps(case)
            except NOT_SENT as error:
                raise KernelBuildError(
                    f"{case.name}: it cannot be sent to the process that runs it: {error}; what"
                    " cannot be pickled has to be made within the functions that make its inputs"
                    " and its reference",
                    case=case.name,
                ) from error
            while len(self._cases) >= _KEPT:
                self._cases.pop(next(iter(self._cases)))
            self._cases[case.name] = known
        return known[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._remote.pool.end()


def _reason(lost: WorkerLostError) -> str:
    advice = f"; {option('longest_s')} gives it more" if lost.is_late else ""
    return f"the process of its own was lost: {lost.reason}{advice}"


def running(
    runner: CaseRunner | None,
    device: str | Device | None,
    clock: EventClock | None,
    *,
    longest_s: float = LONGEST_S,
) -> AbstractContextManager[CaseRunner]:
    """Give a runner, or one on a device in a process of its own for as long as it is needed."""
    if runner is not None:
        return nullcontext(runner)
    chosen = device if isinstance(device, Device) else find_device(device)
    return ApartRunner(chosen, clock, longest_s=longest_s).begin()


@lru_cache(maxsize=_KEPT)
def _case(content: bytes) -> KernelCase:
    return pickle.loads(content)


_Answer = tuple[str, Any, Exception | None]


class _Process:
    """State of such a process."""

    def __init__(self, label: str, clock: bytes) -> None:
        self.runner = KernelRunner.open(
            select_device(label, discover().devices), pickle.loads(clock)
        )
        self.memory = ExitStack()  # of what is loaded
        self.loaded: tuple[str, Run] | None = None

    def load(self, case: KernelCase) -> None:
        """Put a case's arguments into memory, in the place of those of another one."""
        self.loaded = None
        self.memory.close()
        self.loaded = case.name, self.memory.enter_context(self.runner.loaded(case))

    def run_once(self, case: KernelCase) -> Timing:
        """Run a case once, loaded anew in the place of a process that was lost."""
        if self.loaded is None or self.loaded[0] != case.name:
            self.load(case)
        assert self.loaded is not None
        return self.loaded[1]()

    def apply(self, case: KernelCase, function: Callable[..., Any], *more: Any) -> Any:
        """Call a function with the runner and a case."""
        return function(self.runner, case, *more)

    def answer(self, method: str, content: bytes, *more: Any) -> _Answer:
        """Return what code of the user's printed, and how a call ended."""
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            try:
                given = (_case(content), *more) if content else more
                owner = self if hasattr(self, method) else self.runner
                result = getattr(owner, method)(*given)
            except Exception as error:  # noqa: BLE001  it goes to the caller
                return printed.getvalue(), None, error
        return printed.getvalue(), result, None


@checks_keywords
def measure(
    cases: Sequence[KernelCase],
    *,
    store: Path | str,
    device: str | Device | None = None,
    protocol: Protocol = BROAD,
    count: CountKernel | None = None,
    clock: EventClock | None = None,
    runner: CaseRunner | None = None,
    retry_failed: bool = False,
    begin_no_more: IsOver | None = None,
    longest_s: float = LONGEST_S,
) -> MeasurementSet:
    """Measure cases and keep the results in a file, going on where an earlier session stopped.

    Each finished case is on the disk before the next round begins. Cases that the store holds
    already, failed ones included, are not run again. A case that fails is recorded, and the others
    go on. Kernels of all families take turns, so that a machine that others slow down for a while
    slows down some of each.
    """
    with running(runner, device, clock, longest_s=longest_s) as opened:
        return campaign.measure(
            cases,
            store=store,
            runner=opened,
            protocol=protocol,
            count=count,
            retry_failed=retry_failed,
            begin_no_more=begin_no_more,
        )


_FIRST_ALLOWANCE = 1.0
_ENOUGH = 3  # runs, two of which are no warm-up
_CHANCE = 0.2  # of being faster than what runs that agree say
_LARGEST_REGRET = 1 - 1e-6


def is_hopeless(samples_s: Sequence[float], best_s: float | None) -> bool:
    """Tell whether runs of a variant so far leave no hope of it being the fastest.

    The fastest of the runs has to exceed the best time known by an allowance for what later runs
    may gain: the whole of it after the first run, which may be a warm-up, half of it after the
    second, and so on; less where three runs or more agree: with t1 and t2 the two shortest, it
    holds with a confidence of 0.8 that no run takes less than ``t1 - 4*(t2 - t1)``.

    Source: Robson, Whitlock (1964), "Estimation of a truncation point", Biometrika 51,
    doi:10.1093/biomet/51.1-2.33, the limit of confidence for an end of a distribution.
    """
    return best_s is not None and bool(samples_s) and least_hope(samples_s) > best_s


def least_hope(samples_s: Sequence[float]) -> float:
    """Return the shortest time that later runs may come to, as `is_hopeless` has it, s."""
    shortest, *others = sorted(samples_s)
    least_s = shortest / (1 + _FIRST_ALLOWANCE / len(samples_s))
    if len(samples_s) < _ENOUGH:
        return least_s
    return max(least_s, shortest - (1 - _CHANCE) / _CHANCE * (others[0] - shortest))


def median_limit(samples_s: Sequence[float], confidence: float) -> float:
    """Bound the median run of a variant from above, s, whatever the distribution of its runs.

    The j-th shortest of n runs is below the median with the probability that of n fair coins j or
    more show heads. Of less than six runs, or so, none is long enough; the longest stands in.

    Source: David, Nagaraja (2003), "Order statistics", section 7.1.
    """
    from scipy.special import bdtrc

    number = len(samples_s)
    heads = 0  # of which more show with this probability
    while bdtrc(heads, number, 0.5) > 1 - confidence and heads + 1 < number:
        heads += 1
    return sorted(samples_s)[heads]


Rest: TypeAlias = Sequence[tuple[LogTimes, int]]
"""Variants that were not measured: distributions, and how many variants each of them stands for."""


def chance_of_better(rest: Rest, best_s: float, margin: float = 0.0) -> float:
    """Bound the probability that some unmeasured variant beats the best by more than a margin."""
    time_s = best_s * (1 - margin)
    expected = sum(count * float(times.probability_below(time_s).sum()) for times, count in rest)
    return min(1.0, expected)


def regret_bound(rest: Rest, best_s: float, confidence: float) -> float:
    """Bound by which fraction of a time the fastest of what was not measured may take less."""
    allowed = 1 - confidence
    if chance_of_better(rest, best_s) <= allowed:
        return 0.0
    if chance_of_better(rest, best_s, _LARGEST_REGRET) > allowed:
        return 1.0
    from scipy.optimize import bisect

    def over(share: float) -> float:
        return chance_of_better(rest, best_s, share) - allowed

    root: Any = bisect(over, 0.0, _LARGEST_REGRET)
    return float(root)


@shared_by_threads
@contextmanager
def silence() -> Generator[None]:
    """Silence standard output and warnings until the last thread that asked for it is through."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


FEWEST_RUNS = 2
CHEAP = 0.05
"""Runs that take no more than this fraction of the time of building a variant are not spared."""

COLD = 3.0
"""So many times as long as later ones, or less, runs take before a device is warm."""


class Bench:
    """Measures variants on a device, one at a time."""

    def __init__(
        self,
        space: SearchSpace,
        sizes: Mapping[str, int],
        runner: CaseRunner,
        plan: Plan,
        *,
        statistics: Statistics | None = None,
        most_s: float | None = None,
        left_s: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self._space = space
        self._sizes = sizes
        self._statistics = statistics
        self._runner = runner
        self._plan = plan
        self._most_s = plan.max_case_s if most_s is None else most_s
        self._left_s = left_s
        self._built_s: list[float] = []
        self._checked: set[str] = set()

    def build(self, choice: Choice) -> float:
        """Build a variant and check its numbers; return the time that it took, s."""
        began_s = self._runner.clock.now()
        with silence():
            self._check(self._case(choice))
        return self._runner.clock.now() - began_s

    def time(self, choice: Choice, best_s: float | None) -> tuple[tuple[float, ...], bool]:
        """Check a variant's numbers and run it.

        Runs that are over before the device is warm are not kept, see `Plan.warm_up_s`.
        """
        case = self._case(choice)
        with silence():
            self._check(case)
        cheap_s, left_s = CHEAP * fmean(self._built_s), self._left_s()
        given = case, self._plan, best_s, cheap_s, self._most_s, left_s
        if isinstance(self._runner, ApartRunner):
            return self._runner.apply(timed, *given)
        return timed(self._runner, *given)

    def _check(self, case: KernelCase) -> None:
        began_s = self._runner.clock.now()
        self._runner.check(case)
        if case.kernel not in self._checked:
            self._checked.add(case.kernel)
            self._built_s.append(self._runner.clock.now() - began_s)

    def _case(self, choice: Choice) -> KernelCase:
        return self._space.case(choice, self._sizes, self._statistics)


def timed(
    runner: CaseRunner,
    case: KernelCase,
    plan: Plan,
    best_s: float | None,
    cheap_s: float,
    most_s: float,
    left_s: float,
) -> tuple[tuple[float, ...], bool]:
    """Run a case while it may be the fastest and there is time, s; see `Bench.time`."""
    samples: list[float] = []
    cold: list[float] = []
    with silence(), runner.loaded(case) as run:
        began_s = runner.clock.now()
        while len(samples) < plan.runs:
            sample = run().time_s
            if not sample > 0:
                raise MeasurementError(f"{case.name}: a time of {sample} s", case=case.name)
            spent = runner.clock.now() - began_s
            spared = spent > cheap_s
            if spent < plan.warm_up_s and spent < left_s:
                cold.append(sample)
                if spared and best_s is not None and min(cold) > COLD * best_s:
                    return tuple(cold), True
                continue
            samples.append(sample)
            if spared and is_hopeless(samples, best_s):
                return tuple(samples), True
            if len(samples) >= FEWEST_RUNS and (spent > most_s or spent >= left_s):
                break
    return tuple(samples), False
