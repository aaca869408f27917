"""Schedules and counts that variants share which differ only in how loops are written.

`countperf.counting.equivalence` says which do. In the source view they have the same counts; in the
structure view, which tells copies from loops, the same schedule and footprints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loopy import TranslationUnit

from countperf.counting.equivalence import with_loops_as_loops, with_tags_of
from countperf.counting.resources import scheduled
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.properties.cache import content_key
from countperf.properties.count_properties import count_executed, count_kernel
from countperf.tuning.steps import Latest

if TYPE_CHECKING:
    from countperf.counting.resources import LaunchResources
    from countperf.properties.taxonomy import View
    from countperf.properties.vector import PropertyVector


@dataclass(slots=True, kw_only=True)
class Scheduled:
    """A variant, scheduled."""

    of: Any  # the variant
    unit: Any  # what is counted
    resources: LaunchResources  # what a launch asks for
    vector: PropertyVector | None = None  # counts of the source view, if they are known
    # what is known of what groups access, for `countperf.execution.count.count_execution`
    footprints: dict[Any, Any] = field(default_factory=dict)


_known: Latest[Scheduled] = Latest(256)
forget = _known.forget


def scheduled_variant(unit: Any, view: View) -> Scheduled:
    """Schedule a variant, or take the schedule of one with the same loops."""

    def fresh() -> Scheduled:
        ready, resources = scheduled(unit)
        return Scheduled(of=unit, unit=ready, resources=resources)

    key = _structure(unit, view)
    found = fresh() if key is None else _known.found(key, fresh)
    if view == "source" or found.of is unit:
        return found
    return Scheduled(
        of=unit,
        unit=with_tags_of(found.unit, unit),
        resources=found.resources,
        footprints=found.footprints,
    )


def counted_variant(
    variant: Scheduled, view: View, *, policy: bool, caches: CountedCaches = DEFAULT_CACHES
) -> PropertyVector:
    """Count a scheduled variant."""
    if view == "structure" and policy:
        return count_executed(variant.unit, footprints=variant.footprints, caches=caches)
    if view != "source":
        return count_kernel(variant.unit, view=view, caches=caches, cache=False)
    if variant.vector is None:
        variant.vector = count_kernel(variant.unit, view=view, cache=False)
    return variant.vector


def _structure(unit: Any, view: View) -> str | None:
    """Return what variants with the same schedule have in common; None if nothing is known."""
    if view == "compiled" or not isinstance(unit, TranslationUnit):
        return None
    return f"{view} {content_key(with_loops_as_loops(unit), {})}"
