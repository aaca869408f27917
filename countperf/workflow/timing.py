"""Timing a kernel of the user's, predicting its times, and comparing both."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from loopy import LoopyError, PyOpenCLTarget, ValueArg

from countperf.display import ShortRepr
from countperf.errors import (
    CountingError,
    CountperfError,
    DeviceMismatchError,
    KernelBuildError,
    MeasurementError,
    ParameterError,
    PredictionError,
    WrongResultError,
)
from countperf.hardware.parameters import some_of
from countperf.harness.binding import made_up_indices
from countperf.harness.campaign import measure
from countperf.harness.description import describe_kernel
from countperf.harness.device import Device
from countperf.harness.runner import TIMING
from countperf.measurements import (
    InstructionCounts,
    KernelCase,
    MeasurementSet,
    Protocol,
    Statistic,
    TimedSize,
    TimingDocument,
    counts_digest,
)
from countperf.sizes import Sizes, combine_sizes, given_sizes
from countperf.steps import stepped
from countperf.tuning.measuring import LONGEST_S, running
from countperf.workflow.kernels import (
    counted,
    is_in_catalogue,
    kernel_and_arguments,
    kernel_statistics,
)
from countperf.workflow.prediction import Target, predict
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.harness.runner import CaseRunner
    from countperf.measurements.cases import MakeArguments, Reference
    from countperf.models.validity import Level
    from countperf.models.weights import WeightSet
    from countperf.predictions import Prediction
    from countperf.properties.taxonomy import View


_VIEWS: tuple[View, ...] = ("source", "structure", "compiled")


@dataclass(frozen=True, kw_only=True)
class KernelAtPoints(ShortRepr):
    """A kernel to time, at some points, and all that is known of it."""

    unit: Any  # the kernel
    name: str  # its name in what is reported
    points: Sequence[dict[str, int]]  # values of the size parameters
    statistics: Sequence[Mapping[str, Statistic]]  # what data decides, at each point
    make_arguments: MakeArguments | None  # as in `KernelCase`
    reference: Reference | None
    tolerance: float | None
    # what instructions without a counting rule do
    instruction_counts: InstructionCounts | None = None
    # inputs that come with the kernel
    bound_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def cases(self) -> list[KernelCase]:
        """Return a case for each point; numbers are checked at the smallest one."""
        smallest = min(self.points, key=lambda point: math.prod(max(n, 1) for n in point.values()))
        return [
            KernelCase(
                name=self.case_name(point),
                kernel=self.name,
                build=self.unit,
                parameters=point,
                check_parameters=smallest,
                make_arguments=self.make_arguments,
                reference=self.reference,
                tolerance=self.tolerance,
                statistics=known,
                purpose="application",
                bound_arguments=self.bound_arguments,
            )
            for point, known in zip(self.points, self.statistics, strict=True)
        ]

    def case_name(self, point: Mapping[str, int]) -> str:
        """Return the name of the case at a point."""
        sizes = ",".join(f"{name}={n}" for name, n in point.items())
        return f"{self.name}/{sizes}" if sizes else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTime:
    """Prediction at one point."""

    time_s: float | None = None  # the time, s
    interval_s: tuple[float, float] | None = None  # its interval, s
    reason: str = ""  # why there is no prediction, or what it is without


def predict_by_choice(
    work: KernelAtPoints, target: Target
) -> tuple[WeightSet | str, str, list[PredictedTime]]:
    """Predict all sizes by one model, which is chosen as `countperf.predict` does."""

    def predicted(weights: WeightSet, is_attempt: bool) -> tuple[WeightSet, list[PredictedTime]]:
        at = replace(target, incomplete_ok=target.incomplete_ok and not is_attempt)
        times = predict_times(work, weights, at)
        if is_attempt and (lacking := [time.reason for time in times if time.time_s is None]):
            raise PredictionError(lacking[0])
        return weights, times

    try:
        (weights, result), choice = target.by_choice(predicted)
    except DeviceMismatchError as error:
        if target.weights is not None:
            raise
        return str(error), "", [PredictedTime(reason=str(error))] * len(work.points)
    return weights, choice, result


def predict_times(
    kernel: KernelAtPoints, weights: WeightSet, target: Target
) -> list[PredictedTime]:
    """Predict the time of a kernel at each of its points."""
    times: list[PredictedTime] = []
    pairs = list(zip(kernel.points, kernel.statistics, strict=True))
    for point, known in stepped(pairs, "predicting"):
        try:
            prediction = predict(
                kernel.unit,
                point,
                weights=weights,
                level=target.level,
                incomplete_ok=target.incomplete_ok,
                statistics=known or None,
                instruction_counts=kernel.instruction_counts,
            )
        except CountperfError as error:  # a reason may hold for some of the points only
            times.append(PredictedTime(reason=str(error)))
        else:
            times.append(predicted_time(prediction))
    return times


def predicted_time(prediction: Prediction) -> PredictedTime:
    """Return time and interval of a prediction at one point."""
    time_s = float(np.squeeze(prediction.time_s))
    if time_s <= 0:
        return PredictedTime(
            reason=f"the {prediction.model} model predicts {time_s:.3g} s, which is no time"
        )
    missing = some_of(prediction.missing)
    reason = "" if prediction.complete else f"incomplete: without the cost of {missing}"
    if prediction.interval_s is None:
        return PredictedTime(time_s=time_s, reason=reason)
    low, high = (float(np.squeeze(end)) for end in prediction.interval_s)
    interval_s = (max(low, 0.0), high) if math.isfinite(high) else None
    return PredictedTime(time_s=time_s, interval_s=interval_s, reason=reason)


def _digests(kernel: KernelAtPoints, statistics: Mapping[str, Statistic]) -> dict[str, str]:
    """Return digests of a kernel's counts by the views that can be counted."""
    digests: dict[str, str] = {}
    for view in _VIEWS:
        try:
            vector = counted(
                kernel.unit,
                statistics=statistics,
                view=view,
                instruction_counts=kernel.instruction_counts,
            )
            digests[view] = counts_digest(vector)
        except CountingError:
            continue
    return digests


_FAILURES: Mapping[str, type[MeasurementError]] = {
    "build": KernelBuildError,
    "check": WrongResultError,
    "run": MeasurementError,
}


def time_kernel(
    kernel: Any,
    sizes: Sizes | None = None,
    /,
    *,
    device: str | Device | None = None,
    make_arguments: MakeArguments | None = None,
    reference: Reference | None = None,
    tolerance: float | None = None,
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
) -> TimingDocument:
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
        are made from the types and shapes of its arguments (`countperf.harness.binding`).
    reference, tolerance : optional
        From inputs and parameters to the expected outputs by name; largest ``|got - want|``.
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
        ``to_frame()`` has all rows, ``plot()`` draws time over size, ``write_file`` keeps it as a
        document, which ``Timing.read_file`` reads, and predictions take as an anchor.

    Raises
    ------
    DeviceError, DeviceMismatchError
        The device does not work, or the named weights are of another one.
    ParameterError, CountingError
        A size is unknown, lists do not go together, or a property vector was given.
    KernelBuildError, WrongResultError, MeasurementError
        No size could be measured. One that fails alone is among the failures of the result.
    """
    at = given_sizes(sizes, more)
    work = _work(kernel, at, statistics, instruction_counts, make_arguments, reference, tolerance)
    with running(runner, device, None, longest_s=longest_s) as used:
        target = Target(
            weights=weights,
            model=model,
            device=used.identity,
            force=force,
            incomplete_ok=incomplete_ok,
            level=level,
        )
        return _timed(work, target, used, protocol or TIMING)


def _timed(
    work: KernelAtPoints,
    target: Target,
    runner: CaseRunner,
    used: Protocol,
) -> TimingDocument:
    """Predict the times of a kernel, measure them, and put them side by side."""
    result, choice, predicted = predict_by_choice(work, target)
    counts = [_digests(work, known) for known in work.statistics]
    made_up = _made_up(work)
    with tempfile.TemporaryDirectory(prefix="countperf-time-") as folder:
        store = Path(folder) / "timing.jsonl"
        measured = measure(work.cases(), store=store, protocol=used, runner=runner)
    _check_some(measured)
    of_case = {case.case: case for case in measured}
    rows = [
        TimedSize(
            measurement=of_case[name],
            counts=digests,
            predicted_s=time.time_s,
            interval_s=time.interval_s,
            reason=time.reason,
        )
        for point, time, digests in zip(work.points, predicted, counts, strict=True)
        if (name := work.case_name(point)) in of_case
    ]
    return TimingDocument(
        kernel=work.name,
        device=measured.header.device,
        protocol=used,
        environment=measured.header.environment,
        weights="" if isinstance(result, str) else result.device.slug,
        model="" if isinstance(result, str) else result.model,
        model_choice=choice,
        interval_level=target.level,
        made_up=made_up,
        sizes=tuple(rows),
        failures=tuple(measured.failures),
    )


def _work(
    kernel: Any,
    sizes: Sizes,
    statistics: Mapping[str, Statistic] | None,
    instruction_counts: InstructionCounts | None,
    make_arguments: MakeArguments | None,
    reference: Reference | None,
    tolerance: float | None,
) -> KernelAtPoints:
    """Find the kernel and what is known of it, and check the names of its sizes."""
    unit, bound = kernel_and_arguments(kernel, "code to run")
    entrypoints = getattr(unit, "entrypoints", ())
    if len(entrypoints) != 1:
        raise ParameterError(
            f"a loopy.TranslationUnit with one entry point can be timed, not {type(unit).__name__}"
            f" with {len(entrypoints)}; pass such a kernel, or a text that names one",
            parameter="kernel",
        )
    name = unit.default_entrypoint.name
    if isinstance(kernel, str):
        name = kernel.rpartition(":")[2]
        if is_in_catalogue(kernel):
            known = entry(kernel)
            if make_arguments is None:
                make_arguments, reference = known.make_arguments, reference or known.reference
            fixed = {size.name: size.fixed for size in known.sizes if size.fixed is not None}
            sizes = {**fixed, **sizes}
    arguments = {arg.name: arg for arg in unit.default_entrypoint.args}
    bound_sizes = {
        name: int(value)
        for name, value in bound.items()
        if isinstance(arguments.get(name), ValueArg) and isinstance(value, int | np.integer)
    }
    sizes = {**bound_sizes, **sizes}
    _check_sizes(unit, name, sizes)
    points = combine_sizes(sizes)
    return KernelAtPoints(
        unit=unit,
        name=name,
        points=points,
        statistics=[kernel_statistics(kernel, statistics, point) or {} for point in points],
        make_arguments=make_arguments,
        reference=reference,
        tolerance=tolerance,
        instruction_counts=instruction_counts,
        bound_arguments=bound,
    )


def _made_up(work: KernelAtPoints) -> str:
    """Say which index arrays are made up at the first size; a failure is the measurement's."""
    types = (getattr(arg.dtype, "numpy_dtype", None) for arg in work.unit.default_entrypoint.args)
    if work.make_arguments is not None or all(arg is None or arg.kind not in "iu" for arg in types):
        return ""
    with suppress(CountperfError, LoopyError):
        kernel = describe_kernel(work.unit.copy(target=PyOpenCLTarget()), lambda _: [])
        return made_up_indices(kernel, work.points[0], work.bound_arguments, work.statistics[0])
    return ""


def _check_sizes(unit: Any, name: str, sizes: Sizes) -> None:
    arguments = unit.default_entrypoint.args
    known = [argument.name for argument in arguments if isinstance(argument, ValueArg)]
    for size in sizes:
        if size not in known:
            listed = ", ".join(known) or "none"
            raise ParameterError(
                f"kernel {name!r} has no parameter {size} (it has: {listed})", parameter=size
            )


def _check_some(measured: MeasurementSet) -> None:
    """Raise the error of the first failure if nothing could be measured."""
    if len(measured) or not measured.failures:
        return
    first = measured.failures[0]
    raise _FAILURES[first.stage](first.reason, case=first.case)
