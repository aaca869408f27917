"""Record, in the document of a fit, of the measurements that exercise each weight."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field, PositiveInt

from countperf.documents import Part
from countperf.features import covers
from countperf.models.definition import ModelDefinition
from countperf.models.function import ModelFunction
from countperf.models.records import Range


class Exercise(Part):
    """Measurements of a fit that exercise one weight, parameter or counted name.

    Attributes
    ----------
    families : dict from str to int
        Cases that have it, by family of kernels.
    kernels : int
        How many kernels have it.
    properties : tuple of str
        The properties behind it that some measured kernel has; none for a parameter.
    mean_share, largest_share : float or None
        Share of the measured time that the fit attributes to it: mean over the cases that have it,
        each counting the same, and largest; negative where the weight is. None for what has no time
        of its own, such as a sharpness.
    per_group : Range or None
        Range of its value for each work group of a launch, over the cases that have it.
    relies_on : tuple of str
        Families of which each is needed: without its measurements nothing determines the value.
    """

    families: dict[str, PositiveInt]
    kernels: int = Field(gt=0)
    properties: tuple[str, ...] = ()
    mean_share: float | None = None
    largest_share: float | None = None
    per_group: Range | None = None
    relies_on: tuple[str, ...] = ()

    @property
    def cases(self) -> int:
        """Number of cases that have it."""
        return sum(self.families.values())


def properties_behind(function: ModelFunction, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Sort properties under the weights and counted names of a model that they are charged by.

    Parameters
    ----------
    function : ModelFunction
        The model over its columns.
    names : iterable of str
        Properties of kernels.

    Returns
    -------
    dict from str to tuple of str
        By key of a column, or counted name; sorted.
    """
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
        for key, (term, feature) in zip(function.keys, function.columns, strict=False)
    }
    for variable in model.variables:
        bases = _bases(model, variable)
        found[variable] = tuple(n for n in present if any(covers(base, n) for base in bases))
    return found


def _bases(model: ModelDefinition, name: str) -> frozenset[str]:
    """Return the properties that a name of a formula is made of."""
    if name not in model.derived:
        return frozenset({model.base_properties[name]} if name in model.base_properties else ())
    parts = (_bases(model, part) for part in model.needed_derived[name].names)
    return frozenset[str]().union(*parts)
