"""Weights documents of old versions, as those of now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from countperf.documents import Migration
from countperf.models.linear import COST


def _from_version_1(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had one sum over ``features``, and a sentence as its ``expression``."""
    found = dict(fields)
    features = found.pop("features", {})
    found.pop("expression", None)
    spec = features if isinstance(features, dict) else {}
    found["definition"] = {
        "format": "countperf-model",
        "version": 1,
        "name": found.get("model"),
        "ignored": spec.get("ignored", []),
        "terms": {COST: {"charged": spec.get("charged", []), "lower": None}},
        "expression": COST,
    }
    return found


def _from_version_2(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 2 had rows of numbers as lists, which are read like packed ones."""
    return fields


MIGRATIONS: Mapping[int, Migration] = {1: _from_version_1, 2: _from_version_2}
