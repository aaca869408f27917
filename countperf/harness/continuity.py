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
    """Choose cases that settled when they were measured.

    Parameters
    ----------
    cases : sequence of KernelCase
        Of the campaign.
    measured : collection of Measurement
        What its file holds.
    most : int, optional
        How many cases at most.

    Returns
    -------
    list of (KernelCase, float)
        At most `CONTROLS` and `most` of them, each of another kernel, from the whole of the
        campaign, and what they took, s.
    """
    times = {each.case: each.time_s for each in measured if each.stable}
    known = {case.kernel: case for case in in_mixed_order(cases) if case.name in times}
    number = min(most, CONTROLS)
    chosen = list(known.values())[:: max(1, len(known) // max(1, number))][:number]
    return [(case, times[case.name]) for case in chosen]


def describe_change(ratios: Mapping[str, float], protocol: Protocol) -> str:
    """Say by which factor known cases take longer than before; nothing if that may be noise.

    Parameters
    ----------
    ratios : Mapping from str to float
        Time now over time then, by case.
    protocol : Protocol
        Whose `noise_limit` times of one state of the machine may differ by.

    Examples
    --------
    >>> from countperf.harness.protocols import BROAD
    >>> describe_change({"a": 1.0, "b": 1.1, "c": 3.0}, BROAD)
    ''
    >>> describe_change({"a": 1.3, "b": 1.4, "c": 3.0}, BROAD)[:59]
    '3 cases that had been measured take 1.40 times as long now '
    """
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
