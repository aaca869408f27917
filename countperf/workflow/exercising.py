"""Kernels of the catalogue that exercise a property or a feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from countperf.features import exercising_kernels_of
from countperf.models.definition import ModelDefinition
from countperf.properties.count_properties import count_kernel
from countperf.properties.vector import PropertyVector
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry


@cache
def catalogue_vectors() -> Mapping[str, PropertyVector]:
    """Return the counts of the catalogue's kernels, one for each family, variant and type.

    Families of random shapes are left out: whatever they exercise, smaller kernels do.
    """
    first: dict[tuple[str, str, str], CatalogEntry] = {}
    for each in (*entries(element_type=None), *entries(element_type=None, collection="extended")):
        first.setdefault((each.family, each.variant, each.element_type), each)
    return {
        each.name: count_kernel(
            each.build(),
            statistics=each.statistics_at(each.check_parameters),
            view="structure",
        )
        for each in first.values()
    }


def catalogue_exercising_kernels(model: ModelDefinition) -> Mapping[str, tuple[str, ...]]:
    """Return, for each feature of a model, the kernels of the catalogue that exercise it.

    One kernel of each family and variant stands for the others; all element types are looked at.
    """
    issued = {name: model.made_of(vector) for name, vector in catalogue_vectors().items()}
    return exercising_kernels_of(model.features, issued)


def lookup_of(model: ModelDefinition) -> Callable[[str], tuple[str, ...]]:
    """Return what looks up a feature's kernels; the catalogue is gone through once, if asked."""
    found = cache(lambda: catalogue_exercising_kernels(model))
    return lambda feature: found().get(feature, ())
