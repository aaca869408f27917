"""Repeated runs of cases: protocols, rounds, and their order in a campaign."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Self

from pydantic import Field, NonNegativeFloat, model_validator

from countperf.documents import Part
from countperf.harness.clock import Timing
from countperf.measurements import KernelCase, Measurement, Protocol, Summary, summarize

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


class Round(Part):
    """Consecutive runs of a case."""

    # every run by the campaign's timer and by the host's clock, s
    samples_s: tuple[NonNegativeFloat, ...] = Field(min_length=1)
    host_s: tuple[NonNegativeFloat, ...] = Field(min_length=1)
    cut_short: bool  # whether the protocol's time was up before its runs were done
    disturbed: bool  # whether other programs kept the processor busy meanwhile

    @model_validator(mode="after")
    def _each_run_has_both_times(self) -> Self:
        if len(self.samples_s) != len(self.host_s):
            raise ValueError(f"{len(self.samples_s)} samples_s, but {len(self.host_s)} host_s")
        return self


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

    def __init__(
        self,
        cases: Iterable[KernelCase],
        protocol: Protocol,
        begun: Sequence[tuple[float, Repeats]] = (),
    ) -> None:
        self._fresh = deque(Repeats(case=case) for case in cases)
        self._waiting = deque(sorted(begun, key=lambda entry: entry[0]))
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


class Estimate:
    """Estimate of the remaining time of a campaign."""

    def __init__(self, protocol: Protocol, expected_run_s: Mapping[str, float]) -> None:
        self._protocol = protocol
        self._expected_run_s = expected_run_s
        self._spent_s: list[float] = []
        self._expected_s: list[float] = []

    def add(self, state: Repeats, spent_s: float) -> None:
        """Note how long a round took, all told, s."""
        self._spent_s.append(spent_s)
        self._expected_s.append(self._round_s(state.case))

    def remaining_s(self, states: Iterable[Repeats]) -> float | None:
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


CONTROLS = 8
"""So many known cases are run once more when a campaign goes on, one round each."""


def choose_controls(
    cases: Sequence[KernelCase], measured: Collection[Measurement], *, most: int = CONTROLS
) -> list[tuple[KernelCase, float]]:
    """Choose cases that settled when they were measured."""
    times = {each.case: each.time_s for each in measured if each.stable}
    known = {case.kernel: case for case in in_mixed_order(cases) if case.name in times}
    number = min(most, CONTROLS)
    chosen = list(known.values())[:: max(1, len(known) // max(1, number))][:number]
    return [(case, times[case.name]) for case in chosen]


def describe_change(ratios: Mapping[str, float], protocol: Protocol) -> str:
    """Say by which factor known cases take longer than before; nothing if that may be noise."""
    if not ratios:
        return ""
    typical = median(ratios.values())
    if 1 / (1 + protocol.noise_limit) <= typical <= 1 + protocol.noise_limit:
        return ""
    return (
        f"{len(ratios)} cases that had been measured take {typical:.2f} times as long now"
        f" ({min(ratios.values()):.2f} to {max(ratios.values()):.2f}): the machine is not what it"
        " was, and a fit takes that for a difference between kernels; go on when it is quiet again,"
        " or measure all in a new file"
    )
