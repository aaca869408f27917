"""Kernels that are built while another one is timed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from countperf.harness.runner import CaseRunner
    from countperf.measurements import KernelCase


class BuildAhead:
    """Builds the kernel that a campaign begins next, where that does not disturb the timing.

    It does not where the device has a processor of its own (a GPU) and a clock of its own. On a
    CPU the compiler would take a core from the kernel that is timed: nothing is built ahead.
    """

    def __init__(self, runner: CaseRunner) -> None:
        self._runner = runner
        has_own_clock = runner.clock.timer == "event"
        self._may_build = runner.identity.device_type != "cpu" and has_own_clock
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
