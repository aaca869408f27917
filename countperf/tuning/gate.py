"""Keeps timings apart from what would disturb them, among all searches of this process.

Timings of a device that is made of this machine's processors exclude everything else that the
searches do here: building, counting by the executor, timings of other such devices. Timings of
other devices exclude nothing but what their own search does.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

from countperf.devices.identity import DeviceIdentity
from countperf.errors import TuningError
from countperf.tuning.pools import StandsStill
from countperf.tuning.ranker import Ranker


class Gate:
    """Lets the work of several searches pass at a time, or one timing alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._is_timing = False
        self._rankers: list[Ranker] = []
        self._is_closed = False

    def close(self) -> None:
        """Let nothing pass any more: searches end with an error."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _wait(self) -> None:
        self._changed.wait_for(lambda: self._is_closed or not self._is_timing)
        if self._is_closed:
            raise TuningError("the search was interrupted", refusals=[])

    @contextmanager
    def watching(self, ranker: Ranker) -> Generator[None]:
        """Have a ranking stand still whenever there is a timing on the processors."""
        with self._changed:
            self._rankers.append(ranker)
        try:
            yield
        finally:
            with self._changed:
                self._rankers.remove(ranker)

    @contextmanager
    def working(self) -> Generator[None]:
        """Do what uses the processors; waits while there is a timing on them."""
        with self._changed:
            self._wait()
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def timing(self, device: DeviceIdentity) -> AbstractContextManager[None]:
        """Time on a device; alone if that is the processors of this machine."""
        return self._alone() if device.device_type == "cpu" else nullcontext()

    @contextmanager
    def _alone(self) -> Generator[None]:
        with self._changed:
            self._wait()
            self._is_timing = True
            self._changed.wait_for(lambda: not self._working)
            rankers = tuple(self._rankers)
        try:
            with _standing_still(rankers):  # nobody else uses them, since nobody works
                yield
        finally:
            with self._changed:
                self._is_timing = False
                self._changed.notify_all()


@contextmanager
def _standing_still(rankers: Sequence[Ranker]) -> Generator[None]:
    """Have the executors of some rankings do nothing, in the midst of their tasks if they can."""
    able: dict[StandsStill, list[Ranker]] = {}
    for ranker in rankers:
        if ranker.standstill is None:
            ranker.pause()
        else:
            able.setdefault(ranker.standstill, []).append(ranker)
    with ExitStack() as stack:
        for standstill, users in able.items():
            stack.enter_context(standstill.reached(partial(_are_idle, users)))
        yield


def _are_idle(rankers: Sequence[Ranker]) -> bool:
    return all(ranker.is_idle for ranker in rankers)
