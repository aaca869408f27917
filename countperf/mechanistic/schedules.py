"""Schedules of applications: transfers, kernels and work of the host, in streams and on devices.

After Gajger & Czarnul (2018), sections 5.4.2 and 6.2, whose applications run one step after the
other; streams, which let transfers overlap with kernels, are an extension. Rules:

1. Steps of one stream run in their order; streams are independent of each other.
2. A device executes one kernel at a time, and has one copy engine for each direction; the host
   executes one step at a time. Each takes the steps that are ready in the order of the program.
3. A copy between devices keeps the engine out of one and the engine into the other busy.
4. A step named in ``after`` is waited for, whatever its stream and device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from countperf import text

StepKind = Literal["h2d", "d2h", "d2d", "host", "kernel"]
STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(text.ShortRepr):
    """One step of an application."""

    name: str  # its name, or its kind and number from 1
    kind: StepKind  # a transfer to, from or between devices, work of the host, or a kernel
    amount: float  # bytes of a transfer, seconds of the host's work
    kernel: str  # text that names a kernel
    sizes: Mapping[str, int]  # the kernel's
    stream: str
    device: int  # number of its device, from 0
    to: int | None  # number of the device that a transfer between devices goes to
    after: tuple[str, ...]  # names of steps that it waits for

    @property
    def engines(self) -> tuple[tuple[int | None, str], ...]:
        """Parts of devices, by number, that execute it; None stands for the host."""
        if self.kind == "d2d":
            return (self.device, "d2h"), (self.to, "h2d")
        return ((None if self.kind == "host" else self.device, self.kind),)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep(text.ShortRepr):
    """A step in a schedule."""

    step: Step
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule(text.Result):
    """Schedule of an application: begin and end of each step."""

    source: str  # a model's name, and devices
    steps: tuple[TimedStep, ...]  # in the order of the program

    __repr__ = text.Result.__str__

    @property
    def time_s(self) -> float:
        """Time from the start to the end of the last step, s."""
        return max(step.end_s for step in self.steps)

    @property
    def serial_s(self) -> float:
        """Time of all steps one after the other, s."""
        return self.busy_s(*STEP_KINDS)

    def busy_s(self, *kinds: StepKind) -> float:
        """Return the time of all steps of some kinds one after the other, s."""
        return sum(s.end_s - s.start_s for s in self.steps if s.step.kind in kinds)

    def lay_out(self) -> text.Printed:
        """Give source, time and what overlapping saves; then a row per step."""
        saved = 1 - self.time_s / self.serial_s if self.serial_s else 0.0
        times = [text.format_seconds(time_s) for time_s in (self.time_s, self.serial_s)]
        rows = [
            {
                "step": timed.step.name,
                **text.extract(timed.step, "kind", "device", "stream"),
                **text.extract(timed, "start_s", "end_s"),
                "duration_s": timed.end_s - timed.start_s,
            }
            for timed in self.steps
        ]
        return text.Printed(
            head=[
                f"{self.source}: {times[0]}; one after the other {times[1]}"
                f" (overlap saves {100 * saved:.0f} %)"
            ],
            rows=rows,
            columns={
                **text.columns_of("step device stream"),
                **text.columns_of("start_s", text.format_seconds),
                "duration_s": text.Column("takes", text.format_seconds),
            },
            facts=text.extract(self, "source", "time_s", "serial_s"),
            name="steps",
        )


def lay_out_schedules(points: Sequence[Mapping[str, int]], of: Sequence[Schedule]) -> text.Printed:
    """Give a row per point of variables: the time, and how long each kind of step runs."""
    source = max((scheduled.source for scheduled in of), key=len)
    names = "time_s serial_s kernels_s transfers_s host_s"
    return text.Printed(
        head=[source],
        rows=[
            {
                "variables": point,
                **text.extract(scheduled, "time_s", "serial_s"),
                "kernels_s": scheduled.busy_s("kernel"),
                "transfers_s": scheduled.busy_s("h2d", "d2h", "d2d"),
                "host_s": scheduled.busy_s("host"),
            }
            for point, scheduled in zip(points, of, strict=True)
        ],
        columns={"variables": text.EACH, **text.columns_of(names, text.format_seconds)},
        facts={"source": source},
        name="points",
    )


def schedule(steps: Sequence[Step], durations_s: Sequence[float], *, source: str = "") -> Schedule:
    """Schedule steps that take given times; see the module for the rules."""
    free: dict[tuple[Any, ...], float] = {}
    ends: dict[str, float] = {}
    done: dict[int, TimedStep] = {}
    while len(done) < len(steps):
        # of the steps at the heads of their streams, the one that can start first, then in order
        heads: dict[tuple[Any, ...], int] = {}
        for number, step in enumerate(steps):
            if number not in done:
                heads.setdefault((step.device, "stream", step.stream), number)
        able: list[tuple[float, int, tuple[Any, ...]]] = []
        for stream, number in heads.items():
            step = steps[number]
            if ends.keys() >= {*step.after}:
                ready = [free.get(part, 0.0) for part in (stream, *step.engines)]
                able.append((max(*ready, *(ends[name] for name in step.after)), number, stream))
        start, number, stream = min(able)
        step, end = steps[number], start + durations_s[number]
        free |= dict.fromkeys((stream, *step.engines), end)
        ends[step.name] = end
        done[number] = TimedStep(step=step, start_s=start, end_s=end)
    return Schedule(source=source, steps=tuple(done[number] for number in range(len(steps))))
