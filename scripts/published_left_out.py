"""Predictions of cases that were left out of the fits to published times.

Three parts of a GPU's cases are left out: a kernel (each of the eight in turn, with all its work
groups), a tile width of the tiled product (each in turn), and, among the cases of a fit alone, the
larger sizes, of which the fit's intervals follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Self

import numpy as np
from numpy.typing import NDArray

from countperf.models.definition import ModelDefinition
from countperf.models.fitting import design
from countperf.models.fitting.leaving_out import HeldOutCase, interval_calibration, leave_out
from countperf.models.fitting.solve import Recipe
from countperf.models.weights import WeightSet

TILED = "published-matmul/tiled/"
"""Kernels of which tile widths are left out."""

LARGER = 0.7
"""Sizes of a kernel beyond this quantile are its larger ones."""

_LARGER = " larger"


def geometric_mean(errors: Iterable[float]) -> float:
    """Return the geometric mean of relative errors, each at least 0.1 %."""
    return exp(float(np.mean([log(max(1e-3, error)) for error in errors])))


def kernel_without_group(name: str) -> str:
    """Return the kernel of a catalogue name without the work group and the data type.

    Examples
    --------
    >>> kernel_without_group("published-matmul/tiled/16x16/f32")
    'published-matmul/tiled'
    """
    return name.rsplit("/", 2)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutPart:
    """Cases that were left out together."""

    name: str  # the kernel, or the kernel with its work group
    # each with NaN for a time that the other cases do not determine
    cases: tuple[HeldOutCase, ...]
    # where cases are not predicted: features that no other case has, and weights that the other
    # cases do not tell apart
    without_weight: tuple[str, ...]

    @property
    def error(self) -> float | None:
        """Geometric mean of the relative errors; None unless every case is predicted."""
        errors = [case.relative_error for case in self.cases]
        return None if np.isnan(errors).any() else geometric_mean(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsWithout:
    """Cases of a GPU, ready for fits without some of them."""

    observations: tuple[
        design.Observation, ...
    ]  # the cases; their family is what is left out together
    near: design.Estimate  # the fit of all, near which the others are looked for
    recipe: Recipe  # how they are fitted

    @classmethod
    def of(cls, observations: Iterable[design.Observation], model: ModelDefinition) -> Self:
        """Fit all cases, near which the other fits are looked for."""
        cases = tuple(with_labels(observations))
        recipe = design.recipe_of(model)
        near = design.estimate_design(design.build_design(cases, model), recipe)
        return cls(observations=cases, near=near, recipe=recipe)

    def without(self, name: str, is_left_out: Callable[[design.Observation], bool]) -> LeftOutPart:
        """Predict some cases by a fit of the others."""
        inside = [case for case in self.observations if is_left_out(case)]
        labels = tuple(dict.fromkeys(case.family for case in inside))
        families = [case.family for case in self.observations]
        whole = self.near.design
        found = leave_out(families, whole, self.near, self.recipe, None, [labels])[labels]
        cases = tuple(
            HeldOutCase(
                name=case.name,
                kernel=case.kernel,
                family=name,
                measured_s=case.time_s,
                predicted_s=time_s,
            )
            for case, time_s in zip(inside, found.times_s.tolist(), strict=True)
        )
        missing: tuple[str, ...] = ()
        if any(np.isnan(case.predicted_s) for case in cases):
            missing = self._not_determined(found.outside)
        return LeftOutPart(name=name, cases=cases, without_weight=missing)

    def _not_determined(self, outside: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return what some cases never have, or never apart from each other."""
        cases = self.near.design
        never = [
            name
            for name, values in zip(cases.function.keys, cases.scaled.T, strict=True)
            if not np.any(values[outside])
        ]
        fitted = design.estimate_design(cases.of_cases(outside), self.recipe, near=self.near)
        together = [name for group in fitted.groups for name in group.features]
        return tuple(dict.fromkeys([*never, *together]))

    def kernels(self) -> Iterator[LeftOutPart]:
        """Leave out each kernel in turn, with all its work groups."""
        for name in sorted({kernel_without_group(case.kernel) for case in self.observations}):
            yield self.without(name, lambda c, n=name: kernel_without_group(c.kernel) == n)

    def tile_widths(self) -> Iterator[LeftOutPart]:
        """Leave out each tile width of the tiled product in turn."""
        for name in sorted({c.kernel for c in self.observations if c.kernel.startswith(TILED)}):
            yield self.without(name, lambda case, n=name: case.kernel == n)

    def larger_sizes(self) -> LeftOutPart:
        """Leave out the larger sizes of all kernels."""
        return self.without("larger sizes", lambda case: case.family.endswith(_LARGER))


def with_labels(observations: Iterable[design.Observation]) -> Iterator[design.Observation]:
    """Return cases whose family is their kernel with its group, larger sizes apart.

    A kernel's sizes are told by the distinct bytes that it loads, which grow with them.
    """
    cases = list(observations)
    sizes: dict[str, list[float]] = {}
    for case in cases:
        sizes.setdefault(case.kernel, []).append(float(case.counts["distinct.load"]))
    limits = {kernel: float(np.quantile(each, LARGER)) for kernel, each in sizes.items()}
    for case in cases:
        is_larger = float(case.counts["distinct.load"]) > limits[case.kernel]
        yield replace(case, family=f"{case.kernel}{_LARGER if is_larger else ''}")


def with_calibrated_intervals(
    weights: WeightSet, observations: Sequence[design.Observation]
) -> WeightSet:
    """Return weights whose intervals follow from cases of their own fit that were left out.

    Left out are the larger sizes of all kernels, and each tile width in turn. The conformal
    quantile of their errors is taken over kernels with their groups: the larger sizes of one
    count as much as a tile width (`countperf.models.fitting.leaving_out`).
    """
    fits = FitsWithout.of(observations, weights.definition)
    larger = [replace(c, family=f"{c.kernel}{_LARGER}") for c in fits.larger_sizes().cases]
    widths = [case for part in fits.tile_widths() for case in part.cases]
    if weights.quality is None:
        return weights
    quality = weights.quality.model_copy(
        update={"calibration": interval_calibration([*larger, *widths])}
    )
    return weights.model_copy(update={"quality": quality})
