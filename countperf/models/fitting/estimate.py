"""The weights that fit a design best."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from countperf.errors import FitError
from countperf.models.definition import ModelDefinition
from countperf.models.fitting.design import (
    Design,
    Diagnosis,
    diagnose,
    row_weights,
)
from countperf.models.fitting.solve import LogPrior, Problem, Recipe, Solution, Vector, solve
from countperf.models.function import ModelFunction
from countperf.models.validity import broken_groups
from countperf.text import ShortRepr

_SAME_TIME = 1e-8
_NOT_SHARED = 1e-9
"""Entries of the null space, of norm one, that are but rounding."""

NORMAL_MEDIAN = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""

LEAST_MODEL_ERROR = 0.01
"""No model is taken to be better than one percent."""

_FEW_STARTS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate(ShortRepr):
    """A model fitted to cases."""

    design: Design  # the cases
    diagnosis: Diagnosis  # what they can tell apart
    solution: Solution  # the weights
    predicted_s: Vector  # times that the fit gives its own cases, s

    @property
    def function(self) -> ModelFunction:
        """The model over the columns of the design."""
        return self.design.function

    @property
    def relative_errors(self) -> Vector:
        """``|predicted - measured| / measured`` of each case."""
        return np.abs(1.0 - self.predicted_s / self.design.times_s)

    def at_cases(self, cases: Design) -> Vector:
        """Predict cases that were not in the fit, s; NaN where the fit does not determine it."""
        function = self.function
        positions = {column: position for position, column in enumerate(function.columns)}
        values = np.zeros((len(positions), len(cases.times_s)))
        known = ~cases.has_unknown
        for column, numbers in zip(cases.function.columns, cases.counts.T, strict=True):
            if column in positions:
                values[positions[column]] = numbers
            else:
                known &= numbers == 0
        scaled = function.scaled(values, cases.scales)
        by_key = dict(zip(function.keys, scaled, strict=True))
        for position in np.flatnonzero(known) if self.diagnosis.groups else ():
            changes = {key: float(row[position]) for key, row in by_key.items()}
            known[position] = not broken_groups(self.diagnosis.groups, changes)
        return np.where(known, self.solution.coefficients @ scaled, np.nan)


def weigh_by_noise(design: Design, recipe: Recipe) -> Recipe:
    """Return a recipe by which noisy cases count for less.

    The model's own errors are taken from a fit in which all cases count the same: the median of
    their sizes over that of a standard normal distribution. That is one step of re-weighting.
    Without noise the recipe stays as it is.
    """
    if not np.any(design.noise > 0):
        return recipe
    starts = min(recipe.starts, _FEW_STARTS)
    first = estimate_design(design, replace(recipe, starts=starts))
    typical = float(np.median(first.relative_errors)) / NORMAL_MEDIAN
    return replace(recipe, model_error=max(typical, LEAST_MODEL_ERROR))


def recipe_of(model: ModelDefinition) -> Recipe:
    """Return how a model asks to be fitted."""
    return Recipe(residual=model.residual, loss=model.loss, loss_scale=model.loss_scale)


def estimate_design(
    design: Design,
    recipe: Recipe,
    *,
    near: Estimate | None = None,
    prior: LogPrior | None = None,
) -> Estimate:
    """Fit the model of a design to its cases; the result may not have converged: ask it."""
    function = design.function
    if not function.columns:
        raise FitError("no measured kernel has a property that the model charges")
    problem = problem_of(design, recipe, prior)
    solution = solve(problem, None if near is None else _weights_of(near, function))
    if prior is not None:
        diagnosis = Diagnosis(rank=solution.rank, groups=())
    else:
        diagnosis = diagnose(design)
        solution = replace(
            solution, coefficients=_share_cost(problem, diagnosis, solution.coefficients)
        )
    return Estimate(
        design=design,
        diagnosis=diagnosis,
        solution=solution,
        predicted_s=design.scaled @ solution.coefficients,
    )


def problem_of(design: Design, recipe: Recipe, prior: LogPrior | None = None) -> Problem:
    """Return what a fit of a design makes small."""
    return Problem(
        design.relative,
        recipe,
        row_weights=row_weights(design, recipe.model_error),
        lower=design.function.lower,
        prior=prior,
    )


def _weights_of(near: Estimate, function: ModelFunction) -> Vector:
    """Return what a fit found, for a function of the same model; zero where it found nothing."""
    coefficients = near.solution.coefficients.tolist()
    weights = dict(zip(near.function.columns, coefficients, strict=True))
    return np.array([weights.get(column, 0.0) for column in function.columns])


def _share_cost(problem: Problem, diagnosis: Diagnosis, weights: Vector) -> Vector:
    """Share the cost of weights that nothing tells apart in proportion, as the linear fit does.

    That is the solution of smallest norm in scaled columns, within the bounds. It is taken if no
    time changes.
    """
    null, norms = diagnosis.null_space, diagnosis.scale
    if null is None or norms is None or not diagnosis.groups:
        return weights
    inside = weights * norms
    concerned = np.any(np.abs(null) > _NOT_SHARED, axis=0)  # others keep their exact bounds
    spread = (inside - null.T @ (null @ inside)) / norms
    shared = np.maximum(np.where(concerned, spread, weights), problem.low / problem.scale)
    before, after = (problem.relative @ candidate for candidate in (weights, shared))
    unchanged = np.all(np.abs(after - before) <= _SAME_TIME * np.abs(before))
    return shared if unchanged else weights


on_one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""Decorator of functions during whose calls BLAS uses one thread.

Fits solve many small systems, which threads of OpenBLAS share out among all cores: they wait for
each other longer than they compute.
"""
