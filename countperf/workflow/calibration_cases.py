"""Cases of a calibration: which kernels at which sizes, in which order, and their cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from countperf.display import ShortRepr
from countperf.errors import ParameterError
from countperf.execution.memory_hierarchy import CountedCaches, MemoryHierarchy
from countperf.fitting.design import Observation, build_design
from countperf.fitting.transfer.choice import ChosenKernel, KernelChoice
from countperf.fitting.transfer.common_unknowns import guesses, shares_of, with_columns
from countperf.fitting.transfer.prior import KnownDevices, prior_for
from countperf.harness.device import Device
from countperf.harness.overhead import measure_limits
from countperf.harness.progress import Progress
from countperf.harness.repeats import CALIBRATION
from countperf.harness.runner import KernelRunner
from countperf.harness.size_selection import calibrate as choose_sizes
from countperf.measurements import KernelCase
from countperf.models.structural import STRUCTURAL
from countperf.workflow.kernels import counted
from measurement_kernels.catalog import entry
from measurement_kernels.entry import CatalogEntry

CODE_S = 1.1
"""Processor time that reading a kernel's compiled code takes, s (mean over 40 kernels, PoCL)."""

_BUILD_S, _SETUP_S = 0.6, 0.13
"""Time to make, build, check and count a kernel, and to set up and warm up a round, s."""

_SEARCH_SHARE = 0.35
"""Share of the time in which sizes are found on devices for which none ship."""

_MEMORY_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationTask(ShortRepr):
    """Task of a calibration."""

    device: Device  # the device
    runner: KernelRunner  # what runs kernels on it
    memory: MemoryHierarchy  # its caches
    caches: CountedCaches  # for which kernels are counted
    store: Path  # where measurements go
    reads_code: bool  # whether compiled code will be read
    deadline: float  # when all has to be done, by the monotonic clock
    minutes: float  # the budget


def cases_of(
    task: CalibrationTask, kernels: Sequence[ChosenKernel], progress: Progress
) -> list[KernelCase]:
    """Return the cases to measure, in their order."""
    limits = task.device.limits
    fitting = [
        (kernel, entry(kernel.name))
        for kernel in kernels
        if int(np.prod(entry(kernel.name).group_shape)) <= limits.max_group_size
    ]
    most_bytes = min(_MEMORY_SHARE * limits.global_memory_bytes, limits.max_allocation_bytes)
    if task.device.identity.device_type == "cpu":
        cases = (
            found.case_at(**size.parameters) for kernel, found in fitting for size in kernel.sizes
        )
        return [case for case in cases if case.global_memory_bytes <= most_bytes]
    return sized_here(task, [found for _, found in fitting], progress)


def sized_here(
    task: CalibrationTask, entries: Sequence[CatalogEntry], progress: Progress
) -> list[KernelCase]:
    """Find sizes on a device of another kind than those that the choice has sizes for."""
    limits = measure_limits(
        task.runner.session, overhead_factor=15.0, max_run_s=0.02, max_setup_s=0.6
    )
    path = task.store.with_suffix(".sizes.json")
    until = time.monotonic() + _SEARCH_SHARE * 60.0 * task.minutes
    number = 8
    while True:
        chosen = choose_sizes(entries[:number], task.runner, limits, store=path, progress=progress)
        if time.monotonic() > until or number >= len(entries):
            break
        number += 8
    cases: list[KernelCase] = []
    for each in entries[:number]:
        of_kernel = chosen.cases([each])
        cases += [of_kernel[0], of_kernel[-1]] if len(of_kernel) > 1 else of_kernel
    return cases


def serving(
    choice: KernelChoice,
    known: KnownDevices,
    task: CalibrationTask,
    serve: Sequence[str],
    sizes: Mapping[str, int],
) -> tuple[ChosenKernel, ...]:
    """Return the kernels of the choice in the order that serves a user's kernels."""
    model = known.of(STRUCTURAL)
    if model is None:
        raise ParameterError("nothing is known of other devices to choose by", parameter="serve")
    identity = task.device.identity
    definition = model.definition(
        model.policies(identity)[0], task.memory, units=identity.compute_units
    )
    cases = [
        Observation(
            name=each,
            kernel=each,
            family=each,
            counts=counted(each, view="structure", sizes=sizes, caches=task.caches).evaluate(sizes),
            time_s=1.0,
        )
        for each in serve
    ]
    design = with_columns(build_design(cases, definition), choice.columns)
    prior = prior_for(model, identity, choice.columns, guesses(design))
    wanted = shares_of(design, prior.mean.tolist())
    costs = {
        each.name: cost_s([size.run_s for size in each.sizes], reads_code=task.reads_code)
        for each in choice.kernels
    }
    return choice.serving(wanted, prior, costs, budget_s=60.0 * task.minutes)


def cost_s(run_s: Sequence[float], *, reads_code: bool) -> float:
    """Return about how long building and measuring a kernel takes, s."""
    protocol = CALIBRATION
    most_s = protocol.max_seconds or 0.0
    runs = sum(
        max((protocol.drops + 2) * each, min(protocol.runs * each, most_s)) for each in run_s
    )
    code_s = CODE_S / 2 if reads_code else 0.0
    return _BUILD_S + code_s + protocol.rounds * (_SETUP_S * len(run_s) + runs)
