"""Cases of a calibration: which kernels at which sizes, in which order, and their cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from countperf.display import ShortRepr
from countperf.execution.memory_hierarchy import CountedCaches, MemoryHierarchy
from countperf.fitting.transfer.choice import ChosenKernel
from countperf.harness.device import Device
from countperf.harness.overhead import measure_limits
from countperf.harness.progress import Progress
from countperf.harness.runner import KernelRunner
from countperf.harness.size_selection import calibrate as choose_sizes
from countperf.measurements import KernelCase
from measurement_kernels.catalog import entry
from measurement_kernels.entry import CatalogEntry

CODE_S = 1.1
"""Processor time that reading a kernel's compiled code takes, s (mean over 40 kernels, PoCL)."""

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
    for tried in entries[:number]:
        of_kernel = chosen.cases([tried])
        cases += [of_kernel[0], of_kernel[-1]] if len(of_kernel) > 1 else of_kernel
    return cases
