"""The main job as plain functions: kernels by name, campaigns, fits, predictions, evaluations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from countperf.documents import check_writable
from countperf.errors import (
    CountingError,
    DeviceMismatchError,
    KernelBuildError,
    KernelSpecificationError,
    ParameterError,
    PropertyNameError,
)
from countperf.kernels import counted, kernel_itself, kernel_statistics
from countperf.kernels import load_kernel as load_kernel
from countperf.predicting import (
    catalogue_suppliers,
    catalogue_vectors,
    default_weights,
    lookup_of,
    named_device,
    vector_for,
    weights_for,
)
from countperf.predicting import explain as explain
from countperf.predicting import predict as predict
from countperf.predicting import with_compiled_code as with_compiled_code

if TYPE_CHECKING:
    from countperf.counting.analysis import KernelAnalysis
    from countperf.execution.policy import ExecutionPolicy
    from countperf.fitting.comparison import Comparison, Level
    from countperf.fitting.ranking import RankingEvaluation
    from countperf.fitting.result import FitResult
    from countperf.hardware.parameters import DeviceParameters
    from countperf.harness.characterization.document import Characterization
    from countperf.harness.compile.compiled_kernel import CompiledKernel
    from countperf.harness.device import Device
    from countperf.harness.progress import Progress
    from countperf.harness.store import Rewriting
    from countperf.machine_code.code import CompiledCode
    from countperf.measurements import Measurement, MeasurementSet, Purpose, Statistic
    from countperf.mechanistic.from_kernel import KernelProfiler
    from countperf.mechanistic.profile import ProfiledKernel
    from countperf.metrics import Evaluation
    from countperf.models.coverage import Coverage
    from countperf.models.definition import FittedModel, Loss, Residual
    from countperf.models.weights import WeightSet
    from countperf.properties.taxonomy import View
    from countperf.properties.vector import PropertyVector
    from countperf.tuning.devices import DeviceResults
    from countperf.tuning.points import Limits, Point
    from countperf.tuning.ranking import Ranking
    from countperf.tuning.result import TuningResult
    from countperf.tuning.space import SearchSpace
    from measurement_kernels.entry import CatalogEntry, Collection

ProfileName = Literal["quick", "paper", "rental", "broad"]

_TRIED_VARIANTS = 5  # of a set, to find its sizes

_MANY_CASES = 1000
"""Measured cases from which on several processes fit without some of the families each."""

_BATCH = 40  # kernels that a process compiles
_BETWEEN_FILES = 400  # after so many the file is written

COMPARED_INSTRUCTIONS = 150
"""Instructions of a sub-group's graph in a comparison: calibrations evaluate it many times."""


# {{{ devices


def devices() -> tuple[Device, ...]:
    """List the devices of this machine, OpenCL and CUDA, working or not (see `doctor`)."""
    from countperf.harness.devices import discover

    return discover().devices


def known_device(slug: str, beside: Path | str | None = None) -> DeviceParameters | None:
    """Return what is known of a device, or None.

    Parameters
    ----------
    slug : str
        The device.
    beside : Path or str, optional
        Its weights or measurements, or a slug of weights: what ``characterize`` wrote beside them
        (``parameters.json``) goes before the catalogue, if it is of this device.
    """
    from countperf.hardware.library import available_devices, load_device
    from countperf.hardware.parameters import DeviceParameters
    from countperf.models.library import find_fit

    if beside is not None:
        fit = find_fit(str(beside))
        place = Path(beside) if fit is None else fit.folder
        near = (place if place.is_dir() else place.parent) / "parameters.json"
        if near.is_file() and (found := DeviceParameters.read_file(near)).slug == slug:
            return found
    return load_device(slug) if slug in available_devices() else None


# }}}

# {{{ measuring


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How much a campaign measures.

    Attributes
    ----------
    name : str
        ``quick``, ``paper``, ``rental`` (a GPU that is paid by the minute), or ``broad`` (for
        models that are to predict kernels unlike the paper's).
    shapes_per_kernel : int
        Group shapes of the device's set that are measured, at most three.
    max_run_s : float
        Longest time of one run, s.
    overhead_factor : float
        How many times the launch overhead the smallest size has to take.
    max_setup_s : float
        Longest time to make inputs and put them into the device's memory, s.
    collections : tuple of str
        Which kernels of the catalogue; see `measurement_kernels.catalog.entries`.
    """

    name: ProfileName
    shapes_per_kernel: int
    max_run_s: float
    overhead_factor: float
    max_setup_s: float = 2.0
    collections: tuple[Collection, ...] = ("paper",)


PROFILES: Mapping[str, Profile] = {
    "quick": Profile(name="quick", shapes_per_kernel=2, max_run_s=0.06, overhead_factor=30.0),
    "paper": Profile(name="paper", shapes_per_kernel=3, max_run_s=0.25, overhead_factor=100.0),
    "rental": Profile(
        name="rental", shapes_per_kernel=3, max_run_s=0.02, overhead_factor=15.0, max_setup_s=0.6
    ),
    "broad": Profile(
        name="broad",
        shapes_per_kernel=2,
        max_run_s=0.06,
        overhead_factor=10.0,
        max_setup_s=0.6,
        collections=("paper", "extended", "random"),
    ),
}


def profile_entries(
    profile: Profile,
    group_class: str,
    *,
    families: Sequence[str] = (),
    element_types: Sequence[str] = ("f32",),
    purposes: Sequence[Purpose] = (),
    collections: Sequence[Collection] = (),
    max_group_size: int | None = None,
) -> tuple[CatalogEntry, ...]:
    """List the catalogue's kernels that a profile measures, those that judge fits last.

    Parameters
    ----------
    profile : Profile
        How much.
    group_class : {"small", "medium", "large"}
        The paper's set of group shapes that the device uses.
    families : sequence of str
        Only these families; all if empty.
    element_types : sequence of str
        Only these element types of the paper's kernels; all others are measured in their own,
        whatever it is.
    purposes : sequence of {"measurement", "test", "application", "variant"}
        Only these; by default the named families whatever they are for, and if none is named,
        measurement and test kernels.
    collections : sequence of {"paper", "extended", "random"}
        Only these; by default the named families wherever they belong, and if none is named, what
        the profile says.
    max_group_size : int, optional
        Work items per group that the device takes; larger groups are left out of the extended
        classes and of the random families.

    Raises
    ------
    KernelSpecificationError
        No such family, or no kernel is left.
    """
    from countperf.measurements import PURPOSES
    from measurement_kernels.catalog import entries, group_shapes
    from measurement_kernels.entry import COLLECTIONS

    shapes = group_shapes(group_class)
    linear = [s for s in shapes if s[1] == 1]
    planar = [s for s in shapes if s[1] > 1]
    # the shapes of the test kernels first: every set has them
    linear.sort(key=lambda shape: shape != (256, 1))
    planar.sort(key=lambda shape: shape != (16, 16))
    wanted = {*linear[: profile.shapes_per_kernel], *planar[: profile.shapes_per_kernel]}
    _check_families(families)
    if not purposes:
        purposes = PURPOSES if families else ("measurement", "test")
    if not collections:
        collections = COLLECTIONS if families else profile.collections

    def fits(e: CatalogEntry) -> bool:
        if e.collection == "paper":
            return e.purpose != "measurement" or e.group_shape in wanted
        return max_group_size is None or e.group_shape[0] * e.group_shape[1] <= max_group_size

    kept = tuple(
        e
        for purpose in PURPOSES
        if purpose in purposes
        for e in entries(element_type=None, purpose=purpose, collection=None)
        if e.collection in collections
        and fits(e)
        and (purpose == "application" or e.collection != "paper" or e.element_type in element_types)
        and (not families or e.family in families)
    )
    if not kept:
        raise KernelSpecificationError(
            f"no {' or '.join(purposes)} kernel of {', '.join(families) or 'any family'} "
            f"({' or '.join(collections)}) has "
            f"element type {' or '.join(element_types)}",
            specification=",".join(element_types),
        )
    return kept


def measure_catalogue(
    *,
    store: Path | str,
    device: str | None = None,
    profile: ProfileName = "paper",
    families: Sequence[str] = (),
    element_types: Sequence[str] = ("f32",),
    purposes: Sequence[Purpose] = (),
    collections: Sequence[Collection] = (),
    shapes_per_kernel: int | None = None,
    progress: Progress | None = None,
) -> MeasurementSet:
    """Measure the library's kernels on a device; resumes where an earlier call stopped.

    Parameters
    ----------
    store : Path or str
        The campaign's file (``.jsonl``); the chosen sizes are kept beside it.
    device : str, optional
        ``pocl:0``, or a part of a device's name; by default the working device with the highest
        copy bandwidth.
    profile : {"paper", "quick", "rental", "broad"}
        How much is measured, and by which protocol.
    families : sequence of str, optional
        Only these families of kernels.
    element_types : sequence of str, optional
        The paper's kernels of these types only, by default f32; all others have their own.
    purposes : sequence of {"measurement", "test", "application", "variant"}, optional
        As for `profile_entries`: by default the named families, or measurement and test kernels.
    collections : sequence of {"paper", "extended", "random"}, optional
        Only these; as in `profile_entries`.
    shapes_per_kernel : int, optional
        Group shapes that are measured; by default as many as the profile says.
    progress : callable, optional
        Is told of everything that happens.

    Returns
    -------
    MeasurementSet
        All that is in the file, of whatever purpose.

    Raises
    ------
    DeviceError, IncompatibleMeasurementsError, DocumentError, MeasurementError
        As for `measure`.
    KernelSpecificationError
        No such family.
    """
    from countperf.harness.devices import find_device

    chosen = PROFILES[profile]
    if shapes_per_kernel is not None:
        chosen = replace(chosen, shapes_per_kernel=shapes_per_kernel)
    found = find_device(device)
    wanted = profile_entries(
        chosen,
        found.limits.group_class,
        families=families,
        element_types=element_types,
        purposes=purposes,
        collections=collections,
        max_group_size=found.limits.max_group_size,
    )
    return _measure(found, chosen, wanted, Path(store), progress)


def measure_variants(
    *,
    store: Path | str,
    device: str | None = None,
    profile: ProfileName = "paper",
    families: Sequence[str] = (),
    count: int | None = None,
    progress: Progress | None = None,
) -> MeasurementSet:
    """Measure sets of variants, or parts of them, as `measure_catalogue` does.

    Parameters
    ----------
    store, device, profile, progress
        As for `measure_catalogue`; it may be the same file.
    families : sequence of str, optional
        Only these sets (`measurement_kernels.variants.sets`).
    count : int, optional
        Of each set so many variants, by default all; more may follow in a later call.

    Returns
    -------
    MeasurementSet
        All that the file holds. All variants of a set have the same sizes: of the sizes that fit
        its first five, one by one, the largest.

    Raises
    ------
    DeviceError, IncompatibleMeasurementsError, DocumentError, MeasurementError
        As for `measure_catalogue`.
    KernelSpecificationError
        There is no such set.
    """
    from countperf.harness.devices import find_device
    from measurement_kernels.variants.sets import variant_entries, variant_sets

    wanted = [e for name in families or variant_sets() for e in variant_entries(name)[:count]]
    return _measure(find_device(device), PROFILES[profile], wanted, Path(store), progress)


def _measure(
    device: Device,
    profile: Profile,
    wanted: Sequence[CatalogEntry],
    store: Path,
    progress: Progress | None,
) -> MeasurementSet:
    """Find out which sizes kernels take on a device, and measure them."""
    from countperf.harness.campaign import measure, open_store
    from countperf.harness.overhead import measure_limits
    from countperf.harness.progress import silent
    from countperf.harness.protocols import PROTOCOLS
    from countperf.harness.runner import KernelRunner
    from countperf.harness.size_selection import calibrate
    from countperf.properties.count_properties import count_kernel
    from measurement_kernels.variants.sets import variant_entries

    runner = KernelRunner.open(device)
    protocol = PROTOCOLS[profile.name]
    sets = dict.fromkeys(each.family for each in wanted if each.purpose == "variant")
    tried = [each for family in sets for each in variant_entries(family)[:_TRIED_VARIANTS]]
    others = [each for each in wanted if each.purpose != "variant"]
    with open_store(store, runner, protocol) as file:  # before anything is written or timed
        limits = measure_limits(
            runner.session,
            overhead_factor=profile.overhead_factor,
            max_run_s=profile.max_run_s,
            max_setup_s=profile.max_setup_s,
        )
        sizes = calibrate(
            [*others, *tried],
            runner,
            limits,
            store=store.with_suffix(".sizes.json"),
            progress=progress or silent,
        )
        timed = sizes.timed_cases(others)
        for family in sets:
            choices = [sizes.choice(each) for each in variant_entries(family)[:_TRIED_VARIANTS]]
            largest = max((c for c in choices if c is not None), key=lambda c: c.exponents)
            for exponent, run_s in zip(largest.exponents, largest.run_s, strict=True):
                timed += ((e.case(exponent), run_s) for e in wanted if e.family == family)
        return measure(
            [case for case, _ in timed],
            store=file,
            protocol=protocol,
            count=partial(count_kernel, view="structure"),
            progress=progress or silent,
            runner=runner,
            expected_run_s={case.name: run_s for case, run_s in timed},
        )


def _check_families(families: Sequence[str]) -> None:
    from measurement_kernels.catalog import families as all_families

    known = (*all_families(purpose=None, collection=None), *all_families(purpose="variant"))
    for family in families:
        if family not in known:
            raise KernelSpecificationError(
                f"no family of kernels is called {family!r}; there are {', '.join(known)}",
                specification=family,
            )


# }}}

# {{{ characterizing


def characterize(
    *,
    store: Path | str,
    device: str | None = None,
    parameters: Path | str | None = None,
    quick: bool = False,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> Characterization:
    """Find out by microbenchmarks what a device can do; resumes where an earlier call stopped.

    Parameters
    ----------
    store : Path or str
        Where the document of all findings is kept (``.json``).
    device : str, optional
        As for `measure_catalogue`.
    parameters : Path or str, optional
        Where to write the device document alone, which mechanistic models read (``.json``).
    quick : bool, optional
        Measure with less effort.
    max_seconds : float, optional
        No experiment begins after so long, s.
    progress : callable, optional
        Is told of each experiment.

    Returns
    -------
    Characterization

    Raises
    ------
    DeviceError, IncompatibleMeasurementsError, DocumentError
        As for `measure_catalogue`.
    """
    from countperf.harness.characterization.bench import FULL, QUICK
    from countperf.harness.characterization.suite import characterize as run
    from countperf.harness.devices import find_device
    from countperf.harness.progress import silent
    from countperf.harness.registry import open_session

    check_writable(store, parameters)
    found = run(
        open_session(find_device(device)),
        effort=QUICK if quick else FULL,
        store=store,
        max_seconds=max_seconds,
        progress=progress or silent,
    )
    if parameters is not None:
        found.parameters.write_file(parameters, rescue=True)
    return found


# }}}

# {{{ fitting and predicting


def fit(
    measurements: MeasurementSet | Path | str,
    *,
    model: str | FittedModel = "linear",
    expression: str | None = None,
    policy: ExecutionPolicy | Path | str | None = None,
    nonnegative: bool = False,
    residual: Residual | None = None,
    loss: Loss | None = None,
    loss_scale: float | None = None,
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
    model : str or FittedModel
        A model, its name, the path of its document (TOML or JSON), or ``auto`` to choose among
        those that ship by leaving out families of measurement kernels; ``structural`` to choose
        among execution policies.
    expression : str, optional
        Instead of a model: a formula of standard terms, properties and parameters, such as
        ``launch + w_group*groups + overlap(global_memory, on_chip)``.
    policy : ExecutionPolicy, Path or str, optional
        For a formula of what a device issues (`countperf.models.standard.from_expression`): how it
        runs work groups, or the slug or file of a fit, or the file of a model, that says so.
    nonnegative : bool
        Keep weights at least zero.
    residual : {"relative", "log"}, optional
        What is made small; by default what the model asks for, as for the next two.
    loss : {"linear", "soft_l1", "huber"}, optional
        How residuals are summed.
    loss_scale : float, optional
        Size of the residuals from which on a robust loss counts them for less.
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
    ExpressionError
        The expression cannot be read, or has unknown names.
    ParameterError
        There is no such model, residual or loss, or the loss scale is not positive; or a policy is
        given without an expression, or the fit that is to give one has none.
    """
    from countperf.fitting.fit import AUTO
    from countperf.fitting.fit import fit as fit_model
    from countperf.models.library import policy_of
    from countperf.models.shipped import fitted_model
    from countperf.models.standard import from_expression
    from countperf.models.structural import COMPILED, STRUCTURAL
    from countperf.tuning.pools import pool_or

    if policy is not None and expression is None:
        raise ParameterError(
            "a policy is for an expression; models by name and documents have their own",
            parameter="policy",
        )
    if expression is not None:
        if isinstance(policy, Path | str):
            policy = policy_of(policy)
        model = from_expression(expression, policy=policy)
    check_writable(output)  # before the work
    found = _measurements(measurements)
    is_shared = executor is not None or (workers > 1 and len(found) >= _MANY_CASES)
    with pool_or(executor, workers) if is_shared else contextlib.nullcontext() as pool:
        if model not in (AUTO, STRUCTURAL, COMPILED):
            model = fitted_model(model) if isinstance(model, str) else model
            seen = found.select(lambda m: m.purpose == "measurement")
            found = _knowing_transactions(seen, model, pool)
        result = fit_model(
            found,
            model=model,
            nonnegative=nonnegative,
            residual=residual,
            loss=loss,
            loss_scale=loss_scale,
            weigh_noise=weigh_noise,
            suppliers=catalogue_suppliers,
            executor=pool,
        )
    if output is not None:
        result.weights.write_file(output, rescue=True)
    return result


def _measurements(given: MeasurementSet | Path | str) -> MeasurementSet:
    from countperf.measurements import MeasurementSet

    return given if isinstance(given, MeasurementSet) else MeasurementSet.read_file(given)


def coverage(
    kernel: Any,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    measurements: MeasurementSet | Path | str | None = None,
    device: str | None = None,
    force: bool = False,
    statistics: Mapping[str, Statistic] | None = None,
    **more: int,
) -> Coverage:
    """Say which features of a kernel a fit's measurements exercise, and how far outside it lies.

    Parameters
    ----------
    kernel, weights, model, device, force, statistics
        As for `predict`.
    parameters, **more : int
        Values of the size parameters; without any, what holds at all sizes is said.
    measurements : MeasurementSet, Path or str, optional
        What the weights were fitted to, or its file, for weights that do not record which
        measurements exercise what.

    Returns
    -------
    Coverage

    Raises
    ------
    DeviceMismatchError
        The measurements, or the device, are not of the weights' device.
    CountperfError
        The kernel cannot be counted; or as for `predict`, except that properties without a weight
        are told, not raised.
    """
    from countperf.fitting.exercise import exercise
    from countperf.fitting.fit import observations_of

    weights = weights_for(weights, device, model=model)
    weights.check_device(named_device(device), force=force)
    recorded = None
    if measurements is not None:
        found = _measurements(measurements)
        weights.check_device(found.device, force=force)
        chosen = found.select(lambda m: m.purpose == "measurement")
        cases = observations_of(_knowing_transactions(chosen, weights.definition))
        recorded = exercise(weights.function, weights.unknowns, cases)
    known = kernel_statistics(kernel, statistics, {**(parameters or {}), **more})
    lookup = lookup_of(weights.definition)
    return weights.coverage(
        vector_for(kernel, known, weights, {**(parameters or {}), **more}),
        parameters,
        exercise=recorded,
        suppliers=lambda name: (
            lookup(name)
            or tuple(kernel for kernel, vector in catalogue_vectors().items() if name in vector)
        ),
        **more,
    )


def analyzed(
    kernel: Any,
    *,
    statistics: Mapping[str, Statistic] | None = None,
    sizes: Mapping[str, Any] | None = None,
) -> KernelAnalysis:
    """Return the structure of a kernel, or of the kernel that a text names.

    Statistics are as for `counted`.

    Raises
    ------
    CountingError
        The kernel cannot be analyzed; or a property vector was given, which has no structure.
    """
    found = kernel_itself(kernel, "structure to analyze")
    from countperf.counting.analysis import analyze_kernel

    known = kernel_statistics(kernel, statistics, sizes or {})
    return analyze_kernel(found, statistics=known)


def compiled(
    kernel: Any,
    parameters: Mapping[str, int] | None = None,
    *,
    device: str = "pocl:0",
    capability: str | None = None,
) -> dict[str, CompiledCode]:
    """Compile a kernel, or the kernel that a text names, and read the instructions of each launch.

    Parameters
    ----------
    kernel : str or loopy.TranslationUnit
        The kernel, or a text that `load_kernel` understands.
    parameters : mapping from str to int, optional
        Integer arguments to launch it with; PTX needs none.
    device : str, optional
        A device of PoCL's.
    capability : str, optional
        Read PTX for this compute capability of NVIDIA's instead.

    Raises
    ------
    CountingError
        A property vector was given, which has no code.
    ParameterError, KernelBuildError, DeviceError, ModelNotApplicableError
        As of `countperf.harness.compile.pocl.compile_with_pocl` and
        `countperf.harness.compile.ptx.compile_with_nvcc`.
    """
    found = kernel_itself(kernel, "code to compile")
    if capability is not None:
        from countperf.harness.compile.ptx import compile_with_nvcc

        return compile_with_nvcc(found, capability)
    from countperf.harness.compile.pocl import compile_with_pocl
    from countperf.harness.devices import find_device

    return compile_with_pocl(found, find_device(device), parameters or {})


def with_transactions(
    kernel: Any,
    *transactions: str,
    statistics: Mapping[str, Statistic] | None = None,
    view: View = "structure",
) -> PropertyVector:
    """Count a kernel, and keep with the counts what its sub-groups touch of global memory.

    Parameters
    ----------
    kernel : str or loopy.TranslationUnit
        The kernel, or a text that `load_kernel` understands.
    *transactions : str
        Which, such as ``transactions.32x128``: lines of 128 bytes, sub-groups of 32 work items.
    statistics : mapping from str to float or str, optional
        As for `predict`.
    view : {"structure", "source", "compiled"}, optional
        How the kernel is counted.

    Returns
    -------
    PropertyVector
        Its `evaluate` finds the transactions at the sizes that are asked for, exactly; there is no
        formula of them.

    Raises
    ------
    CountingError
        The kernel is a property vector, or cannot be counted.
    PropertyNameError
        A name is none of transactions.

    Examples
    --------
    >>> vector = with_transactions("transpose/stride1-reads/32x16/f32", "transactions.32x128")
    >>> found = vector.evaluate(n=1024, m=1024)
    >>> found["transactions.32x128.load"], found["transactions.32x128.store"]
    (32768, 1048576)
    """
    from countperf.properties.transactions import transaction_roots
    from countperf.properties.transactions import with_transactions as added

    for name in transactions:
        if transaction_roots([name]) != (name,):
            raise PropertyNameError(
                f"{name!r} names no transactions; name the work items of a sub-group and the bytes"
                " of a line, as in transactions.32x128",
                name=name,
            )
    found = kernel_itself(kernel, "accesses to follow")
    known = kernel_statistics(kernel, statistics, {})
    vector = counted(found, statistics=known, view=view)
    return added(vector, found, transactions, known)


def read_code(
    measurements: Path | str,
    *,
    device: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> MeasurementSet:
    """Compile the measured kernels of the catalogue, and note what their code executes, in place.

    Nothing is measured. Cases that have their instructions already are left as they are, unless
    what older versions noted says nothing of cycles. The file is written now and then, so that a
    run that is cut off goes on where it was.

    Parameters
    ----------
    measurements : Path or str
        A campaign's file, of PoCL or of Intel's runtime.
    device : str, optional
        The device of this machine, by label; by default the one that was measured.
    progress : callable, optional
        Is told what is done, and why cases get no instructions.

    Returns
    -------
    MeasurementSet
        What the file holds now.

    Raises
    ------
    DeviceMismatchError
        The device is not the one that was measured.
    KernelSpecificationError
        A measured kernel is not of the catalogue.
    DeviceError, DocumentError
        The code of this device cannot be read, or the file is bad.
    MeasurementError, OutputError
        Another process writes to the file, or it cannot be written.
    """
    from countperf.harness.store import Rewriting

    with Rewriting(measurements) as file:
        return _read_code(file, device, progress or _silent)


def _read_code(file: Rewriting, device: str | None, say: Callable[[str], None]) -> MeasurementSet:
    """Note what the code of measured kernels executes, in an open file."""
    from countperf.harness.devices import find_device
    from countperf.machine_code.executed_counts import CYCLES
    from countperf.tuning.pools import process_pool

    found = file.read()
    chosen = find_device(device or found.device.slug)
    if not found.device.matches(chosen.identity):
        raise DeviceMismatchError(
            f"{chosen.label} is not what was measured, {found.device.slug}: code is compiled for"
            " each processor; read it there",
            expected=found.device.slug,
            found=chosen.identity.slug,
        )
    waiting: dict[str, list[Measurement]] = {}
    for each in found:
        if each.code is None or CYCLES not in each.code:
            waiting.setdefault(each.kernel, []).append(each)
    cases = [
        (name, tuple((each.case, each.parameters) for each in some))
        for name, some in waiting.items()
    ]
    batches = [cases[first : first + _BATCH] for first in range(0, len(cases), _BATCH)]
    code: dict[str, dict[str, int]] = {}

    def renewed() -> MeasurementSet:
        noted = tuple(
            each.model_copy(update={"code": code[each.case]}) if each.case in code else each
            for each in found
        )
        return replace(found, measurements=noted)

    with process_pool() as pool:
        done = 0
        read = pool.map(partial(_code_of, chosen.label), batches)
        for batch, outcomes in zip(batches, read, strict=True):
            for case, outcome in outcomes:
                if isinstance(outcome, str):
                    say(f"{case}: {outcome}")
                else:
                    code[case] = outcome
            done += len(batch)
            say(f"{done} of {len(cases)} kernels")
            if done % _BETWEEN_FILES < _BATCH:
                file.write(renewed())
    noted = renewed()
    file.write(noted)
    return noted


def _code_of(
    label: str, cases: Sequence[tuple[str, Sequence[tuple[str, Mapping[str, int]]]]]
) -> list[tuple[str, dict[str, int] | str]]:
    """Return what the code of kernels of the catalogue executes by case, or why that is unknown."""
    from countperf.harness.compile.compiled_kernel import counts_of_many, read_compiled
    from countperf.harness.devices import find_device
    from measurement_kernels.catalog import entry

    entries = [entry(name) for name, _ in cases]
    units = [(each.build(), some[0][1]) for each, (_, some) in zip(entries, cases, strict=True)]
    found: list[tuple[str, dict[str, int] | str]] = []
    names: list[str] = []
    requests: list[tuple[CompiledKernel, Mapping[str, int], Mapping[str, Any]]] = []
    read = read_compiled(units, find_device(label))
    for known, (_, some), compiled in zip(entries, cases, read, strict=True):
        for case, parameters in some:
            if isinstance(compiled, KernelBuildError):
                found.append((case, str(compiled)))
                continue
            statistics = {
                name: value(parameters) if callable(value) else value
                for name, value in known.statistics.items()
            }
            names.append(case)
            requests.append((compiled, parameters, statistics))
    for case, counts in zip(names, counts_of_many(requests), strict=True):
        found.append((case, str(counts) if isinstance(counts, CountingError) else counts))
    return found


def _knowing_transactions(
    measurements: MeasurementSet, definition: FittedModel, executor: Executor | None = None
) -> MeasurementSet:
    """Find what a model names of transactions, for measured kernels of the catalogue.

    Cases of other kernels, and those of which transactions are not known, are left as they are.
    """
    from countperf.properties.transactions import transaction_roots

    waiting: dict[str, list[Measurement]] = {}
    for each in measurements:
        known = transaction_roots(each.transactions or {})
        if each.properties is not None and set(definition.named_transactions) - set(known):
            waiting.setdefault(each.kernel, []).append(each)
    if not waiting:
        return measurements
    some = [(name, tuple((m.case, m.parameters) for m in each)) for name, each in waiting.items()]
    find = partial(_transactions_of, definition.named_transactions)
    parts = map(find, some) if executor is None else executor.map(find, some)
    found = {case: numbers for part in parts for case, numbers in part.items()}

    def renewed(each: Measurement) -> Measurement:
        known = {**(each.transactions or {}), **found.get(each.case, {})}
        return each.model_copy(update={"transactions": known or None})

    return replace(measurements, measurements=tuple(map(renewed, measurements)))


def _transactions_of(
    roots: tuple[str, ...], kernel: tuple[str, Sequence[tuple[str, Mapping[str, int]]]]
) -> dict[str, dict[str, int]]:
    """Return the transactions of a kernel of the catalogue by case, where they are known."""
    from countperf.properties.transactions import TransactionCounts
    from measurement_kernels.catalog import entry

    name, cases = kernel
    found: dict[str, dict[str, int]] = {}
    with contextlib.suppress(KernelSpecificationError):
        described = entry(name)
        count = TransactionCounts(kernel=described.build(), roots=roots, statistics={})
        for case, parameters in cases:
            statistics = described.statistics_at(parameters)
            if statistics != count.statistics:
                count = replace(count, statistics=statistics)
            with contextlib.suppress(CountingError):
                found[case] = count(parameters)
    return found


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
    DeviceMismatchError
        The measurements are of another device.
    FitError, DocumentError, PredictionError
        Nothing can be evaluated.
    """
    from countperf.fitting.validation import evaluate as evaluate_cases
    from countperf.measurements import PURPOSES
    from countperf.models.library import load_weights
    from countperf.models.weights import WeightSet

    found = _measurements(measurements)
    if not isinstance(weights, WeightSet):
        weights = load_weights(weights, model=model)
    weights.check_device(found.device, force=force)
    judging = set(purposes or PURPOSES) - {"measurement"}
    judged = found.select(lambda m: m.purpose in judging)
    return evaluate_cases(weights, _knowing_transactions(judged, weights.definition))


def evaluate_ranking(
    measurements: MeasurementSet | Path | str,
    *,
    weights: WeightSet | Path | str,
    model: str | None = None,
    force: bool = False,
) -> RankingEvaluation:
    """Compare the predicted with the measured order of the sets of variants among measurements.

    Parameters
    ----------
    measurements, weights, model, force
        As for `evaluate`.

    Returns
    -------
    RankingEvaluation
        Without sets if there are no variants.

    Raises
    ------
    DeviceMismatchError, FitError, DocumentError, PredictionError
        As for `evaluate`.
    """
    from countperf.fitting.ranking import evaluate_ranking as evaluate_sets
    from countperf.models.library import load_weights
    from countperf.models.weights import WeightSet

    found = _measurements(measurements)
    if not isinstance(weights, WeightSet):
        weights = load_weights(weights, model=model)
    weights.check_device(found.device, force=force)
    variants = found.select(lambda m: m.purpose == "variant")
    return evaluate_sets(weights, _knowing_transactions(variants, weights.definition))


def measured_devices() -> dict[str, Path]:
    """List the devices whose measurements come with countperf: slug to file, sorted."""
    from countperf.models.library import fits_folders

    found: dict[str, Path] = {}
    for folder in reversed(fits_folders()):
        for path in folder.glob("*/measurements.jsonl"):
            found[path.parent.name] = path
    return dict(sorted(found.items()))


def compare(
    measurements: MeasurementSet | Path | str,
    *,
    device: DeviceParameters | None = None,
    models: Sequence[str] = (),
    levels: Sequence[Level] = ("published", "scaled", "fitted"),
    purposes: Sequence[Purpose] = ("test",),
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Predict measured kernels by all models: as published, scaled by a factor, and fitted.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        Measurements of one device, their file, or the slug of a device whose measurements come
        with countperf.
    device : DeviceParameters, optional
        Constants of the device; by default those that ``characterize`` wrote beside the
        measurements (``parameters.json``), else the catalogue's.
    models : sequence of str, optional
        Only these models; by default all, the fitted linear model among them.
    levels : sequence of {"published", "scaled", "fitted"}
        What is calibrated; by default all three. Fitting all constants takes minutes.
    purposes : sequence of {"test", "application", "variant"}, optional
        What the kernels are for on which errors are taken.
    progress : callable from str to None, optional
        Is told what is being calibrated.

    Returns
    -------
    Comparison
        Errors on kernels for `purposes`; calibrated on the measurement kernels.

    Raises
    ------
    ParameterError
        No model has such a name.
    DeviceError, DocumentError
        The device has no description, or the measurements are bad.
    FitError
        No case has a profile.
    """
    from countperf.errors import ParameterError
    from countperf.fitting.comparison import compare_models, linear_results
    from countperf.mechanistic.predict_all import model_makers

    known = measured_devices()
    place = known.get(measurements, measurements) if isinstance(measurements, str) else measurements
    found = _measurements(place)
    if device is None:
        device = _described(found.device.slug, place)
    there = (*model_makers(()), "linear")
    if unknown := [name for name in models if name not in there]:
        raise ParameterError(
            f"no model is called {unknown[0]!r}; there are {', '.join(there)}", parameter="model"
        )
    comparison = compare_models(
        model_makers,
        device,
        tuple(found),
        _CatalogueProfiles(device),
        models=models,
        levels=levels,
        purposes=purposes,
        thinned={"pipeline-rr": 8, "pipeline-gto": 8},
        progress=progress or _silent,
    )
    if (models and "linear" not in models) or "fitted" not in levels:
        return comparison
    return comparison.with_models(linear_results(found, purposes))


def _silent(_: str) -> None:
    pass


def _described(slug: str, place: object) -> DeviceParameters:
    """Return what is known of a device, preferring what was measured beside its measurements."""
    from countperf.hardware.library import load_device
    from countperf.hardware.parameters import DeviceParameters

    beside = Path(place).parent / "parameters.json" if isinstance(place, Path | str) else None
    if beside is not None and beside.is_file():
        return DeviceParameters.read_file(beside)
    return load_device(slug)


class _CatalogueProfiles:
    """Profiles of measured kernels of the catalogue, each kernel counted once."""

    def __init__(self, device: DeviceParameters) -> None:
        self.device = device
        self._profilers: dict[object, KernelProfiler] = {}

    def __call__(self, measurement: Measurement) -> ProfiledKernel:
        from countperf.harness.profiles import profile_kernel
        from measurement_kernels.catalog import entry

        name = measurement.kernel
        statistics = entry(name).statistics_at(measurement.parameters)
        key = (name, tuple(sorted(statistics.items())))
        if key not in self._profilers:
            self._profilers[key] = profile_kernel(
                entry(name).build(),
                self.device,
                max_instructions=COMPARED_INSTRUCTIONS,
                statistics=statistics,
            )
        return self._profilers[key].at(measurement.parameters)


def recount(measurements: Path | str) -> MeasurementSet:
    """Count the measured kernels of the catalogue again, in place; nothing is measured.

    Parameters
    ----------
    measurements : Path or str
        A campaign's file, counted under other rules than those of now, or in another view than
        the structure view, in which campaigns count.

    Returns
    -------
    MeasurementSet
        What the file holds now.

    Raises
    ------
    KernelSpecificationError
        A measured kernel is not of the catalogue; the file is left as it was.
    CountingError, DocumentError
        A kernel cannot be counted, or the file is bad; it is left as it was.
    MeasurementError, OutputError
        Another process writes to the file, or it cannot be written.
    """
    from countperf.harness.store import Rewriting

    with Rewriting(measurements) as file:
        renewed = _recounted(file.read())
        file.write(renewed)
    return renewed


def _recounted(found: MeasurementSet) -> MeasurementSet:
    """Return measurements whose kernels are counted anew."""
    from countperf.properties.count_properties import count_kernel
    from measurement_kernels.catalog import entry

    counted: dict[object, dict[str, Any]] = {}

    def properties(each: Measurement) -> dict[str, Any]:
        kernel = entry(each.kernel)
        statistics = kernel.statistics_at(each.parameters)
        key = (each.kernel, tuple(sorted(statistics.items())))
        if key not in counted:
            vector = count_kernel(kernel.build(), statistics=statistics, view="structure")
            counted[key] = vector.to_document()
        return counted[key]

    return replace(
        found,
        measurements=tuple(
            each.model_copy(update={"properties": properties(each)}) for each in found
        ),
    )


def publish(
    measurements: MeasurementSet | Path | str,
    folder: Path | str = "fits",
    *,
    model: str | FittedModel | None = None,
    weights: WeightSet | Path | str | None = None,
    compiled: WeightSet | Path | str | None = None,
) -> Path:
    """Fit and evaluate a campaign and lay all of it out as a device's folder under ``fits/``.

    Parameters
    ----------
    measurements : MeasurementSet, Path or str
        The campaign, or its file.
    folder : Path or str
        Where the folders of devices are.
    model : str or FittedModel, optional
        The model to predict with by default, or ``auto`` to choose one as `fit` does; without it,
        that is the paper's.
    weights : WeightSet, Path or str, optional
        Instead of a model: weights already fitted to these measurements.
    compiled : WeightSet, Path or str, optional
        Weights of a model that reads compiled code, fitted to these measurements, which predict
        beside the default ones where they are asked for.

    Returns
    -------
    Path
        The device's folder, with ``identity.json``, ``measurements.jsonl``, the weights of the
        paper's model (``linear.json``, from the paper's measurement kernels alone, all cases
        counting the same, as there), those of `model`
        (``weights.json``), ``evaluation.json`` of the default ones, ``linear-evaluation.json`` if
        these are others, ``plain-evaluation.json`` of the default ones without their correction if
        they have one, and ``ranking.json`` and ``plain-ranking.json`` likewise if variants were
        measured; of `compiled` there are ``compiled.json``, ``compiled-evaluation.json`` and
        ``compiled-ranking.json``.

    Raises
    ------
    FitError, DocumentError
        The measurements cannot be fitted or evaluated, or their file is bad.
    """
    from countperf.models.structural import COMPILED
    from measurement_kernels.catalog import families

    found = _measurements(measurements)
    target = Path(folder) / found.device.slug
    check_writable(target / "weights.json")
    classes = families(collection="paper")
    of_paper = replace(found, measurements=tuple(m for m in found if m.family in classes))
    default = fit(of_paper, weigh_noise=False, output=target / "linear.json").weights
    chosen = None
    if weights is not None:
        chosen = weights_for(weights)
    elif model is not None:
        chosen = fit(found, model=model).weights
    if chosen is None:
        (target / "weights.json").unlink(missing_ok=True)
        (target / "linear-evaluation.json").unlink(missing_ok=True)
    else:
        evaluate(found, weights=default).write_file(target / "linear-evaluation.json")
        chosen.write_file(target / "weights.json")
        default = chosen
    reading = None if compiled is None else weights_for(compiled)
    if reading is not None:
        reading.write_file(target / f"{COMPILED}.json")
    judges = {"": default, "plain-": default.plain, f"{COMPILED}-": reading}
    for prefix, judged in judges.items():
        names = [target / f"{prefix}{name}.json" for name in ("evaluation", "ranking")]
        if judged is None or (judged is default and prefix):
            for name in names:
                name.unlink(missing_ok=True)
            continue
        evaluate(found, weights=judged).write_file(names[0])
        ranking = evaluate_ranking(found, weights=judged)
        if ranking.sets:
            ranking.write_file(names[1])
    found.device.write_file(target / "identity.json")
    found.write_file(target / "measurements.jsonl")
    return target


# }}}


# {{{ ranking and tuning


def rank(
    space: SearchSpace | str,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    weights: WeightSet | Path | str | None = None,
    device: str | None = None,
    force: bool = False,
    incomplete_ok: bool = False,
    keep: int = 20,
    points: int | None = None,
    by_code: int = 0,
    executor: Executor | None = None,
    workers: int | None = None,
    on_point: Callable[[Point], None] | None = None,
    longest_s: float = 60.0,
    **more: int,
) -> Ranking:
    """Predict all variants of a kernel and keep those that should be fastest.

    Parameters
    ----------
    space : SearchSpace or str
        The variants, or a text for `countperf.tuning.points.load_space`.
    parameters, **more : int
        Sizes, in place of the space's.
    weights, device, force, incomplete_ok
        As for `predict`; of a device that is named the limits are looked at, too.
    keep : int
        How many to keep.
    points : int, optional
        Predict only so many, scattered over the space.
    by_code : int, optional
        Compile so many of the best on `device`, and put them in order by what their code executes
        (`countperf.tuning.by_code`), with the weights of the model ``compiled``. None is timed.
    executor : concurrent.futures.Executor, optional
        What predicts: Dask's (``Client.get_executor()``), MPI's (``MPIPoolExecutor``), or any
        other; by default a pool of `workers` processes, one for each processor.
    on_point : callable, optional
        Is told of every point as it comes.
    longest_s : float
        What building, counting and predicting a variant may take, s. A process of our own pool that
        takes longer, or ends, is replaced, and its variant alone is refused.

    Returns
    -------
    Ranking

    Raises
    ------
    SearchSpaceError, PredictionError, DeviceError, DocumentError
        Wrong space, weights or device. What is wrong with single points is in the result.
    ParameterError
        A size is not positive, or is none of the space.
    """
    from countperf.harness.devices import find_device
    from countperf.tuning.points import Question, checked_space
    from countperf.tuning.pools import pool_or
    from countperf.tuning.ranker import rank_points

    sizes = {**(parameters or {}), **more}
    asked = checked_space(space, sizes)
    found = None if device is None else find_device(device)
    if by_code and found is None:
        message = "variants are compiled on a device: name it (device=, --device)"
        raise ParameterError(message, parameter="device")
    weights = _matching_weights(weights, found, force)
    question = Question(
        space=space,
        weights=weights,
        sizes=sizes,
        limits=None if found is None else _limits(found),
        incomplete_ok=incomplete_ok,
    )
    with pool_or(executor, workers) as pool:
        ranking = rank_points(
            question,
            executor=pool,
            keep=max(keep, by_code),
            points=points,
            on_point=on_point,
            longest_s=longest_s,
        )
    if by_code and found is not None:
        from countperf.models.library import load_weights
        from countperf.models.structural import COMPILED
        from countperf.tuning.by_code import ranked_by_code

        reading = load_weights(weights.device.slug, model=COMPILED)
        ranking = ranked_by_code(ranking, asked, reading, found, first=by_code)
    return replace(ranking, best=ranking.best[:keep])


def tune(
    space: SearchSpace | str,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    seconds: float | None = None,
    measurements: int | None = None,
    device: str | None = None,
    weights: WeightSet | Path | str | None = None,
    force: bool = False,
    incomplete_ok: bool = True,
    store: Path | str | None = None,
    confidence: float = 0.95,
    tolerance: float = 0.02,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
    longest_s: float | None = None,
    **more: int,
) -> TuningResult:
    """Find the fastest variant of a kernel on a device within a budget.

    Parameters
    ----------
    space : SearchSpace or str
        The variants, or a text for `countperf.tuning.points.load_space`.
    parameters, **more : int
        Sizes, in place of the space's.
    seconds, measurements
        The budget: time, predictions included, s; variants to run. At least one of the two.
    device : str, optional
        As for `measure`; by default the working device with the highest copy bandwidth.
    weights, force
        As for `predict`; by default the device's.
    incomplete_ok : bool
        Whether variants that have properties without a weight take part; what their predictions
        leave out is learnt from measurements.
    store : Path or str, optional
        A file; the same call goes on where it stopped, and a larger budget goes on from there.
    confidence : float
        At which to stop, and at which the regret is bounded.
    tolerance : float
        Gains below this fraction are not looked for.
    executor, workers
        As for `rank`.
    progress : callable, optional
        Is told what happens, a line at a time.
    longest_s : float, optional
        What predicting, building or timing a variant may take, s; by default a quarter of the
        seconds, but 3 s at least and a minute at most. A process of our own pool that takes longer,
        or ends, is replaced, and its variant alone is refused.

    Returns
    -------
    TuningResult

    Raises
    ------
    TuningError
        No variant can be predicted, or none runs.
    SearchSpaceError, ParameterError, PredictionError, DeviceError, DocumentError, MeasurementError
        Wrong space, sizes, weights or device; or the store cannot be used.
    """
    from countperf.harness.clock import EventClock
    from countperf.harness.devices import find_device
    from countperf.harness.runner import KernelRunner
    from countperf.tuning.points import Question, checked_space
    from countperf.tuning.pools import pool_or
    from countperf.tuning.result import Budget, Plan
    from countperf.tuning.search import tune_space

    clock = EventClock()
    began_s = clock.now()
    budget = Budget(seconds=seconds, measurements=measurements)
    plan = Plan(confidence=confidence, tolerance=tolerance)
    sizes = {**(parameters or {}), **more}
    checked_space(space, sizes, to_measure=True)
    found = find_device(device)
    question = Question(
        space=space,
        weights=_matching_weights(weights, found, force),
        sizes=sizes,
        limits=_limits(found),
        incomplete_ok=incomplete_ok,
    )
    with pool_or(executor, workers) as pool:
        return tune_space(
            question,
            KernelRunner.open(found, clock),
            budget,
            store=store,
            plan=plan,
            executor=pool,
            progress=progress,
            began_s=began_s,
            longest_s=longest_s,
        )


def tune_devices(
    space: SearchSpace | str,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    devices: Sequence[str],
    seconds: float | None = None,
    measurements: int | None = None,
    weights: WeightSet | Path | str | None = None,
    force: bool = False,
    incomplete_ok: bool = True,
    store: Path | str | None = None,
    confidence: float = 0.95,
    tolerance: float = 0.02,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
    longest_s: float | None = None,
    **more: int,
) -> DeviceResults:
    """Find the fastest variant of a kernel on each of several devices, which work side by side.

    Parameters
    ----------
    devices : sequence of str
        As for `measure`.
    weights : WeightSet, Path or str, optional
        Of all of them; by default each has its own.
    store : Path or str, optional
        A file for each device, beside this one: ``search.jsonl`` becomes ``search-pocl-0.jsonl``.
    space, parameters, seconds, measurements, force, incomplete_ok, confidence, tolerance, executor
        As for `tune`; the budget is that of each device.
    workers, progress, longest_s, **more
        As for `tune`.

    Returns
    -------
    DeviceResults

    Raises
    ------
    TuningError
        None of them has a result.
    SearchSpaceError, PredictionError, DeviceError, DocumentError, ParameterError
        Wrong space, weights or devices.
    """
    from countperf.harness.clock import EventClock
    from countperf.harness.devices import find_device
    from countperf.harness.runner import KernelRunner
    from countperf.tuning.devices import DeviceSearch
    from countperf.tuning.devices import tune_devices as search_devices
    from countperf.tuning.points import Question, checked_space
    from countperf.tuning.result import Budget, Plan

    sizes = {**(parameters or {}), **more}
    checked_space(space, sizes, to_measure=True)

    def search(device: Device) -> DeviceSearch:
        question = Question(
            space=space,
            weights=_matching_weights(weights, device, force),
            sizes=sizes,
            limits=_limits(device),
            incomplete_ok=incomplete_ok,
        )
        return DeviceSearch(
            label=device.label,
            question=question,
            open_runner=lambda: KernelRunner.open(device, EventClock()),
        )

    return search_devices(
        [search(find_device(name)) for name in devices],
        Budget(seconds=seconds, measurements=measurements),
        store=store,
        plan=Plan(confidence=confidence, tolerance=tolerance),
        executor=executor,
        workers=workers,
        progress=progress,
        longest_s=longest_s,
    )


def _matching_weights(
    weights: WeightSet | Path | str | None, device: Device | None, force: bool
) -> WeightSet:
    from countperf.models.library import load_weights
    from countperf.models.weights import WeightSet

    if weights is None:
        return default_weights(None if device is None else device.label)
    if not isinstance(weights, WeightSet):
        weights = load_weights(weights)
    weights.check_counting_rules()
    weights.check_device(None if device is None else device.identity, force=force)
    return weights


def _limits(device: Device) -> Limits:
    from countperf.tuning.points import Limits

    return Limits(
        max_group_size=device.limits.max_group_size,
        max_group_shape=device.limits.max_group_shape,
        local_memory_bytes=device.limits.local_memory_bytes,
    )


# }}}
