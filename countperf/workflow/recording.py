"""Counting and predicting every kernel that Loopy launches in a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from countperf.counting.producers import launched_sizes, launched_unit
from countperf.display import ShortRepr
from countperf.errors import CountperfError, ParameterError
from countperf.harness.opencl import describe
from countperf.launch_recorder import KernelLaunches, Recorder
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
    return LaunchLog(Recorder(), target, statistics or {})


class LaunchLog:
    """Kernels that Loopy launched, with sizes, numbers of launches, counts and predictions.

    What `recording` returns. A kernel that cannot be counted or predicted has a row with the
    reason.
    """

    def __init__(
        self,
        recorder: Recorder,
        target: Target,
        statistics: Mapping[str, Mapping[str, Statistic]],
    ) -> None:
        self._recorder = recorder
        self._target = target
        self._statistics = statistics
        self._known: dict[Any, RecordedKernel] = {}
        self._loaded: dict[str | None, WeightSet] = {}

    def __enter__(self) -> Self:
        self._recorder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._recorder.stop()

    @property
    def kernels(self) -> tuple[RecordedKernel, ...]:
        """Launches so far: one entry for each kernel, sizes and device, the longest first."""
        merged: dict[Any, RecordedKernel] = {}
        for each in tuple(self._recorder.kinds.values()):
            given = [tuple(sorted(m.items())) for m in (each.integers, each.shapes, each.types)]
            device = getattr(each.device, "int_ptr", None)
            quick = (id(each.unit), each.entrypoint, *given, device)
            if quick not in self._known:
                self._known[quick] = self._made(each)
            row = self._known[quick]
            key = (content_key(each.unit, {}) or id(each.unit), each.entrypoint, given[2], device)
            key = (*key, tuple(sorted(row.parameters.items())))
            before = merged[key].launches if key in merged else 0
            merged[key] = replace(row, launches=each.launches + before)
        return tuple(sorted(merged.values(), key=lambda row: (-(row.total_s or 0.0), row.kernel)))

    @property
    def launches(self) -> int:
        """Number of all launches."""
        return self._recorder.left_out + sum(each.launches for each in self.kernels)

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
        return self._printed().text(18, widest=160)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return self._printed().html()

    def _printed(self) -> Printed:
        return launches(self.kernels, self._recorder.left_out, self._recorder.problems)

    def _made(self, launched: KernelLaunches) -> RecordedKernel:
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
