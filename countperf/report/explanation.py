"""Text of explained predictions and of comparisons of two, with the rates of the weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from countperf.models.units import unit_of
from countperf.report.names import plain_name, uncharged_lines
from countperf.report.numbers import format_percent, format_quantity, format_share, format_table
from countperf.report.objects import picked, prediction_object
from countperf.report.plausibility import implied_rate, rate_of
from countperf.report.text import (
    NO_RATES,
    correction_lines,
    not_told_apart,
    prediction_head,
    verdicts_text,
    weight_remark,
    weight_value,
)

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis
    from countperf.hardware.parameters import DeviceParameters
    from countperf.models.explanation import ExplainedPart, Explanation
    from countperf.models.weights import WeightSet


def explanation_text(
    explanation: Explanation,
    weights: WeightSet,
    device: DeviceParameters | None = None,
    accesses: Iterable[AccessAnalysis] = (),
) -> str:
    """Write a time, its terms and its parts."""
    prediction = explanation.prediction
    lines = prediction_head(prediction, accesses)
    if len(explanation.terms) > 1:
        lines += [f"time_s = {explanation.expression}", *_terms_table(explanation)]
    lines += _parts_table(explanation, weights, device)
    lines += _demand(explanation, device)
    if device is None:
        lines.append(NO_RATES)
    if prediction.ignored:
        lines += uncharged_lines(prediction.ignored)
    lines += correction_lines(prediction)
    if prediction.caveats:
        lines.append(verdicts_text(prediction.caveats))
    return "\n".join(lines)


def _terms_table(explanation: Explanation) -> list[str]:
    whole = float(explanation.prediction.time_s)
    rows = [
        [term.name, format_quantity(term.part_s, "s"), _share(term.part_s, whole)]
        for term in explanation.terms
    ]
    header = ("term", "time", "")
    return [f"  {line}" for line in format_table(rows, header=header, right=(1, 2)).splitlines()]


def _parts_table(
    explanation: Explanation, weights: WeightSet, device: DeviceParameters | None
) -> list[str]:
    whole = float(explanation.prediction.time_s)
    shared = not_told_apart(weights)
    rows = [
        [
            _title(part.name, weights),
            format_quantity(part.part_s, "s"),
            _share(part.part_s, whole),
            *_weight_cells(part, weights),
            weight_remark(shared.get(part.name), part.weight, device, weights.definition),
        ]
        for part in explanation.parts
    ]
    header = ("part", "time", "", "count", "at", "implied rate", "")
    return [
        f"  {line}" for line in format_table(rows, header=header, right=(1, 2, 3, 5)).splitlines()
    ]


def _title(part: str, weights: WeightSet) -> str:
    """Name a part: a property as it is, what a model makes of properties in plain words."""
    made = part.startswith("code.") or part in weights.definition.derived
    return plain_name(part).text if made else part


def _weight_cells(part: ExplainedPart, weights: WeightSet) -> list[str]:
    if part.weight is None or part.count is None:
        return ["", "", ""]
    unit = unit_of(part.weight, weights.definition)
    count = f"{part.count:.6g}" if part.count < 1e6 else format_quantity(part.count, "").strip()
    return [
        count,
        f"{weight_value(part.weight)} per {unit}",
        implied_rate(part.weight, weights.definition),
    ]


def _share(seconds: float, whole: float) -> str:
    return format_share(seconds / whole) if whole > 0 else ""


def _demand(explanation: Explanation, device: DeviceParameters | None) -> list[str]:
    """Say what the kernel gets altogether, of what the device can at most."""
    whole = float(explanation.prediction.time_s)
    if whole <= 0:
        return []
    said: list[str] = []
    for amount, unit, where, peak in (
        (explanation.global_bytes, "byte/s", "global memory", _peak(device, "gmem")),
        (explanation.flops, "flop/s", "arithmetic", _peak(device, "flop")),
    ):
        if not amount:
            continue
        share = (
            "peak unknown" if peak is None else f"{format_percent(amount / whole / peak)} of peak"
        )
        said.append(f"{format_quantity(amount / whole, unit)} of {where} ({share})")
    return [f"the kernel then gets {' and '.join(said)}"] if said else []


def _peak(device: DeviceParameters | None, kind: str) -> float | None:
    if device is None:
        return None
    return device.bandwidth_byte_per_s if kind == "gmem" else device.peak_flops


def explanation_object(
    explanation: Explanation, weights: WeightSet, device: DeviceParameters | None = None
) -> dict[str, Any]:
    """Return a prediction's object with where its time goes under ``explanation``.

    Its shape is ``{"expression", "terms": [{"term", "part_s"}], "parts": [{"name", "part_s",
    "count", "unit", "weight_s", "standard_error_s", "implied_rate", "implied_rate_unit",
    "remark"}], "global_bytes", "flops"}``; what a part does not have is null.
    """
    shared = not_told_apart(weights)
    model = weights.definition

    def part_object(part: ExplainedPart) -> dict[str, Any]:
        weight = part.weight
        rate = None if weight is None else rate_of(weight, model)
        return {
            **picked(part, "name", "part_s", "count"),
            "unit": None if weight is None else weight.unit,
            "weight_s": None if weight is None else weight.value_s,
            "standard_error_s": None if weight is None else weight.standard_error_s,
            "implied_rate": None if rate is None else rate[0],
            "implied_rate_unit": None if rate is None else rate[1],
            "remark": weight_remark(shared.get(part.name), weight, device, model),
        }

    return {
        **prediction_object(explanation.prediction),
        "explanation": {
            "expression": explanation.expression,
            "terms": [{"term": term.name, **picked(term, "part_s")} for term in explanation.terms],
            "parts": [part_object(part) for part in explanation.parts],
            **picked(explanation, "global_bytes", "flops"),
        },
    }


Explained = tuple["Explanation", "WeightSet", "DeviceParameters | None"]
"""An explanation, the weights behind it, and what is known of their device."""


def difference_text(first: Explained, second: Explained) -> str:
    """Write what two explained predictions differ in: by counts, and by the cost of each unit.

    The factors are those from the first to the second. Those of a part
    multiply to the factor of its time. Then the rates that the weights of each imply.
    """
    parts = [{part.name: part for part in each[0].parts} for each in (first, second)]
    names = sorted(
        {*parts[0], *parts[1]},
        key=lambda n: (-abs(_seconds(parts[1].get(n)) - _seconds(parts[0].get(n))), n),
    )
    rows = [
        [
            _title(name, first[1]),
            _factor(_count(parts[0].get(name)), _count(parts[1].get(name))),
            _factor(_cost(parts[0].get(name)), _cost(parts[1].get(name))),
            _factor(_seconds(parts[0].get(name)), _seconds(parts[1].get(name))),
            *(_rate(each.get(name), of) for each, of in zip(parts, (first, second), strict=True)),
        ]
        for name in names
    ]
    header = ("second / first", "counts", "cost of each", "time", "first implies", "second implies")
    table = format_table(rows, header=header, right=(1, 2, 3))
    return "\n".join(f"  {line}" for line in table.splitlines())


def _rate(part: ExplainedPart | None, of: Explained) -> str:
    if part is None or part.weight is None:
        return ""
    _, weights, device = of
    rate = implied_rate(part.weight, weights.definition)
    shared = not_told_apart(weights).get(part.name)
    remark = weight_remark(shared, part.weight, device, weights.definition)
    return f"{rate} ({remark})" if rate and remark else rate or remark


def _seconds(part: ExplainedPart | None) -> float:
    return 0.0 if part is None else part.part_s


def _count(part: ExplainedPart | None) -> float | None:
    return None if part is None else part.count


def _cost(part: ExplainedPart | None) -> float | None:
    return None if part is None or part.weight is None else part.weight.value_s


def _factor(first: float | None, second: float | None) -> str:
    if not first or second is None:
        return ""
    return f"{second / first:.3g}"
