"""Fitting a model to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.documents import check_writable
from countperf.fitting.fit import fit as fit_model
from countperf.fitting.judging import evaluate as evaluate_cases
from countperf.fitting.judging import evaluate_ranking as evaluate_sets
from countperf.hardware.identity import memory_hierarchy_of
from countperf.harness.environment import read_processor
from countperf.measurements import PURPOSES
from countperf.models.shipped import fitted_model
from countperf.steps import report
from countperf.workflow.measured import read_measurements, with_known_transactions
from countperf.workflow.prediction import Target

if TYPE_CHECKING:
    from countperf.fitting.fit import FitResult
    from countperf.fitting.judging import RankingEvaluation
    from countperf.measurements import MeasurementSet, Purpose
    from countperf.metrics import Evaluation
    from countperf.models.definition import ModelDefinition
    from countperf.models.weights import WeightSet


def fit(
    measurements: MeasurementSet | Path | str,
    *,
    model: str | ModelDefinition = "linear",
    nonnegative: bool = False,
    weigh_noise: bool = True,
    output: Path | str | None = None,
) -> FitResult:
    """Fit a model to measurements; test kernels among them are never used.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        Measurements of one device, or their file.
    model : str or ModelDefinition
        A model, its name (``linear``, ``structural``, ``compiled``), or the path of its document
        (TOML or JSON).
    nonnegative : bool
        Keep weights at least zero.
    weigh_noise : bool, optional
        Count cases for less whose times do not repeat; the paper's fit counts all the same.
    output : Path or str, optional
        Where to write the weights document.

    Returns
    -------
    FitResult
        ``.weights``, ``.verdicts``; printable.

    Raises
    ------
    FitError, DocumentError
        The measurements cannot be fitted, or their file is bad.
    ParameterError
        There is no such model.
    """
    measured = read_measurements(measurements)
    is_here = bool(measured.device.processor) and measured.device.processor == read_processor()
    memory = memory_hierarchy_of(measured.device, is_here=is_here)
    check_writable(output)  # before the work
    if isinstance(model, str):
        model = fitted_model(model, measured.device, memory)
    seen = measured.select(lambda m: m.purpose == "measurement")
    known = with_known_transactions(seen, model)
    report("fitting", 0)
    result = fit_model(known, model=model, nonnegative=nonnegative, weigh_noise=weigh_noise)
    if output is not None:
        result.weights.write_file(output)
    return result


def evaluate(
    measurements: MeasurementSet | Path | str,
    *,
    weights: WeightSet | Path | str,
    model: str | None = None,
    force: bool = False,
    purposes: Sequence[Purpose] = (),
) -> Evaluation:
    """Compare predicted with measured times of the kernels that judge fits among measurements.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        Measurements of one device, or their file.
    weights : WeightSet, Path or str
        Weights, or their slug or path.
    model : str, optional
        Which model's weights, where they are looked up; by default the one chosen for the device.
    force : bool
        Evaluate weights of another device.
    purposes : sequence of {"test", "application", "variant"}, optional
        Only kernels for these; by default all but those for measurement, which fits have seen.

    Returns
    -------
    Evaluation
        Cases ordered by purpose.

    Raises
    ------
    DeviceMismatchError, FitError, DocumentError, PredictionError
        The measurements are of another device, or nothing can be evaluated.
    """
    measured = read_measurements(measurements)
    target = Target(weights=weights, model=model, device=measured.device, force=force)
    weights = target.checked()
    judging = set(purposes or PURPOSES) - {"measurement"}
    judged = measured.select(lambda m: m.purpose in judging)
    return evaluate_cases(weights, with_known_transactions(judged, weights.definition))


def evaluate_ranking(
    measurements: MeasurementSet | Path | str,
    *,
    weights: WeightSet | Path | str,
    model: str | None = None,
    force: bool = False,
) -> RankingEvaluation:
    """Compare the predicted with the measured order of the sets of variants among measurements."""
    measured = read_measurements(measurements)
    target = Target(weights=weights, model=model, device=measured.device, force=force)
    weights = target.checked()
    variants = measured.select(lambda m: m.purpose == "variant")
    return evaluate_sets(weights, with_known_transactions(variants, weights.definition))
