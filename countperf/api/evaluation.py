"""Fitting a model to measurements and judging it; reading measurements, and counting them anew."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from countperf.api.catalogue import lacks_code, with_machine_code
from countperf.api.kernels import table_kernels
from countperf.api.weights_choice import ChosenWeights, choose_weights
from countperf.counting.analysis import TransactionCounts
from countperf.counting.count_properties import count_kernel
from countperf.counting.counts import caches_of, transaction_roots
from countperf.counting.structure.memory_hierarchy import CountedCaches
from countperf.devices.discovery import matching_devices
from countperf.devices.identity import DeviceIdentity, counted_caches_of, memory_hierarchy_of
from countperf.devices.machine import read_processor
from countperf.devices.parameters import load_device
from countperf.errors import (
    CountingError,
    CountperfError,
    DeviceError,
    FitError,
    KernelSpecificationError,
    TableError,
)
from countperf.measuring import PURPOSES, MeasurementSet
from countperf.measuring.campaign import rewrite_file
from countperf.measuring.recorded import read_times
from countperf.measuring.tables import identity_elsewhere
from countperf.models.fitting.fit_model import fit as fit_model
from countperf.models.fitting.fit_model import says_overlap
from countperf.models.fitting.judging import evaluate as evaluate_cases
from countperf.models.fitting.judging import evaluate_ranking as evaluate_sets
from countperf.models.shipped import load_fitted_model
from countperf.sizes import checks_keywords
from countperf.steps import report, stepped
from countperf.store import check_writable
from countperf.text import some_of
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.measuring import Measurement, MeasurementSet, Purpose
    from countperf.models.definition import ModelDefinition
    from countperf.models.fitting.fit_model import FitResult
    from countperf.models.fitting.judging import RankingEvaluation
    from countperf.models.metrics import Evaluation
    from countperf.models.weights import WeightSet


_Judged = TypeVar("_Judged")


def read_measurements(given: MeasurementSet | Path | str) -> MeasurementSet:
    """Return measurements, read from their file if a path is given; errors as `read_file`."""
    return given if isinstance(given, MeasurementSet) else MeasurementSet.read_file(given)


def with_known_transactions(
    measurements: MeasurementSet, definition: ModelDefinition
) -> MeasurementSet:
    """Find what a model names of transactions, for measured kernels of the catalogue.

    Cases of other kernels, and those of which transactions are not known, are left as they are.
    """
    waiting: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        known = transaction_roots(measurement.transactions or {})
        if measurement.properties is not None and set(definition.named_transactions) - set(known):
            waiting.setdefault(measurement.kernel, []).append(measurement)
    if not waiting:
        return measurements
    some = [
        (name, tuple((m.case, m.parameters) for m in measurement))
        for name, measurement in waiting.items()
    ]
    find = partial(_transactions_of, definition.named_transactions)
    parts = stepped(map(find, some), "counting transactions", total=len(some))
    transactions = {case: numbers for part in parts for case, numbers in part.items()}

    def renewed(measurement: Measurement) -> Measurement:
        known = {**(measurement.transactions or {}), **transactions.get(measurement.case, {})}
        return measurement.model_copy(update={"transactions": known or None})

    return replace(measurements, measurements=tuple(map(renewed, measurements)))


def _transactions_of(
    roots: tuple[str, ...], kernel: tuple[str, Sequence[tuple[str, Mapping[str, int]]]]
) -> dict[str, dict[str, int]]:
    """Return the transactions of a kernel of the catalogue by case, where they are known."""
    name, cases = kernel
    transactions: dict[str, dict[str, int]] = {}
    with contextlib.suppress(KernelSpecificationError):
        described = entry(name)
        count = TransactionCounts(kernel=described.build(), roots=roots, statistics={})
        for case, parameters in cases:
            statistics = described.statistics_at(parameters)
            if statistics != count.statistics:
                count = replace(count, statistics=statistics)
            with contextlib.suppress(CountingError):
                transactions[case] = count(parameters)
    return transactions


def recount(measurements: Path | str, *, caches: CountedCaches | None = None) -> MeasurementSet:
    """Count the measured kernels of the catalogue again, in place; nothing is measured."""
    with rewrite_file(measurements) as write:
        measured = MeasurementSet.read_file(measurements)
        renewed = _recount_kernels(measured, caches or counted_caches_of(measured.device))
        write(renewed)
    return renewed


def _recount_kernels(measured: MeasurementSet, caches: CountedCaches) -> MeasurementSet:
    """Return measurements whose kernels are counted anew.

    What is known of their compiled code stays, and the statement of the cache that it was read for.
    """
    read = [caches_of(case.properties or {}).code for case in measured if case.code is not None]
    if read:
        caches = caches.model_copy(update={"code": read[0]})
    counted: dict[object, dict[str, Any]] = {}

    def properties(case: Measurement) -> dict[str, Any]:
        kernel = entry(case.kernel)
        statistics = kernel.statistics_at(case.parameters)
        key = (case.kernel, tuple(sorted(statistics.items())))
        if key not in counted:
            vector = count_kernel(
                kernel.build(), statistics=statistics, view="structure", caches=caches
            )
            counted[key] = vector.to_document()
        return counted[key]

    return replace(
        measured,
        measurements=tuple(
            case.model_copy(update={"properties": properties(case)}) for case in measured
        ),
    )


def measurements_of_table(
    table: Path | str,
    *,
    kernels: str | None = None,
    device: str,
    source: str = "",
    ignore: Sequence[str] = (),
) -> MeasurementSet:
    """Read times that were measured elsewhere from a file."""
    file, name = kernels or "", ""
    if ":" in file:
        file, _, name = file.rpartition(":")
    if device.endswith(".json"):
        identity = DeviceIdentity.read_file(device)
    else:
        known = load_device(device)
        if known.num_compute_units is None:
            raise DeviceError(
                f"the description of {device} has no number of compute units, which tells devices "
                "apart; give an identity (.json)",
                device=device,
            )
        identity = identity_elsewhere(known.slug, known.name, known.num_compute_units)
    frame = read_times(table)
    if name and "kernel" not in frame.columns:
        frame = frame.assign(kernel=name)
    elif name:
        frame = frame.loc[frame["kernel"] == name].reset_index(drop=True)
        if frame.empty:
            message = f"{table}: no row of the column 'kernel' is {name!r}; leave :{name} out"
            raise TableError(message, column="kernel")
    named = frame["kernel"].tolist() if "kernel" in frame.columns else []
    names = [str(name_) for name_ in dict.fromkeys(named)]
    return MeasurementSet.from_table(
        frame,
        table_kernels(names, file or None),
        device=identity,
        source=source or os.fsencode(Path(table).name).decode(errors="backslashreplace"),
        ignore=ignore,
    )


@checks_keywords
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
    seen = measured.select(lambda m: m.purpose == "measurement")
    if isinstance(model, str):
        model = load_fitted_model(model, measured.device, memory, overlapped=says_overlap(seen))
    known = with_known_transactions(seen, model)
    report("fitting", 0)
    result = fit_model(known, model=model, nonnegative=nonnegative, weigh_noise=weigh_noise)
    if output is not None:
        result.weights.write_file(output)
    return result


@checks_keywords
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
        Which model's weights, where they are looked up. By default the one that predicts: that
        which reads compiled code where the code is stored, or device and compiler are here to read
        it; else the structural one.
    force : bool
        Evaluate weights of another device.
    purposes : sequence of {"test", "application", "variant"}, optional
        Only kernels for these; by default all but those for measurement, which fits have seen.

    Returns
    -------
    Evaluation
        Cases ordered by purpose. Its `remarks` say how the model was chosen, and name the cases
        that it does not predict.

    Raises
    ------
    DeviceMismatchError, FitError, DocumentError, PredictionError
        The measurements are of another device, or nothing can be evaluated.
    """
    judging = set(purposes or PURPOSES) - {"measurement"}
    judged = read_measurements(measurements).select(lambda m: m.purpose in judging)
    evaluation, choice = _judge(evaluate_cases, judged, weights, model, force)
    known = {(case.kernel, tuple(case.parameters.items())) for case in evaluation.cases}
    left = [m.case for m in judged if (m.kernel, tuple(m.parameters.items())) not in known]
    said = f"not counted, or without what the model reads, and left out: {some_of(left)}"
    return evaluation.model_copy(
        update={"remarks": tuple(filter(None, (choice, said if left else "")))}
    )


def _judge(
    judge: Callable[[WeightSet, MeasurementSet], _Judged],
    judged: MeasurementSet,
    weights: WeightSet | Path | str,
    model: str | None,
    force: bool,
) -> tuple[_Judged, str]:
    """Judge the model that `countperf.predict` chooses for measured kernels; say how it did."""

    def judge_by(used: ChosenWeights, _: bool) -> tuple[_Judged, str]:
        definition = used.weights.definition
        known = _with_code(judged) if definition.reads_code else judged
        return judge(used.weights, with_known_transactions(known, definition)), used.why

    has_code = any(case.code for case in judged)
    return choose_weights(
        weights, model=model, device=judged.device, force=force, has_code=has_code
    ).apply(judge_by)


def _with_code(judged: MeasurementSet) -> MeasurementSet:
    """Read the machine code that is not stored, if the device is here; refuse if there is none."""
    device = judged.device
    reason = f"{device.slug}, {device.name}, is not here"
    if matching_devices(device) and any(map(lacks_code, judged)):
        try:
            judged = with_machine_code(judged)
        except CountperfError as error:
            reason = str(error)
    if len(judged) and not any(case.code for case in judged):
        raise FitError(
            "no machine code of these kernels is stored; run countperf compiled --store FILE on a"
            f" machine with {device.name} and its compiler ({reason}), or name another model"
        )
    return judged


def evaluate_ranking(
    measurements: MeasurementSet | Path | str,
    *,
    weights: WeightSet | Path | str,
    model: str | None = None,
    force: bool = False,
) -> RankingEvaluation:
    """Compare the predicted with the measured order of the sets of variants among measurements."""
    variants = read_measurements(measurements).select(lambda m: m.purpose == "variant")
    return _judge(evaluate_sets, variants, weights, model, force)[0]
