"""Applications: transfers and kernels in streams on one or several devices, scheduled.

After Gajger & Czarnul (2018), sections 5.4.2 and 6.2, whose applications run one step after the
other; streams, which let transfers overlap with kernels, are an extension. Rules:

1. Steps of one stream run in their order; streams are independent of each other.
2. A device executes one kernel at a time, and has one copy engine for each direction. Each takes
   the steps that are ready in the order of the program.
3. A step named in ``after`` is waited for, whatever its stream and device.

A text has a step in each line::

    # two halves of a vector, so that transfers overlap with kernels
    h2d 40e6 stream=a
    h2d 40e6 stream=b
    kernel saxpy2.py:saxpy2 n=5000000 stream=a
    kernel saxpy2.py:saxpy2 n=5000000 stream=b
    d2h 20e6 stream=a
    d2h 20e6 stream=b name=last

``device=1`` puts a step on another device than the first (0), ``after=name,name`` makes it wait,
and ``name=`` names it. Everything else with an equals sign is a size of the kernel.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

from countperf.display import ShortRepr, Table, printed
from countperf.errors import ParameterError
from countperf.mechanistic.profile import check_not_negative, check_whole

StepKind = Literal["h2d", "d2h", "kernel"]
_OPTIONS = ("stream", "device", "after", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(ShortRepr):
    """One step of an application."""

    kind: StepKind  # a transfer to or from a device, or a kernel
    n_bytes: float = 0.0  # size of a transfer
    kernel: Any = None  # a kernel, or a text that names one
    # the kernel's sizes
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    stream: str = "0"  # its stream
    device: int = 0  # number of its device, from 0
    after: tuple[str, ...] = ()  # names of steps that it waits for
    name: str = ""  # its name

    def __post_init__(self) -> None:
        if self.kind not in get_args(StepKind):
            message = f"kind of a step must be h2d, d2h or kernel, not {self.kind!r}"
            raise ParameterError(message, parameter="kind")
        check_not_negative(self.n_bytes, "n_bytes")
        check_whole(self.device, "device", least=0)
        if (self.kernel is None) == (self.kind == "kernel"):
            message = "a kernel step needs a kernel, and a transfer has none"
            raise ParameterError(message, parameter="kernel")

    @property
    def engine(self) -> str:
        """Part of its device that executes it."""
        return "compute" if self.kind == "kernel" else f"copy {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep(ShortRepr):
    """A step in a schedule."""

    name: str  # its name
    step: Step  # the step
    start_s: float  # when it runs, s
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule(Table):
    """Schedule of an application: begin and end of each step."""

    source: str  # where the durations come from: a model's name and devices, or ``"measured"``
    steps: tuple[TimedStep, ...]  # in the order of the program

    __repr__ = printed

    @property
    def time_s(self) -> float:
        """Time from the start to the end of the last step, s."""
        return max(step.end_s for step in self.steps)

    @property
    def serial_s(self) -> float:
        """Time of all steps one after the other, s."""
        return sum(step.end_s - step.start_s for step in self.steps)


def schedule(steps: Sequence[Step], durations_s: Sequence[float], *, source: str = "") -> Schedule:
    """Schedule steps that take given times; see the module for the rules."""
    if not steps or len(steps) != len(durations_s):
        message = f"{len(steps)} steps and {len(durations_s)} durations; there must be one for each"
        raise ParameterError(message, parameter="durations_s")
    free: dict[tuple[Any, ...], float] = {}
    ends: dict[str, float] = {}
    done: dict[int, TimedStep] = {}
    waiting = list(enumerate(steps))
    _check_names(steps)
    while waiting:
        # of the steps at the heads of their streams, the one that can start first, then in order
        heads: dict[tuple[int, str], tuple[int, Step]] = {}
        for place, step in waiting:
            heads.setdefault((step.device, step.stream), (place, step))
        able = [
            (max(_ready(step, free, ends), free.get((step.device, step.engine), 0.0)), place)
            for place, step in heads.values()
            if all(name in ends for name in step.after)
        ]
        start, place = min(able)
        step = steps[place]
        end = start + check_not_negative(durations_s[place], "durations_s")
        free[step.device, step.engine] = free[step.device, "stream", step.stream] = end
        name = step_name(step, place)
        ends[name] = end
        done[place] = TimedStep(name=name, step=step, start_s=start, end_s=end)
        waiting.remove((place, step))
    return Schedule(source=source, steps=tuple(done[place] for place in range(len(steps))))


def _ready(step: Step, free: Mapping[tuple[Any, ...], float], ends: Mapping[str, float]) -> float:
    own = free.get((step.device, "stream", step.stream), 0.0)
    return max([own, *(ends[name] for name in step.after)])


def step_name(step: Step, place: int) -> str:
    """Return the name of a step, or its kind and number from 1."""
    return step.name or f"{step.kind} {place + 1}"


def _check_names(steps: Sequence[Step]) -> None:
    known: set[str] = set()
    for position, step in enumerate(steps):
        for name in step.after:
            if name not in known:
                message = (
                    f"step {position + 1} waits for {name!r}, which is no earlier step; there are"
                    f" {', '.join(sorted(known)) or 'none'}"
                )
                raise ParameterError(message, parameter="after")
        name = step_name(step, position)
        if name in known:
            message = f"two steps are called {name!r}; give each a name of its own"
            raise ParameterError(message, parameter="name")
        known.add(name)


def parse_application(text: str) -> tuple[Step, ...]:
    """Parse an application; see the module for the form."""
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        try:
            steps.append(_parsed(words))
        except (ParameterError, ValueError) as error:
            message = f"line {number} of the application ({line.strip()}): {error}"
            raise ParameterError(message, parameter="application") from error
    if not steps:
        raise ParameterError("the application has no step", parameter="application")
    _check_names(steps)
    return tuple(steps)


def _parsed(words: Sequence[str]) -> Step:
    kind, *rest = words
    if kind not in get_args(StepKind) or not rest:
        raise ValueError("a line is 'h2d BYTES', 'd2h BYTES' or 'kernel KERNEL name=value ...'")
    pairs = [word.partition("=") for word in rest[1:]]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise ValueError(f"{wrong[0]!r} is not of the form name=value")
    given = {name: value for name, _, value in pairs}
    if len(given) < len(pairs):
        twice = next(name for name in given if [n for n, *_ in pairs].count(name) > 1)
        raise ValueError(f"{twice} is given twice; give it once")
    sizes = {name: int(value) for name, value in given.items() if name not in _OPTIONS}
    common: dict[str, Any] = {
        "stream": given.get("stream", "0"),
        "device": int(given.get("device", "0")),
        "after": tuple(name for name in given.get("after", "").split(",") if name),
        "name": given.get("name", ""),
    }
    if kind == "kernel":
        return Step(kind="kernel", kernel=rest[0], sizes=sizes, **common)
    if sizes:
        raise ValueError(f"a transfer has no sizes, but {', '.join(sizes)} is given")
    return Step(kind="h2d" if kind == "h2d" else "d2h", n_bytes=float(rest[0]), **common)
