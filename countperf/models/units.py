"""Units of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from countperf.models.definition import ModelDefinition
from countperf.models.evaluation import array_function
from countperf.models.records import Weight
from countperf.properties.taxonomy import describe

DERIVED = "unit"
"""Unit of a weight of a derived feature, in documents: the feature itself."""

_SHARED = ("bytes", "segments", "issue")
"""Prefixes of properties of which models charge shares."""

_PLAIN = {"segment": "piece", "B": "byte"}
"""Units of documents, as people call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """Quantity that a weight is the cost of."""

    kind: str
    unit: str  # what amounts are counted in, such as ``byte`` or ``flop``
    size: float = 1.0  # how many of these one unit of the feature is
    is_share: bool = False


def charged(feature: str, unit: str, model: ModelDefinition | None = None) -> Charged | None:
    """Say what a weight is the cost of; None for what is no amount of anything."""
    kind, *rest = feature.split(".")
    if unit == DERIVED or (model is not None and feature in model.derived):
        if model is None or feature not in model.derived:
            return None
        whole = _share_of(model, feature)
        if whole is not None and whole.split(".")[0] in _SHARED:
            amount = charged(whole, describe(whole).unit)
            return None if amount is None else replace(amount, is_share=True)
        if counts_bytes(model, feature):
            return Charged(kind="gmem", unit="byte")
        return Charged(kind="derived", unit=_common_unit(model, feature))
    if rest[:1] == ["min"]:
        return None
    if kind in ("gmem", "lmem") and len(rest) > 1 and rest[1].isdigit():
        return Charged(kind=kind, unit="byte", size=int(rest[1]) / 8)
    if kind == "bytes":
        return Charged(kind="gmem", unit="byte")
    if kind == "flop":
        return Charged(kind=kind, unit="flop", size=2.0 if rest[0] == "fma" else 1.0)
    return Charged(kind=kind, unit=_plain(feature, unit))


def _plain(feature: str, unit: str) -> str:
    return "cycle" if feature.startswith("code.cycles") else _PLAIN.get(unit, unit)


def _common_unit(model: ModelDefinition, name: str) -> str:
    """Return in what a sum of properties is counted, times pure numbers or not; else ``unit``."""
    formula = model.needed_derived[name]
    bases = [model.base_properties[n] for n in formula.names if n in model.base_properties]
    amounts = [charged(base, describe(base).unit) for base in bases]
    units = {amount.unit for amount in amounts if amount is not None}
    probe = array_function(formula)
    ratios = {n: 0.5 for n in formula.names if n in model.derived}
    one, two = (
        probe({**dict.fromkeys(formula.names, factor * 3.0), **ratios}) for factor in (1.0, 2.0)
    )
    return units.pop() if len(units) == 1 and two == 2 * one else DERIVED


def unit_of(weight: Weight, model: ModelDefinition) -> str:
    """Return in what the feature of a weight is counted, for people."""
    if weight.unit != DERIVED:
        return _plain(weight.feature, weight.unit)
    amount = charged(weight.feature, weight.unit, model)
    return DERIVED if amount is None else amount.unit


def counts_bytes(model: ModelDefinition, name: str) -> bool:
    """Return whether a derived feature counts bytes of global memory.

    A share is a product of bytes of global memory, or sums of them, and of derived features, all of
    them ratios.
    """
    formula = model.needed_derived[name]
    if (base := _share_of(model, name)) is not None:
        return base.startswith("bytes.")
    sizes: dict[str, float] = {}
    for part in formula.names:
        base = model.base_properties.get(part, "").split(".")
        if base[0] != "gmem" or base[1] not in ("load", "store"):
            return False
        sizes[part] = int(base[2]) / 8
    probe = array_function(formula)
    zero: Mapping[str, Any] = dict.fromkeys(sizes, 0.0)
    # in each direction, and in all at once: anything but the sum would differ somewhere
    singles = all(probe({**zero, part: 3.0}) == 3.0 * size for part, size in sizes.items())
    return bool(singles and probe(dict.fromkeys(sizes, 5.0)) == 5.0 * sum(sizes.values()))


def _share_of(model: ModelDefinition, name: str) -> str | None:
    """Return the property of which a derived feature is a share, given by other ones; or None.

    Of a share of a sum of properties, the first one.
    """
    formula = model.needed_derived[name]
    bases = [part for part in formula.names if part in model.base_properties]
    ratios = [part for part in formula.names if part in model.derived]
    if not bases or not ratios or len(ratios) + len(bases) < len(formula.names):
        return None
    probe = array_function(formula)
    whole = {**dict.fromkeys(bases, 0.0), **dict.fromkeys(ratios, 1.0)}
    for base in bases:
        for value in (3.0, 5.0):
            nothing = [probe({**whole, base: value, ratio: 0.0}) for ratio in ratios]
            if probe({**whole, base: value}) != value or any(nothing):
                return None
    if probe({**whole, **dict.fromkeys(bases, 3.0)}) != 3.0 * len(bases):
        return None
    return model.base_properties[bases[0]]
