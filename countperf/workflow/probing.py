"""Speed of the machine at hand, and weights that follow it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from countperf.errors import CountperfError
from countperf.harness.devices import find_device
from countperf.harness.runner import QUICK, KernelRunner
from countperf.models.drift import CORE, FAR, MEMORY, factors_of, scatter_of
from countperf.models.weights import WeightSet
from measurement_kernels.catalog import entry

AS_FITTED = "COUNTPERF_AS_FITTED"
"""Environment variable that has weights used as they were fitted."""

notes: dict[str, None] = {}
"""Lines on how weights that were loaded follow the machine, for the command line to print."""

_PROTOCOL = QUICK.changed(name="probe", rounds=2, runs=12, drops=2, max_seconds=0.06)
"""One round suffices where other programs do not disturb it."""
_WORDS = {CORE: "work in the core", FAR: "memory beyond the second cache", MEMORY: "main memory"}


def on_this_machine(weights: WeightSet, label: str) -> WeightSet:
    """Return weights for the machine as it is now; the label is that of their device.

    The kernels of `WeightSet.probes` run there once in a process, for about a second. Weights stay
    as they are where probes do not run, or other programs use the machine meanwhile. Intervals get
    wider the more has changed.
    """
    if not weights.probes or os.environ.get(AS_FITTED, "0") not in ("", "0"):
        return weights
    kernels = tuple((probe.kernel, tuple(probe.parameters.items())) for probe in weights.probes)
    times = times_of(label, kernels)
    changes: dict[str, Any] = {"machine": f"weights as they were fitted: {times}"}
    factors: dict[str, float] = {}
    if not isinstance(times, str):
        factors = factors_of(weights.probes, times)
        changes["machine"] = _text(factors)
    notes[f"{weights.device.slug}, {weights.model}: {changes['machine']}"] = None
    if factors and weights.quality is not None:
        changes["quality"] = weights.quality.widened(scatter_of(factors))
    return weights.scaled(factors).model_copy(update=changes)


def _text(factors: Mapping[str, float]) -> str:
    changes = ", ".join(f"{_WORDS[group]} x {factor:.2f}" for group, factor in factors.items())
    return f"this machine was probed; times since the fit: {changes}"


@lru_cache
def times_of(
    label: str, kernels: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
) -> tuple[float, ...] | str:
    """Time kernels, s; or say why their times say nothing of the machine."""
    try:
        runner = KernelRunner.open(find_device(label))
        runner.neighbors.look()
        cases = [entry(kernel).case_at(**dict(parameters)) for kernel, parameters in kernels]
        for _ in range(_PROTOCOL.rounds):
            turns = [runner.time_round(case, _PROTOCOL) for case in cases]
            if not any(turn.disturbed for turn in turns):
                return tuple(min(turn.samples_s[_PROTOCOL.drops :]) for turn in turns)
    except CountperfError as error:
        return f"the machine was not probed ({error})"
    return "other programs use the machine, which was not probed"
