"""The weights and parameters that fit a design best, by the solver that suits the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import FitError
from countperf.features import FeatureSpec
from countperf.fitting.design import (
    Design,
    Diagnosis,
    Observation,
    build_design,
    diagnose_columns,
    row_weights,
)
from countperf.fitting.nonlinear import minimise
from countperf.fitting.problem import Problem, Recipe
from countperf.fitting.solve import (
    RANK_TOLERANCE,
    Matrix,
    Solution,
    Vector,
    least_squares,
    right_singular_vectors,
)
from countperf.models.conformal import (
    Region,
    difficulty,
    overshoot,
    relative_standard_error,
    support_of,
    time_shares,
)
from countperf.models.definition import ModelDefinition
from countperf.models.function import ModelFunction, ModelInputs, model_inputs
from countperf.models.records import Support
from countperf.models.validity import broken_groups
from countperf.predictions import Quantity

_SAME_TIME = 1e-8
_NOT_SHARED = 1e-9
"""Entries of the null space, of norm one, that are but rounding."""

NORMAL_MEDIAN = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""

LEAST_MODEL_ERROR = 0.01
"""No model is taken to be better than one percent."""

_FEW_STARTS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AtCases(ShortRepr):
    """Cases that were not in a fit, as it sees them."""

    times_s: Vector  # predicted times, s
    is_known: NDArray[np.bool_]  # whether the fit determines them
    values: Matrix  # features, and derivatives of the times
    gradient: Matrix
    scales: Mapping[str, Vector]  # of terms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate(ShortRepr):
    """A model fitted to cases."""

    design: Design  # the cases
    diagnosis: Diagnosis  # what they can tell apart
    solution: Solution  # the weights
    predicted_s: Vector  # times that the fit gives its own cases, s
    converged: bool = True  # whether the solver met its tolerances
    message: str = ""  # what it says

    @property
    def function(self) -> ModelFunction:
        """The model over the columns of the design."""
        return self.design.function

    @property
    def relative_errors(self) -> Vector:
        """``|predicted - measured| / measured`` of each case."""
        return np.abs(1.0 - self.predicted_s / self.design.times_s)

    def predict(self, case: Observation, inputs: ModelInputs | None = None) -> float | None:
        """Predict a case that was not in the fit; None if the fit does not determine it.

        What the model makes of its counts may be passed, to save the time.
        """
        found = self._at(case, inputs)
        return None if found is None else found[0]

    def at_cases(self, cases: Design) -> AtCases:
        """Return what the fit makes of cases that were not in it."""
        function = self.function
        places = {column: place for place, column in enumerate(function.columns)}
        values = np.zeros((len(places), len(cases.times_s)))
        known = np.ones(len(cases.times_s), np.bool_)
        for column, numbers in zip(cases.function.columns, cases.counts.T, strict=True):
            if column in places:
                values[places[column]] = numbers
            else:
                known &= numbers == 0
        scaled = function.scaled(values, cases.scales)
        by_key = dict(zip(function.keys, scaled, strict=True))
        for place in np.flatnonzero(known) if self.diagnosis.groups else ():
            changes = {key: float(row[place]) for key, row in by_key.items()}
            known[place] = not broken_groups(self.diagnosis.groups, changes)
        return AtCases(
            times_s=self.solution.coefficients @ scaled,
            is_known=known,
            values=values,
            gradient=scaled,
            scales=cases.scales,
        )

    def shares(self) -> Matrix:
        """Return which share of the time each unknown takes, shape (n_unknowns, n_cases)."""
        return time_shares(self.design.scaled.T, self.solution.coefficients.tolist())

    def difficulty(self, cases: AtCases, support: Support | Region) -> Vector:
        """Return how hard cases are that were not in the fit."""
        largest = {n: float(v.max()) for n, v in self.design.scales.items() if np.any(v)}
        hard = difficulty(
            support,
            time_shares(cases.gradient, self.solution.coefficients.tolist()),
            cases.values,
            relative_standard_error(cases.times_s, cases.gradient, self.solution.covariance),
            overshoot(cases.scales, largest),
        )
        return np.broadcast_to(np.asarray(hard, np.float64), cases.times_s.shape)

    def support(self, families: Sequence[str]) -> Support:
        """Return where the fit has measured; `families` are those of its cases."""
        return support_of(self.shares(), self.design.counts.max(axis=0), families)

    def _at(
        self, case: Observation, inputs: ModelInputs | None = None
    ) -> tuple[float, Vector, Vector, dict[str, Quantity]] | None:
        """Return time, feature values, derivatives and scales for a case."""
        inputs = inputs or model_inputs(self.function.model, case.counts)
        if inputs.unknown or not set(inputs.values) <= set(self.function.columns):
            return None
        values = np.array([inputs.values.get(c, 0.0) for c in self.function.columns], np.float64)
        scaled = self.function.scaled(values, inputs.variables)
        changes = dict(zip(self.function.keys, scaled.tolist(), strict=True))
        if broken_groups(self.diagnosis.groups, changes):
            return None
        time_s = float(self.solution.coefficients @ scaled)
        return time_s, values, scaled, inputs.variables


def weighted_by_noise(
    observations: Sequence[Observation],
    model: ModelDefinition | FeatureSpec,
    recipe: Recipe,
    *,
    inputs: Mapping[int, ModelInputs] | None = None,
) -> Recipe:
    """Return a recipe by which noisy cases count for less.

    The model's own errors are taken from a fit in which all cases count the same: the median of
    their sizes over that of a standard normal distribution. That is one step of re-weighting.
    Without noise the recipe stays as it is.
    """
    if not any(case.noise > 0 for case in observations):
        return recipe
    starts = min(recipe.starts, _FEW_STARTS)
    first = estimate(observations, model, replace(recipe, starts=starts), inputs=inputs)
    typical = float(np.median(first.relative_errors)) / NORMAL_MEDIAN
    return replace(recipe, model_error=max(typical, LEAST_MODEL_ERROR))


def recipe_of(model: ModelDefinition, **changes: object) -> Recipe:
    """Return how a model asks to be fitted; changes that are None are left out."""
    fields = {"residual": model.residual, "loss": model.loss, "loss_scale": model.loss_scale}
    return Recipe(**(fields | {k: v for k, v in changes.items() if v is not None}))  # pyright: ignore[reportArgumentType] - a recipe checks them


def estimate(
    observations: Sequence[Observation],
    model: ModelDefinition | FeatureSpec,
    recipe: Recipe,
    *,
    inputs: Mapping[int, ModelInputs] | None = None,
    near: Estimate | None = None,
) -> Estimate:
    """Fit a model to cases; the result may not have converged: ask it."""
    return estimate_design(build_design(observations, model, inputs=inputs), recipe, near=near)


def estimate_design(design: Design, recipe: Recipe, *, near: Estimate | None = None) -> Estimate:
    """Fit the model of a design to its cases; arguments and errors as for `estimate`."""
    function = design.function
    if not design.times_s.size:
        raise FitError("there is no measurement to fit; measure the measurement kernels first")
    if not function.columns:
        raise FitError("no measured kernel has a property that the model charges")
    if recipe.residual == "relative" and recipe.loss == "linear":
        rows = row_weights(design, recipe.model_error)
        solution = least_squares(
            design.relative * rows[:, np.newaxis], rows, lower=function.lower, upper=function.upper
        )
        return _estimated(design, solution)
    problem = Problem(design, recipe)
    found = minimise(problem, None if near is None else _weights_of(near, function))
    weights = _shared(problem, found.solution.coefficients)
    solution = replace(found.solution, coefficients=weights)
    return _estimated(design, solution, converged=found.converged, message=found.message)


def _estimated(
    design: Design, solution: Solution, *, converged: bool = True, message: str = ""
) -> Estimate:
    return Estimate(
        design=design,
        diagnosis=diagnose_columns(design.names, design.relative),
        solution=solution,
        predicted_s=design.scaled @ solution.coefficients,
        converged=converged,
        message=message,
    )


def _weights_of(near: Estimate, function: ModelFunction) -> Vector:
    """Return what a fit found, for a function of the same model; zero where it found nothing."""
    found = near.solution.coefficients.tolist()
    weights = dict(zip(near.function.columns, found, strict=True))
    return np.array([weights.get(column, 0.0) for column in function.columns])


def _shared(problem: Problem, weights: Vector) -> Vector:
    """Share the cost of weights that nothing tells apart in proportion, as the linear fit does.

    That is the solution of smallest norm in scaled columns, within the bounds. It is taken if no
    time changes.
    """
    norms = np.linalg.norm(problem.relative, axis=0)
    values, right = right_singular_vectors(problem.relative / norms)
    null = right[int(np.count_nonzero(values > RANK_TOLERANCE * values[0])) :]
    inside = weights * norms
    concerned = np.any(np.abs(null) > _NOT_SHARED, axis=0)  # others keep their exact bounds
    spread = (inside - null.T @ (null @ inside)) / norms
    low, high = problem.low / problem.scale, problem.high / problem.scale
    shared = np.clip(np.where(concerned, spread, weights), low, high)
    before, after = (problem.relative @ each for each in (weights, shared))
    unchanged = np.all(np.abs(after - before) <= _SAME_TIME * np.abs(before))
    return shared if unchanged else weights
