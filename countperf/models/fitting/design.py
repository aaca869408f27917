r"""The design matrix of a fit, what it can tell apart, and the weights that fit it best.

Row :math:`j` is a measured case, column :math:`i` a feature; each row is divided by its measured
time :math:`T_j`: :math:`\alpha = \arg\min \sum_j ( 1 - \sum_i \alpha_i p_i(n_j) / T_j )^2`
(Stevens & Klöckner, 2016). Beyond the paper, a row counts for :math:`w_j = e / \sqrt{e^2 + n_j^2}`,
with the noise :math:`n_j` of the case and the size :math:`e` of the model's own errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.taxonomy import VIEWS, View
from countperf.counting.vector import caches_of, group_shape
from countperf.errors import FitError
from countperf.measuring import Measurement
from countperf.models import function as functions
from countperf.models.definition import CODE, CountValue, ModelDefinition
from countperf.models.fitting import solve
from countperf.models.fitting.solve import LogPrior, Matrix, Recipe, Solution, Vector
from countperf.models.function import ColumnKey, IndistinguishableGroup, ModelFunction
from countperf.text import ShortRepr

_MOST_INSTRUCTIONS_PER_S = 1e12
"""No processor executes more: what was followed in the code of such a case is not what ran."""

_NULL_TOLERANCE = 1e-7
_NOTHING_CHARGED = "no measured kernel has a property that the model charges"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation(ShortRepr):
    """One measured case as the fit sees it."""

    name: str  # name of the case, of its kernel, and of the kernel's family
    kernel: str
    family: str
    counts: Mapping[str, CountValue]  # property values at the case's parameters
    time_s: float  # measured time, s
    stable: bool = True  # whether its samples agreed well enough
    noise: float = 0.0  # how well its time repeats: standard deviation of its logarithm
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])  # its sizes

    @property
    def has_code(self) -> bool:
        """True if its compiled code was read, and followed to an end that the time allows."""
        executed = self.counts.get(f"{CODE}all", 0)
        is_possible = float(executed) <= _MOST_INSTRUCTIONS_PER_S * self.time_s
        return is_possible and any(name.startswith(CODE) for name in self.counts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Design(ShortRepr):
    """The design matrix."""

    function: ModelFunction  # the model over the columns
    counts: Matrix  # feature values
    times_s: Vector  # measured times, s, and how well they repeat, relative
    noise: Vector
    has_unknown: NDArray[np.bool_]  # cases with a property that the model has no rule for
    scales: dict[str, Vector]  # of terms
    unknown: tuple[str, ...]
    unexercised: tuple[str, ...] = ()  # features that are zero in every case

    @cached_property
    def scaled(self) -> Matrix:
        """Features times the scales of their terms, shape (n_cases, n_columns)."""
        return self.function.scale_values(self.counts, self.scales)

    @cached_property
    def relative(self) -> Matrix:
        """The same over measured times: each row times the weights is predicted over measured."""
        return self.scaled / self.times_s[:, np.newaxis]

    def of_cases(
        self, rows: NDArray[np.bool_] | NDArray[np.intp], *, with_all: bool = False
    ) -> Design:
        """Return the design of some of the cases, without features that none of them has."""
        used = np.any(self.scaled[rows] != 0, axis=0) | with_all
        function = self.function
        if not np.all(used):
            columns = tuple(c for c, one in zip(function.columns, used, strict=True) if one)
            function = ModelFunction(model=function.model, columns=columns)
        return replace(
            self,
            function=function,
            counts=self.counts[rows][:, used],
            times_s=self.times_s[rows],
            noise=self.noise[rows],
            has_unknown=self.has_unknown[rows],
            scales={name: values[rows] for name, values in self.scales.items()},
        )

    def with_columns(self, columns: tuple[ColumnKey, ...]) -> Design:
        """Return the design over given columns; those that it lacks are zero."""
        known = dict(zip(self.function.columns, self.counts.T, strict=True))
        nothing = np.zeros(len(self.times_s))
        counts = np.column_stack([known.get(column, nothing) for column in columns])
        function = ModelFunction(model=self.function.model, columns=columns)
        return replace(self, function=function, counts=counts)


def build_design(observations: Sequence[Observation], definition: ModelDefinition) -> Design:
    """Turn measured cases into a design matrix."""
    if not observations:
        raise FitError("there is no measurement to fit; measure the measurement kernels first")
    number = len(observations)
    inputs = functions.model_inputs(definition, _counts_table(observations, definition))
    specs = definition.term_features.items()
    found = ((term, spec.feature_of(name)) for term, spec in specs for name in inputs.issued)
    present = {(term, feature) for term, feature in found if feature is not None}

    def position(column: ColumnKey) -> tuple[int, int, str]:
        term, feature = column
        rank, _ = definition.term_features[term].position(feature)
        derived = definition.terms[term].charged.count(feature)
        return list(definition.terms).index(term), rank + derived, feature

    ordered = sorted(present | set(inputs.values), key=position)
    columns = tuple(column for column in ordered if column in inputs.values)
    if not columns:
        raise FitError(_NOTHING_CHARGED)
    has_unknown = np.zeros(number, np.bool_)
    for name in inputs.unknown:
        has_unknown |= np.asarray(inputs.issued[name]) != 0
    design = Design(
        function=ModelFunction(model=definition, columns=columns),
        counts=np.column_stack([np.broadcast_to(inputs.values[c], number) for c in columns]),
        times_s=np.array([case.time_s for case in observations]),
        noise=np.array([case.noise for case in observations]),
        has_unknown=has_unknown,
        scales={n: np.array(np.broadcast_to(v, number)) for n, v in inputs.variables.items()},
        unknown=inputs.unknown,
    )
    design = design.of_cases(np.ones(number, np.bool_))
    kept = set(design.function.columns)
    unexercised = dict.fromkeys(column[1] for column in ordered if column not in kept)
    return replace(design, unexercised=tuple(unexercised))


def _counts_table(cases: Sequence[Observation], model: ModelDefinition) -> dict[str, Vector]:
    """Return the counts of all cases as arrays by property, zero where a case has none."""
    table: dict[str, Vector] = {}
    for position, case in enumerate(cases):
        counts = case.counts
        model.check_code(counts, f"case {case.name!r}")
        if not all(name in counts for name in model.named_shape):
            counts = {**group_shape(counts), **counts}
        for name, count in counts.items():
            if name not in table:
                table[name] = np.zeros(len(cases))
            table[name][position] = float(cast("float", count))
    return table


def diagnose(
    design: Design,
) -> tuple[int, tuple[IndistinguishableGroup, ...], tuple[Matrix, Vector]]:
    """Find rank, the features that no solution tells apart, the null space and columns' norms."""
    scale = solve.column_norms(design.relative)
    values, right = solve.right_singular_vectors(design.relative / scale)
    rank = int(np.count_nonzero(values > solve.RANK_TOLERANCE * values[0]))
    null = right[rank:]
    return rank, tuple(_groups(design.function.keys, null, scale)), (null, scale)


def _groups(
    names: tuple[str, ...], null_space: Matrix, scale: Vector
) -> Iterator[IndistinguishableGroup]:
    """Split the null space into its finest direct sum over sets of features."""
    from scipy.sparse.csgraph import connected_components

    projector = null_space.T @ null_space
    linked = np.abs(projector) > _NULL_TOLERANCE
    concerned = np.flatnonzero(np.diag(linked))
    number, blocks = connected_components(linked[np.ix_(concerned, concerned)])
    for block in range(number):
        columns = concerned[blocks == block].tolist()
        relations = _relations(names, projector[np.ix_(columns, columns)], scale, columns)
        own = tuple(names[i] for i in columns)
        yield IndistinguishableGroup(features=own, relations=tuple(sorted(relations, key=list)))


def _relations(
    names: tuple[str, ...], projector: Matrix, scale: Vector, columns: list[int]
) -> Iterator[dict[str, float]]:
    """Write a block of the null space as relations of counts, each with one feature of its own."""
    from scipy.linalg import qr

    independent = round(float(np.trace(projector)))
    order = cast("NDArray[np.intp]", qr(projector, mode="r", pivoting=True)[-1])
    pivots = order[:independent]
    rows = np.linalg.solve(projector[np.ix_(pivots, pivots)], projector[pivots])
    rows[np.abs(rows) < _NULL_TOLERANCE] = 0.0
    for row in rows:
        involved = np.flatnonzero(row)
        by_count = row[involved] / scale[columns][involved]
        by_count /= by_count[np.argmin(np.abs(by_count))]
        # counts are integers: a nearby ratio of small ones is meant
        ratios = np.array([float(Fraction(value).limit_denominator(64)) for value in by_count])
        is_near = np.abs(ratios - by_count) <= 1e-7 * np.abs(by_count)
        simplest = np.where(is_near, ratios, by_count).tolist()
        yield {names[columns[i]]: value for i, value in zip(involved, simplest, strict=True)}


_COUNT_AGAIN = "count them again (countperf.api.evaluation.recount)"


def common_view(measurements: Iterable[Measurement]) -> View:
    """Return the view under which all kernels were counted."""
    case_of = {m.properties.get("view", "source"): m.case for m in measurements if m.properties}
    if len(case_of) > 1 or not case_of.keys() <= set(VIEWS):
        cases = " and ".join(f"{case!r} in the {view} view" for view, case in case_of.items())
        raise FitError(
            f"the measured kernels were not all counted in one of the views {' and '.join(VIEWS)}"
            f" ({cases}): {_COUNT_AGAIN}"
        )
    return next(iter(case_of), "source")


def common_caches(measurements: Iterable[Measurement]) -> CountedCaches:
    """Return the caches for which all kernels were counted, and compiled code was read."""
    stated = [(m, caches_of(m.properties)) for m in measurements if m.properties is not None]
    if not stated:
        return DEFAULT_CACHES
    known = [(m, caches) for m, caches in stated if m.code is not None] or stated[:1]
    first, caches = known[0]
    for measurement, others in stated:
        is_read = measurement.code is not None and others.code != caches.code
        if is_read or not others.counts_alike(caches):
            there = [one.code.text if is_read else one.text for one in (others, caches)]
            raise FitError(
                f"{'compiled code was not read' if is_read else 'kernels were not counted'} for the"
                f" same caches ({measurement.case!r} for {there[0]}, {first.case!r} for"
                f" {there[1]}): fit to either part, or {_COUNT_AGAIN}"
            )
    return caches


_SAME_TIME = 1e-8
_NOT_SHARED = 1e-9  # entries of the null space, of norm one, that are but rounding

NORMAL_MEDIAN = 0.6744897501960817  # median of the absolute value of a standard normal variable

LEAST_MODEL_ERROR = 0.01  # no model is taken to be better than one percent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate(ShortRepr):
    """A model fitted to cases."""

    design: Design  # the cases
    rank: int  # how many weights they tell apart
    groups: tuple[IndistinguishableGroup, ...]  # features that they do not
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
        unfitted = [column not in function.columns for column in cases.function.columns]
        known = ~cases.has_unknown & ~np.any(cases.counts[:, unfitted] != 0, axis=1)
        counts = cases.with_columns(function.columns).counts
        scaled = np.ascontiguousarray(function.scale_values(counts, cases.scales).T)
        by_key = dict(zip(function.keys, scaled, strict=True))
        for position in np.flatnonzero(known) if self.groups else ():
            changes = {key: float(row[position]) for key, row in by_key.items()}
            known[position] = not functions.find_broken_groups(self.groups, changes)
        return np.where(known, self.solution.coefficients @ scaled, np.nan)


def weigh_by_noise(design: Design, recipe: Recipe) -> Recipe:
    """Return a recipe by which noisy cases count for less; without noise it stays as it is.

    The model's own errors are taken from a fit in which all cases count the same.
    """
    if not np.any(design.noise > 0):
        return recipe
    first = estimate_design(design, replace(recipe, starts=min(recipe.starts, 2)))
    typical = float(np.median(first.relative_errors)) / NORMAL_MEDIAN
    return replace(recipe, model_error=max(typical, LEAST_MODEL_ERROR))


def recipe_of(model: ModelDefinition) -> Recipe:
    """Return how a model asks to be fitted."""
    return Recipe(residual=model.residual, loss=model.loss, loss_scale=model.loss_scale)


def estimate_design(
    design: Design, recipe: Recipe, *, near: Estimate | None = None, prior: LogPrior | None = None
) -> Estimate:
    """Fit the model of a design to its cases; the result may not have converged: ask it."""
    function = design.function
    if not function.columns:
        raise FitError(_NOTHING_CHARGED)
    problem = problem_of(design, recipe, prior)
    start = None
    if near is not None:  # zero where it found nothing
        weights = dict(zip(near.function.columns, near.solution.coefficients.tolist(), strict=True))
        start = np.array([weights.get(column, 0.0) for column in function.columns])
    solution = solve.solve(problem, start)
    rank, groups = solution.rank, ()
    if prior is None:
        rank, groups, null_space = diagnose(design)
        if groups:
            shared = _share_cost(problem, *null_space, solution.coefficients)
            solution = replace(solution, coefficients=shared)
    times_s = design.scaled @ solution.coefficients
    return Estimate(design=design, rank=rank, groups=groups, solution=solution, predicted_s=times_s)


def problem_of(design: Design, recipe: Recipe, prior: LogPrior | None = None) -> solve.Problem:
    """Return what a fit of a design makes small."""
    error = recipe.model_error
    weights = 1.0 if error is None else error / np.hypot(error, design.noise)
    lower = design.function.lower
    return solve.Problem(design.relative, recipe, row_weights=weights, lower=lower, prior=prior)


def _share_cost(problem: solve.Problem, null: Matrix, norms: Vector, weights: Vector) -> Vector:
    """Share the cost of weights that nothing tells apart in proportion, if no time changes."""
    inside = weights * norms
    concerned = np.any(np.abs(null) > _NOT_SHARED, axis=0)  # others keep their exact bounds
    spread = (inside - null.T @ (null @ inside)) / norms
    shared = np.maximum(np.where(concerned, spread, weights), problem.low / problem.scale)
    before, after = (problem.relative @ candidate for candidate in (weights, shared))
    unchanged = np.all(np.abs(after - before) <= _SAME_TIME * np.abs(before))
    return shared if unchanged else weights


on_one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""Decorator of functions during whose calls BLAS uses one thread: others would only wait."""
