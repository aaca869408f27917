r"""The design matrix of a fit, and what it can and cannot tell apart.

Row :math:`j` is a measured case, column :math:`i` a feature; each row is divided by its measured
time :math:`T_j`, so that relative errors are minimised against a target of ones:

.. math:: \alpha = \arg\min \sum_j \bigl( 1 - \sum_i \alpha_i p_i(n_j) / T_j \bigr)^2

Source: Stevens & Klöckner (2016), the fit of their linear model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray

from countperf.errors import FitError
from countperf.features import CountValue, FeatureSpec, feature_matrix
from countperf.fitting.solve import RANK_TOLERANCE, Matrix, Vector, column_norms
from countperf.measurements import Measurement
from countperf.models.records import IndistinguishableGroup
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, VIEWS, View

_CLOSE_COSINE = 0.999
_NULL_TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One measured case as the fit sees it.

    Attributes
    ----------
    name, kernel, family : str
        Name of the case, of its kernel, and of the kernel's family.
    counts : Mapping from str to int or Fraction
        Property values at the case's parameters.
    time_s : float
        Measured time, s.
    stable : bool
        Whether its samples agreed well enough.
    """

    name: str
    kernel: str
    family: str
    counts: Mapping[str, CountValue]
    time_s: float
    stable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """The design matrix.

    Attributes
    ----------
    names : tuple of str
        Features that some case exercises, one per column.
    counts : ndarray, shape (n_cases, n_features)
        Feature values.
    times_s : ndarray, shape (n_cases,)
        Measured times, s.
    unexercised, ignored, unknown : tuple of str
        Features that are zero in every case; properties that the model ignores, or has no rule for.
    """

    names: tuple[str, ...]
    counts: Matrix
    times_s: Vector
    unexercised: tuple[str, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def relative(self) -> Matrix:
        """Counts over measured times: each row times the weights is predicted over measured."""
        return self.counts / self.times_s[:, np.newaxis]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the cases of a design can tell apart.

    Attributes
    ----------
    rank : int
        Numerical rank; full if it is the number of features.
    condition : float
        Largest over smallest of the singular values that are not zero, columns scaled.
    groups : tuple of IndistinguishableGroup
        Features that no solution can tell apart.
    close_pairs : tuple of (str, str, float)
        Pairs that can barely be told apart, with the cosine of the angle of their columns.
    """

    rank: int
    condition: float
    groups: tuple[IndistinguishableGroup, ...]
    close_pairs: tuple[tuple[str, str, float], ...]


def build_design(observations: Sequence[Observation], spec: FeatureSpec) -> Design:
    """Turn measured cases into a design matrix.

    Raises
    ------
    FitError
        There is no case, no case exercises any feature, or a time is not positive and finite.
    """
    if not observations:
        raise FitError("there is no measurement to fit; measure the measurement kernels first")
    for case in observations:
        if not (np.isfinite(case.time_s) and case.time_s > 0):
            message = f"case {case.name!r}: a measured time must be positive, not {case.time_s} s"
            raise FitError(message)
    matrix = feature_matrix(spec, (case.counts for case in observations))
    used = np.any(matrix.values != 0, axis=0)
    if not np.any(used):
        raise FitError("no measured kernel has a property that the model charges")
    return Design(
        names=tuple(name for name, kept in zip(matrix.names, used, strict=True) if kept),
        counts=matrix.values[:, used],
        times_s=np.array([case.time_s for case in observations]),
        unexercised=tuple(name for name, kept in zip(matrix.names, used, strict=True) if not kept),
        ignored=matrix.ignored,
        unknown=matrix.unknown,
    )


def diagnose(design: Design) -> Diagnosis:
    """Find rank, condition, and the features that the design cannot tell apart."""
    scale = column_norms(design.relative)
    scaled = design.relative / scale
    _, values, right = np.linalg.svd(scaled, full_matrices=scaled.shape[0] < scaled.shape[1])
    rank = int(np.count_nonzero(values > RANK_TOLERANCE * values[0]))
    groups = _groups(design.names, right[rank:], scale)
    grouped = [set(group.features) for group in groups]
    cosines = scaled.T @ scaled
    close = tuple(
        (design.names[i], design.names[j], float(cosines[i, j]))
        for i, j in zip(*np.nonzero(np.triu(cosines >= _CLOSE_COSINE, k=1)), strict=True)
        if not any({design.names[i], design.names[j]} <= group for group in grouped)
    )
    condition = float(values[0] / values[rank - 1])
    return Diagnosis(rank=rank, condition=condition, groups=groups, close_pairs=close)


def _groups(
    names: tuple[str, ...], null_space: Matrix, scale: Vector
) -> tuple[IndistinguishableGroup, ...]:
    """Split the null space into its finest direct sum over sets of features.

    The projector onto a space is block diagonal in the coordinates exactly where the space is a
    direct sum over blocks of them, so the blocks are the connected components of its entries.
    """
    projector = null_space.T @ null_space
    linked = np.abs(projector) > _NULL_TOLERANCE
    left = [i for i in range(len(names)) if linked[i, i]]
    groups: list[IndistinguishableGroup] = []
    while left:
        members = {left[0]}
        while (grown := {int(j) for i in members for j in np.flatnonzero(linked[i])}) > members:
            members = grown
        left = [i for i in left if i not in members]
        columns = sorted(members)
        found = _relations(names, projector[np.ix_(columns, columns)], scale, columns)
        groups.append(
            IndistinguishableGroup(features=tuple(names[i] for i in columns), relations=found)
        )
    return tuple(groups)


def _relations(
    names: tuple[str, ...], projector: Matrix, scale: Vector, columns: list[int]
) -> tuple[dict[str, float], ...]:
    """Write a block of the null space as relations of counts, each with one feature of its own."""
    from scipy.linalg import qr

    independent = round(float(np.trace(projector)))
    order = cast("NDArray[np.intp]", qr(projector, mode="r", pivoting=True)[-1])
    pivots = order[:independent]
    rows = np.linalg.solve(projector[np.ix_(pivots, pivots)], projector[pivots])
    rows[np.abs(rows) < _NULL_TOLERANCE] = 0.0
    relations: list[dict[str, float]] = []
    for row in rows:
        involved = np.flatnonzero(row)
        by_count = row[involved] / scale[columns][involved]
        by_count /= by_count[np.argmin(np.abs(by_count))]
        relations.append(
            {
                names[columns[i]]: _simplest(float(value))
                for i, value in zip(involved, by_count, strict=True)
            }
        )
    return tuple(sorted(relations, key=list))


def _simplest(value: float) -> float:
    """Return a nearby ratio of small integers if there is one: counts are integers."""
    ratio = Fraction(value).limit_denominator(64)
    return float(ratio) if abs(float(ratio) - value) <= 1e-7 * abs(value) else value


def common_view(measurements: Iterable[Measurement]) -> View:
    """Return the view under which all kernels were counted.

    Raises
    ------
    FitError
        There are vectors of both views, or of an unknown one.
    """
    found = {
        m.properties.get("view", "source"): m.case for m in measurements if m.properties is not None
    }
    if len(found) > 1:
        cases = " and ".join(f"{case!r} in the {view} view" for view, case in found.items())
        raise FitError(
            f"the measured kernels were not all counted alike ({cases}): count them again in one"
        )
    view = next(iter(found), "source")
    if view not in VIEWS:
        raise FitError(
            f"kernels were counted in the {view!r} view; there are {' and '.join(VIEWS)}"
        )
    return view


def check_counting_rules(measurement: Measurement) -> None:
    """Raise `FitError` if a measurement was counted by other rules than those of now."""
    rules = (measurement.properties or {}).get("counting_rules")
    if rules != COUNTING_RULES_VERSION:
        message = (
            f"case {measurement.case!r} was counted under counting rules {rules}, and kernels are"
            f" now counted under {COUNTING_RULES_VERSION}: count the measured kernels again"
        )
        raise FitError(message)
