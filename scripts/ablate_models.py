#!/usr/bin/env python3
"""Leave out each option of a policy and each group of features in turn, and tell what it costs.

For each shipped fit of a device the model is fitted anew without one option of its policy (at its
default), without one group of features, and with only the features that take
the largest shares of the time. What is told is the factor by which left-out families are off, by
how much it grows, and how many weights are left. Families are left out several at a time (`FOLDS`),
which takes a seventh of the time of one at a time. Cases that have a feature which no remaining
family has count as a factor of two, as in `countperf.fitting.selection`.

    scripts/ablate_models.py weights            # the structural models of all devices
    scripts/ablate_models.py compiled fits/pocl-epyc-zen4 ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from countperf.execution.policy import ExecutionPolicy
from countperf.fitting.design import Design, Observation
from countperf.fitting.estimate import problem_of, recipe_of
from countperf.fitting.fit import observations_of
from countperf.fitting.leaving_out import LARGEST_FACTOR, UNPREDICTED
from countperf.fitting.solve import Recipe, solve
from countperf.measurements import MeasurementSet, measurements_in
from countperf.models.definition import ModelDefinition
from countperf.models.function import Column, ModelFunction, model_inputs
from countperf.models.weights import WeightSet

FITS = Path(__file__).resolve().parent.parent / "fits"
FOLDS = 8
SIZES = {"weights": (150, 130, 110, 100, 85), "compiled": (33, 29, 25, 22)}

GROUPS = {
    "passes and rows": ("issue.*.passes.*", "issue.*.rows.*"),
    "carried": ("issue.*.carried",),
    "live across barriers": ("issue.*.live_across_barrier",),
    "private arrays": ("issue.*.pmem.*",),
    "minor": ("issue.*.minor",),
    "divisions, powers": ("issue.*.divide", "issue.*.div.*", "issue.*.pow.*"),
    "iterations, entries": ("issue.*.iterations", "issue.*.entries"),
    "idle": ("issue.*.idle",),
    "special": ("issue.*.special.*",),
    "conditional": ("issue.*.conditional.*",),
    "guarded": ("issue.*.guarded.*",),
    "masked, shifted, offset": ("issue.*.masked", "issue.*.shifted", "issue.*.offset"),
    "same": ("issue.*.same",),
    "near, walk": ("issue.*.near", "issue.*.walk"),
    "other lines, strided": ("issue.*.l1_reuse", "issue.*.strided"),
    "data": ("issue.*.gmem.*.data",),
    "local memory": ("issue.*.lmem.*",),
    "barriers": ("barrier.local",),
    "l2 reuse": ("issue.*.l2_reuse",),
    "beyond l2": ("issue.*.beyond_l2",),
    "set conflicts": ("issue.*.set_conflict",),
    "chains": ("issue.*.chain.*",),
    "bytes of groups": ("bytes.group.*",),
    "segments of groups": ("segments.group.*", "*_segments_beyond_l*"),
    "beyond the second level": ("*_beyond_l2",),
    "beyond the last level": ("*_beyond_llc",),
    "streams": ("*_streams*",),
    "out of reach": ("*_out_of_reach",),
    "misses and spills of the code": ("miss.*", "spill.*"),
}
"""Patterns of features that are left out together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """All properties of a device's cases as arrays, so that a policy is applied to all at once."""

    cases: Sequence[Observation]
    counts: dict[str, NDArray[np.float64]]
    parts: NDArray[np.intp]

    @classmethod
    def of(cls, cases: Sequence[Observation]) -> Table:
        """Make it; families are dealt into parts by the order in which they come."""
        names = {name for case in cases for name, count in case.counts.items() if count}
        counts = {name: np.zeros(len(cases)) for name in sorted(names)}
        for row, case in enumerate(cases):
            for name, count in case.counts.items():
                if count:
                    counts[name][row] = float(count)
        families = list(dict.fromkeys(case.family for case in cases))
        parts = np.array([families.index(case.family) % FOLDS for case in cases], np.intp)
        return cls(cases=cases, counts=counts, parts=parts)

    def design(self, model: ModelDefinition) -> Design:
        """Return the design matrix of a model, with all its features that some case has."""
        inputs = model_inputs(model, self.counts)
        ones = np.ones(len(self.cases))
        columns = tuple(inputs.values)
        function = ModelFunction(model=model, columns=columns)
        return Design(
            function=function,
            names=function.keys,
            counts=np.stack([inputs.values[column] * ones for column in columns], axis=1),
            times_s=np.array([case.time_s for case in self.cases]),
            noise=np.array([case.noise for case in self.cases]),
            has_unknown=np.zeros(len(self.cases), np.bool_),
            scales={name: value * ones for name, value in inputs.variables.items()},
            ignored=(),
            unknown=inputs.unknown,
        )


def with_columns(design: Design, kept: Callable[[Column], bool]) -> Design:
    """Return a design with some of its features."""
    places = [i for i, column in enumerate(design.function.columns) if kept(column)]
    columns = tuple(design.function.columns[i] for i in places)
    function = ModelFunction(model=design.function.model, columns=columns)
    return replace(
        design,
        function=function,
        names=function.keys,
        counts=design.counts[:, places],
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """A model fitted to all cases, the factor on cases left out, and root mean square shares."""

    columns: tuple[Column, ...]
    unknowns: NDArray[np.float64]
    factor: float
    shares: dict[Column, float]

    def near(self, function: ModelFunction) -> NDArray[np.float64]:
        """Return what it found as a start for a model with other features."""
        known = dict(zip(self.columns, self.unknowns.tolist(), strict=False))
        typical = np.median([value for value in known.values() if value > 0])
        return np.array([known.get(c, typical) for c in function.columns])


def left_out(table: Table, design: Design, recipe: Recipe, near: Fitted | None) -> Fitted:
    """Fit a design to all cases, and to all but each part of the families."""
    function = design.function
    start = near and near.near(function)
    whole = solve(problem_of(design, recipe), start).coefficients
    times, known = np.zeros(len(table.cases)), np.zeros(len(table.cases), np.bool_)
    for part in range(FOLDS):
        inside = table.parts == part
        outside = design.of_cases(~inside, with_all=True)
        seen = np.any(outside.counts != 0, axis=0)
        fitted = solve(problem_of(outside, recipe), whole).coefficients
        within = design.of_cases(inside, with_all=True)
        times[inside] = within.scaled @ fitted
        known[inside] = ~np.any(within.counts[:, ~seen] != 0, axis=1)
    parts = (design.relative * whole).T
    sizes = np.sqrt(np.mean(parts**2, axis=1))
    return Fitted(
        columns=function.columns,
        unknowns=whole,
        factor=factor_of(table, design, times, known),
        shares=dict(zip(function.columns, sizes.tolist(), strict=False)),
    )


def factor_of(
    table: Table, design: Design, times_s: NDArray[np.float64], known: NDArray[np.bool_]
) -> float:
    """Return the factor by which predictions are off in the mean, each family alike."""
    off = np.abs(np.log(np.maximum(times_s, 1e-12) / design.times_s))
    logs = np.where(known, np.minimum(off, np.log(LARGEST_FACTOR)), np.log(1 + UNPREDICTED))
    families = np.array([case.family for case in table.cases])
    works = design.counts.astype(bool).sum(axis=1) > _LAUNCH_ONLY
    by_family = [np.mean(logs[(families == f) & works]) for f in np.unique(families[works])]
    return float(np.exp(np.mean(by_family)))


_TOLERANCE = 1e-5
_LAUNCH_ONLY = 4
"""Kernels with no more features than these only launch: groups, passes, rows, the launch."""


def changed(model: ModelDefinition, fields: dict[str, object]) -> ModelDefinition:
    """Return a model with other fields, of which nothing is remembered of the old ones."""
    return ModelDefinition.model_validate(model.model_copy(update=fields).model_dump())


def variants(model: ModelDefinition, design: Design, table: Table) -> Iterator[tuple[str, Design]]:
    """Return designs without an option of the policy, or a group of features."""
    policy = model.policy
    assert policy is not None
    for option, field in ExecutionPolicy.model_fields.items():
        if option != "width" and getattr(policy, option) != field.default:
            plain = policy.model_copy(update={option: field.default})
            fields: dict[str, object] = {"policy": plain}
            if option == "units":
                fields["terms"] = {
                    name: term.model_copy(update={"scale": ""})
                    for name, term in model.terms.items()
                }
                fields["derived"] = {k: v for k, v in model.derived.items() if k != "rounds"}
            yield f"policy: {option}", table.design(changed(model, fields))
    for group, patterns in GROUPS.items():
        kept = with_columns(
            design, lambda c, p=patterns: not any(fnmatchcase(c[1], each) for each in p)
        )
        if len(kept.function.columns) < len(design.function.columns):
            yield f"features: {group}", kept


def ablate(folder: Path, kind: str) -> None:
    """Print a line for each variant of the model of a device."""
    weights = WeightSet.read_file(folder / f"{kind}.json")
    measured = MeasurementSet.read_file(measurements_in(folder))
    cases = observations_of(each for each in measured if each.purpose == "measurement")
    model = weights.definition
    if model.reads_code:
        cases = [case for case in cases if case.has_code]
    table = Table.of(cases)
    quality = weights.quality
    recipe = recipe_of(
        model,
        starts=2,
        tolerance=_TOLERANCE,
        model_error=None if quality is None else quality.model_error,
    )
    design = table.design(model)
    whole = left_out(table, design, recipe, None)
    print(
        f"{folder.name} {kind}: {len(design.names)} weights, factor {whole.factor:.4f}", flush=True
    )

    def tell(what: str, changed: Design) -> Fitted:
        found = left_out(table, changed, recipe, whole)
        costs = 100 * (found.factor / whole.factor - 1)
        print(
            f"  {what:34} {len(changed.names):4} weights {found.factor:8.4f} {costs:+7.2f} %",
            flush=True,
        )
        return found

    for what, changed in variants(model, design, table):
        tell(what, changed)
    kept, found = design, whole
    for size in SIZES[kind]:  # step by step, as a fit does (`countperf.fitting.keeping`)
        ranked = sorted(found.columns, key=lambda column: -found.shares[column])
        kept = with_columns(kept, frozenset(ranked[:size]).__contains__)
        found = tell(f"the {size} largest shares", kept)


if __name__ == "__main__":
    kind, *folders = sys.argv[1:] or ["weights"]
    for folder in map(Path, folders or sorted(map(str, FITS.glob("*/")))):
        if (folder / f"{kind}.json").exists():
            ablate(folder, kind)
