"""Kernels that are built while another one is timed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from countperf.harness.runner import CaseRunner
    from countperf.measurements import KernelCase


class BuildAhead:
    """Builds the kernel that a campaign begins next, where that does not disturb the timing.

    It does not where the device has a processor of its own (a GPU) and a clock of its own. On a
    CPU the compiler would take a core from the kernel that is timed: nothing is built ahead.

    Parameters
    ----------
    runner : CaseRunner
        What builds kernels.
    """

    def __init__(self, runner: CaseRunner) -> None:
        self._runner = runner
        has_own_clock = runner.clock.timer == "event"
        self._may_build = runner.identity.device_type != "cpu" and has_own_clock
        self._helper = ThreadPoolExecutor(1, "countperf-build")
        self._last: tuple[str, Future[None]] | None = None

    def build(self, now: KernelCase, following: KernelCase | None) -> None:
        """Wait for the kernel of one case if it is being built, and begin to build the next one.

        A kernel that does not build says so when it is checked.

        Parameters
        ----------
        now : KernelCase
            The case that is timed now.
        following : KernelCase, optional
            The case that is timed next.
        """
        if self._last is not None and self._last[0] == now.kernel:
            wait([self._last[1]])
        if not self._may_build or following is None or following.kernel == now.kernel:
            return
        if self._last is None or (self._last[0] != following.kernel and self._last[1].done()):
            self._last = following.kernel, self._helper.submit(self._runner.prepare, following)

    def close(self) -> None:
        """Wait for what is being built."""
        self._helper.shutdown()
