"""Record, in the document of a fit, of the measurements that exercise each weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import Field, PositiveInt

from countperf.documents import Part
from countperf.features import covers
from countperf.models.definition import ModelDefinition
from countperf.models.function import ModelFunction
from countperf.models.records import Range


class Exercise(Part):
    """Measurements of a fit that exercise one weight, parameter or counted name."""

    families: dict[str, PositiveInt]  # cases that have it, by family of kernels
    kernels: int = Field(gt=0)  # how many kernels have it
    properties: tuple[str, ...] = ()  # the properties behind it that some measured kernel has
    mean_share: float | None = None
    largest_share: float | None = None
    # range of its value for each work group of a launch, over the cases that have it
    per_group: Range | None = None
    # families of which each is needed: without its measurements nothing determines the value
    relies_on: tuple[str, ...] = ()

    @property
    def cases(self) -> int:
        """Number of cases that have it."""
        return sum(self.families.values())


def packed(exercise: Mapping[str, Exercise]) -> dict[str, Any]:
    """Return the exercise of weights as documents have it: families and properties by number."""
    families = sorted({name for each in exercise.values() for name in each.families})
    properties = sorted({name for each in exercise.values() for name in each.properties})
    of: dict[str, Any] = {}
    for key, each in exercise.items():
        content = each.model_dump(mode="json", exclude_defaults=True)
        content["families"] = [
            number for name, n in each.families.items() for number in (families.index(name), n)
        ]
        content["properties"] = [properties.index(name) for name in each.properties]
        of[key] = content
    return {"families": families, "properties": properties, "of": of}


def unpacked(content: Any) -> Any:
    """Return the exercise of weights by name, from what `packed` returned; all else as it is."""
    if not isinstance(content, dict):
        return content
    given = cast("dict[str, Any]", content)
    if set(given) != {"families", "properties", "of"}:
        return {key: _strict(each) for key, each in given.items()}
    if not isinstance(given["of"], dict):
        raise ValueError("'of' has to have an object for each weight")
    of = cast("dict[str, Any]", given["of"])
    return {key: _by_name(each, given["families"], given["properties"]) for key, each in of.items()}


def _by_name(content: Any, families: Any, properties: Any) -> Any:
    """Return what was packed of one weight, families and properties by name."""
    if not isinstance(content, dict):
        return content
    given = cast("dict[str, Any]", content)
    names = _named(families, given.get("families"), step=2)
    return _strict(
        {
            **given,
            "families": dict(zip(names, given["families"][1::2], strict=True)),
            "properties": _named(properties, given.get("properties")),
        }
    )


def _strict(content: Any) -> Any:
    """Return an object with tuples instead of lists, which strict validation takes."""
    if not isinstance(content, dict):
        return content
    given = cast("dict[str, Any]", content)
    return {k: tuple(cast("Any", v)) if isinstance(v, list) else v for k, v in given.items()}


def _named(names: Any, numbers: Any, *, step: int = 1) -> tuple[str, ...]:
    """Return the names of every number, or of every other one."""
    if not isinstance(names, list) or not isinstance(numbers, list) or len(numbers) % step:
        raise ValueError("families and properties have to be lists of numbers")
    chosen = cast("list[Any]", numbers)[::step]
    if any(type(number) is not int or not 0 <= number < len(names) for number in chosen):
        raise ValueError(f"a number is none of {len(names)} names")
    return tuple(names[number] for number in chosen)


def properties_behind(function: ModelFunction, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Sort properties under the weights and counted names of a model that they are charged by."""
    model, present = function.model, sorted(set(names))
    found = {
        key: tuple(
            name
            for name in present
            if (
                any(covers(base, name) for base in _bases(model, feature))
                if feature in model.derived
                else model.term_features[term].feature_of(name) == feature
            )
        )
        for key, (term, feature) in zip(function.keys, function.columns, strict=True)
    }
    for variable in model.scales:
        bases = _bases(model, variable)
        found[variable] = tuple(n for n in present if any(covers(base, n) for base in bases))
    return found


def _bases(model: ModelDefinition, name: str) -> frozenset[str]:
    """Return the properties that a name of a formula is made of."""
    if name not in model.derived:
        return frozenset({model.base_properties[name]} if name in model.base_properties else ())
    parts = (_bases(model, part) for part in model.needed_derived[name].names)
    return frozenset[str]().union(*parts)
