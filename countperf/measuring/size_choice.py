"""Selection of the sizes to measure, by launch overhead, memory and time; a document of them.

The smallest size runs clearly longer than an empty launch takes (Stevens and Klöckner, "A Unified,
Hardware-Fitted, Cross-GPU Performance Model", 2016), or the largest of a kernel without arrays; the
largest fits into memory and into the time there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from countperf.devices.device import DeviceLimits, EventClock, RunTime, Session
from countperf.devices.identity import DeviceIdentity, available_memory
from countperf.documents import Document, Part
from countperf.errors import DeviceLostError, MeasurementError, ParameterError
from countperf.measuring import KernelCase
from countperf.measuring.campaign import refuse_differences
from countperf.measuring.runner import CaseRunner
from countperf.steps import step_through
from countperf.store import read_file_text

_CLEAR_FACTOR = 10.0
# a calibration's own runs: as many as these at most, and none after a run that is far too long
_RUNS = 4
_HOPELESS_FACTOR = 10

Sizable = Any
"""A kernel as the catalogue's are: of its ``exponents`` p, smallest first, one is chosen, and its
``case(p)`` is measured with each of ``exponent_steps`` added."""


class SizeLimits(Part):
    """Limits of the sizes."""

    launch_overhead_s: float = Field(gt=0)  # time of an empty launch by the host's clock, s
    memory_bytes: int = Field(gt=0)  # largest size of all arguments together, byte
    # how many times the overhead the smallest size has to take
    overhead_factor: float = Field(default=10.0, ge=1)
    max_run_s: float = Field(default=0.25, gt=0)  # longest time of a run, s
    # longest time to make inputs and put them into the device's memory, s
    max_setup_s: float = Field(default=2.0, gt=0)

    @property
    def shortest_run_s(self) -> float:
        """Time that the smallest size has to take at least, s."""
        return self.overhead_factor * self.launch_overhead_s

    @property
    def clear_run_s(self) -> float:
        """Time below which a run is not clearly longer than an empty launch, s."""
        return min(_CLEAR_FACTOR, self.overhead_factor) * self.launch_overhead_s


class SizeChoice(Part):
    """The sizes chosen for kernels that differ in their work groups only."""

    family: str  # which kernels
    variant: str
    element_type: str
    exponents: tuple[NonNegativeInt, ...]  # ``p + step`` of each size
    run_s: tuple[NonNegativeFloat, ...]  # time of a run of each, s
    reason: str = ""  # why there are fewer sizes than the kernel has steps

    @model_validator(mode="after")
    def _each_size_has_a_time(self) -> Self:
        if len(self.exponents) != len(self.run_s):
            raise ValueError(f"{len(self.exponents)} exponents, but {len(self.run_s)} times")
        return self


class SizeCalibration(Document):
    """The sizes chosen for a device; keep it beside the measurements, which resume with it."""

    format: Literal["countperf-calibration"] = "countperf-calibration"
    version: Literal[1] = 1
    device: DeviceIdentity  # the device
    timer: Literal["event"] = "event"  # where times come from
    limits: SizeLimits  # what the choice rests on
    choices: tuple[SizeChoice, ...] = ()  # one for each kernel, work groups apart

    def choice(self, entry: Sizable) -> SizeChoice | None:
        """Return the choice for a kernel, if there is one."""
        found = (each for each in self.choices if _size_key(each) == _size_key(entry))
        return next(found, None)

    def cases(self, entries: Iterable[Sizable]) -> list[KernelCase]:
        """Make the cases of kernels at the chosen sizes."""
        chosen = [(entry, choice) for entry in entries if (choice := self.choice(entry))]
        cases = [entry.case(exponent) for entry, choice in chosen for exponent in choice.exponents]
        return [*{case.name: case for case in cases}.values()]  # some are rounded up to the same


def _size_key(kernel: Sizable | SizeChoice) -> tuple[str, str, str]:
    """Return what kernels share that differ in their work groups only."""
    return kernel.family, kernel.variant, kernel.element_type


def measure_launch_overhead(
    session: Session, clock: EventClock | None = None, *, runs: int = 40
) -> RunTime:
    """Return the median times of the launch of a single group that does nothing."""
    clock = clock or EventClock()
    launch = session.load("KERNEL nothing(GLOBAL float *unused) { }")
    call = "nothing", 1, 64, (session.allocate(4),)
    timings = [clock.time_run(lambda: launch(*call)) for _ in range(runs)][runs // 4 :]
    return RunTime(
        time_s=median(timing.time_s for timing in timings),
        host_s=median(timing.host_s for timing in timings),
    )


def limit_memory(limits: DeviceLimits, host_bytes: int | None) -> int:
    """Return how large the arguments of a kernel may be together, byte."""
    bounds = [limits.global_memory_bytes, *([] if host_bytes is None else [host_bytes])]
    return max(1, min(limits.max_allocation_bytes, *(bound // 4 for bound in bounds)))


def measure_limits(session: Session, **limits: float) -> SizeLimits:
    """Find out what bounds the sizes on a device; others of the limits can be given."""
    overhead = measure_launch_overhead(session)
    return SizeLimits(
        launch_overhead_s=max(overhead.time_s, overhead.host_s),
        memory_bytes=limit_memory(session.device.limits, available_memory()),
        **limits,
    )


CostOf = Callable[[KernelCase], tuple[float, float]]
"""From a case to roughly what a run and its setup cost, s."""


def time_case(runner: CaseRunner, case: KernelCase, limits: SizeLimits) -> tuple[float, float]:
    """Find out roughly what a run of a case costs, and its setup, s."""
    runner.check(case)
    return runner.apply(_time_loaded, case, limits)


def _time_loaded(runner: CaseRunner, case: KernelCase, limits: SizeLimits) -> tuple[float, float]:
    began = runner.clock.now()
    with runner.load_case(case) as run:
        setup_s = runner.clock.now() - began
        first = run().time_s
        if first > _HOPELESS_FACTOR * limits.max_run_s:
            return first, setup_s
        times = [run().time_s]
        while len(times) < _RUNS - 1 and sum(times) < limits.max_run_s:
            times.append(run().time_s)
    return min(times), setup_s


def _try_size(
    entry: Sizable, exponent: int, cost_of: CostOf, limits: SizeLimits
) -> tuple[float, str]:
    """Return the time of a run at a size, s, and why the size does not fit."""
    try:
        case = entry.case(exponent)
    except ParameterError as error:
        return math.inf, str(error)
    if case.global_memory_bytes > limits.memory_bytes:
        return math.inf, f"larger sizes take more than {limits.memory_bytes} byte of memory"
    run_s, setup_s = cost_of(case)
    if run_s > limits.max_run_s:
        return run_s, f"larger sizes run longer than {limits.max_run_s} s"
    if setup_s > limits.max_setup_s:
        return math.inf, f"larger sizes take longer than {limits.max_setup_s} s to set up"
    return run_s, ""


def choose_sizes(entry: Sizable, cost_of: CostOf, limits: SizeLimits) -> SizeChoice:
    """Choose the sizes at which a kernel is measured."""
    refusal = ""
    known: dict[int, float] = {}
    unfit: dict[int, float] = {}

    def find_time(exponent: int) -> float | None:
        """Return the time of a run at that size, s; None if the size does not fit."""
        nonlocal refusal
        if exponent not in known and all(exponent < smaller for smaller in unfit):
            run_s, why = _try_size(entry, exponent, cost_of, limits)
            refusal = why or refusal
            (unfit if why else known)[exponent] = run_s
        return known.get(exponent)

    steps = entry.exponent_steps
    smallest = chosen = entry.exponents[0]  # a last step that is too large need not spoil the first
    nothing_to_do = entry.case(smallest + steps[0]).global_memory_bytes == 0
    deciding = steps[-1] if nothing_to_do else steps[0]
    for p in entry.exponents:
        run_s = find_time(p + deciding)
        if run_s is None:
            break
        chosen = p
        if run_s >= limits.shortest_run_s:
            break
    else:
        refusal = f"no size takes {limits.shortest_run_s:.3g} s"
    while chosen > smallest:
        # better all sizes, the first of them a little shorter, than only some of them
        below = find_time(chosen - 1 + deciding)
        complete = all(find_time(chosen + step) is not None for step in steps)
        if complete or below is None or below < limits.clear_run_s:
            break
        chosen -= 1
    sizes = [(chosen + step, find_time(chosen + step)) for step in steps]
    fitting = [(exponent, run_s) for exponent, run_s in sizes if run_s is not None]
    if not fitting:  # better one slow case than a property that nothing measures
        slow = ((n, s) for n, s in unfit.items() if s <= _HOPELESS_FACTOR * limits.max_run_s)
        fitting = sorted(slow)[:1]
    return _make_choice(entry, fitting, refusal)


def _make_choice(entry: Sizable, sizes: Sequence[tuple[int, float]], reason: str) -> SizeChoice:
    return SizeChoice(
        family=entry.family,
        variant=entry.variant,
        element_type=entry.element_type,
        exponents=tuple(exponent for exponent, _ in sizes),
        run_s=tuple(run_s for _, run_s in sizes),
        reason=reason,
    )


def calibrate(
    entries: Sequence[Sizable],
    runner: CaseRunner,
    limits: SizeLimits,
    *,
    store: Path | str | None = None,
) -> SizeCalibration:
    """Choose the sizes of many kernels, alike for those that differ in their work groups only."""
    calibration = SizeCalibration(device=runner.identity, limits=limits)
    if store is not None and Path(store).exists():
        stored = SizeCalibration.read_text(read_file_text(store), path=store)
        pairs = stored.device.differences(runner.identity)
        for name in ("overhead_factor", "max_run_s", "max_setup_s"):
            pairs[name] = getattr(stored.limits, name), getattr(limits, name)
        refuse_differences(pairs, Path(store), "sizes")
        calibration = stored
    groups: dict[tuple[str, str, str], list[Sizable]] = {}
    for entry in entries:
        if calibration.choice(entry) is None:
            groups.setdefault(_size_key(entry), []).append(entry)
    time_of = partial(time_case, runner, limits=calibration.limits)
    for group in step_through(groups.values(), "choosing sizes"):
        entry = group[len(group) // 2]
        failure: Exception | None = None
        try:
            choice = choose_sizes(entry, time_of, calibration.limits)
        except (MeasurementError, DeviceLostError) as error:
            failure = error  # noted, so that the next process goes on behind it
            smallest = entry.exponents[0] + entry.exponent_steps[0]
            choice = _make_choice(entry, [(smallest, 0.0)], str(error))
        calibration = calibration.model_copy(update={"choices": (*calibration.choices, choice)})
        if store is not None:
            calibration.write_file(store)
        if isinstance(failure, DeviceLostError):
            raise failure
    return calibration
