"""Exercise of a fit's weights: the measurements that determine each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.fitting.design import Observation, counts_table, diagnose_columns, inputs_of
from countperf.fitting.solve import Matrix, Vector
from countperf.models.exercise import Exercise, properties_behind
from countperf.models.function import ModelFunction
from countperf.models.records import Range


def exercise(
    function: ModelFunction, unknowns: Sequence[float], observations: Sequence[Observation]
) -> dict[str, Exercise]:
    """Say for each weight, parameter and counted name how measured cases exercise it."""
    seen = inputs_of(observations, function.model)
    rows = [seen[id(case)] for case in observations]
    values = np.array(
        [[row.values.get(column, 0.0) for row in rows] for column in function.columns], np.float64
    ).reshape(len(function.columns), len(rows))
    scales = {
        name: np.array([row.variables[name] for row in rows], np.float64)
        for name in function.model.scales
    }
    times = np.array([case.time_s for case in observations])
    relative = function.scaled(values, scales) / times
    shares = np.array(unknowns, np.float64)[:, np.newaxis] * relative
    if np.any(shares < 0):  # what is taken off again can be many times the time
        shares = shares / np.maximum(1.0, np.abs(shares).sum(axis=0))
    families = [case.family for case in observations]
    needed = _needed_families(function.keys, relative.T, families)
    if function.model.named_shape:
        issued = [function.model.made_of(case.counts) for case in observations]
        names = {name for counts in issued for name, count in counts.items() if _number(count)}
    else:
        table = function.model.made_of(counts_table(observations))
        names = {name for name, counts in table.items() if np.any(counts)}
    groups = np.array([_number(case.counts.get("groups", 0)) for case in observations])
    behind = properties_behind(function, names)
    found: dict[str, Exercise] = {}
    for i, key in enumerate(function.keys):
        has = values[i] != 0
        if not np.any(has):
            continue
        found[key] = _of_cases(
            observations,
            has,
            properties=behind.get(key, ()),
            share=shares[i],
            per_group=_per_group(values[i], groups),
            relies_on=needed.get(key, ()),
        )
    for name, counted in scales.items():
        if np.any(counted != 0):
            found[name] = _of_cases(
                observations,
                counted != 0,
                properties=behind[name],
                share=None,
                per_group=_per_group(counted, groups),
                relies_on=(),
            )
    return found


def _of_cases(
    observations: Sequence[Observation],
    has: NDArray[np.bool_],
    *,
    properties: tuple[str, ...],
    share: Vector | None,
    per_group: Range | None,
    relies_on: tuple[str, ...],
) -> Exercise:
    cases = [case for case, one in zip(observations, has, strict=True) if one]
    families = Counter(case.family for case in cases)
    mine = None if share is None else share[has]
    return Exercise(
        families=dict(families),
        kernels=len({case.kernel for case in cases}),
        properties=properties,
        mean_share=None if mine is None else _rounded(mine.mean()),
        largest_share=None if mine is None else _rounded(mine[np.argmax(np.abs(mine))]),
        per_group=per_group,
        relies_on=relies_on,
    )


def _per_group(values: Vector, groups: Vector) -> Range | None:
    has = (values != 0) & (groups > 0)
    if not np.any(has):
        return None
    each = values[has] / groups[has]
    return Range(smallest=float(each.min()), largest=float(each.max()))


def _needed_families(
    keys: tuple[str, ...], relative: Matrix, families: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return for each unknown the families without one of which it is not determined.

    Unknowns that all families together do not determine are left out.
    """
    everything = _determined(keys, relative)
    of = np.array(families)
    needed: dict[str, list[str]] = {}
    for family in dict.fromkeys(families):
        for key in everything - _determined(keys, relative[of != family]):
            needed.setdefault(key, []).append(family)
    return {key: tuple(names) for key, names in needed.items()}


def _determined(keys: tuple[str, ...], relative: Matrix) -> set[str]:
    seen = np.any(relative != 0, axis=0)
    if not np.any(seen):
        return set()
    names = tuple(key for key, one in zip(keys, seen, strict=True) if one)
    groups = diagnose_columns(names, relative[:, seen]).groups
    return set(names) - {name for group in groups for name in group.features}


def _rounded(value: float) -> float:
    """Return a share with as many digits as are of use."""
    return float(f"{value:.9g}")


def _number(value: Any) -> float:
    return float(np.asarray(value, np.float64).item())
