"""Model definitions and weights of old versions, as those of now.

Names of properties and features are those of `countperf.properties.old_names`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from countperf.documents import Migration
from countperf.properties.old_names import current_feature, current_formula

_COST = "cost"
"""Term of linear models, as `countperf.models.linear.COST`."""
_ALL_LATE = "late.*"
_FIELDS = {"suppliers": "exercising_kernels"}


def _definition_from_version_1(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had the names of before, in patterns and formulas."""
    found = dict(fields)
    for name in ("ignored", "negligible"):
        if name in found:
            found[name] = _renamed(found[name])
    if isinstance(derived := found.get("derived"), dict):
        found["derived"] = {
            current_feature(name): current_formula(text) if isinstance(text, str) else text
            for name, text in derived.items()
        }
    if isinstance(terms := found.get("terms"), dict):
        found["terms"] = {name: _renamed(term) for name, term in terms.items()}
    if isinstance(expression := found.get("expression"), str):
        found["expression"] = current_formula(expression)
    return found


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
        "terms": {_COST: {"charged": spec.get("charged", []), "lower": None}},
        "expression": _COST,
    }
    return found


def _from_version_2(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 2 had the names of before, and a definition of version 1."""
    found = {_FIELDS.get(name, name): content for name, content in fields.items()}
    definition = found.get("definition")
    if isinstance(definition, dict) and definition.get("version") == 1:
        found["definition"] = {**_definition_from_version_1(definition), "version": 2}
    for name in ("weights", "ranges", "indistinguishable", "exercising_kernels", "exercise"):
        if name in found:
            found[name] = _renamed(found[name])
    return found


def _renamed(content: Any) -> Any:
    """Return parsed JSON with the names of now, of fields that hold names of features alone."""
    if isinstance(content, str):
        return current_feature(content)
    if isinstance(content, list | tuple):
        return [_renamed(each) for item in content for each in _apart(item)]
    if isinstance(content, dict):
        return {
            current_feature(name) if isinstance(name, str) else name: _renamed(each)
            for name, each in content.items()
        }
    return content


def _apart(item: Any) -> tuple[Any, ...]:
    """Return the patterns that one of before is now: what was late is a miss or a spill."""
    if isinstance(item, str) and item.startswith(_ALL_LATE):
        rest = item.removeprefix(_ALL_LATE)
        return (f"miss.*{rest}", f"spill.*{rest}")
    return (item,)


DEFINITION_MIGRATIONS: Mapping[int, Migration] = {1: _definition_from_version_1}
WEIGHTS_MIGRATIONS: Mapping[int, Migration] = {1: _from_version_1, 2: _from_version_2}
