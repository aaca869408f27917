#!/usr/bin/env python3
"""Fit a share of the measurement kernels, and tell what fewer kernels cost on left-out families.

Of each large family, evenly spaced kernels are fitted
(`countperf.workflow.measuring.evenly_spaced`). Families are left out several at a time, and all
their kernels are predicted, those included that a smaller campaign does not measure. Time is that
of the runs, and a figure for building, checking and counting each kernel.

    scripts/ablate_campaign.py weights 0.5 0.33         # the structural models of all devices
    scripts/ablate_campaign.py compiled 0.5 --device pocl-epyc-zen4
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ablate_models import FITS, FOLDS, Table, factor_of, with_columns, with_rows
from countperf.fitting.design import Design
from countperf.fitting.estimate import recipe_of
from countperf.fitting.fit import observations_of
from countperf.fitting.nonlinear import minimise
from countperf.fitting.problem import Problem, Recipe
from countperf.measurements import Measurement, MeasurementSet, measurements_in
from countperf.models.weights import WeightSet
from countperf.workflow.measuring import evenly_spaced

_BUILD_S = 0.45
"""Time to build, check and count a kernel on two cores, s."""


def chosen(measured: Sequence[Measurement], share: float) -> frozenset[str]:
    """Return the kernels of a campaign that measures a share."""
    families: dict[str, dict[str, None]] = {}
    for each in measured:
        families.setdefault(each.family, {})[each.kernel] = None
    return frozenset(
        kernel for found in families.values() for kernel in evenly_spaced([*found], share)
    )


def left_out(
    table: Table, design: Design, recipe: Recipe, rows: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the factors on families left out, and on all kernels by the fit of a share."""
    whole = minimise(Problem(with_rows(design, rows), recipe), None).solution.coefficients
    times = np.zeros(len(table.cases))
    known = np.zeros(len(table.cases), np.bool_)
    for part in range(FOLDS):
        inside = table.parts == part
        outside = with_rows(design, ~inside & rows)
        seen = np.any(outside.counts != 0, axis=0)
        fitted = minimise(Problem(outside, recipe), whole).solution.coefficients
        within = with_rows(design, inside)
        times[inside] = within.scaled @ fitted
        known[inside] = ~np.any(within.counts[:, ~seen] != 0, axis=1)
    everywhere = design.scaled @ whole
    seen = np.any(design.counts[rows] != 0, axis=0)
    present = ~np.any(design.counts[:, ~seen] != 0, axis=1)
    return factor_of(table, design, times, known), factor_of(table, design, everywhere, present)


def ablate(folder: Path, kind: str, shares: Sequence[float]) -> None:
    """Print a line for each share of a device's kernels."""
    weights = WeightSet.read_file(folder / f"{kind}.json")
    found = MeasurementSet.read_file(measurements_in(folder))
    measured = [each for each in found if each.purpose == "measurement"]
    model = weights.definition
    cases = observations_of(measured)
    if model.reads_code:
        cases = tuple(case for case in cases if case.has_code)
    table = Table.of(cases)
    quality = weights.quality
    recipe = recipe_of(
        model,
        starts=2,
        tolerance=1e-5,
        model_error=None if quality is None else quality.model_error,
    )
    design = table.design(model)
    columns = {(each.term, each.feature) for each in weights.weights}
    design = with_columns(design, columns.__contains__)
    run_s = {each.case: float(sum(map(sum, each.samples_s))) for each in measured}
    for share in (1.0, *shares):
        kept = chosen(measured, share)
        rows = np.array([case.kernel in kept for case in cases])
        factor, inside = left_out(table, design, recipe, rows)
        runs = sum(run_s[each.case] for each in measured if each.kernel in kept)
        print(
            f"{folder.name} {kind} {share:4.2f}: {len(kept):5} kernels {int(rows.sum()):5} cases,"
            f" {(runs + _BUILD_S * len(kept)) / 60:5.1f} min, left-out families {factor:.4f},"
            f" all kernels {inside:.4f}",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("weights", "compiled"))
    parser.add_argument("shares", type=float, nargs="+", help="of each family's kernels")
    parser.add_argument("--device", action="append", help="only this one (repeatable)")
    options = parser.parse_args()
    for folder in sorted(FITS.glob("*/")):
        if (folder / f"{options.kind}.json").exists() and (
            not options.device or folder.name in options.device
        ):
            ablate(folder, options.kind, options.shares)


if __name__ == "__main__":
    main()
