"""Timing a kernel of the user's, predicting its times, and comparing both."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from loopy import LoopyError, PyOpenCLTarget, ValueArg

from countperf.api.kernels import Kernel
from countperf.api.weights_choice import ChosenWeights, choose_weights
from countperf.devices.binding import made_up_indices
from countperf.devices.description import describe_kernel
from countperf.devices.device import Device
from countperf.errors import (
    CountingError,
    CountperfError,
    DeviceMismatchError,
    KernelBuildError,
    MeasurementError,
    ParameterError,
    PredictionError,
    UnknownSizeError,
    WrongResultError,
    nearest,
)
from countperf.measuring import (
    InstructionCounts,
    KernelCase,
    Protocol,
    Statistic,
    TimedSize,
    Timing,
    counts_digest,
)
from countperf.measuring.campaign import measure
from countperf.measuring.runner import LONGEST_S, TIMING, open_runner
from countperf.sizes import Sizes, checks_keywords, combine_sizes, given_sizes
from countperf.steps import stepped
from countperf.text import some_of

if TYPE_CHECKING:
    from countperf.counting.taxonomy import View
    from countperf.measuring import MeasurementSet
    from countperf.measuring.cases import MakeArguments, Reference
    from countperf.measuring.runner import CaseRunner
    from countperf.models.predictions import Prediction
    from countperf.models.validity import Level
    from countperf.models.weights import WeightSet


_VIEWS: tuple[View, ...] = ("source", "structure", "compiled")


def predict_cases(
    cases: Sequence[KernelCase],
    counts: InstructionCounts | None,
    chosen: ChosenWeights,
    *,
    incomplete_ok: bool,
    level: Level,
) -> tuple[ChosenWeights, list[dict[str, Any]]]:
    """Predict all sizes by one model: return the choice that did, and fields of `TimedSize`."""

    def predict(
        used: ChosenWeights, is_attempt: bool
    ) -> tuple[ChosenWeights, list[dict[str, Any]]]:
        rows: list[dict[str, Any]] = []
        allowed = incomplete_ok and not is_attempt
        for case in stepped(cases, "predicting"):
            kernel = Kernel.of(case.build(), case.parameters, case.statistics or None, counts)
            try:
                rows.append(
                    find_predicted_fields(used.predict(kernel, incomplete_ok=allowed, level=level))
                )
            except CountperfError as error:  # a reason may hold for some of the points only
                rows.append({"reason": str(error)})
        if is_attempt and (lacking := [r["reason"] for r in rows if r.get("predicted_s") is None]):
            raise PredictionError(lacking[0])
        return used, rows

    return chosen.apply(predict)


def find_predicted_fields(prediction: Prediction) -> dict[str, Any]:
    """Return time and interval of a prediction at one point, as `TimedSize` has them."""
    time_s = float(np.squeeze(prediction.time_s))
    if time_s <= 0:
        reason = f"the {prediction.model} model predicts {time_s:.3g} s, which is no time"
        return {"predicted_s": None, "interval_s": None, "reason": reason}
    missing = some_of(prediction.missing)
    reason = "" if prediction.complete else f"incomplete: without the cost of {missing}"
    interval_s = None
    if prediction.interval_s is not None:
        low, high = (float(np.squeeze(end)) for end in prediction.interval_s)
        interval_s = (max(low, 0.0), high) if math.isfinite(high) else None
    return {"predicted_s": time_s, "interval_s": interval_s, "reason": reason}


def _digests(case: KernelCase, counts: InstructionCounts | None) -> dict[str, str]:
    """Return digests of a kernel's counts by the views that can be counted."""
    kernel = Kernel.of(case.build(), case.parameters, case.statistics, counts)
    digests: dict[str, str] = {}
    for view in _VIEWS:
        with suppress(CountingError):
            digests[view] = counts_digest(kernel.count(view))
    return digests


_FAILURES = (KernelBuildError, WrongResultError, MeasurementError)


@checks_keywords
def time_kernel(
    kernel: Any,
    sizes: Sizes | None = None,
    /,
    *,
    device: str | Device | None = None,
    make_arguments: MakeArguments | None = None,
    reference: Reference | None = None,
    tolerance: float | None = None,
    unchecked: bool = False,
    statistics: Mapping[str, Statistic] | None = None,
    instruction_counts: InstructionCounts | None = None,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    force: bool = False,
    incomplete_ok: bool = False,
    level: Level = 0.95,
    protocol: Protocol | None = None,
    runner: CaseRunner | None = None,
    longest_s: float = LONGEST_S,
    **more: Any,
) -> Timing:
    """Time a kernel at some sizes, and compare the times with predicted ones.

    Each size runs in several rounds, some time apart, as in a campaign (`countperf.measure`): after
    a warm-up, the first runs of a round do not count, and the time is the minimum of the others.
    Before it is timed, the kernel runs once at the smallest size, and its outputs are compared with
    the reference, if there is one.

    Parameters
    ----------
    kernel : str or loopy.TranslationUnit
        The kernel, or a text that `load_kernel` understands. A kernel of the catalogue brings its
        inputs, its reference and its statistics.
    sizes, **more : int or sequence of int
        Values of the size parameters. Several parameters with several values each have equally
        many, which go together value by value.
    device : str or Device, optional
        As for `measure`; by default the first GPU that works, else the first device.
    make_arguments : callable, optional
        From a random generator and the parameters to the kernel's inputs by name. By default they
        are made from the types and shapes of its arguments (`countperf.devices.binding`).
    reference, tolerance : optional
        From inputs and parameters to the expected outputs by name; largest ``|got - want|``.
    unchecked : bool, optional
        Launch the kernel also where a subscript that data decide may leave its array.
    statistics, instruction_counts, weights, model, force, incomplete_ok, level
        As for `predict`; weights are by default those fitted on the device, if there are any.
    protocol, runner : optional
        How often each size runs; what runs the kernel, by default on `device` in a process of its
        own: a kernel that crashes is a failure of its size.
    longest_s : float, optional
        What building and checking the kernel may take in that process, or a round of its runs, s;
        by default 300. The kernel is ended then, and by Ctrl-C.

    Returns
    -------
    Timing
        A row for each size: measured time, noise, predicted time, and what that says. It prints;
        ``to_frame()`` has all rows, `countperf.draw` draws time over size, ``write_file`` keeps it
        as a document, which ``Timing.read_file`` reads, and predictions take as an anchor.

    Raises
    ------
    DeviceError, DeviceMismatchError
        The device does not work, or the named weights are of another one.
    ParameterError, CountingError
        A size is unknown, lists do not go together, or a property vector was given.
    KernelBuildError, WrongResultError, MeasurementError
        No size could be measured. One that fails alone is among the failures of the result.
    """
    asked = Kernel.of(kernel, given_sizes(sizes, more), statistics)
    cases = _cases(asked, make_arguments, reference, tolerance, unchecked=unchecked)
    protocol = protocol or TIMING
    with open_runner(runner, device, None, longest_s=longest_s) as opened:
        used: ChosenWeights | None = None
        predicted: list[dict[str, Any]]
        try:
            chosen = choose_weights(weights, model=model, device=opened.identity, force=force)
        except DeviceMismatchError as error:
            if weights is not None:
                raise
            predicted = [{"reason": str(error)}] * len(cases)
        else:
            used, predicted = predict_cases(
                cases, instruction_counts, chosen, incomplete_ok=incomplete_ok, level=level
            )
        digests = [_digests(case, instruction_counts) for case in cases]
        made_up = _describe_made_up_arrays(cases[0])
        measured = _measured(cases, protocol, opened)
    of_case = {measurement.case: measurement for measurement in measured}
    return Timing(
        kernel=cases[0].kernel,
        device=measured.header.device,
        protocol=protocol,
        environment=measured.header.environment,
        weights="" if used is None else used.weights.name,
        model="" if used is None else used.weights.model,
        model_choice="" if used is None else used.why,
        interval_level=level,
        made_up=made_up,
        sizes=tuple(
            TimedSize(measurement=of_case[case.name], counts=counts, **fields)
            for case, fields, counts in zip(cases, predicted, digests, strict=True)
            if case.name in of_case
        ),
        failures=tuple(measured.failures),
    )


def time_resident_groups(
    kernel: Any,
    sizes: Mapping[str, int],
    unused_local_bytes: Mapping[int, int],
    *,
    device: str | Device | None = None,
    statistics: Mapping[str, Statistic] | None = None,
) -> MeasurementSet:
    """Time a kernel with several numbers of resident groups, by unused local memory.

    Names of cases end in the number, as in ``groups=3``; errors as of `time_kernel`.
    """
    (case,) = _cases(Kernel.of(kernel, sizes, statistics), None, None, None)
    cases = [
        replace(
            case,
            name=f"{case.name}/groups={groups}",
            kernel=f"{case.kernel}/groups={groups}",
            inputs=case.kernel,
            unused_local_bytes=unused,
        )
        for groups, unused in unused_local_bytes.items()
    ]
    with open_runner(None, device, None) as opened:
        return _measured(cases, TIMING, opened)


def _measured(
    cases: Sequence[KernelCase], protocol: Protocol, runner: CaseRunner
) -> MeasurementSet:
    """Measure cases; if none can be, raise the first failure."""
    with tempfile.TemporaryDirectory(prefix="countperf-time-") as folder:
        store = Path(folder) / "timing.jsonl"
        measured = measure(cases, store=store, protocol=protocol, runner=runner)
    if measured.failures and not len(measured):
        first = measured.failures[0]
        kind = next(kind for kind in _FAILURES if kind.stage == first.stage)
        raise kind(first.reason, case=first.case)
    return measured


def _cases(
    kernel: Kernel,
    make_arguments: MakeArguments | None,
    reference: Reference | None,
    tolerance: float | None,
    *,
    unchecked: bool = False,
) -> list[KernelCase]:
    """Return a case for each point of a kernel; numbers are checked at the smallest one."""
    unit, known = kernel.unit_with("code to run"), kernel.entry
    if len(unit.entrypoints) != 1:
        raise ParameterError(
            f"a loopy.TranslationUnit with one entry point can be timed, not {type(unit).__name__}"
            f" with {len(unit.entrypoints)}; pass such a kernel, or a text that names one",
            parameter="kernel",
        )
    name = kernel.name or unit.default_entrypoint.name
    fixed: dict[str, int] = {}
    if known is not None:
        fixed = {size.name: size.fixed for size in known.sizes if size.fixed is not None}
        if make_arguments is None:
            make_arguments, reference = known.make_arguments, reference or known.reference
    arguments = {arg.name: arg for arg in unit.default_entrypoint.args}
    bound = kernel.bound_arguments
    bound_sizes = {
        name: int(value)
        for name, value in bound.items()
        if isinstance(arguments.get(name), ValueArg) and isinstance(value, int | np.integer)
    }
    sizes = {**bound_sizes, **fixed, **kernel.sizes}
    _check_sizes(unit, name, sizes)
    points = combine_sizes(sizes)
    smallest = min(points, key=lambda point: math.prod(max(n, 1) for n in point.values()))
    return [
        KernelCase(
            name="/".join(filter(None, (name, ",".join(f"{n}={v}" for n, v in point.items())))),
            kernel=name,
            build=unit,
            parameters=point,
            check_parameters=smallest,
            make_arguments=make_arguments,
            reference=reference,
            tolerance=tolerance,
            statistics=kernel.at(point).statistics or {},
            purpose="application",
            bound_arguments=bound,
            unchecked=unchecked,
        )
        for point in points
    ]


def _describe_made_up_arrays(case: KernelCase) -> str:
    """Say which index arrays are made up at the first size; a failure is the measurement's."""
    unit = case.build()
    types = (getattr(arg.dtype, "numpy_dtype", None) for arg in unit.default_entrypoint.args)
    if case.make_arguments is not None or all(arg is None or arg.kind not in "iu" for arg in types):
        return ""
    with suppress(CountperfError, LoopyError):
        kernel = describe_kernel(unit.copy(target=PyOpenCLTarget()))
        return made_up_indices(kernel, case.parameters, case.bound_arguments, case.statistics)
    return ""


def _check_sizes(unit: Any, name: str, sizes: Sizes) -> None:
    arguments = unit.default_entrypoint.args
    known = [argument.name for argument in arguments if isinstance(argument, ValueArg)]
    for size in sizes:
        if size not in known:
            listed = ", ".join(known) or "none"
            raise UnknownSizeError(
                f"kernel {name!r} has no parameter {size} (it has: {listed}){nearest(size, known)}",
                parameter=size,
            )
