"""Check that a machine is as fast as when a campaign began, by running known cases again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from countperf.harness.schedule import in_mixed_order
from countperf.measurements import KernelCase, Measurement, Protocol

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
