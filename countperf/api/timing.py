"""Timing kernels of the user's beside their predicted times; recording what a program launches."""

from __future__ import annotations

import functools
import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import loopy as lp
import numpy as np
from loopy.symbolic import get_dependencies
from pymbolic import evaluate

from countperf import errors, measuring, text
from countperf.api.kernels import Kernel
from countperf.api.prediction import ChosenWeights, choose_weights
from countperf.counting.frontend.loopy_patches import record_launches
from countperf.counting.frontend.producers import find_bound_arguments
from countperf.counting.taxonomy import View
from countperf.devices.binding import describe_indices
from countperf.devices.description import describe_kernel
from countperf.devices.device import Device
from countperf.devices.opencl import describe
from countperf.errors import CountperfError, ParameterError
from countperf.measuring.campaign import measure
from countperf.measuring.runner import LONGEST_S, TIMING, open_runner
from countperf.sizes import Sizes, checks_keywords, combine_sizes, merge_sizes
from countperf.steps import step_through

if TYPE_CHECKING:
    from countperf.measuring.cases import MakeArguments, Reference
    from countperf.measuring.runner import CaseRunner
    from countperf.models.function import Level
    from countperf.models.predictions import Prediction
    from countperf.models.weights import WeightSet


def predict_kernels(
    kernels: Sequence[Kernel], chosen: ChosenWeights, *, incomplete_ok: bool, level: Level
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Predict all sizes by one model: return what did, and fields of `TimedSize`."""

    def predict(used: ChosenWeights, is_attempt: bool) -> tuple[dict[str, Any], list[Any]]:
        rows: list[dict[str, Any]] = []
        allowed = incomplete_ok and not is_attempt
        for kernel in step_through(kernels, "predicting"):
            try:
                made = used.predict(kernel, incomplete_ok=allowed, level=level)
                rows.append(find_predicted_fields(made))
            except CountperfError as error:  # a reason may hold for some of the points only
                rows.append({"reason": str(error)})
        if is_attempt and (lacking := [r["reason"] for r in rows if r.get("predicted_s") is None]):
            raise errors.PredictionError(lacking[0])
        weights = used.weights
        return {"weights": weights.name, "model": weights.model, "model_choice": used.why}, rows

    return chosen.apply(predict)


def find_predicted_fields(prediction: Prediction) -> dict[str, Any]:
    """Return time and interval of a prediction at one point, as `TimedSize` has them."""
    time_s = float(np.squeeze(prediction.time_s))
    if time_s <= 0:
        reason = f"the {prediction.model} model predicts {time_s:.3g} s, which is no time"
        return {"predicted_s": None, "interval_s": None, "reason": reason}
    missing = text.some_of(prediction.missing)
    reason = "" if prediction.complete else f"incomplete: without the cost of {missing}"
    interval_s = None
    if prediction.interval_s is not None:
        low, high = (float(np.squeeze(end)) for end in prediction.interval_s)
        interval_s = (max(low, 0.0), high) if math.isfinite(high) else None
    return {"predicted_s": time_s, "interval_s": interval_s, "reason": reason}


def _digest_counts(kernel: Kernel) -> dict[str, str]:
    """Return digests of a kernel's counts by the views that can be counted."""
    digests: dict[str, str] = {}
    for view in get_args(View):
        with suppress(errors.CountingError):
            digests[view] = measuring.counts_digest(kernel.count(view))
    return digests


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
    statistics: Mapping[str, measuring.Statistic] | None = None,
    instruction_counts: measuring.InstructionCounts | None = None,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    force: bool = False,
    incomplete_ok: bool = False,
    level: Level = 0.95,
    protocol: measuring.Protocol | None = None,
    runner: CaseRunner | None = None,
    longest_s: float = LONGEST_S,
    **more: Any,
) -> measuring.Timing:
    """Time a kernel at some sizes, and compare the times with predicted ones.

    Each size runs in several rounds, some time apart, as in a campaign (`countperf.measure`): after
    a warm-up, the first runs of a round do not count, and the time is the minimum of the others.
    Before, the kernel runs once at the smallest size, to be checked. ``Timing.write_file`` keeps
    what is returned as a document, which predictions take as an anchor.

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
    make_arguments, reference, tolerance : optional
        From a random generator and the parameters to the kernel's inputs by name, by default by the
        types and shapes of its arguments (`countperf.devices.binding`); from inputs and parameters
        to the expected outputs; largest ``|got - want|``.
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

    Raises
    ------
    DeviceError, DeviceMismatchError, ParameterError, CountingError
        The device does not work, or the named weights are of another one; a size is unknown, lists
        do not go together, or a property vector was given.
    KernelBuildError, WrongResultError, MeasurementError
        No size could be measured. One that fails alone is among the failures of the result.
    """
    asked = Kernel.of(kernel, merge_sizes(sizes, more), statistics)
    checks: dict[str, Any] = {"reference": reference, "tolerance": tolerance}
    cases = _list_cases(asked, make_arguments=make_arguments, unchecked=unchecked, **checks)
    protocol = protocol or TIMING
    kernels = [
        Kernel.of(c.build(), c.parameters, c.statistics or None, instruction_counts) for c in cases
    ]
    with open_runner(runner, device, longest_s) as opened:
        by: dict[str, Any] = {}
        try:
            chosen = choose_weights(weights, model=model, device=opened.identity, force=force)
        except errors.DeviceMismatchError as error:
            if weights is not None:
                raise
            predicted: list[dict[str, Any]] = [{"reason": str(error)}] * len(cases)
        else:
            given: Any = {"incomplete_ok": incomplete_ok, "level": level}
            by, predicted = predict_kernels(kernels, chosen, **given)
        digests = [*map(_digest_counts, kernels)]
        made_up = _describe_made_up_arrays(cases[0])
        measured = _measure(cases, protocol, opened)
    of_case = {measurement.case: measurement for measurement in measured}
    return measuring.Timing(
        kernel=cases[0].kernel,
        device=measured.header.device,
        protocol=protocol,
        environment=measured.header.environment,
        **by,
        interval_level=level,
        made_up=made_up,
        sizes=tuple(
            measuring.TimedSize(measurement=of_case[case.name], counts=counts, **fields)
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
    statistics: Mapping[str, measuring.Statistic] | None = None,
) -> measuring.MeasurementSet:
    """Time a kernel with several numbers of resident groups, in which names of cases end."""
    (case,) = _list_cases(Kernel.of(kernel, sizes, statistics))
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
    with open_runner(None, device) as opened:
        return _measure(cases, TIMING, opened)


def _measure(
    cases: Sequence[measuring.KernelCase], protocol: measuring.Protocol, runner: CaseRunner
) -> measuring.MeasurementSet:
    """Measure cases; if none can be, raise the first failure."""
    with tempfile.TemporaryDirectory(prefix="countperf-time-") as folder:
        store = Path(folder) / "timing.jsonl"
        measured = measure(cases, store=store, protocol=protocol, runner=runner)
    if measured.failures and not len(measured):
        first = measured.failures[0]
        kinds = {"build": errors.KernelBuildError, "check": errors.WrongResultError}
        raise kinds.get(first.stage, errors.MeasurementError)(first.reason, case=first.case)
    return measured


def _list_cases(kernel: Kernel, **how: Any) -> list[measuring.KernelCase]:
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
        if how.get("make_arguments") is None:
            how["make_arguments"] = known.make_arguments
            how["reference"] = how.get("reference") or known.reference
    known_sizes = [a.name for a in unit.default_entrypoint.args if isinstance(a, lp.ValueArg)]
    bound = find_bound_arguments(kernel.around)  # such as the data in a program of pytato
    whole = {n: int(value) for n, value in bound.items() if isinstance(value, int | np.integer)}
    sizes = {n: value for n, value in whole.items() if n in known_sizes} | fixed | {**kernel.sizes}
    for size in sizes:
        if size not in known_sizes:
            listed = ", ".join(known_sizes) or "none"
            near = errors.nearest(size, known_sizes)
            raise errors.UnknownSizeError(
                f"kernel {name!r} has no parameter {size} (it has: {listed}){near}", parameter=size
            )
    points = combine_sizes(sizes)
    smallest = min(points, key=lambda point: math.prod(max(n, 1) for n in point.values()))
    return [
        measuring.KernelCase(
            name="/".join(filter(None, (name, ",".join(f"{n}={v}" for n, v in point.items())))),
            kernel=name,
            build=unit,
            parameters=point,
            check_parameters=smallest,
            statistics=kernel.at(point).statistics or {},
            purpose="application",
            bound_arguments=bound,
            **how,
        )
        for point in points
    ]


def _describe_made_up_arrays(case: measuring.KernelCase) -> str:
    """Say which index arrays are made up at the first size; a failure is the measurement's."""
    unit = case.build()
    types = (getattr(arg.dtype, "numpy_dtype", None) for arg in unit.default_entrypoint.args)
    if case.make_arguments is not None or all(arg is None or arg.kind not in "iu" for arg in types):
        return ""
    with suppress(CountperfError, lp.LoopyError):
        kernel = describe_kernel(unit.copy(target=lp.PyOpenCLTarget()))
        return describe_indices(kernel, case.parameters, case.bound_arguments, case.statistics)
    return ""


@checks_keywords
def recording(
    *,
    weights: WeightSet | Path | str | None = None,
    statistics: Mapping[str, Mapping[str, measuring.Statistic]] | None = None,
    incomplete_ok: bool = False,
) -> LaunchLog:
    """Record every kernel that Loopy launches while a ``with`` block runs.

    Recording does not change what the program does: kernels are predicted when the log is read.

    Parameters
    ----------
    weights, incomplete_ok : optional
        As for `predict`; by default the weights fitted on the device of each launch, by counts
        (model structural): no compiled code is read.
    statistics : mapping from str to mapping, optional
        By name of the kernel what data decides, as for `count_kernel`.
    """
    return LaunchLog(weights, statistics or {}, incomplete_ok)


class LaunchLog(text.Result):
    """Launches of kernels; `to_frame` has a row for each kernel, sizes and device."""

    __repr__ = text.Result.__str__

    def __init__(self, weights: Any, statistics: Mapping[str, Any], incomplete_ok: bool) -> None:
        self._weights, self._statistics = weights, statistics
        self._incomplete_ok = incomplete_ok
        self._noted: Counter[Any] = Counter()
        self.problems: dict[str, None] = {}  # of noting launches

    def __enter__(self) -> Self:
        _active.append(self)
        record_launches(_wrap_launch)
        return self

    def __exit__(self, *_: object) -> None:
        _active.remove(self)

    def note(self, executor: Any, queue: Any, arguments: Mapping[str, Any]) -> None:
        """Note a launch; whatever goes wrong is noted too, and not raised."""
        try:
            shapes, given = {}, {}
            for name, value in arguments.items():
                if shape := getattr(value, "shape", ()):
                    shapes[name] = tuple(map(int, shape))
                elif hasattr(value, "__index__"):
                    given[name] = int(value)
            types = {n: str(v.dtype) for n, v in arguments.items() if hasattr(v, "dtype")}
            known = [tuple(sorted(values.items())) for values in (given, shapes, types)]
            device = getattr(queue, "device", None)
            self._noted[executor.t_unit, executor.entrypoint, *known, device] += 1
        except Exception as error:  # noqa: BLE001  the program is not to be disturbed
            self.problems[f"a launch was not noted: {type(error).__name__}: {error}"] = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Launches so far: sizes, number, predicted times; a reason where one fails."""
        rows: list[dict[str, Any]] = []
        for launch, launches in self._noted.items():
            row: dict[str, Any] = {"kernel": launch[1], "launches": launches, "parameters": {}}
            try:
                row |= self._predict(*launch)
                if row["predicted_s"] is not None:
                    row["total_s"] = launches * row["predicted_s"]
            except Exception as error:  # noqa: BLE001  one kernel is not to cost the others
                row["reason"] = f"{type(error).__name__}: {error}"
            rows.append(row)
        return sorted(rows, key=lambda row: -row.get("total_s", 0.0))

    def _predict(self, unit: Any, name: str, *known: Any) -> dict[str, Any]:
        given, shapes, types, device = known
        if device is None and self._weights is None:
            message = "it ran on no OpenCL device: name what predicts, recording(weights=...)"
            raise ParameterError(message, parameter="weights")
        is_free = self._weights is None
        identity = describe(device, "recorded").identity if is_free and device else None
        chosen = choose_weights(
            self._weights, device=identity, without_code="launches are predicted by counts"
        )
        unit = _add_types(unit, name, dict(types))
        sizes = find_sizes(unit, dict(given), dict(shapes))
        vector = Kernel.of(unit, sizes, self._statistics.get(name)).count_for(chosen.weights)
        at = {n: sizes[n] for n in vector.parameters if n in sizes}
        made = chosen.predict(Kernel.of(vector, at), incomplete_ok=self._incomplete_ok)
        by = {"device": made.device, "weights": made.weights, "model": made.model}
        return {"parameters": at, **by, **find_predicted_fields(made)}

    def lay_out(self) -> text.Printed:
        """Give what was launched: a sentence, a row for each kernel and sizes, and what to know."""
        rows: list[Any] = self.rows
        number = sum(row["launches"] for row in rows)
        known = [row for row in rows if "total_s" in row]
        total = text.format_quantity(sum(row["total_s"] for row in known), "s")
        of = f"{total} predicted for {sum(row['launches'] for row in known)} of them"
        return text.Printed(
            head=[f"{number} launches; {of}" if rows else "no kernel was launched"],
            rows=[{**row, "parameters": text.point_text(row["parameters"])} for row in rows],
            columns=_LAUNCH_COLUMNS,
            notes=[*self.problems],
        )


def _add_types(unit: Any, entrypoint: str, types: Mapping[str, str]) -> Any:
    """Return a translation unit with one entry point, and the types that a launch gave it."""
    if unit.entrypoints != frozenset([entrypoint]):
        unit = unit.with_entrypoints(entrypoint)
    kernel = unit[entrypoint]
    missing = {
        argument.name: np.dtype(types[argument.name])
        for argument in kernel.args
        if argument.dtype is None and argument.name in types
    }
    return unit.with_kernel(lp.add_dtypes(kernel, missing)) if missing else unit


def find_sizes(
    unit: Any, integers: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Return the sizes of a launch; those not passed follow from shapes, as in Loopy's wrapper."""
    kernel = unit.default_entrypoint
    names = {arg.name for arg in kernel.args if isinstance(arg, lp.ValueArg)}
    sizes = {name: value for name, value in integers.items() if name in names}
    equations = [
        (extent, actual, get_dependencies(extent))
        for argument in kernel.args
        if isinstance(getattr(argument, "shape", None), tuple) and argument.name in shapes
        for extent, actual in zip(argument.shape, shapes[argument.name], strict=False)
        if extent is not None
    ]
    for _ in names:  # each time, one more may be known
        for extent, actual, behind in equations:
            unknown = behind - sizes.keys()
            if len(unknown) == 1 and unknown <= names:
                sizes |= _solve(extent, *unknown, sizes, actual)
    return sizes


def _solve(extent: Any, name: str, known: Mapping[str, int], actual: int) -> dict[str, int]:
    """Return the value of a name with which an extent is what it was, if it is linear."""
    at_one, at_two = (evaluate(extent, {**known, name: value}) for value in (1, 2))
    if at_one == at_two:
        return {}
    steps, remainder = divmod(actual - at_one, at_two - at_one)
    value = int(steps) + 1
    if evaluate(extent, {**known, name: value}) != actual - remainder:
        return {}
    if remainder:
        raise errors.CountingError(f"no value of {name} makes {extent} equal to {actual}")
    return {name: value}


_active: list[LaunchLog] = []


def _wrap_launch(launch: Any) -> Any:
    """Return a function that launches, and has the active logs note it."""

    @functools.wraps(launch)
    def launch_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = launch(self, *args, **kwargs)
        for log in tuple(_active):
            log.note(self, kwargs.get("queue", args[0] if args else None), kwargs)
        return result

    vars(launch_and_note)["is_recorded"] = True
    return launch_and_note


_LAUNCH_COLUMNS = {
    **{"kernel": text.Column("kernel"), "parameters": text.Column("sizes")},
    **text.columns_of("device launches"),
    "predicted_s": text.Column("one launch", text.format_seconds),
    **text.make_interval_columns("to"),
    **{"total_s": text.Column("all launches", text.format_seconds), "reason": text.Column()},
}
