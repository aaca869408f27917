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
from countperf.fitting.nonlinear import minimise, no_finite_value
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

_NO_EFFECT = 1e-6
"""Largest relative change of a predicted time, on removing a weight, that counts as none."""

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
    variables: Mapping[str, Vector]  # counted names of the expression


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate(ShortRepr):
    """A model fitted to cases."""

    design: Design  # the cases
    # what they can tell apart, about the solution where the model is not linear
    diagnosis: Diagnosis
    solution: Solution  # weights, then parameters
    predicted_s: Vector  # times that the fit gives its own cases, s
    # weights and parameters that change no predicted time: whatever they multiply is hidden or zero
    unseen: tuple[str, ...] = ()
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
        for name, numbers in cases.variables.items():
            if not np.any(self.design.variables[name]):
                known &= numbers == 0
        unknowns = self.solution.coefficients
        gradient = function.gradient(values, cases.variables, unknowns)
        by_key = dict(zip(function.keys, gradient, strict=True))
        for place in np.flatnonzero(known) if self.diagnosis.groups else ():
            changes = {key: float(row[place]) for key, row in by_key.items()}
            known[place] = not broken_groups(self.diagnosis.groups, changes)
        times_s = function.times(values, cases.variables, unknowns).copy()
        return AtCases(
            times_s=times_s,
            is_known=known,
            values=values,
            gradient=gradient,
            variables=cases.variables,
        )

    def shares(self) -> Matrix:
        """Return which share of the time each unknown takes, shape (n_unknowns, n_cases)."""
        unknowns = self.solution.coefficients
        gradient = self.function.gradient(self.design.counts.T, self.design.variables, unknowns)
        return time_shares(self.function, gradient, unknowns.tolist())

    def difficulty(self, cases: AtCases, support: Support | Region) -> Vector:
        """Return how hard cases are that were not in the fit."""
        largest = {n: float(v.max()) for n, v in self.design.variables.items() if np.any(v)}
        hard = difficulty(
            support,
            time_shares(self.function, cases.gradient, self.solution.coefficients.tolist()),
            cases.values,
            relative_standard_error(cases.times_s, cases.gradient, self.solution.covariance),
            overshoot(cases.variables, largest),
        )
        return np.broadcast_to(np.asarray(hard, np.float64), cases.times_s.shape)

    def support(self, families: Sequence[str]) -> Support:
        """Return where the fit has measured; `families` are those of its cases."""
        return support_of(self.shares(), self.design.counts.max(axis=0), families)

    def _at(
        self, case: Observation, inputs: ModelInputs | None = None
    ) -> tuple[float, Vector, Vector, dict[str, Quantity]] | None:
        """Return time, feature values, derivatives and names of the expression for a case."""
        inputs = inputs or model_inputs(self.function.model, case.counts)
        known = not inputs.unknown and set(inputs.values) <= set(self.function.columns)
        idle = [
            n for n, v in inputs.variables.items() if v and not np.any(self.design.variables[n])
        ]
        if not known or idle:
            return None
        values = np.array([inputs.values.get(c, 0.0) for c in self.function.columns], np.float64)
        unknowns = self.solution.coefficients
        gradient = self.function.gradient(values, inputs.variables, unknowns)
        if broken_groups(
            self.diagnosis.groups, dict(zip(self.function.keys, gradient.tolist(), strict=True))
        ):
            return None
        time_s = float(self.function.times(values, inputs.variables, unknowns))
        return time_s, values, gradient, inputs.variables


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
    if not function.columns and not function.parameters:
        raise FitError("no measured kernel has a property that the model charges")
    if function.is_linear and recipe.residual == "relative" and recipe.loss == "linear":
        return _linear(design, recipe.model_error)
    problem = Problem(design, recipe)
    found = minimise(problem, None if near is None else _unknowns_of(near, function))
    unknowns = _shared(problem, found.solution.coefficients)
    gradient = problem.relative_gradient(unknowns)
    effect = np.abs(gradient).max(axis=0) * np.maximum(np.abs(unknowns), 1.0 / problem.scale)
    seen = effect > _NO_EFFECT
    keys = np.array(function.keys)
    if not np.any(seen):
        raise FitError("the model does not depend on anything that is fitted")
    kept = seen | (np.arange(seen.size) >= len(function.columns))
    reduced = _reduced(design, kept)
    solution = _solution_of(replace(found.solution, coefficients=unknowns), kept)
    return Estimate(
        design=reduced,
        diagnosis=diagnose_columns(tuple(keys[seen].tolist()), gradient[:, seen]),
        solution=solution,
        predicted_s=reduced.function.times(
            reduced.counts.T, reduced.variables, solution.coefficients
        ).copy(),
        unseen=tuple(keys[~seen].tolist()),
        converged=found.converged,
        message=found.message,
    )


def _unknowns_of(near: Estimate, function: ModelFunction) -> Vector:
    """Return what a fit found, for a function of the same model; zero where it found nothing."""
    columns, found = near.function.columns, near.solution.coefficients.tolist()
    weights = dict(zip(columns, found[: len(columns)], strict=True))
    parameters = found[len(columns) :]
    return np.array([*(weights.get(column, 0.0) for column in function.columns), *parameters])


def _shared(problem: Problem, unknowns: Vector) -> Vector:
    """Share the cost of weights that nothing tells apart in proportion, as the linear fit does.

    That is the solution of smallest norm in scaled columns, within the bounds. It is taken if no
    time changes.
    """
    gradient = problem.relative_gradient(unknowns)
    norms = np.linalg.norm(gradient, axis=0)
    places = np.flatnonzero((norms > 0) & ~problem.function.shapes)
    if places.size == 0:
        return unknowns
    scaled = gradient[:, places] / norms[places]
    values, right = right_singular_vectors(scaled)
    null = right[int(np.count_nonzero(values > RANK_TOLERANCE * values[0])) :]
    shared = unknowns.copy()
    inside = shared[places] * norms[places]
    concerned = np.any(np.abs(null) > _NOT_SHARED, axis=0)  # others keep their exact bounds
    spread = (inside - null.T @ (null @ inside)) / norms[places]
    shared[places] = np.where(concerned, spread, shared[places])
    design, function = problem.design, problem.function
    shared = np.clip(shared, function.lower, function.upper)
    arguments = design.counts.T, design.variables
    before, after = (function.times(*arguments, each) for each in (unknowns, shared))
    unchanged = np.all(np.abs(after - before) <= _SAME_TIME * np.abs(before))
    return shared if unchanged else unknowns


def _reduced(design: Design, kept: NDArray[np.bool_]) -> Design:
    """Return a design without the columns of weights that have no effect."""
    places = [i for i in range(len(design.function.columns)) if kept[i]]
    function = ModelFunction(
        model=design.function.model, columns=tuple(design.function.columns[i] for i in places)
    )
    return replace(
        design,
        function=function,
        names=function.keys[: len(places)],
        counts=design.counts[:, places],
    )


def _solution_of(solution: Solution, kept: NDArray[np.bool_]) -> Solution:
    covariance = solution.covariance
    return replace(
        solution,
        coefficients=solution.coefficients[kept],
        covariance=None if covariance is None else covariance[np.ix_(kept, kept)],
        at_bound=solution.at_bound[kept],
    )


def _where(name: str) -> str:
    """Say where properties are counted that kernels as they are measured do not have."""
    if name.startswith("flop.fma."):
        return (
            " (fused operations are counted in the compiled view; under an execution policy they"
            f" are issue.vector.arithmetic.{name.rpartition('.')[2]}.fma, and issue.scalar..."
            " likewise)"
        )
    return ""


def _linear(design: Design, model_error: float | None) -> Estimate:
    function = design.function
    zero = np.zeros(len(function.keys))
    matrix = (function.gradient(design.counts.T, design.variables, zero) / design.times_s).T
    offset = function.times(design.counts.T, design.variables, zero) / design.times_s
    if not (np.all(np.isfinite(matrix)) and np.all(np.isfinite(offset))):
        raise no_finite_value(function.model.expression)
    if dead := [k for k, c in zip(function.keys, matrix.T, strict=True) if not np.any(c)]:
        absent = "".join(f"; no case has {name}{_where(name)}" for name in design.unexercised)
        raise FitError(
            f"no measured case depends on {', '.join(dead)}: nothing determines it{absent}; measure"
            " kernels that have what it multiplies, or leave it out of the expression"
        )
    rows = row_weights(design, model_error)
    solution = least_squares(
        matrix * rows[:, np.newaxis],
        rows * (1.0 - offset),
        lower=function.lower,
        upper=function.upper,
    )
    return Estimate(
        design=design,
        diagnosis=diagnose_columns(function.keys, matrix),
        solution=solution,
        predicted_s=function.times(design.counts.T, design.variables, solution.coefficients).copy(),
    )
