"""The rate that a weight implies, and whether the device can reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countperf.report.numbers import format_percent, format_quantity

if TYPE_CHECKING:
    from countperf.devices.parameters import DeviceParameters
    from countperf.models.records import Weight


def rate_of(weight: Weight) -> tuple[float, str] | None:
    """Return how much of a feature per second a weight amounts to, with its unit, or None.

    A weight that is not positive, or smaller than two standard errors, is no rate; nor is that of a
    launch, of the paper's minimum, or of a derived feature.
    """
    uncertain = weight.standard_error_s is None or weight.value_s < 2 * weight.standard_error_s
    family, *rest = weight.feature.split(".")
    if weight.unit == "unit" or weight.value_s <= 0 or uncertain:
        return None
    if family == "launches" or rest[:1] == ["min"]:
        return None
    per_second = 1 / weight.value_s
    if family in ("gmem", "lmem"):
        return per_second * int(rest[1]) / 8, "byte/s"
    return per_second, f"{'flop' if family == 'flop' else weight.unit}/s"


def implied_rate(weight: Weight) -> str:
    """Write how much of a feature per second a weight amounts to, or nothing if it is no rate."""
    found = rate_of(weight)
    return "" if found is None else format_quantity(*found)


def plausibility(weight: Weight, device: DeviceParameters | None) -> str:
    """Write what the implied rate is of the device's peak, and whether that can be.

    Parameters
    ----------
    weight : Weight
        A weight of the device.
    device : DeviceParameters or None
        Its peaks; None if they are not known.

    Returns
    -------
    str
        A share of the peak; that caches must have served accesses to global memory beyond it; that
        operations beyond it are impossible, so that their cost is in other weights; or nothing,
        where there is no rate or no peak.
    """
    found = rate_of(weight)
    family = weight.feature.split(".")[0]
    if found is None or device is None:
        return ""
    peak = {"flop": device.peak_flops, "gmem": device.bandwidth_byte_per_s}.get(family)
    if peak is None:
        return ""
    share = found[0] / peak
    if share <= 1:
        return f"{format_percent(share)} of peak"
    if family == "gmem":
        return f"beyond memory's {format_quantity(peak, 'byte/s')}: caches serve it"
    return f"beyond the peak of {format_quantity(peak, 'flop/s')}: its cost is in other weights"
