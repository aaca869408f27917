"""Measurement of cases in a process of its own.

A kernel that crashes or never ends costs its case alone: a process that is lost is replaced when
the next case needs one. Whole rounds are timed there, so that nothing is said between two runs.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stderr, redirect_stdout
from functools import lru_cache
from typing import Any, Self, TypeVar

import cloudpickle

from countperf import errors
from countperf.devices.device import Device, EventClock
from countperf.devices.discovery import discover, find_device, select_device
from countperf.devices.workers import NOT_SENT, Pool, WorkerLostError
from countperf.measuring.cases import KernelCase
from countperf.measuring.lines import Protocol
from countperf.measuring.runner import CaseRunner, KernelRunner, Round, Run

_T = TypeVar("_T")

LONGEST_S = 300.0
"""By default, what building and checking a kernel may take, or a round of its runs, s."""

_START_S = 60.0  # for a process to open the device, after which it is given up


class ApartRunner(CaseRunner):
    """Runs cases in a process of its own; a context manager, which begins and ends the process."""

    def __init__(
        self,
        device: Device,
        clock: EventClock | None = None,
        *,
        longest_s: float = LONGEST_S,
    ) -> None:
        if not 0 < longest_s < float("inf"):
            message = f"longest_s is {longest_s}; it is a finite time in seconds, more than 0"
            raise errors.ParameterError(message, parameter="longest_s")
        self.device = device
        self.identity = device.identity
        self.limits = device.limits
        self.clock: EventClock = clock or EventClock()
        self._longest_s = longest_s
        self._opening = device.label, cloudpickle.dumps(self.clock)
        self._pool = Pool(1)

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels."""
        return self._call("", KernelRunner.versions, None)

    def check(self, case: KernelCase) -> None:
        """Build a case's kernel and compare its numbers, once per kernel and process."""
        self._call("built and checked", KernelRunner.check, case)

    def time_round(self, case: KernelCase, protocol: Protocol) -> Round:
        """Run a case as often as a protocol says."""
        return self.apply(KernelRunner.time_round, case, protocol)

    def apply(self, function: Callable[..., _T], case: KernelCase, *more: Any) -> _T:
        """Call a function there, with the runner of the process and a case."""
        return self._call("run", function, case, *more)

    def loaded(self, case: KernelCase) -> AbstractContextManager[Run]:
        """Refuse to run a case from here, once at a time: `apply` has it run there."""
        raise NotImplementedError(case.name)

    def _call(
        self, what: str, function: Callable[..., Any], case: KernelCase | None, *more: Any
    ) -> Any:
        name = "the device" if case is None else case.name
        try:
            content = None if case is None else cloudpickle.dumps(case)
        except NOT_SENT as error:
            raise errors.KernelBuildError(
                f"{name}: it cannot be sent to the process that runs it: {error}; what cannot be"
                " pickled has to be made within the functions that make its inputs and its"
                " reference",
                case=name,
            ) from error
        task = self._pool.submit_within(
            self._longest_s, _answer, self._opening, function, content, *more
        )
        try:
            printed, result, error = task.result()
        except WorkerLostError as lost:
            self._open()
            kernel = "" if case is None else f"kernel {case.kernel!r} is not {what}: "
            advice = f"; {errors.option('longest_s')} gives it more" if lost.is_late else ""
            raise errors.MeasurementError(
                f"{name}: {kernel}the process of its own was lost: {lost.reason}{advice}",
                case=None if case is None else case.name,
            ) from lost
        sys.stderr.write(printed)
        if isinstance(error, errors.DeviceLostError):
            self._pool.end()
            self._pool = Pool(1)
            self._open()
            raise errors.MeasurementError(f"{name}: {error}", case=name) from error
        if error is not None:
            raise error
        return result

    def _open(self) -> None:
        """Have the process open the device, while the caller does something else."""
        self._pool.submit_within(_START_S, _open, *self._opening)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.end()


def open_runner(
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
    return ApartRunner(chosen, clock, longest_s=longest_s)


# --- in the process


@lru_cache(maxsize=1)
def _open(label: str, clock: bytes) -> KernelRunner:
    return KernelRunner.open(select_device(label, discover().devices), pickle.loads(clock))


@lru_cache(maxsize=64)
def _unpack(content: bytes) -> KernelCase:
    return pickle.loads(content)


def _answer(
    opening: tuple[str, bytes], function: Callable[..., Any], content: bytes | None, *more: Any
) -> tuple[str, Any, Exception | None]:
    """Return what code of the user's printed, and how a call ended."""
    printed, result, failure = io.StringIO(), None, None
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            given = more if content is None else (_unpack(content), *more)
            result = function(_open(*opening), *given)
        except Exception as error:  # noqa: BLE001  it goes to the caller
            failure = error
    return printed.getvalue(), result, failure
