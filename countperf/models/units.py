"""Units of weights."""

from __future__ import annotations

from dataclasses import dataclass

from countperf.models.definition import ModelDefinition
from countperf.models.records import Weight
from countperf.properties.taxonomy import property_unit

DERIVED = "unit"
"""Unit of a weight of a derived feature, in documents: the feature itself."""

_PLAIN = {"segment": "piece", "B": "byte"}
"""Units of documents, as people call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """Quantity that a weight is the cost of."""

    kind: str
    unit: str  # what amounts are counted in, such as ``byte`` or ``flop``
    size: float = 1.0  # how many of these one unit of the feature is


def charged(feature: str, unit: str, model: ModelDefinition | None = None) -> Charged | None:
    """Say what a weight is the cost of; None for what is no amount of anything."""
    kind, *rest = feature.split(".")
    if model is not None and feature in model.derived:
        return _of_derived(feature, model)
    if unit == DERIVED or rest[:1] == ["min"]:
        return None
    if kind in ("gmem", "lmem") and len(rest) > 1 and rest[1].isdigit():
        return Charged(kind=kind, unit="byte", size=int(rest[1]) / 8)
    if kind == "bytes":
        return Charged(kind="gmem", unit="byte")
    if kind == "flop":
        return Charged(kind=kind, unit="flop", size=2.0 if rest[0] == "fma" else 1.0)
    return Charged(kind=kind, unit=_plain(feature, unit))


def _of_derived(feature: str, model: ModelDefinition) -> Charged:
    """Say what a derived feature counts: what its properties do, if all are of one unit."""
    formula = model.needed_derived[feature]
    bases = {n: model.base_properties[n] for n in formula.names if n in model.base_properties}
    amounts = {n: charged(base, property_unit(base)) for n, base in bases.items()}
    known = [amount for amount in amounts.values() if amount is not None]
    if len(known) < len(bases) or len({amount.unit for amount in known}) != 1:
        return Charged(kind="derived", unit=DERIVED)
    if any(amount.size != 1 for amount in known):  # a sum of amounts, not of accesses
        ones = {n: 1.0 / amount.size for n, amount in amounts.items() if amount is not None}
        if formula(dict.fromkeys(formula.names, 1.0) | ones) != len(bases):
            return Charged(kind="derived", unit=DERIVED)
    return Charged(kind=known[0].kind, unit=known[0].unit)


def _plain(feature: str, unit: str) -> str:
    return "cycle" if feature.startswith("code.cycles") else _PLAIN.get(unit, unit)


def unit_of(weight: Weight, model: ModelDefinition) -> str:
    """Return in what the feature of a weight is counted, for people."""
    if weight.unit != DERIVED:
        return _plain(weight.feature, weight.unit)
    amount = charged(weight.feature, weight.unit, model)
    return DERIVED if amount is None else amount.unit
