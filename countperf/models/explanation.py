"""Parts of times and weights, with units, uncertainty and the rates that they imply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from countperf import text
from countperf.counting.taxonomy import property_unit
from countperf.devices.parameters import DeviceParameters
from countperf.models import predictions
from countperf.models.definition import ModelDefinition
from countperf.models.function import DERIVED, Weight
from countperf.models.labels import plain_name
from countperf.models.predictions import OTHER, write_uncharged

_ZERO = "zero: its cost is in other weights"
_PLAIN = {"segment": "piece", "B": "byte"}  # units of documents, as people call them


def find_amount(
    feature: str, unit: str, model: ModelDefinition | None = None
) -> tuple[str, float] | None:
    """Return what a feature is an amount of, and how many one of it is; two flop in a fused one."""
    kind, *rest = feature.split(".")
    if model is not None and feature in model.derived:
        return _find_derived_amount(feature, model)
    if unit == DERIVED or rest[:1] == ["min"]:
        return None
    if kind in ("gmem", "lmem") and len(rest) > 1 and rest[1].isdigit():
        return "byte", int(rest[1]) / 8
    if kind == "bytes":
        return "byte", 1.0
    if kind == "flop":
        return "flop", 2.0 if rest[0] == "fma" else 1.0
    return _plain_unit(feature, unit), 1.0


def _find_derived_amount(feature: str, model: ModelDefinition) -> tuple[str, float]:
    formula = model.formulas[feature]
    bases = {n: model.base_properties[n] for n in formula.names if n in model.base_properties}
    amounts = {n: find_amount(base, property_unit(base)) for n, base in bases.items()}
    known = {n: amount for n, amount in amounts.items() if amount is not None}
    units = {unit for unit, _ in known.values()}
    if len(known) < len(bases) or len(units) != 1:
        return DERIVED, 1.0
    if any(size != 1 for _, size in known.values()):  # a sum of amounts, not of accesses
        ones = {n: 1.0 / size for n, (_, size) in known.items()}
        if formula(dict.fromkeys(formula.names, 1.0) | ones) != len(bases):
            return DERIVED, 1.0
    return units.pop(), 1.0


def _plain_unit(feature: str, unit: str) -> str:
    if feature == "code.cycles_operations":
        return "micro-operation"
    return "cycle" if feature.startswith("code.cycles") else _PLAIN.get(unit, unit)


def unit_of(weight: Weight, model: ModelDefinition) -> str:
    """Return in what the feature of a weight is counted, for people."""
    if weight.unit != DERIVED:
        return _plain_unit(weight.feature, weight.unit)
    amount = find_amount(weight.feature, weight.unit, model)
    return DERIVED if amount is None else amount[0]


def rate_of(weight: Weight, model: ModelDefinition | None = None) -> tuple[float, str] | None:
    """Return how much of a feature per second a weight amounts to, with its unit, or None."""
    amount = find_amount(weight.feature, weight.unit, model)
    if amount is None or weight.feature == "launches" or doubt(weight):
        return None
    return amount[1] / weight.value_s, f"{amount[0]}/s"


def doubt(weight: Weight) -> str:
    """Write why a weight is no rate by itself, or nothing if it is or has no standard error."""
    if weight.value_s < 0:
        return "negative: it corrects other weights"
    if weight.value_s == 0:
        return _ZERO
    if weight.standard_error_s is not None and weight.value_s < 2 * weight.standard_error_s:
        return "not significant (less than two standard errors)"
    return ""


def weight_rows(weights: Any) -> list[dict[str, Any]]:
    """Return a row for each weight: its cost, s, the rate that it implies, and what is unsure."""
    model = weights.definition
    groups = [group.features for group in weights.indistinguishable]
    others = {name: [o for o in names if o != name] for names in groups for name in names}
    most = predictions.NAMED_OTHERS
    shared = {n: text.some_of([*map(plain_name, o)], most=most) for n, o in others.items()}
    rows: list[dict[str, Any]] = []
    for name, weight in weights.by_feature.items():
        rate, rate_unit = rate_of(weight, model) or (None, None)
        remark = f"indistinguishable from {shared[name]}" if name in shared else doubt(weight)
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
                "remark": remark,
            }
        )
    return rows


def _weight_texts(row: text.Row) -> tuple[str, str, str]:
    """Write the cost of a row of `weight_rows`, what it is per, and the rate."""
    cost, error_s = text.format_quantity(row["weight_s"], "s"), row["standard_error_s"]
    if error_s is not None and row["weight_s"]:
        cost += f" ± {text.format_percent(error_s / abs(row['weight_s']))}"
    rate = "" if row["rate"] is None else text.format_quantity(row["rate"], row["rate_unit"])
    return cost, f"per {row['unit']}", rate


def weights_table(weights: Any) -> text.Table:
    """Return weights rounded to their uncertainty, and the rates that they imply; zeros last."""
    rows = weight_rows(weights)
    cells = [(r["name"], *_weight_texts(r), r["remark"]) for r in rows if r["weight_s"]]
    if zeros := [row["name"] for row in rows if not row["weight_s"]]:
        said = text.some_of(zeros, most=3)
        cells.append((f"{len(zeros)} weights: {said}", "0 s", "", "", _ZERO))
    header = ("feature", "weight", "unit", "implied rate", "remark")
    return text.Table(header=header, rows=tuple(cells), right=(3,))


def lay_out_weights(weights: Any) -> text.Printed:
    """Give the weights of a model."""
    error = None if weights.quality is None else weights.quality.held_out_error
    said = "" if error is None else f", error on classes left out {text.format_percent(error)}"
    return text.Printed(
        head=[f"{text.short_name(weights.model)} model of {weights.device.slug}{said}"],
        rows=weight_rows(weights),
        columns={
            **text.columns_of("feature name"),
            "group": text.Column("resource"),
            **text.columns_of("weight_s standard_error_s", text.format_seconds),
            **text.columns_of("unit"),
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPart(text.ShortRepr):
    """A part of a time that the breakdown names."""

    name: str
    weight: Weight | None  # none for the correction
    count: float | None  # of the feature
    part_s: float  # weight times count times the scale of its term; parts sum to the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(text.Result, text.ShortRepr):
    """A prediction with what it is made of."""

    prediction: predictions.Prediction  # at one size
    expression: str
    parts: tuple[ExplainedPart, ...]  # largest first
    global_bytes: float  # what the kernel asks of global memory
    flops: float  # a fused multiply-add as two

    def lay_out(self, device: DeviceParameters | None = None) -> text.Printed:
        """Give a time, its terms and its parts, with the rates that weights imply."""
        made = self.prediction
        whole = float(made.time_s)
        known = {row["feature"]: row for row in weight_rows(made.origin.weights)}
        rows = [
            {
                "part": part.name,
                **predictions.name_part(part.name, made.resources),
                "time_s": part.part_s,
                "share": part.part_s / whole if whole > 0 else None,
                "count": part.count,
                "weight_s": None if part.weight is None else part.weight.value_s,
                **{name: known.get(part.name, {}).get(name) for name in _DETAILS},
            }
            for part in self.parts
        ]
        headings = ", ".join(dict.fromkeys(str(row["group"]) for row in rows))
        words = [f"parts are explained in docs/glossary.md, under {headings}"]
        words += write_uncharged(made.ignored, every=True)
        explanation = {"expression": self.expression, "parts": rows}
        explanation |= text.extract(self, "global_bytes", "flops")
        return text.Printed(
            head=[*predictions.prediction_head(made), f"time_s = {self.expression}"],
            rows=rows,
            shown=text.table_of([_show_part(row) for row in rows], _EXPLAINED),
            notes=[*self._describe_demand(device), *words, *predictions.write_caveats(made)],
            facts={**made.lay_out().facts, "explanation": explanation},
        )

    def _describe_demand(self, device: DeviceParameters | None) -> list[str]:
        """Say what the kernel gets altogether, of what the device can at most."""
        whole = float(self.prediction.time_s)
        said: list[str] = []
        if self.global_bytes and whole > 0:
            rate = text.format_quantity(self.global_bytes / whole, "byte/s")
            said.append(f"{rate} of accesses to global memory (from caches or not)")
        if self.flops and whole > 0:
            rate, peak = self.flops / whole, device and device.peak_flops
            share = f"{text.format_percent(rate / peak)} of peak" if peak else "peak unknown"
            said.append(f"{text.format_quantity(rate, 'flop/s')} of arithmetic ({share})")
        return [f"the kernel then gets {' and '.join(said)}"] if said else []


_DETAILS = ("standard_error_s", "unit", "rate", "rate_unit", "remark")
_EXPLAINED = {
    **{"group": text.Column("resource"), "time_s": text.Column("time", text.format_seconds)},
    **{"share": text.Column("share", text.format_share), "name": text.Column("part")},
    **{"count": text.Column("count", right=True), "at": text.Column("weight")},
    **{"rate": text.Column("implied rate", right=True), "remark": text.Column("remark")},
}


def _show_part(row: text.Row) -> dict[str, Any]:
    is_weighed = row["unit"] is not None
    cost, per, rate = _weight_texts(row) if is_weighed else ("", "", None)
    return {
        **{name: row[name] for name in ("group", "name", "time_s", "share", "remark")},
        "count": None if row["count"] is None else f"{row['count']:.6g}",
        "at": f"{cost} {per}" if is_weighed else None,
        "rate": rate,
    }
