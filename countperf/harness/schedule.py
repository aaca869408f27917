"""Schedule of a campaign: the next round to run."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from countperf.harness.clock import Timing
from countperf.harness.protocols import Round
from countperf.measurements import KernelCase, Protocol, Summary, summarize


@dataclass(slots=True, kw_only=True, eq=False)
class CaseState:
    """A case in the course of a campaign."""

    case: KernelCase  # the case
    rounds: list[Round] = field(default_factory=list)  # its rounds so far

    def samples_s(self) -> list[list[float]]:
        """Return all run times in rounds, s."""
        return [[timing.time_s for timing in turn.timings] for turn in self.rounds]

    def counted(self, drops: int) -> list[Timing]:
        """Return the runs that count."""
        return [timing for turn in self.rounds for timing in turn.timings[drops:]]

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

    def __init__(
        self,
        cases: Iterable[KernelCase],
        protocol: Protocol,
        begun: Sequence[tuple[float, CaseState]] = (),
    ) -> None:
        self._fresh = deque(CaseState(case=case) for case in cases)
        self._waiting = deque(sorted(begun, key=lambda entry: entry[0]))
        self._protocol = protocol

    def next(self, now: float) -> CaseState | None:
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

    def _is_early(self, state: CaseState) -> bool:
        return len(state.rounds) < self._protocol.rounds

    def again(self, state: CaseState, now: float) -> None:
        """Put a case back for another round, later."""
        self._waiting.append((now + self._protocol.separation_s, state))

    def begin_no_more(self) -> None:
        """Drop the cases that have not begun."""
        self._fresh.clear()

    def following(self) -> KernelCase | None:
        """Return the case that begins next, None if all have begun."""
        return self._fresh[0].case if self._fresh else None

    def left(self) -> Sequence[CaseState]:
        """Return the cases that are not finished, but for one that is running."""
        return [*self._fresh, *(state for _, state in self._waiting)]


def in_mixed_order(cases: Iterable[KernelCase]) -> list[KernelCase]:
    """Put kernels in an order that has nothing to do with what they are, each time the same.

    Cases of one kernel, which is built once, come together, in the order in which they are given.
    Where others use the machine too, its memory may become several times as fast or slow within an
    hour. Measured family by family, that would be a difference between families; so it is noise.
    """
    return sorted(cases, key=lambda case: hashlib.blake2b(case.kernel.encode()).digest())


class Estimate:
    """Estimate of the remaining time of a campaign."""

    def __init__(self, protocol: Protocol, expected_run_s: Mapping[str, float]) -> None:
        self._protocol = protocol
        self._expected_run_s = expected_run_s
        self._spent_s: list[float] = []
        self._expected_s: list[float] = []

    def add(self, state: CaseState, spent_s: float) -> None:
        """Note how long a round took, all told, s."""
        self._spent_s.append(spent_s)
        self._expected_s.append(self._round_s(state.case))

    def remaining_s(self, states: Iterable[CaseState]) -> float | None:
        """Estimate the time that cases still need, s; None as long as nothing is known."""
        if not self._spent_s:
            return None
        # what rounds cost beyond their runs: filling memory, building, checking
        overhead = mean(self._spent_s) - mean(self._expected_s)
        rounds = [(state, max(1, self._protocol.rounds - len(state.rounds))) for state in states]
        return sum(
            number * max(0.0, self._round_s(state.case) + overhead) for state, number in rounds
        )

    def _round_s(self, case: KernelCase) -> float:
        runs = self._protocol.runs * self._expected_run_s.get(case.name, 0.0)
        return runs if self._protocol.max_seconds is None else min(runs, self._protocol.max_seconds)
