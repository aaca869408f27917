"""Weights as rows: the rate that each implies, and whether the device can reach it; verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from countperf.hardware.parameters import DeviceParameters, some_of
from countperf.models.units import Charged, charged, unit_of
from countperf.report.breakdown import plain_name
from countperf.report.numbers import format_percent, format_quantity

if TYPE_CHECKING:
    from countperf.hardware.parameters import DeviceParameters
    from countperf.models.definition import ModelDefinition
    from countperf.models.records import Weight
    from countperf.models.weights import WeightSet
    from countperf.predictions import Verdict

NO_RATES = (
    "no rates of this device are known to hold these against: countperf characterize finds them"
)
NAMED_OTHERS = 4
"""Number of indistinguishable features that a remark names."""
_DERIVED = re.compile(r"(?<![\w.])[a-z0-9]+(?:_[a-z0-9]+)+(?![\w.])")
UNKNOWN = "no such rate of the device is known"


def rate_of(weight: Weight, model: ModelDefinition | None = None) -> tuple[float, str] | None:
    """Return how much of a feature per second a weight amounts to, with its unit, or None.

    A weight that is not positive, or smaller than two standard errors if they are known, is no
    rate; nor is that of a launch, of the paper's minimum, or of a derived feature whose model is
    not given. A fused multiply-add is two flop.
    """
    error_s = weight.standard_error_s
    uncertain = error_s is not None and weight.value_s < 2 * error_s
    amount = charged(weight.feature, weight.unit, model)
    if amount is None or amount.kind == "launches" or weight.value_s <= 0 or uncertain:
        return None
    return amount.size / weight.value_s, f"{amount.unit}/s"


def implied_rate(weight: Weight, model: ModelDefinition | None = None) -> str:
    """Write how much of a feature per second a weight amounts to, or nothing if it is no rate."""
    found = rate_of(weight, model)
    return "" if found is None else format_quantity(*found)


def plausibility(
    weight: Weight, device: DeviceParameters | None, model: ModelDefinition | None = None
) -> str:
    """Write what the implied rate is of the device's, and whether that can be."""
    if device is None:
        return ""
    found = rate_of(weight, model)
    amount = charged(weight.feature, weight.unit, model)
    if found is None or amount is None:
        return ""
    reference, what = measured_rate(weight.feature, amount, device), "measured rate"
    if amount.kind == "gmem" or (reference is None and amount.kind == "flop"):
        reference = device.bandwidth_byte_per_s if amount.kind == "gmem" else device.peak_flops
        what = "peak"
    if reference is None:
        return UNKNOWN
    share = found[0] / reference
    if share <= 1:
        return f"{format_percent(share)} of {what}"
    cause = "caches serve it" if amount.kind == "gmem" else "its cost is in other weights"
    return f"beyond the {what} of {format_quantity(reference, found[1])}: {cause}"


def doubt(weight: Weight) -> str:
    """Write why a weight is no rate by itself, or nothing if it is or has no standard error."""
    if weight.value_s < 0:
        return "negative: it corrects other weights"
    if weight.value_s == 0:
        return "zero: its cost is in other weights"
    if weight.standard_error_s is not None and weight.value_s < 2 * weight.standard_error_s:
        return "not told from zero"
    return ""


_WORD = 4
_CLASSES = {"special": "rsqrt"}  # which class of instructions stands for a kind of operation


def measured_rate(feature: str, amount: Charged, device: DeviceParameters) -> float | None:
    """Return how much of a feature per second microbenchmarks found, or documents state."""
    _, *parts = feature.split(".")
    match amount.kind:
        case "flop":
            rate = _class_rate(device, ".".join([_CLASSES.get(parts[0], parts[0]), *parts[1:2]]))
            return None if rate is None else rate * amount.size
        case "gmem":
            return device.bandwidth_byte_per_s
        case "lmem":
            words = _class_rate(device, "ld.local.s32")
            return None if words is None else words * _WORD
        case "barrier":
            return _class_rate(device, "bar.sync")
        case _:
            return None


def _class_rate(device: DeviceParameters, name: str) -> float | None:
    """Return how many work items execute an instruction of a class, 1/s."""
    known = device.classes.get(name)
    if known is None or device.clock_hz is None or device.num_compute_units is None:
        return None
    lanes = device.sub_group_size or 1
    return lanes * device.num_compute_units * device.clock_hz / known.cpi


# --- rows


def weight_rows(weights: WeightSet, device: DeviceParameters | None = None) -> list[dict[str, Any]]:
    """Return a row for each weight: its cost, s, the rate that it implies, and what that means.

    The entry ``shown`` has its cost, its unit and its rate as people read them.
    """
    model = weights.definition
    shared = {
        name: some_of([other for other in group.features if other != name], most=NAMED_OTHERS)
        for group in weights.indistinguishable
        for name in group.features
    }
    rows: list[dict[str, Any]] = []
    for name, weight in weights.by_feature.items():
        unit = unit_of(weight, model)
        rate, rate_unit = rate_of(weight, model) or (None, None)
        error_s = weight.standard_error_s
        value = format_quantity(weight.value_s, "s")
        if error_s is not None and weight.value_s:
            value += f" ± {format_percent(error_s / abs(weight.value_s))}"
        rows.append(
            {
                "feature": name,
                "group": plain_name(name).group,
                "name": plain_name(name).text,
                "weight_s": weight.value_s,
                "standard_error_s": error_s,
                "unit": unit,
                "rate": rate,
                "rate_unit": rate_unit,
                "remark": f"not told apart from {shared[name]}"
                if name in shared
                else doubt(weight) or plausibility(weight, device, model),
                "shown": {
                    "weight": value,
                    "per": f"per {unit}",
                    "rate": implied_rate(weight, model),
                },
            }
        )
    return rows


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Write what was checked: one line for each, and a remedy below those that failed."""
    return check_lines((v.passed, f"{v.name}: {_plain(v.message)}", v.remedy) for v in verdicts)


def _plain(message: str) -> str:
    """Put words for names that formulas of models have; those with dots are in the glossary."""
    return _DERIVED.sub(lambda name: plain_name(name[0]).text, message)


def check_lines(checks: Iterable[tuple[bool, str, str]]) -> list[str]:
    """Write checks: whether each passed, what was found, and how to mend it."""
    lines: list[str] = []
    for passed, text, mend in checks:
        lines.append(f"{'ok' if passed else '!!'}  {text}")
        lines += [f"      mend: {mend}"] if mend else []
    return lines
