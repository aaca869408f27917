#!/usr/bin/env python3
"""Fit the models of shipped weights anew, and compare objective, left-out factor and seconds.

The columns: device and document; cases and weights; the objective that a fit makes small, at the
shipped weights and at the new ones, with the same residuals, loss and row weights; the factor by
which left-out families are off, as the document has it and now; CPU seconds of the fit from all its
starts, and of the fits that leave out a family each. Without arguments, all documents under fits/.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from countperf.fitting.design import Observation, build_design
from countperf.fitting.estimate import estimate_design, problem_of, recipe_of
from countperf.fitting.fit import observations_of
from countperf.fitting.leaving_out import held_out_factor, leave_families_out
from countperf.measurements import MeasurementSet, measurements_in
from countperf.models.weights import WeightSet

FITS = Path(__file__).resolve().parent.parent / "fits"


def compare(path: Path, cases: Sequence[Observation]) -> str:
    """Return a line about the weights of a document, fitted anew to its cases."""
    weights = WeightSet.read_file(path)
    model = weights.definition
    if model.reads_code:
        cases = [case for case in cases if case.has_code]
    quality = weights.quality
    recipe = recipe_of(model, model_error=None if quality is None else quality.model_error)
    design = build_design(cases, model)
    problem = problem_of(design, recipe)
    shipped = {(weight.term, weight.feature): weight.value_s for weight in weights.weights}
    numbers = [shipped.get(column, 0.0) for column in design.function.columns]
    began = time.process_time()
    fitted = estimate_design(design, recipe)
    fitted_after = time.process_time()
    held_out = leave_families_out(cases, fitted, recipe)
    left_out_after = time.process_time()
    return (
        f"{path.parent.name:22} {path.stem:9} {len(cases):5} {len(fitted.function.columns):4}"
        f" {problem.cost(problem.residuals(problem.unknowns(np.array(numbers)))):11.5f}"
        f" {problem.cost(fitted.solution.residuals):11.5f}"
        f" {held_out_factor(held_out):7.4f}"
        f" {fitted_after - began:6.1f} {left_out_after - fitted_after:6.1f}"
        f"{'' if fitted.converged else '  not converged: ' + fitted.message}"
    )


if __name__ == "__main__":
    documents = [
        Path(each)
        for each in sys.argv[1:]
        or sorted(map(str, [*FITS.glob("*/weights.json"), *FITS.glob("*/compiled.json")]))
    ]
    print(
        f"{'device':22} {'document':9} cases wts.   shipped obj.    new obj."
        "   left out  fit s  leaving out s"
    )
    for folder in dict.fromkeys(document.parent for document in documents):
        measured = MeasurementSet.read_file(measurements_in(folder))
        counted = observations_of(each for each in measured if each.purpose == "measurement")
        for document in documents:
            if document.parent == folder:
                print(compare(document, counted), flush=True)
