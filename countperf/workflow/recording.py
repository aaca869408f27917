"""Counting and predicting every kernel that Loopy launches in a program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from countperf.counting.producers import launched_sizes, launched_unit
from countperf.errors import CountperfError
from countperf.harness.opencl import describe
from countperf.launch_recorder import KernelLaunches, Recorder
from countperf.measurements import LaunchesDocument, RecordedKernel
from countperf.models.library import fits_for, load_weights, short_name
from countperf.properties.cache import content_key
from countperf.properties.count_properties import count_kernel
from countperf.report.timing import launches
from countperf.workflow.kernels import counted

if TYPE_CHECKING:
    import pandas as pd

    from countperf.hardware.identity import DeviceIdentity
    from countperf.measurements import Statistic
    from countperf.models.weights import WeightSet
    from countperf.properties.vector import PropertyVector


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
    return LaunchLog(
        Recorder(),
        weights=weights,
        model=model,
        statistics=statistics or {},
        incomplete_ok=incomplete_ok,
    )


class LaunchLog:
    """Kernels that Loopy launched, with sizes, numbers of launches, counts and predictions.

    What `recording` returns. A kernel that cannot be counted or predicted has a row with the
    reason. ``write_file`` keeps it for ``countperf report``.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        weights: WeightSet | Path | str | None = None,
        model: str | None = None,
        statistics: Mapping[str, Mapping[str, Statistic]] | None = None,
        incomplete_ok: bool = False,
    ) -> None:
        self._recorder = recorder
        self._weights = weights
        self._model = model
        self._statistics = statistics or {}
        self._incomplete_ok = incomplete_ok
        self._known: dict[Any, RecordedKernel] = {}
        self._loaded: dict[Any, WeightSet | str] = {}

    def __enter__(self) -> Self:
        self._recorder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._recorder.stop()

    @property
    def document(self) -> LaunchesDocument:
        """All that is known now, as a document."""
        merged: dict[Any, RecordedKernel] = {}
        for each in tuple(self._recorder.kinds.values()):
            key, row = self._row(each)
            before = merged.get(key)
            launches = each.launches + (0 if before is None else before.launches)
            merged[key] = row.model_copy(update={"launches": launches})
        return LaunchesDocument(
            kernels=tuple(sorted(merged.values(), key=_by_time)),
            left_out=self._recorder.left_out,
            problems=tuple(self._recorder.problems),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each kernel, sizes and device, those that take longest first.

        Returns
        -------
        pandas.DataFrame
            Columns: ``kernel``; ``parameters`` as text; ``launches``; ``device``; ``flops`` and
            ``global_bytes`` of one launch; ``exact``; ``predicted_s``, ``low_s``, ``high_s`` of
            one launch; ``total_s`` of all; ``model``; ``reason``. What there is not is NaN.
        """
        return launches(self.document).frame()

    def write_file(self, path: Path | str, *, rescue: bool = False) -> None:
        """Write the log for ``countperf report``; parameters are those of `Document.write_file`."""
        self.document.write_file(path, rescue=rescue)

    def __repr__(self) -> str:
        return launches(self.document).text(18, widest=160)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return launches(self.document).html()

    # --- rows

    def _row(self, launched: KernelLaunches) -> tuple[Any, RecordedKernel]:
        """Return the row of launches, without their number, and what tells it from others."""
        device = "" if launched.device is None else launched.device.int_ptr
        quick = (id(launched.unit), launched.entrypoint, *map(_items, _given(launched)), device)
        row = self._known.get(quick)
        if row is None:
            row = self._known[quick] = self._made(launched)
        key = (content_key(launched.unit, {}) or id(launched.unit), launched.entrypoint)
        return (*key, _items(row.parameters), _items(launched.types), device), row

    def _made(self, launched: KernelLaunches) -> RecordedKernel:
        fields: dict[str, Any] = {"kernel": launched.entrypoint, "launches": 1}
        reason = ""
        try:
            identity = self._identity(launched.device)
            fields["device"] = "" if identity is None else identity.slug
            unit = launched_unit(launched.unit, launched.entrypoint, launched.types)
            sizes = launched_sizes(unit, launched.integers, launched.shapes)
            fields["parameters"] = {n: v for n, v in sorted(sizes.items()) if v >= 0}
            # of a kernel that does not count
            statistics = self._statistics.get(launched.entrypoint)
            vector = count_kernel(unit, statistics=statistics)
            fields["parameters"] = {n: sizes[n] for n in vector.parameters if n in sizes}
            fields |= _work(vector, fields["parameters"])
            weights = self._weights_for(identity)
            if isinstance(weights, str):
                reason = weights
            else:
                fields |= self._prediction(unit, weights, statistics, fields["parameters"])
        except CountperfError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001  one kernel is not to cost the others
            reason = f"{type(error).__name__}: {error}"
        return RecordedKernel.model_validate({"reason": reason, **fields})

    def _prediction(
        self,
        unit: Any,
        weights: WeightSet,
        statistics: Mapping[str, Statistic] | None,
        sizes: Mapping[str, int],
    ) -> dict[str, Any]:
        vector = counted(
            unit, statistics=statistics, view=weights.view, caches=weights.counted_caches
        )
        found = weights.predict_counts(vector, sizes, incomplete_ok=self._incomplete_ok)
        time_s = float(found.time_s)
        if not time_s > 0:
            return {"reason": f"the {found.model} model predicts {time_s:.3g} s, which is no time"}
        fields: dict[str, Any] = {
            "weights": weights.device.slug,
            "model": short_name(found.model),
            "predicted_s": time_s,
            "reason": "" if found.complete else f"incomplete: without {', '.join(found.missing)}",
        }
        if found.interval_s is not None and math.isfinite(float(found.interval_s[1])):
            low, high = (float(end) for end in found.interval_s)
            fields["interval_s"] = (max(low, 0.0), high)
        return fields

    def _identity(self, device: Any) -> DeviceIdentity | None:
        return None if device is None else describe(device, "recorded").identity

    def _weights_for(self, identity: DeviceIdentity | None) -> WeightSet | str:
        """Return what predicts launches on a device, or why nothing does; loaded once."""
        key = None if identity is None or self._weights is not None else identity.slug
        if key not in self._loaded:
            self._loaded[key] = self._load(identity)
        return self._loaded[key]

    def _load(self, identity: DeviceIdentity | None) -> WeightSet | str:
        if self._weights is not None:
            if isinstance(self._weights, Path | str):
                return load_weights(self._weights, model=self._model)
            return self._weights
        if identity is None:
            return "it ran on no OpenCL device: name what predicts, recording(weights=...)"
        for fit in fits_for(identity):
            return load_weights(fit.name, model=self._model)
        return (
            f"there is no fit for {identity.slug}: name what predicts, recording(weights=...), or"
            " fit the device with 'countperf measure' and 'countperf fit'"
        )


def _given(launched: KernelLaunches) -> tuple[Mapping[str, Any], ...]:
    return launched.integers, launched.shapes, launched.types


def _items(mapping: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(mapping.items()))


def _work(vector: PropertyVector, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return operations and bytes of one launch."""
    found = vector.evaluate(sizes)
    flops = sum(value for name, value in found.items() if name.startswith("flop."))
    moved = sum(
        value * int(name.split(".")[2]) // 8
        for name, value in found.items()
        if name.startswith(("gmem.load.", "gmem.store."))
    )
    return {
        "flops": float(np.float64(flops)),
        "global_bytes": float(np.float64(moved)),
        "exact": not any(vector.caveat(name) for name in vector),
    }


def _by_time(row: RecordedKernel) -> tuple[float, str]:
    return -(row.total_s or 0.0), row.kernel
