"""Fits without some families of kernels, and their predictions of these families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from countperf.errors import FitError, FitNotConvergedError
from countperf.fitting.design import Design, Observation, build_design
from countperf.fitting.estimate import Estimate, estimate_design
from countperf.fitting.problem import Recipe
from countperf.fitting.threads import on_one_thread
from countperf.models.conformal import region_of, representatives
from countperf.models.function import ModelInputs
from countperf.steps import stepped

Group = tuple[str, ...]
"""Families that are left out together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeavingOut:
    """Cases of a fit, ready for fits without some of their families."""

    design: Design  # all cases
    has_unknown: NDArray[np.bool_]  # cases with a property that the model has no rule for
    families: tuple[str, ...]  # the families, each once
    family: NDArray[np.intp]  # position of the family of each case among them
    near: Estimate  # the fit of all cases, near which the others are looked for
    recipe: Recipe  # how they are fitted
    # cases that stand for those like them where the difficulty of cases is wanted
    kept: NDArray[np.bool_] | None

    @classmethod
    def of(
        cls,
        observations: Sequence[Observation],
        inputs: Mapping[int, ModelInputs],
        near: Estimate,
        recipe: Recipe,
        *,
        with_difficulty: bool,
    ) -> Self:
        """Prepare the cases of a fit; arguments as the attributes."""
        labels = [case.family for case in observations]
        families = tuple(dict.fromkeys(labels))
        return cls(
            design=build_design(observations, near.function.model, inputs=inputs),
            has_unknown=np.array([bool(inputs[id(case)].unknown) for case in observations]),
            families=families,
            family=np.array([families.index(label) for label in labels], np.intp),
            near=near,
            recipe=recipe,
            kept=representatives(near.shares(), labels) if with_difficulty else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """Families predicted by a fit of the others."""

    times_s: NDArray[np.float64]  # predicted times, s, and how hard the fit says that each case is
    difficulty: NDArray[np.float64]
    outside: NDArray[np.bool_]  # the cases of the fit
    predicted_s: NDArray[np.float64]  # times that the fit gives its own cases, s

    def of_case(self, place: int) -> tuple[float | None, float | None]:
        """Return time and difficulty of a case, None where they are not known."""
        time_s, hard = float(self.times_s[place]), float(self.difficulty[place])
        return None if np.isnan(time_s) else time_s, None if np.isnan(hard) else hard


@on_one_thread
def leave_out(prepared: LeavingOut, groups: Sequence[Group]) -> dict[Group, LeftOut | str]:
    """Predict groups of families, each without itself; or say why a fit did not converge."""
    found: dict[Group, LeftOut | str] = {}
    for group in stepped(groups, "leaving out families"):
        try:
            found[group] = _predict(prepared, group)
        except FitNotConvergedError as error:
            found[group] = str(error)
            break
    return found


def _predict(prepared: LeavingOut, group: Group) -> LeftOut:
    numbers = [prepared.families.index(family) for family in group]
    inside = np.isin(prepared.family, numbers)
    nothing = np.full(int(inside.sum()), np.nan)
    try:
        fitted = estimate_design(
            prepared.design.of_cases(~inside), prepared.recipe, near=prepared.near
        )
    except FitNotConvergedError:
        raise
    except FitError:  # nothing is left to fit
        return LeftOut(
            times_s=nothing, difficulty=nothing, outside=~inside, predicted_s=np.empty(0)
        )
    if not fitted.converged:
        raise FitNotConvergedError(f"the solver stopped early: {fitted.message}")
    cases = fitted.at_cases(prepared.design.of_cases(inside))
    is_known = cases.is_known & ~prepared.has_unknown[inside]
    hard = nothing
    if prepared.kept is not None:
        region = region_of(
            fitted.shares(),
            fitted.design.counts.max(axis=0, initial=0.0),
            prepared.family[~inside],
            prepared.kept[~inside],
        )
        hard = np.where(is_known, fitted.difficulty(cases, region), np.nan)
    return LeftOut(
        times_s=np.where(is_known, cases.times_s, np.nan),
        difficulty=hard,
        outside=~inside,
        predicted_s=fitted.predicted_s,
    )
