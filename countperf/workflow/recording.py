"""Counting and predicting every kernel that Loopy launches in a program.

Loopy's executors are wrapped. A launch runs first and as ever; what is noted of it afterwards are a
reference to its kernel, its scalars, and the shapes and types of its arrays, not the arrays.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from loopy.target.c.c_execution import CExecutor
from loopy.target.pyopencl_execution import PyOpenCLExecutor

from countperf.counting.producers import launched_sizes, launched_unit
from countperf.display import MOST_LINES, ShortRepr
from countperf.errors import CountperfError, ParameterError
from countperf.harness.opencl import describe
from countperf.models.library import short_name
from countperf.properties.cache import content_key
from countperf.properties.count_properties import count_kernel
from countperf.report.timing import launches
from countperf.workflow.kernels import counted
from countperf.workflow.prediction import Target
from countperf.workflow.timing_predictions import predicted_time

if TYPE_CHECKING:
    import pandas as pd

    from countperf.hardware.identity import DeviceIdentity
    from countperf.measurements import Statistic
    from countperf.models.weights import WeightSet
    from countperf.report.rows import Printed


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKernel(ShortRepr):
    """A kernel at the sizes of its launches."""

    kernel: str  # its name
    parameters: Mapping[str, int]  # values of its size parameters
    launches: int  # how often it was launched
    device: str  # slug of the device
    flops: float | None = None  # operations of one launch
    global_bytes: float | None = None  # bytes that one launch moves
    exact: bool = True  # whether all counts are exact
    model: str = ""  # model that predicted
    predicted_s: float | None = None  # predicted time of one launch, s, and its interval
    interval_s: tuple[float, float] | None = None
    reason: str = ""  # why there are no counts, or no prediction, or what it is without

    @property
    def total_s(self) -> float | None:
        """Predicted time of all launches, s."""
        return None if self.predicted_s is None else self.launches * self.predicted_s


def recording(
    *,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    statistics: Mapping[str, Mapping[str, Statistic]] | None = None,
    incomplete_ok: bool = False,
) -> LaunchLog:
    """Record every kernel that Loopy launches while a ``with`` block runs.

    Recording does not change what the program does, and counts nothing while it runs: a launch
    costs some microseconds more. Kernels are counted and predicted when the log is read.

    Parameters
    ----------
    weights : WeightSet, Path or str, optional
        What predicts; by default the weights fitted on the device of each launch.
    model : str, optional
        Which model's weights; by default the one chosen for the device. Code is not compiled.
    statistics : mapping from str to mapping, optional
        By name of the kernel what data decides, as for `count_kernel`.
    incomplete_ok : bool, optional
        Whether to leave out of predictions what has no weight.

    Returns
    -------
    LaunchLog
        A context manager; ``with`` gives the log itself.

    Examples
    --------
    >>> import countperf
    >>> with countperf.recording() as log:
    ...     pass  # run the program
    >>> print(log)
    no kernel was launched
    """
    target = Target(weights=weights, model=model, incomplete_ok=incomplete_ok)
    return LaunchLog(target, statistics or {})


@dataclass(slots=True, kw_only=True)
class _Launches:
    """Launches of one kernel with the same scalars, shapes and types, on one device."""

    unit: Any  # the kernel, as the program made it; kept, so that its id stays its own
    entrypoint: str  # its entry point
    integers: dict[str, int]  # integer arguments that were passed
    shapes: dict[str, tuple[int, ...]]  # shapes of array arguments that were passed
    types: dict[str, str]  # types of the arguments that were passed and have one
    device: Any = None  # pyopencl's device
    number: int = 0


class LaunchLog:
    """Kernels that Loopy launched, with sizes, numbers of launches, counts and predictions.

    What `recording` returns. A kernel that cannot be counted or predicted has a row with the
    reason.
    """

    def __init__(self, target: Target, statistics: Mapping[str, Mapping[str, Statistic]]) -> None:
        self._target = target
        self._statistics = statistics
        self._kinds: dict[Any, _Launches] = {}  # by what tells launches apart
        self._problems: dict[str, None] = {}  # of noting launches
        self._known: dict[Any, RecordedKernel] = {}
        self._loaded: dict[str | None, WeightSet] = {}

    def __enter__(self) -> Self:
        with _lock:
            _active.append(self)
            for executor in (CExecutor, PyOpenCLExecutor):
                if not hasattr(executor.__call__, _MARK):
                    executor.__call__ = _recorded(executor.__call__)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _active.remove(self)

    def note(self, executor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Note a launch; whatever goes wrong is noted too, and not raised."""
        try:
            self._note(executor, args, kwargs)
        except Exception as error:  # noqa: BLE001  the program is not to be disturbed
            self._problems[f"a launch was not noted: {type(error).__name__}: {error}"] = None

    def _note(self, executor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        queue = kwargs.get("queue", args[0] if args else None)
        device = getattr(queue, "device", None)
        integers: dict[str, int] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        types: dict[str, str] = {}
        for name, value in kwargs.items():
            shape = getattr(value, "shape", None)
            dtype = getattr(value, "dtype", None)
            if dtype is not None:
                types[name] = str(dtype)
            if isinstance(shape, tuple) and shape:
                shapes[name] = tuple(map(int, shape))
            elif hasattr(value, "__index__") and not isinstance(value, bool):
                integers[name] = int(value)
        unit, entrypoint = executor.t_unit, executor.entrypoint
        given = [tuple(sorted(found.items())) for found in (integers, shapes, types)]
        kind = (id(unit), entrypoint, *given, getattr(device, "int_ptr", None))
        with _lock:
            if kind not in self._kinds:
                self._kinds[kind] = _Launches(
                    unit=unit,
                    entrypoint=entrypoint,
                    integers=integers,
                    shapes=shapes,
                    types=types,
                    device=device,
                )
            self._kinds[kind].number += 1

    @property
    def kernels(self) -> tuple[RecordedKernel, ...]:
        """Launches so far: one entry for each kernel, sizes and device, the longest first."""
        merged: dict[Any, RecordedKernel] = {}
        for kind, each in tuple(self._kinds.items()):
            if kind not in self._known:
                self._known[kind] = self._made(each)
            row = self._known[kind]
            _, entrypoint, _, _, types, device = kind
            key = (content_key(each.unit, {}) or id(each.unit), entrypoint, types, device)
            key = (*key, tuple(sorted(row.parameters.items())))
            before = merged[key].launches if key in merged else 0
            merged[key] = replace(row, launches=each.number + before)
        return tuple(sorted(merged.values(), key=lambda row: (-(row.total_s or 0.0), row.kernel)))

    @property
    def launches(self) -> int:
        """Number of all launches."""
        return sum(kind.number for kind in self._kinds.values())

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each kernel, sizes and device, those that take longest first.

        Returns
        -------
        pandas.DataFrame
            Columns: ``kernel``; ``parameters`` as text; ``launches``; ``device``; ``flops`` and
            ``global_bytes`` of one launch; ``exact``; ``predicted_s``, ``low_s``, ``high_s`` of
            one launch; ``total_s`` of all; ``model``; ``reason``. What there is not is NaN.
        """
        return self._printed().frame()

    def __repr__(self) -> str:
        return self._printed().text(MOST_LINES - 7, widest=160)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return self._printed().html()

    def _printed(self) -> Printed:
        return launches(self.kernels, [*self._problems])

    def _made(self, launched: _Launches) -> RecordedKernel:
        """Count and predict launches; the row says what failed."""
        row = RecordedKernel(kernel=launched.entrypoint, parameters={}, launches=1, device="")
        try:
            identity = None
            if launched.device is not None:
                identity = describe(launched.device, "recorded").identity
                row = replace(row, device=identity.slug)
            unit = launched_unit(launched.unit, launched.entrypoint, launched.types)
            sizes = launched_sizes(unit, launched.integers, launched.shapes)
            row = replace(row, parameters={n: v for n, v in sorted(sizes.items()) if v >= 0})
            statistics = self._statistics.get(launched.entrypoint)
            vector = count_kernel(unit, statistics=statistics)
            at = {n: sizes[n] for n in vector.parameters if n in sizes}
            counts = vector.evaluate(at)
            row = replace(
                row,
                parameters=at,
                flops=float(sum(v for n, v in counts.items() if n.startswith("flop."))),
                global_bytes=float(
                    sum(
                        value * int(name.split(".")[2]) // 8
                        for name, value in counts.items()
                        if name.startswith(("gmem.load.", "gmem.store."))
                    )
                ),
                exact=not any(vector.caveat(name) for name in vector),
            )
            weights = self._weights(identity)
            made = weights.predict_counts(
                counted(
                    unit,
                    statistics=statistics,
                    view=weights.view,
                    caches=weights.counted_caches,
                ),
                at,
                incomplete_ok=self._target.incomplete_ok,
            )
            time = predicted_time(made)
            return replace(
                row,
                model=short_name(made.model),
                predicted_s=time.time_s,
                interval_s=time.interval_s,
                reason=time.reason,
            )
        except CountperfError as error:
            return replace(row, reason=str(error))
        except Exception as error:  # noqa: BLE001  one kernel is not to cost the others
            return replace(row, reason=f"{type(error).__name__}: {error}")

    def _weights(self, identity: DeviceIdentity | None) -> WeightSet:
        """Return what predicts launches on a device; loaded once."""
        if identity is None and self._target.weights is None:
            message = "it ran on no OpenCL device: name what predicts, recording(weights=...)"
            raise ParameterError(message, parameter="weights")
        key = None if identity is None else identity.slug
        if key not in self._loaded:
            self._loaded[key] = replace(self._target, device=identity).loaded()
        return self._loaded[key]


_MARK = "is_recorded_by_countperf"
_active: list[LaunchLog] = []
_lock = threading.Lock()


def _recorded(launch: Any) -> Any:
    @functools.wraps(launch)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = launch(self, *args, **kwargs)
        for log in tuple(_active):
            log.note(self, args, kwargs)
        return result

    setattr(recorded, _MARK, True)
    return recorded
