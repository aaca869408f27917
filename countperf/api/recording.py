"""Predicting every kernel that Loopy launches in a program; its executors are wrapped."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import loopy as lp
import numpy as np
from loopy.symbolic import get_dependencies
from pymbolic import evaluate

from countperf.api.kernels import Kernel
from countperf.api.timing import find_predicted_fields
from countperf.api.weights_choice import choose_weights
from countperf.counting.frontend.loopy_patches import record_launches
from countperf.devices.opencl import describe
from countperf.errors import CountingError, ParameterError
from countperf.sizes import checks_keywords
from countperf.text import (
    Column,
    Printed,
    Result,
    columns_of,
    format_quantity,
    format_seconds,
    make_interval_columns,
    point_text,
)

if TYPE_CHECKING:
    from countperf.measuring import Statistic
    from countperf.models.weights import WeightSet


@checks_keywords
def recording(
    *,
    weights: WeightSet | Path | str | None = None,
    statistics: Mapping[str, Mapping[str, Statistic]] | None = None,
    incomplete_ok: bool = False,
) -> LaunchLog:
    """Record every kernel that Loopy launches while a ``with`` block runs.

    Recording does not change what the program does: kernels are predicted when the log is read.

    Parameters
    ----------
    weights : WeightSet, Path or str, optional
        What predicts; by default the weights fitted on the device of each launch, by counts
        (model structural): no compiled code is read.
    statistics : mapping from str to mapping, optional
        By name of the kernel what data decides, as for `count_kernel`.
    incomplete_ok : bool, optional
        Whether to leave out of predictions what has no weight.
    """
    return LaunchLog(weights, statistics or {}, incomplete_ok)


class LaunchLog(Result):
    """Launches of kernels; `to_frame` has a row for each kernel, sizes and device."""

    __repr__ = Result.__str__

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
                row |= self._predicted(*launch)
                if row["predicted_s"] is not None:
                    row["total_s"] = launches * row["predicted_s"]
            except Exception as error:  # noqa: BLE001  one kernel is not to cost the others
                row["reason"] = f"{type(error).__name__}: {error}"
            rows.append(row)
        return sorted(rows, key=lambda row: -row.get("total_s", 0.0))

    def _predicted(self, unit: Any, name: str, *known: Any) -> dict[str, Any]:
        given, shapes, types, device = known
        if device is None and self._weights is None:
            message = "it ran on no OpenCL device: name what predicts, recording(weights=...)"
            raise ParameterError(message, parameter="weights")
        is_free = self._weights is None
        identity = describe(device, "recorded").identity if is_free and device else None
        chosen = choose_weights(
            self._weights,
            device=identity,
            without_code="launches are predicted by counts",
        )
        unit = _add_types(unit, name, dict(types))
        sizes = find_sizes(unit, dict(given), dict(shapes))
        vector = Kernel.of(unit, sizes, self._statistics.get(name)).count_for(chosen.weights)
        at = {n: sizes[n] for n in vector.parameters if n in sizes}
        made = chosen.predict(Kernel.of(vector, at), incomplete_ok=self._incomplete_ok)
        by = {"device": made.device, "weights": made.weights, "model": made.model}
        return {"parameters": at, **by, **find_predicted_fields(made)}

    def lay_out(self) -> Printed:
        """Give what was launched: a sentence, a row for each kernel and sizes, and what to know."""
        rows: list[Any] = self.rows
        number = sum(row["launches"] for row in rows)
        known = [row for row in rows if "total_s" in row]
        total = format_quantity(sum(row["total_s"] for row in known), "s")
        of = f"{total} predicted for {sum(row['launches'] for row in known)} of them"
        return Printed(
            head=[f"{number} launches; {of}" if rows else "no kernel was launched"],
            rows=[{**row, "parameters": point_text(row["parameters"])} for row in rows],
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
    """Return the values of the size parameters of a launch.

    Those that were not passed are found from the shapes of arrays, as Loopy's own wrapper does.
    """
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
        raise CountingError(f"no value of {name} makes {extent} equal to {actual}")
    return {name: value}


_active: list[LaunchLog] = []


def _wrap_launch(launch: Any) -> Any:
    """Return a function that launches, and has the active logs note it."""

    @functools.wraps(launch)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = launch(self, *args, **kwargs)
        for log in tuple(_active):
            log.note(self, kwargs.get("queue", args[0] if args else None), kwargs)
        return result

    vars(recorded)["is_recorded"] = True
    return recorded


_LAUNCH_COLUMNS = {
    **{"kernel": Column("kernel"), "parameters": Column("sizes")},
    **columns_of("device launches"),
    **{"predicted_s": Column("one launch", format_seconds), **make_interval_columns("to")},
    **{"total_s": Column("all", format_seconds), "reason": Column()},
}
