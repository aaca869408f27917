"""Costs of fitted weights for people: with units, uncertainty, and the rates that they imply."""

from __future__ import annotations

from typing import Any

from countperf.models.breakdown import OTHER, plain_name
from countperf.models.definition import ModelDefinition
from countperf.models.function import Weight, charged, unit_of
from countperf.models.predictions import NAMED_OTHERS
from countperf.text import (
    Printed,
    Row,
    Table,
    columns_of,
    format_percent,
    format_quantity,
    format_seconds,
    short_name,
    some_of,
)


def rate_of(weight: Weight, model: ModelDefinition | None = None) -> tuple[float, str] | None:
    """Return how much of a feature per second a weight amounts to, with its unit, or None.

    A weight that is not positive, or smaller than two standard errors if they are known, is no
    rate; nor is that of a launch, of the paper's minimum, or of a derived feature whose model is
    not given. A fused multiply-add is two flop.
    """
    amount = charged(weight.feature, weight.unit, model)
    if amount is None or amount.kind == "launches" or doubt(weight):
        return None
    return amount.size / weight.value_s, f"{amount.unit}/s"


def doubt(weight: Weight) -> str:
    """Write why a weight is no rate by itself, or nothing if it is or has no standard error."""
    if weight.value_s < 0:
        return "negative: it corrects other weights"
    if weight.value_s == 0:
        return "zero: its cost is in other weights"
    if weight.standard_error_s is not None and weight.value_s < 2 * weight.standard_error_s:
        return "not told from zero"
    return ""


def weight_rows(weights: Any) -> list[dict[str, Any]]:
    """Return a row for each weight: its cost, s, the rate that it implies, and what is unsure."""
    model = weights.definition
    shared = {
        name: some_of([other for other in group.features if other != name], most=NAMED_OTHERS)
        for group in weights.indistinguishable
        for name in group.features
    }
    rows: list[dict[str, Any]] = []
    for name, weight in weights.by_feature.items():
        rate, rate_unit = rate_of(weight, model) or (None, None)
        rows.append(
            {
                "feature": name,
                "group": weights.resources.get(name, OTHER),
                "name": plain_name(name),
                "weight_s": weight.value_s,
                "standard_error_s": weight.standard_error_s,
                "unit": unit_of(weight, model),
                "rate": rate,
                "rate_unit": rate_unit,
                "remark": f"not told apart from {shared[name]}"
                if name in shared
                else doubt(weight),
            }
        )
    return rows


def weight_texts(row: Row) -> tuple[str, str, str]:
    """Write the cost of a row of `weight_rows`, what it is per, and the rate."""
    cost, error_s = format_quantity(row["weight_s"], "s"), row["standard_error_s"]
    if error_s is not None and row["weight_s"]:
        cost += f" ± {format_percent(error_s / abs(row['weight_s']))}"
    rate = "" if row["rate"] is None else format_quantity(row["rate"], row["rate_unit"])
    return cost, f"per {row['unit']}", rate


def weights_table(weights: Any) -> Table:
    """Return weights rounded to their uncertainty, and the rates that they imply."""
    cells = [(row["feature"], *weight_texts(row), row["remark"]) for row in weight_rows(weights)]
    header = ("feature", "weight", "", "implied rate", "")
    return Table(header=header, rows=tuple(cells), right=(3,))


_COLUMNS = {
    **columns_of("feature group name"),
    **columns_of("weight_s standard_error_s", format_seconds),
    **columns_of("unit"),
}


def lay_out_weights(weights: Any) -> Printed:
    """Give the weights of a model."""
    error = None if weights.quality is None else weights.quality.held_out_error
    said = "" if error is None else f", error over left-out families {format_percent(error)}"
    head = [f"{short_name(weights.model)} model of {weights.device.slug}{said}"]
    return Printed(head=head, rows=weight_rows(weights), columns=_COLUMNS)
