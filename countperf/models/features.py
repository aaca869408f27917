"""Features: the properties that a model charges, with their values at given parameters.

A `FeatureSpec` is data: patterns of property names. A pattern is a property name in which ``*``
stands for any one component; it covers every property whose first components match it, and charges
them together under those components. So ``flop.special.*`` charges ``flop.special.f32.rsqrt`` and
``flop.special.f32.exp`` as one feature, ``flop.special.f32``, which is their sum.

A property that no pattern covers is *unknown* to the model: it is never dropped silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.documents import Part

if TYPE_CHECKING:
    from countperf.counting.taxonomy import View
    from countperf.counting.vector import PropertyVector

CountValue = int | float | Fraction | NDArray[Any]
"""Value of a property: exact where parameters are numbers, an array where they are arrays."""

FeatureValue = float | NDArray[np.float64]


class FeatureSpec(Part):
    """Patterns of the properties that a model charges, and of those that it ignores."""

    # patterns of charged properties, in the order in which features are listed
    charged: tuple[str, ...]
    # patterns of properties that have no term in the model, by its definition
    ignored: tuple[str, ...] = ()
    # features that are ignored, too, though a pattern charges them
    negligible: tuple[str, ...] = ()

    def feature_of(self, name: str) -> str | None:
        """Return the feature that charges a property, or None if none does."""
        feature = self._find_covering_feature(name)
        return None if feature in self.negligible else feature

    def _find_covering_feature(self, name: str) -> str | None:
        """Return the feature of the first pattern that covers a property, be it negligible."""
        place = first_cover(self.charged, name)
        if place is None:
            return None
        return ".".join(name.split(".")[: self.charged[place].count(".") + 1])

    def ignores(self, name: str) -> bool:
        """Return whether the model leaves a property out by its definition."""
        feature = self._find_covering_feature(name)
        if feature is not None:
            return feature in self.negligible
        return first_cover(self.ignored, name) is not None

    def apply(self, counts: Mapping[str, CountValue]) -> dict[str, FeatureValue]:
        """Return each feature of a kernel's counts that is not zero, in the order of the spec."""
        sums: dict[str, Any] = {}
        for name, count in counts.items():
            feature = self.feature_of(name)
            if feature is not None and np.any(count != 0):
                sums[feature] = sums[feature] + count if feature in sums else count
        return {name: to_float(sums[name]) for name in sorted(sums, key=self.position)}

    def position(self, feature: str) -> tuple[int, str]:
        """Return the sorting key of a feature: by pattern, then by name."""
        rank = first_cover(self.charged, feature)
        return len(self.charged) if rank is None else rank, feature


def vector_of(
    kernel: object,
    *,
    view: View = "source",
    transactions: Sequence[str] = (),
    caches: CountedCaches = DEFAULT_CACHES,
) -> PropertyVector:
    """Return the property vector of whatever stands for a kernel."""
    from countperf.counting.vector import PropertyVector

    if isinstance(kernel, PropertyVector):
        return kernel
    if isinstance(kernel, Mapping):
        return PropertyVector.from_mapping(cast("Mapping[str, str | int]", kernel), view=view)
    from countperf.counting.analysis import with_transactions
    from countperf.counting.count_properties import count_kernel

    return with_transactions(count_kernel(kernel, view=view, caches=caches), kernel, transactions)


@lru_cache(maxsize=4096)
def first_cover(patterns: tuple[str, ...], name: str) -> int | None:
    """Return the position of the first pattern that covers a property."""
    parts = name.split(".")
    for position, pattern in enumerate(patterns):
        wanted = pattern.split(".")
        if len(parts) >= len(wanted) and all(
            component in ("*", actual) for component, actual in zip(wanted, parts, strict=False)
        ):
            return position
    return None


def covers(feature: str, name: str) -> bool:
    """Return whether a property belongs to a feature: the same, or one that begins with it."""
    return name == feature or name.startswith(feature + ".")


def to_float(count: CountValue) -> FeatureValue:
    """Return a count as a float, or as an array of them."""
    return np.asarray(count, np.float64) if isinstance(count, np.ndarray) else float(count)
