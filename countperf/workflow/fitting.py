"""Fitting a model to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from countperf.documents import check_writable
from countperf.fitting.fit import fit as fit_model
from countperf.hardware.memory import memory_hierarchy_of
from countperf.harness.environment import read_processor
from countperf.models.shipped import fitted_model
from countperf.steps import report
from countperf.workflow.measured import read_measurements, with_known_transactions

if TYPE_CHECKING:
    from countperf.fitting.fit import FitResult
    from countperf.measurements import MeasurementSet
    from countperf.models.definition import ModelDefinition


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
    found = read_measurements(measurements)
    is_here = bool(found.device.processor) and found.device.processor == read_processor()
    memory = memory_hierarchy_of(found.device, is_here=is_here)
    check_writable(output)  # before the work
    if isinstance(model, str):
        model = fitted_model(model, found.device, memory)
    seen = found.select(lambda m: m.purpose == "measurement")
    known = with_known_transactions(seen, model)
    report("fitting", 0)
    result = fit_model(known, model=model, nonnegative=nonnegative, weigh_noise=weigh_noise)
    if output is not None:
        result.weights.write_file(output)
    return result
