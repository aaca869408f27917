"""Measurement of cases in a process of its own.

A kernel that crashes or never ends costs its case alone: a process that is lost is replaced when
the next case needs one. Whole rounds are timed there, so that nothing is said between two runs.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, cast

import cloudpickle

from countperf.devices.device import Device, EventClock, RunTime
from countperf.devices.discovery import discover, find_device, select_device
from countperf.devices.workers import NOT_SENT, Remote, WorkerLostError
from countperf.errors import (
    DeviceLostError,
    KernelBuildError,
    MeasurementError,
    ParameterError,
    option,
)
from countperf.measuring import campaign
from countperf.measuring.campaign import CountKernel, IsOver
from countperf.measuring.cases import KernelCase
from countperf.measuring.lines import Protocol
from countperf.measuring.measurement_sets import MeasurementSet
from countperf.measuring.runner import BROAD, CaseRunner, KernelRunner, Round, Run
from countperf.sizes import checks_keywords

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
        yield lambda: cast("RunTime", self._call("run_once", "run", case))

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

    def run_once(self, case: KernelCase) -> RunTime:
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
