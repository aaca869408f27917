"""Selection of the sizes to measure, by launch overhead, memory and time.

The smallest size of a kernel runs clearly longer than an empty launch takes, the largest fits into
memory and into the time there is. So the same call serves a laptop and a large GPU. Decisions rest
on measured times only and are the same whenever the clock shows the same.

Source: Stevens and Klöckner, "A Unified, Hardware-Fitted, Cross-GPU Performance Model" (2016), for
the first rule; they chose p by hand. A kernel without arrays does nothing but be launched, so for
it the first rule cannot hold: there the largest size has to exceed the overhead, and the smallest
shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from countperf.documents import read_file_text
from countperf.errors import (
    DeviceLostError,
    MeasurementError,
    ParameterError,
)
from countperf.harness.progress import Progress, ProgressEvent, silent
from countperf.harness.runner import CaseRunner
from countperf.harness.sizes import Calibration, Sizable, SizeChoice, SizeLimits, size_key
from countperf.harness.store import refuse_differences
from countperf.measurements import KernelCase

# a calibration's own runs: as many as these at most, and none after a run that is far too long
_RUNS = 4
_HOPELESS_FACTOR = 10
_TEST_PATIENCE = 2.0  # kernels that judge a fit are few, and shall have all their sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """Cost of a case: seconds for a run, and for its setup."""

    run_s: float
    setup_s: float = 0.0


def time_case(runner: CaseRunner, case: KernelCase, limits: SizeLimits) -> CaseCost:
    """Find out roughly what a case costs."""
    runner.check(case)
    began = runner.clock.now()
    with runner.loaded(case) as run:
        setup_s = runner.clock.now() - began
        first = run().time_s
        if first > _HOPELESS_FACTOR * limits.max_run_s:
            return CaseCost(run_s=first, setup_s=setup_s)
        times = [run().time_s]
        while len(times) < _RUNS - 1 and sum(times) < limits.max_run_s:
            times.append(run().time_s)
    return CaseCost(run_s=min(times), setup_s=setup_s)


class _Search:
    """The sizes of one kernel: what was tried, and from where on nothing fits."""

    def __init__(
        self, entry: Sizable, cost_of: Callable[[KernelCase], CaseCost], limits: SizeLimits
    ) -> None:
        self._entry = entry
        self._cost_of = cost_of
        self._limits = limits
        self._known: dict[int, float | None] = {}
        self.refusal = ""
        self.slow: dict[int, float] = {}  # sizes that fit into memory but not into the time

    def run_s(self, exponent: int) -> float | None:
        """Return the time of a run at that size, s; None if the size does not fit."""
        if any(time is None and exponent >= known for known, time in self._known.items()):
            return None
        if exponent not in self._known:
            self._known[exponent] = self._try(exponent)
        return self._known[exponent]

    def _try(self, exponent: int) -> float | None:
        limits = self._limits
        try:
            case = self._entry.case(exponent)
        except ParameterError as error:
            self.refusal = str(error)
            return None
        if case.global_memory_bytes > limits.memory_bytes:
            self.refusal = f"larger sizes take more than {limits.memory_bytes} byte of memory"
            return None
        cost = self._cost_of(case)
        patience = 1.0 if case.purpose == "measurement" else _TEST_PATIENCE
        if cost.run_s > patience * limits.max_run_s:
            if cost.run_s <= _HOPELESS_FACTOR * limits.max_run_s:
                self.slow[exponent] = cost.run_s
            self.refusal = f"larger sizes run longer than {limits.max_run_s} s"
            return None
        if cost.setup_s > limits.max_setup_s:
            self.refusal = f"larger sizes take longer than {limits.max_setup_s} s to set up"
            return None
        return cost.run_s


def choose_sizes(
    entry: Sizable, cost_of: Callable[[KernelCase], CaseCost], limits: SizeLimits
) -> SizeChoice:
    """Choose the sizes at which a kernel is measured."""
    search = _Search(entry, cost_of, limits)
    steps = entry.exponent_steps
    nothing_to_do = entry.case(entry.exponents[0] + steps[0]).global_memory_bytes == 0
    deciding = steps[-1] if nothing_to_do else steps[0]
    chosen = None
    for p in entry.exponents:
        run_s = search.run_s(p + deciding)
        if run_s is None:
            break
        chosen = p
        if run_s >= limits.shortest_run_s:
            break
    else:
        search.refusal = f"no size takes {limits.shortest_run_s:.3g} s"
    while chosen is not None and chosen > entry.exponents[0]:
        # better all sizes, the first of them a little shorter, than only some of them
        below = search.run_s(chosen - 1 + deciding)
        complete = all(search.run_s(chosen + step) is not None for step in steps)
        if complete or below is None or below < limits.clear_run_s:
            break
        chosen -= 1
    if chosen is None:  # a last step that is too large need not spoil the first ones
        chosen = entry.exponents[0]
    sizes = [(chosen + step, search.run_s(chosen + step)) for step in steps]
    fitting = [(exponent, run_s) for exponent, run_s in sizes if run_s is not None]
    if not fitting:  # better one slow case than a property that nothing measures
        fitting = [min(search.slow.items())] if search.slow else []
    return SizeChoice(
        family=entry.family,
        variant=entry.variant,
        element_type=entry.element_type,
        exponents=tuple(exponent for exponent, _ in fitting),
        run_s=tuple(run_s for _, run_s in fitting),
        reason=search.refusal,
    )


def calibrate(
    entries: Sequence[Sizable],
    runner: CaseRunner,
    limits: SizeLimits,
    *,
    store: Path | str | None = None,
    progress: Progress = silent,
) -> Calibration:
    """Choose the sizes of many kernels, alike for those that differ in their work groups only."""
    calibration = Calibration(device=runner.identity, limits=limits)
    if store is not None and Path(store).exists():
        calibration = _resumed(calibration, Path(store))
    groups: dict[tuple[str, str, str], list[Sizable]] = {}
    for entry in entries:
        if calibration.choice(entry) is None:
            groups.setdefault(size_key(entry), []).append(entry)
    began = runner.clock.now()
    for done, group in enumerate(groups.values()):
        entry = group[len(group) // 2]
        spent = runner.clock.now() - began
        progress(
            ProgressEvent(
                kind="calibrating",
                case=entry.name,
                done=done,
                total=len(groups),
                remaining_s=spent / done * (len(groups) - done) if done else None,
            )
        )
        lost: DeviceLostError | None = None
        try:
            choice = choose_sizes(
                entry, partial(time_case, runner, limits=calibration.limits), calibration.limits
            )
        except MeasurementError as error:
            choice = _failed(entry, error)
        except DeviceLostError as error:  # noted, so that the next process goes on behind it
            choice, lost = _failed(entry, error), error
        calibration = calibration.model_copy(update={"choices": (*calibration.choices, choice)})
        if store is not None:
            calibration.write_file(store)
        if lost is not None:
            raise lost
    return calibration


def _failed(entry: Sizable, error: Exception) -> SizeChoice:
    return SizeChoice(
        family=entry.family,
        variant=entry.variant,
        element_type=entry.element_type,
        exponents=(entry.exponents[0] + entry.exponent_steps[0],),
        run_s=(0.0,),
        reason=str(error),
    )


def _resumed(wanted: Calibration, path: Path) -> Calibration:
    stored = Calibration.read_text(read_file_text(path), path=path)
    pairs = stored.device.differences(wanted.device)
    for name in ("overhead_factor", "max_run_s", "max_setup_s"):
        pairs[name] = getattr(stored.limits, name), getattr(wanted.limits, name)
    refuse_differences(pairs, path, "sizes")
    return stored
