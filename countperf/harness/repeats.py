"""Repeated runs of cases: protocols, rounds, and their order in a campaign."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from countperf.harness.clock import Timing
from countperf.measurements import KernelCase, Protocol, Summary, summarize

_WARM_UP_S = 0.05
"""Threads of a device that have slept, while a kernel was built or checked, wake up on one core.

On two cores of a Zen 5, kernels of PoCL took 2 to 2.6 times as long for 10 to 20 ms, then 1.1 to
1.3 times as long for another 20, as they did after 40 ms.
"""

BROAD = Protocol(
    name="broad",
    rounds=3,
    runs=8,
    drops=2,
    spread_limit=0.5,
    noise_limit=0.15,
    extra_rounds=2,
    separation_s=20.0,
    max_seconds=0.1,
    warm_up_s=_WARM_UP_S,
)
"""For hundreds of kernels. Rounds some time apart find out more about a case than runs in a row:
other load on the machine can hold up all runs of a round without any spread among them.
"""

QUICK = BROAD.changed(
    name="quick",
    rounds=2,
    runs=7,
    noise_limit=0.2,
    extra_rounds=1,
    separation_s=5.0,
    max_seconds=0.3,
)
"""For a first look."""

TIMING = BROAD.changed(name="timing", runs=12, noise_limit=0.1, separation_s=2.0, max_seconds=1.0)
"""For one kernel of a user's at a few sizes (`countperf.time_kernel`), while they wait."""

CALIBRATION = QUICK.changed(name="calibration", runs=6, drops=1, separation_s=4.0, max_seconds=0.1)
"""For a device of which other devices say much already: many kernels rather than many runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Consecutive runs of a case."""

    # every run by the campaign's timer and by the host's clock, s
    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    cut_short: bool  # whether the protocol's time was up before its runs were done
    disturbed: bool  # whether other programs kept the processor busy meanwhile


def time_round(run: Callable[[], Timing], protocol: Protocol, now: Callable[[], float]) -> Round:
    """Run a case as often as the protocol says, once it has warmed up."""
    warm = now() + protocol.warm_up_s
    while now() < warm:
        run()
    ends = float("inf") if protocol.max_seconds is None else now() + protocol.max_seconds
    timings: list[Timing] = []
    fewest = min(protocol.runs, protocol.drops + 2)
    while len(timings) < fewest or (len(timings) < protocol.runs and now() < ends):
        timings.append(run())
    return Round(
        samples_s=tuple(timing.time_s for timing in timings),
        host_s=tuple(timing.host_s for timing in timings),
        cut_short=len(timings) < protocol.runs,
        disturbed=False,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Repeats:
    """The rounds of a case in the course of a campaign."""

    case: KernelCase
    rounds: list[Round] = field(default_factory=list[Round])

    def samples_s(self) -> list[tuple[float, ...]]:
        """Return all run times in rounds, s."""
        return [turn.samples_s for turn in self.rounds]

    def counted(self, drops: int) -> list[tuple[float, float]]:
        """Return the runs that count: times by the timer and by the host's clock, s."""
        return [
            pair
            for turn in self.rounds
            for pair in list(zip(turn.samples_s, turn.host_s, strict=True))[drops:]
        ]

    def summary(self, protocol: Protocol, resolution_s: float) -> Summary:
        """Reduce the samples so far."""
        return summarize(self.samples_s(), protocol.drops, resolution_s=resolution_s)

    def is_finished(self, protocol: Protocol, resolution_s: float) -> bool:
        """Tell whether the case has all its rounds, and more of them would not help."""
        if len(self.rounds) < protocol.rounds:
            return False
        if len(self.rounds) >= protocol.rounds + protocol.extra_rounds:
            return True
        return self.is_stable(protocol, resolution_s)

    def is_stable(self, protocol: Protocol, resolution_s: float) -> bool:
        """Tell whether the samples agree, and some round had the processor to itself."""
        if all(turn.disturbed for turn in self.rounds):
            return False
        return protocol.is_stable(self.summary(protocol, resolution_s))


class Schedule:
    """Rounds in the order in which they are to run.

    A case whose next round is due goes first, then cases that have not begun, then rounds that are
    early since nothing else is left, and at last what was unstable, when it is due. So cases
    finish one after another all along the campaign, and little is lost if it is interrupted.
    """

    def __init__(self, cases: Iterable[KernelCase], protocol: Protocol) -> None:
        self._fresh = deque(Repeats(case=case) for case in cases)
        self._waiting: deque[tuple[float, Repeats]] = deque()
        self._protocol = protocol

    def next(self, now: float) -> Repeats | None:
        """Take the case that runs next; None when nothing is left."""
        if self._waiting and self._waiting[0][0] <= now:
            return self._waiting.popleft()[1]
        if self._fresh:
            return self._fresh.popleft()
        early = [entry for entry in self._waiting if self._is_early(entry[1])]
        entry = next(iter(early or self._waiting), None)
        if entry is None:
            return None
        self._waiting.remove(entry)
        return entry[1]

    def pause_s(self, now: float) -> float:
        """Return how long to wait before taking the next case, s."""
        if self._fresh or not self._waiting:
            return 0.0
        if any(self._is_early(state) for _, state in self._waiting):
            return 0.0
        return max(0.0, self._waiting[0][0] - now)

    def _is_early(self, state: Repeats) -> bool:
        return len(state.rounds) < self._protocol.rounds

    def again(self, state: Repeats, now: float) -> None:
        """Put a case back for another round, later."""
        self._waiting.append((now + self._protocol.separation_s, state))

    def begin_no_more(self) -> None:
        """Drop the cases that have not begun."""
        self._fresh.clear()

    def following(self) -> KernelCase | None:
        """Return the case that begins next, None if all have begun."""
        return self._fresh[0].case if self._fresh else None

    def left(self) -> Sequence[Repeats]:
        """Return the cases that are not finished, but for one that is running."""
        return [*self._fresh, *(state for _, state in self._waiting)]


def in_mixed_order(cases: Iterable[KernelCase]) -> list[KernelCase]:
    """Put kernels in an order that has nothing to do with what they are, each time the same.

    Cases of one kernel, which is built once, come together, in the order in which they are given.
    Where others use the machine too, its memory may become several times as fast or slow within an
    hour. Measured family by family, that would be a difference between families; so it is noise.
    """
    return sorted(cases, key=lambda case: hashlib.blake2b(case.kernel.encode()).digest())
