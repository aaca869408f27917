"""Models without the features that take next to no time.

Structural models charge more features than a device's times tell apart. A fit keeps weights of
those that take the largest shares of the measured times (`ModelDefinition.most_weights`); what is
left out is named (`ModelDefinition.negligible`), so that a kernel that has it is predicted without
it, and one that has what no measured kernel had is told from that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from countperf.models.definition import ModelDefinition
from countperf.models.expressions import parse


def without_features(model: ModelDefinition, dropped: Collection[str]) -> ModelDefinition:
    """Return a model without weights for some features."""
    terms = {}
    for name, term in model.terms.items():
        kept = tuple(f for f in term.charged if f not in model.derived or f not in dropped)
        terms[name] = term.model_copy(update={"charged": kept or term.charged})
    charged = [feature for term in terms.values() for feature in term.charged]
    properties = sorted(feature for feature in dropped if feature not in model.derived)
    changed = model.model_copy(
        update={
            "terms": terms,
            "derived": needed_derived(model.derived, [*model.scales, *charged]),
            "negligible": (*model.negligible, *properties),
        }
    )
    return ModelDefinition.model_validate(changed.model_dump())


def needed_derived(derived: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the derived features among some names, and those that they are made of."""
    needed = set(names)
    for name in reversed(list(derived)):
        if name in needed:
            needed.update(parse(derived[name]).names)
    return {name: text for name, text in derived.items() if name in needed}
