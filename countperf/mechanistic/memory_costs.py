"""Costs of global memory where only a share of the bytes comes from DRAM.

Source: Lemeire, Cornelis, Konstantinidis, section 6.3. With ``R`` the bytes that DRAM moved, as a
profiler measured them, over the bytes that the kernel accesses in global memory:

- ``R < 1``: the rest comes from the second-level cache; throughput and latency are the means of
  both with the weights ``R`` and ``1 - R``;
- ``R > 1``: more is moved than needed; a transaction costs ``R`` of DRAM's, and its latency grows
  by ``R - 1`` of these.

The rule for local memory with ``D`` conflicts of banks (latency plus ``D`` costs, and ``1 + D``
times the cost) is that of `countperf.mechanistic.classes` for accesses that take several passes.
"""

from __future__ import annotations

from dataclasses import replace

from countperf.hardware.parameters import DeviceParameters, InstructionClass
from countperf.mechanistic.checks import check_not_negative

SECOND_LEVEL = "ld.l2.s32"
"""Class of loads from the second-level cache, in a device's document."""

_GLOBAL = ("ld.global.", "st.global.", "load.global.", "store.global.")


def cost_at_ratio(
    dram: InstructionClass, second_level: InstructionClass | None, ratio: float
) -> InstructionClass:
    """Return the cost of global memory at a ratio of DRAM's bytes to the kernel's."""
    check_not_negative(ratio, "ratio")
    if ratio >= 1:
        cpi, latency = ratio * dram.cpi, dram.latency + (ratio - 1) * dram.cpi
    elif second_level is None:
        return dram
    else:
        cpi = ratio * dram.cpi + (1 - ratio) * second_level.cpi
        latency = ratio * dram.latency + (1 - ratio) * second_level.latency
    return replace(
        dram, cpi=cpi, latency=latency, source=f"{dram.source}; DRAM moved {ratio:.3g} of the bytes"
    )


def with_dram_ratio(device: DeviceParameters, ratio: float | None) -> DeviceParameters:
    """Return a device whose accesses to global memory cost what they do at a measured ratio.

    ``None``: nobody measured it, and the device stays as it is. Errors as of `cost_at_ratio`.
    """
    if ratio is None:
        return device
    second_level = device.classes.get(SECOND_LEVEL)
    classes = {
        name: cost_at_ratio(each, second_level, ratio) if name.startswith(_GLOBAL) else each
        for name, each in device.classes.items()
    }
    return device.replaced(classes=classes)
