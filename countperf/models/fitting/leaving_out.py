r"""Families of kernels that are left out, and predicted by a fit of the others.

Their figure is the factor by which left-out cases are typically off,
``max(predicted/measured, measured/predicted)``: the geometric mean over a family's cases, then over
families.

Intervals follow the quantiles of :math:`|\log(p/m)|` over left-out cases, as in conformal
prediction. The distributions of the families are averaged (Dunn, Wasserman and Ramdas (2023),
"Distribution-Free Prediction Sets for Two-Layer Hierarchical Models",
doi:10.1080/01621459.2022.2060112), and the level is raised by ``1 + 1/n``, as for so many
observations as there are families. With a handful of families, of which not even the worst is a
quantile of that level, it is Student's quantile of their root mean square.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import FitError, FitNotConvergedError
from countperf.models import function as functions
from countperf.models.correction import Correction, as_points, profile, similarity
from countperf.models.definition import CODE, MISS, SPILL, CountValue
from countperf.models.fitting import design as designs
from countperf.models.fitting.design import Design, Estimate, Observation
from countperf.models.fitting.solve import LogPrior, Matrix, Recipe, Vector
from countperf.models.function import Calibration, Coverage
from countperf.models.metrics import factor_between
from countperf.steps import step_through

NOISE = 0.1
"""Variance of what a kernel's logarithm has of its own, as a share of what similar ones share."""

LARGEST_LOG = 1.5  # kernels that are off by more say no more than that

FEWEST_KERNELS = 20
_DIGITS = 2, 1  # decimals of roots and logs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """Families predicted by a fit of the others."""

    times_s: Vector  # predicted times, s; NaN where they are not known
    outside: NDArray[np.bool_]  # the cases of the fit
    predicted_s: Vector  # times that the fit gives its own cases, s


@dataclass(frozen=True, slots=True, eq=False)
class _Profiles:
    """Measured kernels as points, by what the model makes of them."""

    kernels: tuple[str, ...]
    members: NDArray[np.intp]  # kernels of the cases, by position
    roots: Matrix
    logs: Matrix
    scale: float
    of_cases: Matrix  # the cases as points
    points: Matrix

    @classmethod
    def of(cls, fitted: Estimate, observations: Sequence[Observation]) -> _Profiles | None:
        """Return them; None if there are too few kernels, or a time is not positive."""
        design = fitted.design
        names, members = np.unique([case.kernel for case in observations], return_inverse=True)
        if names.size < FEWEST_KERNELS or np.any(fitted.predicted_s <= 0):
            return None
        unknowns = fitted.solution.coefficients
        told = profile(fitted.function.columns, design.counts, design.scaled, unknowns)
        means: list[Matrix] = []
        for rows, digits in zip(told, _DIGITS, strict=True):
            sums = np.zeros((names.size, rows.shape[1]))
            np.add.at(sums, members, rows)
            means.append(np.round(sums / np.bincount(members)[:, np.newaxis], digits))
        roots, logs = means
        squares = (logs**2).sum(axis=1)
        apart = squares[:, np.newaxis] + squares - 2.0 * logs @ logs.T
        scale = float(np.median(apart[np.triu_indices_from(apart, 1)]))
        scale = scale if scale > 0 else 1.0
        of_cases, points = as_points(*told, scale), as_points(roots, logs, scale)
        return cls(tuple(names.tolist()), members, roots, logs, scale, of_cases, points)

    def find_mean_logs(self, ratios: Vector, cases: Any = slice(None)) -> Vector:
        """Return what kernels are off by: means over some cases of the logarithms of ratios."""
        members, number = self.members[cases], len(self.kernels)
        sums = np.bincount(members, np.log(ratios), minlength=number)
        sizes = np.maximum(np.bincount(members, minlength=number), 1)
        return np.clip(sums / sizes, -LARGEST_LOG, LARGEST_LOG)

    def solve_covariance(self, right: Matrix) -> Matrix:
        """Solve with the covariance of what kernels are off by, and what each has of its own."""
        from scipy.linalg import cho_factor, cho_solve

        covariance = similarity(self.points, self.points)
        covariance[np.diag_indices_from(covariance)] = 1.0 + NOISE
        return np.asarray(cho_solve(cho_factor(covariance), right), np.float64)


def learn_correction(fitted: Estimate, observations: Sequence[Observation]) -> Correction | None:
    """Learn from the cases of a fit; None if they are of too few kernels."""
    profiles = _Profiles.of(fitted, observations)
    if profiles is None:
        return None
    off = profiles.find_mean_logs(fitted.design.times_s / fitted.predicted_s)
    alpha = profiles.solve_covariance(off).astype(np.float32)
    return Correction(
        kernels=profiles.kernels,
        roots=tuple(map(tuple, profiles.roots.tolist())),
        logs=tuple(map(tuple, profiles.logs.tolist())),
        coefficients=tuple(alpha.tolist()),
        scale=profiles.scale,
    )


def correct_left_out(
    fitted: Estimate,
    observations: Sequence[Observation],
    left_out: Mapping[tuple[str, ...], LeftOut],
) -> Vector | None:
    """Return by what cases would be corrected if their families had not been measured.

    With the inverse :math:`P` of the covariance of all kernels, that of the others :math:`o` is
    :math:`K_{oo}^{-1} = P_{oo} - P_{ob} P_{bb}^{-1} P_{bo}` for the kernels :math:`b` left out.
    """
    profiles = _Profiles.of(fitted, observations)
    if profiles is None:
        return None
    inverse = profiles.solve_covariance(np.eye(len(profiles.kernels)))
    alike = similarity(profiles.of_cases, profiles.points)
    log_factors = np.zeros(len(observations))
    times_s = fitted.design.times_s
    for part in left_out.values():
        there = np.bincount(profiles.members[part.outside], minlength=len(profiles.kernels))
        inside = there == 0
        if np.all(inside) or np.any(part.predicted_s <= 0):
            continue
        off = profiles.find_mean_logs(times_s[part.outside] / part.predicted_s, part.outside)
        alpha = inverse @ off  # zero where a kernel is left out
        own = inverse[np.ix_(inside, inside)]
        alpha -= inverse[:, inside] @ np.linalg.solve(own, alpha[inside])
        alpha[inside] = 0.0
        log_factors[~part.outside] = alike[~part.outside] @ alpha
    return log_factors


Group = tuple[str, ...]  # families that are left out together

LARGEST_FACTOR = 10.0  # factors beyond it count for as much

_FEWEST_FAMILIES = 3
_OVERHEAD = frozenset({"groups", "launches", "passes"})
"""Last parts of the names of what a kernel has that only launches."""

_TOLERANCE = 1e-6
"""Relative change of the cost that ends fits without a family, which begin at that of all cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutCase:
    """A measured case, predicted without its family."""

    name: str  # the case, its kernel, and the family that was left out
    kernel: str
    family: str
    measured_s: float  # measured time, s
    predicted_s: float  # predicted time, s; NaN where the others do not determine it
    corrected_s: float = math.nan
    overhead_only: bool = False  # whether the kernel only launches

    @property
    def relative_error(self) -> float:
        """``|predicted - measured| / measured``."""
        return abs(self.predicted_s - self.measured_s) / self.measured_s

    @property
    def log_ratio(self) -> float:
        """``log(predicted / measured)``, as `log_ratio` has it."""
        return log_ratio(self.predicted_s, self.measured_s)


def leave_families_out(
    observations: Sequence[Observation],
    near: Estimate,
    recipe: Recipe,
    *,
    design: Design | None = None,
    prior: LogPrior | None = None,
    with_correction: bool = False,
    parts: int = 0,
) -> tuple[HeldOutCase, ...]:
    """Predict families of kernels, one at a time or in so many parts, with a fit of the others."""
    families = tuple(dict.fromkeys(case.family for case in observations))
    groups = [families[i::parts] for i in range(min(parts, len(families)))] if parts else []
    groups = groups or [(family,) for family in families]
    labels = [case.family for case in observations]
    design = near.design if design is None else design
    recipe = replace(recipe, tolerance=max(recipe.tolerance, _TOLERANCE))
    left_out = leave_out(labels, design, near, recipe, prior, groups)
    factors = correct_left_out(near, observations, left_out) if with_correction else None
    times = np.full(len(observations), np.nan)
    for part in left_out.values():
        times[~part.outside] = part.times_s
    others = times * np.exp(np.nan if factors is None else factors)
    cases = [
        HeldOutCase(
            name=case.name,
            kernel=case.kernel,
            family=case.family,
            measured_s=case.time_s,
            predicted_s=time_s,
            corrected_s=other_s,
            overhead_only=prior is None and _only_launches(case.counts),
        )
        for case, time_s, other_s in zip(observations, times.tolist(), others.tolist(), strict=True)
    ]
    return tuple(sorted(cases, key=lambda case: families.index(case.family)))


@designs.on_one_thread
def leave_out(
    labels: Sequence[str],
    design: Design,
    near: Estimate,
    recipe: Recipe,
    prior: LogPrior | None,
    groups: Sequence[Group],
) -> dict[Group, LeftOut]:
    """Predict groups of families, each by a fit of the others."""
    left_out: dict[Group, LeftOut] = {}
    for group in step_through(groups, "leaving out classes"):
        inside = np.isin(labels, group)
        times = np.full(int(inside.sum()), np.nan)
        predicted_s = np.empty(0)
        try:
            outside = design.of_cases(~inside, with_all=prior is not None)
            fitted = designs.estimate_design(outside, recipe, near=near, prior=prior)
            if not fitted.solution.converged:
                message = f"the solver stopped early: {fitted.solution.message}"
                raise FitNotConvergedError(message)
            times = fitted.at_cases(design.of_cases(inside, with_all=prior is not None))
            predicted_s = fitted.predicted_s
        except FitNotConvergedError as error:
            named = ", ".join(map(repr, group))
            raise FitNotConvergedError(f"without the class {named}: {error}") from error
        except FitError:  # nothing is left to fit
            pass
        left_out[group] = LeftOut(times_s=times, outside=~inside, predicted_s=predicted_s)
    return left_out


def _only_launches(counts: Mapping[str, CountValue]) -> bool:
    """Tell whether a kernel has no operations and no accesses; its machine code always has some."""
    names = [name for name, count in counts.items() if count]
    code = (CODE, MISS, SPILL)
    return all(n.startswith(code) or n.rpartition(".")[2] in _OVERHEAD for n in names)


def take_corrections(held_out: Iterable[HeldOutCase]) -> tuple[HeldOutCase, ...]:
    """Return cases that were left out with their corrected times as those that were predicted."""
    return tuple(replace(case, predicted_s=case.corrected_s) for case in held_out)


def _select_cases(held_out: Iterable[HeldOutCase]) -> tuple[list[HeldOutCase], NDArray[np.intp]]:
    """Return cases with a prediction that do not only launch, and their families by number."""
    cases = [c for c in held_out if not (math.isnan(c.predicted_s) or c.overhead_only)]
    numbers = {f: number for number, f in enumerate(dict.fromkeys(case.family for case in cases))}
    return cases, np.array([numbers[case.family] for case in cases], np.intp)


def find_held_out_factor(held_out: Iterable[HeldOutCase]) -> float:
    """Return the factor by which left-out families that do more than launch are off."""
    logs: defaultdict[str, list[float]] = defaultdict(list)
    for case in _select_cases(held_out)[0]:
        factor = factor_between(case.predicted_s, case.measured_s)
        logs[case.family].append(math.log(min(factor, LARGEST_FACTOR)))
    return float(np.exp(np.mean([np.mean(of_family) for of_family in logs.values()])))


def interval_calibration(held_out: Iterable[HeldOutCase]) -> Calibration | None:
    """Return what intervals are made of; None with less than three families to go by."""
    cases, family = _select_cases(held_out)
    sizes = np.bincount(family)
    if (number := len(sizes)) < _FEWEST_FAMILIES:
        return None
    logs = np.array([case.log_ratio for case in cases])
    shares = 1.0 / (number * sizes[family])
    between, within = scatter_of_kernels(logs, [case.kernel for case in cases])
    return Calibration(
        log_errors_90=conformal_quantile(np.abs(logs), shares, 0.9, units=number),
        log_errors_95=conformal_quantile(np.abs(logs), shares, 0.95, units=number),
        between_kernels=between,
        within_kernels=within,
        families=number,
        cases=len(cases),
    )


def coverage_without_own_family(held_out: Iterable[HeldOutCase]) -> Coverage | None:
    """Return how well intervals hold that the *other* families make for left-out cases."""
    cases, family = _select_cases(held_out)
    sizes = np.bincount(family)
    if (number := len(sizes)) <= _FEWEST_FAMILIES:
        return None
    logs = np.array([abs(case.log_ratio) for case in cases])
    shares = 1.0 / sizes[family]
    covered = np.zeros((number, 2))
    widths: list[float] = []
    for own in range(number):
        inside = family == own
        others, parts = logs[~inside], shares[~inside] / (number - 1)
        for column, level in enumerate((0.9, 0.95)):
            width = conformal_quantile(others, parts, level, units=number - 1)
            covered[own, column] = np.mean(logs[inside] <= width)
            widths += [width] * int(sizes[own]) if level == 0.9 else []
    return Coverage(
        share_90=float(np.mean(covered[:, 0])),
        share_95=float(np.mean(covered[:, 1])),
        median_factor_90=float(np.exp(np.median(widths))),
        families=number,
        cases=len(cases),
    )


def log_ratio(predicted_s: float, measured_s: float) -> float:
    """Return log(predicted / measured), at most a factor of 1000; that for times below zero."""
    worst = functions.WORST_LOG_RATIO
    log = -worst if predicted_s <= 0 else np.log(predicted_s / measured_s)
    return float(np.clip(log, -worst, worst))


def conformal_quantile(values: Vector, shares: Vector, level: float, *, units: int) -> float:
    """Return the smallest value that a share of ``level (1 + 1/units)`` does not exceed.

    Beyond all of them, it is Student's quantile of their root mean square, if larger.
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(shares[order])
    wanted = level * (1.0 + 1.0 / units) - 1e-12
    if wanted > 1.0:
        scatter = max(float(np.sqrt(shares @ values**2)), functions.LEAST_SCATTER)
        return max(float(values.max()), functions.student_quantile(level, units) * scatter)
    position = int(np.searchsorted(reached, wanted))
    return float(values[order[min(position, values.size - 1)]])


def scatter_of_kernels(logs: Vector, kernels: Sequence[str]) -> tuple[float, float]:
    """Split log ratios into what a kernel's cases share and what they do not."""
    members = np.unique(kernels, return_inverse=True)[1]
    groups = [logs[members == kernel] for kernel in dict.fromkeys(members.tolist())]
    freedom = sum(group.size - 1 for group in groups)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups)
    within = squares / freedom if freedom else 0.0
    shared = np.mean([float(group.mean()) ** 2 - within / group.size for group in groups])
    return float(np.sqrt(max(float(shared), 0.0))), float(np.sqrt(within))


def log_scatter(
    predicted_s: Sequence[float], measured_s: Sequence[float], *, freedom: int | None = None
) -> float | None:
    """Return the standard deviation of log(predicted / measured) about zero.

    It is the robust one, or with degrees of freedom the root of the sum of squares over them.
    """
    logs = np.array([abs(log_ratio(p, m)) for p, m in zip(predicted_s, measured_s, strict=True)])
    if not logs.size or freedom == 0:
        return None
    if freedom is not None:
        return float(np.sqrt(logs @ logs / freedom))
    return float(np.median(logs) / designs.NORMAL_MEDIAN)
