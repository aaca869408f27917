"""Sets of variants that are measured in full, to judge how well models rank them.

A rule that uses no times, measured or predicted, chooses a set from its space:

1. Candidates are the points that satisfy the space's constraints, have groups of at most 256 items
   and need at most 32 KiB of local memory (OpenCL's minimum), so that they run on every device.
2. The first variant is the first of `SearchSpace.visit`. Each further one is the candidate that has
   the fewest values of parameters, and pairs of values of two parameters, in common with those
   chosen before; a value counts as often as its parameter has values, a pair as often as there are
   pairs. Of several such candidates the first of `SearchSpace.visit` is taken.

Every beginning of a set is therefore spread over the whole space: a campaign that is interrupted
has measured a smaller set of the same kind. All variants of a set are measured at the same sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from countperf.errors import KernelSpecificationError
from countperf.tuning.space import Choice, SearchSpace
from measurement_kernels.arguments import SizeParameter
from measurement_kernels.entry import VARIANTS_PREFIX, CatalogEntry
from measurement_kernels.groups import GroupShape
from measurement_kernels.variants.builders import (
    CONVOLUTION,
    DG_DIFFERENTIATION,
    MATMUL,
    NODES,
    STENCIL,
    TAPS,
    TRANSPOSE,
    Inputs,
    Rounded,
    covered,
)

MAX_GROUP_SIZE = 256
"""Largest number of work items per group."""

MAX_LOCAL_BYTES = 32 * 1024
"""Largest local memory of a group, byte."""

_ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSet:
    """Points of a space that are measured, and their sizes."""

    space: SearchSpace  # the space from which the variants are chosen
    count: int  # number of variants
    # parameters that hold the items of a group along the slower and the faster axis
    axes: tuple[str, str]
    lanes: str  # value of the parameter ``lanes`` for which the second of `axes` is local axis 0
    local_elements: Callable[[Choice], int]  # returns the elements in local memory for a choice
    sizes: Mapping[str, int]  # sizes of all variants, with their multiples
    exponents: range  # values of p that make sense on some device
    exponent_steps: tuple[int, ...] = (0,)  # sizes are those of ``p + step``

    @property
    def family(self) -> str:
        """Name of the set in measurements."""
        return VARIANTS_PREFIX + self.space.name

    def group_shape(self, choice: Choice) -> GroupShape:
        """Return the work items per group along local axes 0 and 1."""
        slow, fast = (int(choice[name]) for name in self.axes)
        return (fast, slow) if choice["lanes"] == self.lanes else (slow, fast)

    def choices(self) -> tuple[Choice, ...]:
        """Choose the variants by the module's rule."""
        return spread([c for c in self.space.choices() if self._runs_anywhere(c)], self.count)

    def entries(self) -> tuple[CatalogEntry, ...]:
        """Return the kernels in the order in which they were chosen."""
        return tuple(map(self._entry, self.choices()))

    def _runs_anywhere(self, choice: Choice) -> bool:
        return (
            math.prod(self.group_shape(choice)) <= MAX_GROUP_SIZE
            and _ELEMENT_BYTES * self.local_elements(choice) <= MAX_LOCAL_BYTES
        )

    def _entry(self, choice: Choice) -> CatalogEntry:
        space = self.space
        assert isinstance(space.make_arguments, Inputs)
        assert isinstance(space.reference, Rounded)
        assert space.check_sizes is not None
        return CatalogEntry(
            family=self.family,
            variant=space.label(choice),
            group_shape=self.group_shape(choice),
            purpose="variant",
            exponents=self.exponents,
            exponent_steps=self.exponent_steps,
            sizes=tuple(SizeParameter(name, size) for name, size in self.sizes.items()),
            arguments=space.make_arguments.arguments,
            check_parameters=space.check_sizes(choice),
            builder=cache(partial(space.build, **choice)),
            expected=space.reference.expected,
        )


def spread(candidates: Sequence[Choice], count: int) -> tuple[Choice, ...]:
    """Choose candidates that have little in common, the first of them first."""
    if not candidates:
        return ()
    levels: dict[str, dict[object, int]] = {name: {} for name in candidates[0]}
    rows = [
        [known.setdefault(c[name], len(known)) for name, known in levels.items()]
        for c in candidates
    ]
    singles = list(np.asarray(rows, np.int64).T)
    numbers = [len(known) for known in levels.values()]
    pairs = list(itertools.combinations(range(len(numbers)), 2))
    columns = [*singles, *(singles[i] * numbers[j] + singles[j] for i, j in pairs)]
    weights = [*numbers, *(numbers[i] * numbers[j] for i, j in pairs)]
    in_common = np.zeros(len(candidates), np.int64)
    chosen: list[int] = []
    for _ in range(min(count, len(candidates))):
        in_common[chosen[-1:]] = np.iinfo(np.int64).max // 2
        found = int(np.argmin(in_common))
        chosen.append(found)
        for values, weight in zip(columns, weights, strict=True):
            in_common += weight * (values == values[found])
    return tuple(candidates[number] for number in chosen)


# --- elements in local memory


def _matmul_elements(choice: Choice) -> int:
    fetch = str(choice["fetch"])
    rows, columns = covered(choice, "items_i rows"), covered(choice, "items_j columns")
    return int(choice["step"]) * (("a" in fetch) * rows + ("b" in fetch) * columns)


def _stencil_elements(choice: Choice) -> int:
    rows, columns = covered(choice, "items_i rows"), covered(choice, "items_j columns")
    return (rows + 2) * (columns + 2) if choice["tile"] else 0


def _transpose_elements(choice: Choice) -> int:
    return covered(choice, "items_i rows items_j columns") if choice["tile"] else 0


def _dg_elements(choice: Choice) -> int:
    fetch = str(choice["fetch"])
    elements, rows = covered(choice, "items_e each"), int(choice["items_i"])
    return NODES * (("d" in fetch) * rows + ("u" in fetch) * elements)


def _convolution_elements(choice: Choice) -> int:
    fetch, halo = str(choice["fetch"]), TAPS - 1
    x, y = covered(choice, "items_x rows"), covered(choice, "items_y columns")
    return ("f" in fetch) * TAPS**2 + ("m" in fetch) * (x + halo) * (y + halo)


@cache
def variant_sets() -> Mapping[str, VariantSet]:
    """Return the sets by family."""
    sets = (
        VariantSet(
            space=MATMUL,
            count=40,
            axes=("items_i", "items_j"),
            lanes="j",
            local_elements=_matmul_elements,
            sizes={"n": 64, "m": 32, "l": 128},
            exponents=range(7, 13),
            exponent_steps=(0, 1),
        ),
        VariantSet(
            space=STENCIL,
            count=24,
            axes=("items_i", "items_j"),
            lanes="j",
            local_elements=_stencil_elements,
            sizes={"n": 256},
            exponents=range(9, 14),
            exponent_steps=(0, 1),
        ),
        VariantSet(
            space=DG_DIFFERENTIATION,
            count=16,
            axes=("items_e", "items_i"),
            lanes="nodes",
            local_elements=_dg_elements,
            sizes={"elements": 256},
            exponents=range(12, 21),
        ),
        VariantSet(
            space=TRANSPOSE,
            count=12,
            axes=("items_i", "items_j"),
            lanes="j",
            local_elements=_transpose_elements,
            sizes={"n": 128, "m": 128},
            exponents=range(9, 15),
        ),
        VariantSet(
            space=CONVOLUTION,
            count=12,
            axes=("items_x", "items_y"),
            lanes="y",
            local_elements=_convolution_elements,
            sizes={"n": 128},
            exponents=range(7, 14),
        ),
    )
    return {each.family: each for each in sets}


@cache
def variant_entries(family: str) -> tuple[CatalogEntry, ...]:
    """Return the kernels of a set, in the order in which they were chosen."""
    known = variant_sets()
    if family not in known:
        raise KernelSpecificationError(
            f"no set of variants is called {family!r}; there are {', '.join(known)}"
        )
    return known[family].entries()
