"""Choosing a model by how well it predicts families of measurement kernels that were left out.

Only measurement kernels are looked at, never test kernels. Families are left out an eighth of them
at a time; the figure is that of `countperf.fitting.leaving_out`. A case that a candidate cannot
predict counts as a factor of 2, and an error of 100 %, where another candidate predicts it, so that
a model does not win by knowing less. Factors count up to 10. Kernels that only launch do not count.

Where candidates can be refined, as models of an execution policy can, details of the best one are
changed one at a time, until no change makes it better by more than chance does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from countperf.errors import FitError
from countperf.fitting.design import Observation, build_design
from countperf.fitting.estimate import Estimate, estimate_design, recipe_of, weighted_by_noise
from countperf.fitting.leaving_out import (
    SMALLEST_ERROR,
    HeldOutCase,
    HeldOutFigure,
    held_out_figure,
    leave_families_out,
)
from countperf.metrics import mean_error
from countperf.models.definition import ModelDefinition
from countperf.models.records import Candidate
from countperf.steps import stepped

REFINEMENT = 0.002
"""Decrease of the logarithm of the factor that a change of details has to bring: policies
that differ in what few kernels have are closer than that."""

PARTS = 8
"""Families are left out in so many parts, which takes a seventh of the time of one at a time."""

_STARTS = 3
_TOLERANCE = 1e-6
"""Tolerance of fits that are only compared."""


def select_model(
    observations: Sequence[Observation],
    models: Mapping[str, ModelDefinition],
    *,
    refine: Callable[[ModelDefinition], Sequence[ModelDefinition]] | None = None,
    weigh_noise: bool = True,
    executor: Executor | None = None,
) -> tuple[ModelDefinition, tuple[Candidate, ...]]:
    """Choose among models by leaving out families."""
    trials: dict[str, _Trial] = {}
    ahead = dict(models)
    reached = np.inf
    while True:
        for name, model in stepped(ahead.items(), "trying models"):
            trials[name] = _try(observations, model, weigh_noise, executor)
        left_out = {name: trial.left_out for name, trial in trials.items() if not trial.failure}
        failures = {name: trial.failure for name, trial in trials.items() if trial.failure}
        figures = _figures(left_out, failures)
        ranked = sorted(figures, key=lambda name: figures[name].factor)
        best = float(np.log(figures[ranked[0]].factor))
        if refine is None or best > reached - REFINEMENT:
            break
        reached = best
        known = [trial.model for trial in trials.values()]
        more = [model for model in refine(trials[ranked[0]].model) if model not in known]
        ahead = numbered(more, after=len(trials))
        if not ahead:
            break
    candidates = [
        candidate_of(
            name,
            trials[name].model,
            left_out[name],
            trials[name].fitted,
            figures[name],
            chosen=name == ranked[0],
        )
        for name in ranked
    ]
    candidates += [
        Candidate(
            model=name,
            description=trials[name].model.description,
            held_out_error=None,
            in_sample_error=None,
            predicted_cases=0,
            cases=len(observations),
            failure=failure,
        )
        for name, failure in failures.items()
    ]
    return trials[ranked[0]].model, tuple(candidates)


def candidate_of(
    name: str,
    model: ModelDefinition,
    held_out: Sequence[HeldOutCase],
    fitted: Estimate | None,
    figure: HeldOutFigure,
    *,
    chosen: bool,
) -> Candidate:
    """Return what a document says of a model that was tried."""
    errors = None if fitted is None else fitted.relative_errors
    return Candidate(
        model=name,
        description=model.description,
        held_out_error=figure.error,
        held_out_factor=figure.factor,
        in_sample_error=None if errors is None else mean_error(errors, floor=SMALLEST_ERROR).value,
        predicted_cases=sum(case.predicted_s is not None for case in held_out),
        cases=len(held_out),
        chosen=chosen,
    )


def numbered(models: Iterable[ModelDefinition], *, after: int = 0) -> dict[str, ModelDefinition]:
    """Return models by names that tell them apart in a list of candidates: ``structural-1``."""
    return {f"{model.name}-{number}": model for number, model in enumerate(models, start=after + 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """A model that was tried: families left out and the error of the fit, or why it failed."""

    model: ModelDefinition
    left_out: tuple[HeldOutCase, ...] = ()
    fitted: Estimate | None = None
    failure: str = ""


def _try(
    observations: Sequence[Observation],
    model: ModelDefinition,
    weigh_noise: bool,
    executor: Executor | None,
) -> _Trial:
    """Fit a model to all cases, and without some of the families each."""
    try:
        recipe = recipe_of(model, starts=_STARTS, tolerance=_TOLERANCE)
        design = build_design(observations, model)
        if weigh_noise:
            recipe = weighted_by_noise(design, recipe)
        fitted = estimate_design(design, recipe)
        if not fitted.converged:
            return _Trial(model=model, failure=f"the solver stopped early: {fitted.message}")
        left_out = leave_families_out(observations, fitted, recipe, parts=PARTS, executor=executor)
    except FitError as error:
        return _Trial(model=model, failure=str(error))
    return _Trial(model=model, left_out=left_out, fitted=fitted)


def _figures(
    left_out: Mapping[str, Sequence[HeldOutCase]], failures: Mapping[str, str]
) -> dict[str, HeldOutFigure]:
    """Return the figures of each candidate over left-out families."""
    predictable = {
        case.name
        for cases in left_out.values()
        for case in cases
        if case.predicted_s is not None and not case.overhead_only
    }
    if not predictable:
        said = "; ".join(f"{name}: {text}" for name, text in failures.items())
        raise FitError(
            "no model can be chosen: no family of kernels can be predicted from the others"
            + (f" ({said})" if said else "")
            + "; measure more families, or name a model"
        )
    return {
        name: held_out_figure(cases, predictable=predictable) for name, cases in left_out.items()
    }
