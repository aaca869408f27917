"""Timing a kernel of the user's, and comparing its times with predictions."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.errors import (
    CountingError,
    CountperfError,
    DeviceMismatchError,
    KernelBuildError,
    MeasurementError,
    ParameterError,
    WrongResultError,
)
from countperf.harness.progress import Progress, ProgressEvent, silent
from countperf.kernels import counted, is_in_catalogue, kernel_itself, kernel_statistics
from countperf.measurements import (
    KernelCase,
    Measurement,
    MeasurementSet,
    Protocol,
    Statistic,
    TimedSize,
    TimingDocument,
    counts_digest,
)
from countperf.sizes import Sizes, combine_sizes, size_arrays

if TYPE_CHECKING:
    import pandas as pd

    from countperf.harness.clock import Clock
    from countperf.harness.device import Device
    from countperf.harness.runner import CaseRunner
    from countperf.measurements.cases import MakeArguments, Reference
    from countperf.models.weights import WeightSet
    from countperf.predictions import Prediction
    from countperf.properties.taxonomy import View

__all__ = ["Timing", "time_kernel"]

_VIEWS: tuple[View, ...] = ("source", "structure", "compiled")

_FAILURES: Mapping[str, type[MeasurementError]] = {
    "build": KernelBuildError,
    "check": WrongResultError,
    "run": MeasurementError,
}


class Timing(TimingDocument):
    """Measured times of a kernel at several sizes, beside what was predicted.

    What `time_kernel` returns. ``write_file`` keeps it as a document, and ``Timing.read_file``
    reads that; `Prediction.anchored` and `WeightSet.anchored` take it.
    """

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each size, in the order in which they were given.

        Returns
        -------
        pandas.DataFrame
            Columns: the parameters; ``measured_s``, ``spread``, ``noise`` (relative; see
            `countperf.measurements.Summary`); ``predicted_s``, ``low_s``, ``high_s`` (NaN where
            there is none); ``verdict``; ``remark``. Sizes that failed have the verdict ``failed``.
        """
        import pandas as pd

        from countperf.report.timing import timing_records

        return pd.DataFrame.from_records(timing_records(self))

    def __repr__(self) -> str:
        from countperf.report.timing import timing_text

        return timing_text(self, most_rows=12)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from countperf.report.timing import timing_html

        return timing_html(self)

    def plot(self, path: Path | str | None = None) -> Any:
        """Draw time over size: measured points, the predicted line, and its interval as a band.

        Parameters
        ----------
        path : Path or str, optional
            Where to write the figure too; the ending chooses the format (.svg, .png, .pdf).

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError
            Matplotlib is not installed.
        ParameterError
            The ending is of no format that matplotlib writes.
        OutputError
            The file cannot be written.
        """
        from countperf.report.timing_figure import timing_figure

        return timing_figure(self, path)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """A kernel to time, at some points, and all that is known of it."""

    kernel: Any
    unit: Any
    name: str
    points: Sequence[dict[str, int]]
    statistics: Sequence[Mapping[str, Statistic]]
    make_arguments: MakeArguments | None
    reference: Reference | None
    tolerance: float | None

    def cases(self) -> list[KernelCase]:
        """Return a case for each point; numbers are checked at the smallest one."""
        smallest = min(self.points, key=lambda point: sum(log(max(n, 1)) for n in point.values()))
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
            )
            for point, known in zip(self.points, self.statistics, strict=True)
        ]

    def case_name(self, point: Mapping[str, int]) -> str:
        """Return the name of the case at a point."""
        sizes = ",".join(f"{name}={n}" for name, n in point.items())
        return f"{self.name}/{sizes}" if sizes else self.name


def time_kernel(
    kernel: Any,
    sizes: Sizes | None = None,
    /,
    *,
    device: str | Device | None = None,
    rounds: int | None = None,
    make_arguments: MakeArguments | None = None,
    reference: Reference | None = None,
    tolerance: float | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    force: bool = False,
    level: float = 0.95,
    cold: bool = False,
    protocol: Protocol | None = None,
    progress: Progress = silent,
    clock: Clock | None = None,
    runner: CaseRunner | None = None,
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
        As for `measure`; by default the working device with the highest copy bandwidth.
    rounds : int, optional
        Rounds of each size, at least; by default those of the protocol, 3. Up to 2 more follow
        where they disagree.
    make_arguments : callable, optional
        From a random generator and the parameters to the kernel's inputs by name: arrays of the
        exact type and the declared shape, and scalars. By default inputs are made from the types
        and shapes of the kernel's arguments (`countperf.harness.inputs.default_inputs`).
    reference : callable, optional
        From inputs and parameters to the expected outputs by name.
    tolerance : float, optional
        Largest ``|got - want|`` that is right, as in `KernelCase`.
    statistics : mapping from str to float or str, optional
        What data decides, as for `count_kernel`; predictions need them.
    weights : WeightSet, Path or str, optional
        What predicts; by default the weights fitted on the device, if there are any.
    model : str, optional
        Which model's weights, where they are looked up; by default the one chosen for the device.
    force : bool, optional
        Whether to compare with weights of another device.
    level : {0.95, 0.9}, optional
        In which share of cases the interval is to hold the time.
    cold : bool, optional
        Whether the caches are flushed before each run. Predictions are for warm caches: shipped
        weights were fitted to such runs.
    protocol : Protocol, optional
        How often each size runs; by default `countperf.harness.protocols.TIMING`.
    progress : callable, optional
        Is told of everything that happens.
    clock : Clock, optional
        What times the runs; by default the device's event timer.
    runner : CaseRunner, optional
        What runs the kernel; by default one on `device` with `clock`.

    Returns
    -------
    Timing
        A row for each size: measured time, noise, predicted time, and what that says.

    Raises
    ------
    DeviceError
        No such device, or it does not work.
    DeviceMismatchError
        The named weights are of another device.
    ParameterError
        A size is unknown, or lists do not go together.
    CountingError
        A property vector was given, which has no code to run.
    KernelBuildError, WrongResultError, MeasurementError
        No size could be measured: the kernel does not build or gets no inputs, its numbers differ
        from the reference, or it does not run. A size that fails alone is among the failures of
        what is returned.

    Examples
    --------
    >>> timing = time_kernel("n-body", n=[256, 512])  # doctest: +SKIP
    >>> timing.to_frame()  # doctest: +SKIP
    """
    from countperf.harness.campaign import measure
    from countperf.harness.cold import ColdRunner
    from countperf.harness.protocols import TIMING

    given = {**(sizes or {}), **more}
    work = _work(kernel, given, statistics, make_arguments, reference, tolerance)
    used = (protocol or TIMING).changed(**({} if rounds is None else {"rounds": rounds}))
    if runner is None:
        runner = _runner(device, clock, cold=cold)
    elif cold and not isinstance(runner, ColdRunner):
        raise ParameterError(
            "cold=True flushes caches by a ColdRunner; pass runner=ColdRunner(...), or no runner",
            parameter="cold",
        )
    found = _weights(weights, runner, model=model, force=force)
    predicted = _predictions(work, found, level, progress)
    counts = _digests(work)
    with tempfile.TemporaryDirectory(prefix="countperf-time-") as folder:
        measured = measure(
            work.cases(),
            store=Path(folder) / "timing.jsonl",
            protocol=used,
            progress=progress,
            runner=runner,
            expected_run_s={
                work.case_name(point): each[0]
                for point, each in zip(work.points, predicted, strict=True)
                if not isinstance(each, str)
            },
        )
    _check_some(measured)
    of_case = {each.case: each for each in measured}
    rows = [
        _timed(of_case[name], each, digests)
        for point, each, digests in zip(work.points, predicted, counts, strict=True)
        if (name := work.case_name(point)) in of_case
    ]
    return Timing(
        kernel=work.name,
        device=measured.header.device,
        protocol=used,
        environment=measured.header.environment,
        timer=measured.header.timer,
        cold=isinstance(runner, ColdRunner),
        weights="" if isinstance(found, str) else found.device.slug,
        model="" if isinstance(found, str) else found.model,
        interval_level=level,
        sizes=tuple(rows),
        failures=tuple(measured.failures),
    )


def _work(
    kernel: Any,
    sizes: Sizes,
    statistics: Mapping[str, Statistic] | None,
    make_arguments: MakeArguments | None,
    reference: Reference | None,
    tolerance: float | None,
) -> _Work:
    """Find the kernel and what is known of it, and check the names of its sizes."""
    unit = kernel_itself(kernel, "code to run")
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
            from measurement_kernels.catalog import entry

            found = entry(kernel)
            if make_arguments is None:
                make_arguments, reference = found.make_arguments, reference or found.reference
            fixed = {size.name: size.fixed for size in found.sizes if size.fixed is not None}
            sizes = {**fixed, **sizes}
    _check_sizes(unit, name, sizes)
    points = combine_sizes(sizes)
    return _Work(
        kernel=kernel,
        unit=unit,
        name=name,
        points=points,
        statistics=[kernel_statistics(kernel, statistics, point) or {} for point in points],
        make_arguments=make_arguments,
        reference=reference,
        tolerance=tolerance,
    )


def _check_sizes(unit: Any, name: str, sizes: Sizes) -> None:
    from loopy import ValueArg

    arguments = unit.default_entrypoint.args
    known = [each.name for each in arguments if isinstance(each, ValueArg)]
    for size in sizes:
        if size not in known:
            listed = ", ".join(known) or "none"
            raise ParameterError(
                f"kernel {name!r} has no parameter {size} (it has: {listed})", parameter=size
            )


def _runner(device: str | Device | None, clock: Clock | None, *, cold: bool) -> CaseRunner:
    from countperf.harness.cold import ColdRunner
    from countperf.harness.device import Device
    from countperf.harness.devices import find_device
    from countperf.harness.runner import KernelRunner

    kind = ColdRunner if cold else KernelRunner
    return kind.open(device if isinstance(device, Device) else find_device(device), clock)


def _weights(
    weights: WeightSet | Path | str | None, runner: CaseRunner, *, model: str | None, force: bool
) -> WeightSet | str:
    """Return what predicts, or why nothing does; weights that were named have to be right."""
    from countperf.models.library import available_weights
    from countperf.workflow import weights_for

    slug = runner.identity.slug
    named = weights
    if named is None and model is None and slug not in available_weights():
        return (
            f"there are no weights for {slug}; fit some, or name those of another device"
            " (--weights SLUG --force; weights=..., force=True in Python)"
        )
    found = weights_for(slug if named is None else named, model=model)
    try:
        found.check_device(runner.identity, force=force)
    except DeviceMismatchError as error:
        if named is None:
            return str(error)
        raise
    return found


_Predicted = tuple[float, tuple[float, float] | None]
"""Time and interval, s."""


def _predictions(
    work: _Work, weights: WeightSet | str, level: float, progress: Progress
) -> list[_Predicted | str]:
    """Return what is predicted at each point, or why nothing is."""
    if isinstance(weights, str):
        return [weights] * len(work.points)
    shared = all(known == work.statistics[0] for known in work.statistics)
    if shared and len(work.points) > 1:
        _tell(progress, work, 0, None)
        found = _predicted(work, weights, work.points, work.statistics[0], level)
        if not isinstance(found, str):
            return found
    began = time.monotonic()
    each: list[_Predicted | str] = []
    for point, known in zip(work.points, work.statistics, strict=True):
        spent_s = time.monotonic() - began
        left = len(work.points) - len(each)
        _tell(progress, work, len(each), spent_s / len(each) * left if each else None)
        one = _predicted(work, weights, [point], known, level)
        each.append(one if isinstance(one, str) else one[0])
    return each


def _tell(progress: Progress, work: _Work, done: int, remaining_s: float | None) -> None:
    case = work.case_name(work.points[done])
    total = len(work.points)
    progress(
        ProgressEvent(kind="predicting", case=case, done=done, total=total, remaining_s=remaining_s)
    )


def _predicted(
    work: _Work,
    weights: WeightSet,
    points: Sequence[Mapping[str, int]],
    statistics: Mapping[str, Statistic],
    level: float,
) -> list[_Predicted | str] | str:
    from countperf.workflow import predict

    columns = {name: [point[name] for point in points] for name in points[0]}
    try:
        found = predict(
            work.unit,
            size_arrays(columns),
            weights=weights,
            level=level,
            statistics=statistics or None,
        )
    except CountperfError as error:
        return str(error)
    return [_at(found, place) for place in range(len(points))]


def _at(found: Prediction, place: int) -> _Predicted | str:
    """Return time and interval at one of the points of a prediction."""
    import numpy as np

    def value(quantity: Any) -> float:
        several = np.ravel(quantity)
        return float(several[place if several.size > 1 else 0])

    time_s = value(found.time_s)
    if time_s <= 0:
        return f"the {found.model} model predicts {time_s:.3g} s, which is no time"
    if found.interval_s is None:
        return time_s, None
    low, high = map(value, found.interval_s)
    return time_s, (max(low, 0.0), high)


def _digests(work: _Work) -> list[dict[str, str]]:
    """Return digests of the kernel's counts at each point, by the views that can be counted."""
    found: list[tuple[Mapping[str, Statistic], dict[str, str]]] = []
    for statistics in work.statistics:
        known = next((digests for same, digests in found if same == statistics), None)
        found.append((statistics, _digests_with(work, statistics) if known is None else known))
    return [digests for _, digests in found]


def _digests_with(work: _Work, statistics: Mapping[str, Statistic]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for view in _VIEWS:
        try:
            digests[view] = counts_digest(counted(work.unit, statistics=statistics, view=view))
        except CountingError:
            continue
    return digests


def _timed(
    measurement: Measurement, predicted: _Predicted | str, digests: Mapping[str, str]
) -> TimedSize:
    counts = dict(digests)
    if isinstance(predicted, str):
        return TimedSize(measurement=measurement, counts=counts, reason=predicted)
    time_s, interval_s = predicted
    return TimedSize(
        measurement=measurement, counts=counts, predicted_s=time_s, interval_s=interval_s
    )


def _check_some(measured: MeasurementSet) -> None:
    """Raise the error of the first failure if nothing could be measured."""
    if len(measured) or not measured.failures:
        return
    first = measured.failures[0]
    raise _FAILURES[first.stage](first.reason, case=first.case)
