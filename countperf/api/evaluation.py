"""Fitting a model to measurements and judging it; reading measurements, and counting them anew."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from countperf import errors
from countperf.api.catalogue import add_missing_code, check_choice, with_field
from countperf.api.fits import look_up_device
from countperf.api.kernels import Kernel, table_kernels
from countperf.api.mechanistic_models import find_described_device, prepare_answers, profiler_of
from countperf.api.prediction import ChosenWeights, choose_weights
from countperf.counting.analysis import TransactionCounts
from countperf.counting.count_properties import count_kernel
from countperf.counting.structure.memory_hierarchy import CountedCaches
from countperf.counting.vector import caches_of, transaction_roots
from countperf.devices import identity as identities
from countperf.devices.discovery import matching_devices
from countperf.devices.nvcc import require_program
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.measuring import PURPOSES, Measurement, MeasurementSet, Purpose, Timing
from countperf.measuring.campaign import rewrite_file
from countperf.measuring.measurement_sets import measurements_in
from countperf.measuring.tables import identity_elsewhere, read_times
from countperf.mechanistic import comparison
from countperf.mechanistic.compiled_profile import capability_of
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.predict_all import model_names
from countperf.mechanistic.profile import ProfiledKernel
from countperf.models import metrics
from countperf.models.definition import CODE, OVERLAPPED, ModelDefinition, Objective
from countperf.models.fitting import fit_model
from countperf.models.library import fits_folders, fits_for
from countperf.models.metrics import Evaluation
from countperf.models.shipped import COMPILED, STRUCTURAL, load_fitted_model
from countperf.models.weights import WeightSet
from countperf.sizes import checks_keywords
from countperf.steps import report, step_through
from countperf.store import check_writable, read_file_text
from countperf.text import some_of
from measurement_kernels.catalog import entry, families
from measurement_kernels.entry import COLLECTIONS, Collection

_Judged = TypeVar("_Judged")


def read_measurements(given: MeasurementSet | Path | str) -> MeasurementSet:
    """Return measurements, read from their file if a path is given; errors as `read_file`."""
    return given if isinstance(given, MeasurementSet) else MeasurementSet.read_file(given)


def select_collections(
    measurements: MeasurementSet | Path | str, collections: Sequence[Collection]
) -> MeasurementSet:
    """Return the measured kernels of some collections, or all if none is named.

    Variants, and applications listed with the paper's kernels, are no part of what it measured.
    """
    for name in collections:
        check_choice("collection", name, COLLECTIONS)
    measured = read_measurements(measurements)
    if not collections:
        return measured
    known = {family for name in collections for family in families(purpose=None, collection=name)}
    known -= {*families(purpose="application")}
    found = measured.select(lambda m: m.family in known)
    if not len(found):
        raise errors.FitError(
            f"none of the {len(measured)} measured cases is of {' or '.join(collections)}: name"
            " other collections, or measure these (countperf measure --collection"
            f" {collections[0]} --store FILE)"
        )
    return found


def with_known_transactions(
    measurements: MeasurementSet, definition: ModelDefinition
) -> MeasurementSet:
    """Find what a model names of transactions, for measured kernels of the catalogue."""
    roots = definition.named_transactions
    waiting = [
        case
        for case in measurements
        if case.properties is not None
        and set(roots) - set(transaction_roots(case.transactions or {}))
    ]
    counts: dict[str, TransactionCounts] = {}
    found: dict[str, dict[str, int]] = {}
    for case in step_through(waiting, "counting transactions"):
        with suppress(errors.KernelSpecificationError, errors.CountingError):
            kernel = entry(case.kernel)
            statistics = kernel.statistics_at(case.parameters)
            if (count := counts.get(case.kernel)) is None:
                count = TransactionCounts(kernel=kernel.build(), roots=roots, statistics=statistics)
            elif statistics != count.statistics:
                count = replace(count, statistics=statistics)
            counts[case.kernel] = count
            found[case.case] = {**(case.transactions or {}), **count(case.parameters)}
    return with_field(measurements, "transactions", found)


def recount(measurements: Path | str, *, caches: CountedCaches | None = None) -> MeasurementSet:
    """Count the measured kernels of the catalogue again, in place; compiled code stays."""
    counted: dict[object, dict[str, object]] = {}
    properties: dict[str, dict[str, object]] = {}
    with rewrite_file(measurements) as write:
        measured = MeasurementSet.read_file(measurements)
        caches = caches or identities.choose_caches(measured.device)
        if (read := next((case for case in measured if case.code is not None), None)) is not None:
            caches = caches.model_copy(update={"code": caches_of(read.properties or {}).code})
        for case in measured:
            kernel = entry(case.kernel)
            statistics = kernel.statistics_at(case.parameters)
            key = (case.kernel, *sorted(statistics.items()))
            if key not in counted:
                given: Any = {"statistics": statistics, "view": "structure", "caches": caches}
                counted[key] = count_kernel(kernel.build(), **given).to_document()
            properties[case.case] = counted[key]
        renewed = with_field(measured, "properties", properties)
        write(renewed)
    return renewed


def measurements_of_table(
    table: Path | str, *, kernels: str | None = None, device: str, ignore: Sequence[str] = ()
) -> MeasurementSet:
    """Read times that were measured elsewhere, of kernels in ``my.py`` or of ``my.py:name``."""
    given = kernels or ""
    file, _, name = given.rpartition(":") if ":" in given else (given, "", "")
    if device.endswith(".json"):
        identity = identities.DeviceIdentity.read_file(device)
    elif (units := (known := load_device(device)).num_compute_units) is not None:
        identity = identity_elsewhere(known.slug, known.name, units)
    else:
        raise errors.DeviceError(
            f"the description of {device} has no number of compute units, which tells devices "
            "apart; give an identity (.json)",
            device=device,
        )
    frame = read_times(table)
    if name and "kernel" not in frame.columns:
        frame = frame.assign(kernel=name)
    elif name:
        frame = frame.loc[frame["kernel"] == name].reset_index(drop=True)
        if frame.empty:
            message = f"{table}: no row of the column 'kernel' is {name!r}; leave :{name} out"
            raise errors.TableError(message, column="kernel")
    named = frame["kernel"].unique() if "kernel" in frame.columns else []
    return MeasurementSet.from_table(
        frame,
        table_kernels([str(one) for one in named], file or None),
        device=identity,
        source=os.fsencode(Path(table).name).decode(errors="backslashreplace"),
        ignore=ignore,
    )


@checks_keywords
def fit(
    measurements: MeasurementSet | Path | str,
    *,
    model: str | ModelDefinition = "linear",
    nonnegative: bool = False,
    objective: Objective | None = None,
    collections: Sequence[Collection] = (),
    output: Path | str | None = None,
) -> fit_model.FitResult:
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
    objective : {"paper", "noise"}, optional
        What is made small: the sum of squares of relative errors, all cases alike (the default of
        ``linear``), or the model's own, where cases count for less whose times do not repeat.
    collections : sequence of {"paper", "extended", "random"}, optional
        Only kernels of these collections of the catalogue.
    output : Path or str, optional
        Where to write the weights document.

    Raises
    ------
    FitError, DocumentError, ParameterError
        The measurements cannot be fitted, or their file is bad; there is no such model, objective
        or collection.

    Examples
    --------
    >>> found = fit(list_measured_devices()["pocl-epyc-zen4"], collections=["paper"])
    >>> len(found.observations), found.weights.quality.objective[:42]
    (342, 'sum of squares of 1 - predicted/measured, ')
    """
    if objective is not None:
        check_choice("objective", objective, get_args(Objective))
    measured = select_collections(measurements, collections)
    processor = measured.device.processor
    is_here = bool(processor) and processor == identities.read_processor()
    memory = identities.memory_hierarchy_of(measured.device, is_here=is_here)
    check_writable(output)  # before the work
    seen = measured.select(lambda m: m.purpose == "measurement")
    if isinstance(model, str):
        codes = [m.code for m in seen if m.code and f"{CODE}cycles" in m.code]
        overlapped = not codes or any(OVERLAPPED in code for code in codes)  # 0.2.0 read none
        model = load_fitted_model(model, measured.device, memory, overlapped=overlapped)
    known = with_known_transactions(seen, model)
    report("fitting", 0)
    result = fit_model.fit(known, model=model, nonnegative=nonnegative, objective=objective)
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
    collections: Sequence[Collection] = (),
) -> Evaluation:
    """Compare predicted with measured times of the kernels that judge fits among measurements.

    ``remarks`` say how the model was chosen, and name the cases that it does not predict.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        Measurements of one device, or their file.
    weights, model, force : optional
        As for `countperf.predict`; stored code need not be read here.
    purposes : sequence of {"test", "application", "variant"}, optional
        Only kernels for these; by default all but those for measurement, which fits have seen.
    collections : sequence of {"paper", "published", "downstream"}, optional
        Only kernels of these collections; of ``paper`` these are the paper's four test kernels.

    Raises
    ------
    DeviceMismatchError, FitError, DocumentError, PredictionError
        The measurements are of another device, or nothing can be evaluated.
    """
    wanted = set(purposes or PURPOSES) - {"measurement"}
    judged = select_collections(measurements, collections).select(lambda m: m.purpose in wanted)
    evaluation, choice = _judge(metrics.evaluate, judged, weights, model, force)
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
        known = _add_code(judged) if definition.reads_code else judged
        return judge(used.weights, with_known_transactions(known, definition)), used.why

    has_code = any(case.code for case in judged)
    return choose_weights(
        weights, model=model, device=judged.device, force=force, has_code=has_code
    ).apply(judge_by)


_READ: dict[str, tuple[Measurement, Measurement]] = {}
"""Cases before and after their code was read, by name: errors and rankings are of the same ones."""


def _add_code(judged: MeasurementSet) -> MeasurementSet:
    """Read the machine code that is not stored, if the device is here; refuse if there is none."""
    device = judged.device
    reason = f"{device.slug}, {device.name}, is not here"
    if here := matching_devices(device):
        waiting = judged.select(lambda m: _READ.get(m.case, (None,))[0] != m)
        try:
            known = add_missing_code(waiting, here[0].label)
            _READ.update({m.case: (m, read) for m, read in zip(waiting, known, strict=True)})
            judged = replace(judged, measurements=tuple(_READ[m.case][1] for m in judged))
        except errors.CountperfError as error:
            reason = str(error)
    if len(judged) and not any(case.code for case in judged):
        raise errors.FitError(
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
) -> metrics.RankingEvaluation:
    """Compare the predicted with the measured order of the sets of variants among measurements."""
    variants = read_measurements(measurements).select(lambda m: m.purpose == "variant")
    return _judge(metrics.evaluate_ranking, variants, weights, model, force)[0]


COMPARED_INSTRUCTIONS = 150
"""Instructions of a sub-group's graph in a comparison: calibrations evaluate it many times."""


def list_measured_devices() -> dict[str, Path]:
    """List the devices whose measurements come with countperf: slug to file, sorted."""
    found = (p.parent for f in reversed(fits_folders()) for p in f.glob("*/measurements.jsonl*"))
    return dict(sorted({folder.name: measurements_in(folder) for folder in found}.items()))


def compare(
    measurements: MeasurementSet | Path | str | None = None,
    *,
    device: DeviceParameters | Path | str | None = None,
    models: Sequence[str] = (),
    levels: Sequence[comparison.CalibrationLevel] = ("published", "scaled"),
    purposes: Sequence[Purpose] = ("test",),
    kernel: Any = None,
    timing: Timing | Path | str | None = None,
    profile_options: Mapping[str, Any] | None = None,
) -> comparison.Comparison:
    """Predict measured kernels by all models: as published, and scaled by a factor.

    Or, in the place of measurements, a kernel of one's own by its times (of `time_kernel`, or their
    file): by mechanistic models of the device, and by those of its fit, the one to trust first.
    What is named is looked up before any kernel is counted.
    """
    there = (*model_names(variants=timing is not None), "linear", STRUCTURAL, COMPILED)
    if unknown := [name for name in models if name not in there]:
        raise errors.ParameterError(
            f"no model is called {unknown[0]!r}; there are {', '.join(there)}"
            f"{errors.nearest(unknown[0], there)}",
            parameter="model",
        )
    if (kernel is None) != (timing is None) or (measurements is None) == (kernel is None):
        both = f"{errors.option('kernel', 'KERNEL')}, {errors.option('timing', 'FILE')}"
        raise errors.ParameterError(
            f"a kernel of yours is judged by its times alone: pass both ({both}), where FILE comes"
            " from: countperf time KERNEL n=... --device DEVICE --output FILE",
            parameter="timing",
        )
    profile_options = profile_options or {}
    if timing is not None:
        timings = timing if isinstance(timing, Timing) else Timing.read_file(timing)
        return _compare_own(kernel, timings, device, models, levels, profile_options)
    known = list_measured_devices()
    source = (
        known.get(measurements, measurements) if isinstance(measurements, str) else measurements
    )
    if isinstance(source, str) and not Path(source).exists():
        there = f"they do of {', '.join(known)}" if known else "this installation has none"
        raise errors.ParameterError(
            f"there is no file {source}, and no measurements of a device of this name ship;"
            f" {there}; name a campaign's file (.jsonl)",
            parameter="measurements",
        )
    assert source is not None  # a kernel of the user's was dealt with
    measured = read_measurements(source)
    slug = measured.device.slug
    if device is None:
        beside = None if isinstance(source, MeasurementSet) else source
        device = look_up_device(slug, beside) or load_device(slug)
    elif not isinstance(device, DeviceParameters):
        device = load_device(device)
    compared = comparison.compare_models(
        device,
        tuple(measured),
        _profiles(device, profile_options),
        models=models,
        levels=levels,
        purposes=purposes,
    )
    if models and "linear" not in models:
        return compared
    families_of_paper = families(collection="paper")
    of_paper = measured.select(lambda m: m.family in families_of_paper)
    linear = fit_model.fit(of_paper if len(of_paper) else measured).weights
    with_linear = (comparison.linear_result(linear, measured, purposes), *compared.models)
    return compared.model_copy(update={"models": with_linear})


def _compare_own(
    kernel: Any,
    timings: Timing,
    device: DeviceParameters | Path | str | None,
    models: Sequence[str],
    levels: Sequence[comparison.CalibrationLevel],
    options: Mapping[str, Any],
) -> comparison.Comparison:
    """Compare models on a kernel's times: those of the device's description, and of its fit."""
    slug, timed = timings.device.slug, [size.measurement for size in timings.sizes]
    fit = next(iter(fits_for(timings.device)), None)
    if device is None:
        device = look_up_device(slug, None if fit is None else fit.name)
    elif not isinstance(device, DeviceParameters):
        device = load_device(device)
    if device is None and fit is None:
        device = find_described_device(weights=slug)  # says that there is none
    asked = Kernel.of(kernel, dict(timed[0].parameters), options.get("statistics"))
    mechanistic = [name for name in models or model_names() if name in model_names(variants=True)]
    fitted = [name for name in models or (fit.models if fit else ()) if name not in mechanistic]
    times: dict[str, list[float | str]] = {}
    given = {"max_instructions": COMPARED_INSTRUCTIONS, **options}
    answers_at = None
    if device is not None and mechanistic:
        answers_at = prepare_answers(asked, device, mechanistic, given)
    for one in step_through(timed, "predicting"):
        at = asked.at(dict(one.parameters))
        said: dict[str, Any] = {} if answers_at is None else dict(answers_at(at.sizes))
        for name in fitted:
            try:
                weights = choose_weights(model=name, device=timings.device)
                said[f"{comparison.FITTED}{name}"] = weights.predict(at)
            except errors.CountperfError as error:
                said[f"{comparison.FITTED}{name}"] = error
        for name, answer in said.items():
            time_s = float(getattr(answer, "time_s", math.nan))
            times.setdefault(name, []).append(time_s if math.isfinite(time_s) else str(answer))
    named = {"kernel": timings.kernel, "purpose": "application"}
    own = [one.model_copy(update={**named, "case": f"own: {one.case}"}) for one in timed]
    compared = comparison.compare_own(slug if device is None else device.slug, own, times)
    kept = [m for m in compared.models if m.level in (*levels, "fitted")]
    return compared.model_copy(update={"models": tuple(kept)})


def _profiles(device: DeviceParameters, options: Mapping[str, Any]) -> comparison.Profiler:
    """Return profiles of measured kernels, of the catalogue, each counted once."""
    code = {name: options[name] for name in ("analysis", "sass") if name in options}
    if code.get("analysis", "counts") != "counts" or "sass" in code:
        capability_of(device)  # what is missing is said before the work
        for program in () if "sass" in code else ("nvcc", "nvdisasm"):
            require_program(program)
        if "sass" in code:
            read_file_text(Path(code["sass"]))
    profilers: dict[object, KernelProfiler] = {}

    def profile(measurement: Measurement) -> ProfiledKernel:
        name = measurement.kernel
        statistics = entry(name).statistics_at(measurement.parameters)
        key = (name, tuple(sorted(statistics.items())))
        if key not in profilers:
            given = {"max_instructions": COMPARED_INSTRUCTIONS, "statistics": statistics, **code}
            profilers[key] = profiler_of(entry(name).build(), device, {}, given)
        return profilers[key].at(measurement.parameters)

    return profile
