"""Fitting a model to measurements, and the kernels that exercise its features."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.documents import check_writable
from countperf.features import exercising_kernels_of
from countperf.fitting.fit import AUTO
from countperf.fitting.fit import fit as fit_model
from countperf.hardware.memory import memory_hierarchy_of
from countperf.harness.environment import read_processor
from countperf.models.compiled import COMPILED
from countperf.models.definition import ModelDefinition
from countperf.models.shipped import fitted_model
from countperf.models.structural import STRUCTURAL
from countperf.properties.count_properties import count_kernel
from countperf.properties.vector import PropertyVector
from countperf.steps import report
from countperf.tuning.pools import pool_or
from countperf.workflow.measured import read_measurements, with_known_transactions
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry

if TYPE_CHECKING:
    from countperf.fitting.result import FitResult
    from countperf.measurements import MeasurementSet
    from countperf.models.definition import ModelDefinition


@cache
def catalogue_vectors() -> Mapping[str, PropertyVector]:
    """Return the counts of the catalogue's kernels, one for each family, variant and type.

    Families of random shapes are left out: whatever they exercise, smaller kernels do.
    """
    first: dict[tuple[str, str, str], CatalogEntry] = {}
    for each in (*entries(element_type=None), *entries(element_type=None, collection="extended")):
        first.setdefault((each.family, each.variant, each.element_type), each)
    return {
        each.name: count_kernel(
            each.build(),
            statistics=each.statistics_at(each.check_parameters),
            view="structure",
        )
        for each in first.values()
    }


def catalogue_exercising_kernels(model: ModelDefinition) -> Mapping[str, tuple[str, ...]]:
    """Return, for each feature of a model, the kernels of the catalogue that exercise it.

    One kernel of each family and variant stands for the others; all element types are looked at.
    """
    issued = {name: model.made_of(vector) for name, vector in catalogue_vectors().items()}
    return exercising_kernels_of(model.features, issued)


def lookup_of(model: ModelDefinition) -> Callable[[str], tuple[str, ...]]:
    """Return what looks up a feature's kernels; the catalogue is gone through once, if asked."""
    lookup = cache(lambda: catalogue_exercising_kernels(model))
    return lambda feature: lookup().get(feature, ())


_MANY_CASES = 1000
"""Measured cases from which on several processes fit without some of the families each."""


def fit(
    measurements: MeasurementSet | Path | str,
    *,
    model: str | ModelDefinition = "linear",
    nonnegative: bool = False,
    weigh_noise: bool = True,
    output: Path | str | None = None,
    executor: Executor | None = None,
    workers: int = 1,
) -> FitResult:
    """Fit a model to measurements; test kernels among them are never used.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        Measurements of one device, or their file.
    model : str or ModelDefinition
        A model, its name, the path of its document (TOML or JSON), or ``auto`` to choose among
        those that ship by leaving out families of measurement kernels; ``structural`` to choose
        among execution policies.
    nonnegative : bool
        Keep weights at least zero.
    weigh_noise : bool, optional
        Count cases for less whose times do not repeat; the paper's fit counts all the same.
    output : Path or str, optional
        Where to write the weights document.
    executor : concurrent.futures.Executor, optional
        What fits without some of the families of kernels each; by default `workers` processes.
    workers : int, optional
        How many processes do, where there are so many cases that it is worth it; 1: none beside
        this one. A script that asks for more has to call from ``if __name__ == "__main__"``, for
        each of them imports it.

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
    is_shared = executor is not None or (workers > 1 and len(found) >= _MANY_CASES)
    with pool_or(executor, workers) if is_shared else contextlib.nullcontext() as pool:
        if model not in (AUTO, STRUCTURAL, COMPILED):
            model = fitted_model(model) if isinstance(model, str) else model
            seen = found.select(lambda m: m.purpose == "measurement")
            found = with_known_transactions(seen, model, pool)
        report("fitting", 0)
        result = fit_model(
            found,
            model=model,
            nonnegative=nonnegative,
            weigh_noise=weigh_noise,
            exercising_kernels=catalogue_exercising_kernels,
            memory=memory,
            executor=pool,
        )
    if output is not None:
        result.weights.write_file(output)
    return result
