"""Predicted time of one choice, or the reason why there is none; the task of predicting some.

A task holds a model with all that was measured for it, some megabytes: packing and unpacking it for
each chunk, and finding anew what a model remembers of kernels, takes as long as predicting. So it
is packed once, and unpacked once in each process.
"""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import cloudpickle

from countperf.counting.analysis import with_transactions
from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.loopy_patches import without_disk_caches
from countperf.counting.frontend.producers import translation_unit
from countperf.counting.frontend.schedule import scheduled
from countperf.devices.device import DeviceLimits
from countperf.devices.workers import NOT_SENT
from countperf.errors import (
    CountingError,
    CountperfError,
    ParameterError,
    PredictionError,
    SearchSpaceError,
)
from countperf.models.breakdown import CORRECTION
from countperf.text import ShortRepr, cut
from countperf.tuning.space import Choice, SearchSpace, Statistics, Value

if TYPE_CHECKING:
    from countperf.models.predictions import Prediction
    from countperf.models.weights import WeightSet


_SMALLEST_SHARE = 0.01
_DIGITS = 4  # of shares
_REASON = 1000  # characters of a reason
_LEVEL = 1  # of compression: a tenth of the size, in a tenth of the time of higher levels
Stage: TypeAlias = Literal[
    "build", "schedule", "count", "limits", "sizes", "predict", "compile", "results", "run"
]
"""Stage at which a variant was refused: building, Loopy's schedule, counting, the device's limits,
sizes that it does not take, the model; on the device: compiling, wrong numbers, running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(ShortRepr):
    """A variant that there is not."""

    choice: dict[str, Value]  # which one
    stage: Stage  # where it fell out
    reason: str  # why
    # those that counting asks for, which no search's file keeps
    statistics: Mapping[str, float | str] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(ShortRepr):
    """A variant and its predicted time."""

    choice: dict[str, Value]  # which one
    time_s: float  # predicted time of a launch, s
    # low and high end of where the time is expected, s
    interval_s: tuple[float, float] | None = None
    interval_level: float = 0.95  # the share of cases whose time the interval is to hold
    missing: tuple[str, ...] = ()  # properties without a weight, left out of the time
    # shares of the time, by what is charged for
    parts: Mapping[str, float] = field(default_factory=dict)


Point: TypeAlias = Predicted | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTask:
    """Task of predicting points: everything that a predicting process needs."""

    space: SearchSpace
    weights: WeightSet  # what predicts
    sizes: Mapping[str, int]  # sizes of the kernel, in the place of some of the space's
    limits: DeviceLimits | None = None  # of the device
    incomplete_ok: bool = False  # whether to leave out properties without a weight
    statistics: Statistics | None = None  # in place of the space's, or of some of them

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", self.space.sizes_with(self.sizes))

    def pack(self) -> bytes:
        """Pack the task for other processes.

        Functions of the caller's main module, of notebooks and of functions go along by value,
        those of other modules by name.
        """
        try:
            return zlib.compress(cloudpickle.dumps(self), _LEVEL)
        except NOT_SENT as error:
            raise self.refuse_sending(str(error)) from error

    def refuse_sending(self, reason: str) -> SearchSpaceError:
        """Make the error of a task that cannot be packed, or not unpacked."""
        return SearchSpaceError(
            f"space '{self.space.name}' cannot be sent to the processes that count: {reason}; "
            "let its functions be functions of a module that they can import, which hold no locks,"
            " files or the like, or name it: 'path/file.py:name'"
        )


@lru_cache(maxsize=4)
def _unpack(packed: bytes) -> PredictionTask:
    return pickle.loads(zlib.decompress(packed))


def predict_packed(packed: bytes, choices: Sequence[Choice]) -> list[Point]:
    """Predict some points of a packed task."""
    return predict_points(_unpack(packed), choices)


def predict_points(task: PredictionTask, choices: Sequence[Choice]) -> list[Point]:
    """Predict some points."""
    with without_disk_caches():  # which take longer than what variants would gain from them
        return [predict_point(task, choice) for choice in choices]


def predict_point(task: PredictionTask, choice: Choice) -> Point:
    """Build, count and predict a variant."""
    space, weights = task.space, task.weights

    def refuse(stage: Stage, error: CountperfError | str) -> Refused:
        return Refused(
            choice=dict(choice),
            stage=stage,
            reason=cut(" ".join(str(error).split()), _REASON),
            statistics=getattr(error, "statistics", None),
        )

    try:
        unit = build_variant(space, choice)
        ready, resources = scheduled(unit)
    except SearchSpaceError as error:
        return refuse("build", error)
    except CountingError as error:
        return refuse("schedule", error)
    if task.limits is not None and (too_much := find_exceeded_limit(task.limits, resources)):
        return refuse("limits", too_much)
    try:
        vector = count_kernel(
            ready,
            statistics=space.statistics_at(choice, task.statistics),
            view=weights.view,
            caches=weights.counted_caches,
            cache=False,
        )
        vector = with_transactions(vector, unit, weights.definition.named_transactions)
    except CountperfError as error:
        return refuse("count", error)
    try:
        prediction = weights.predict_counts(vector, task.sizes, incomplete_ok=task.incomplete_ok)
    except PredictionError as error:
        return refuse("predict", error)
    except CountingError as error:  # at sizes, of what has no formula
        return refuse("count", error)
    except ParameterError as error:
        return refuse("sizes", error)
    time_s = float(prediction.time_s)
    if not 0 < time_s < math.inf:
        return refuse("predict", f"the model predicts {time_s:.3g} s, which is no time")
    ends_s = prediction.interval_s
    return Predicted(
        choice=dict(choice),
        time_s=time_s,
        interval_s=None if ends_s is None else (float(ends_s[0]), float(ends_s[1])),
        interval_level=prediction.interval_level,
        missing=prediction.missing,
        parts=_shares(prediction),
    )


def _shares(prediction: Prediction) -> dict[str, float]:
    """Return the shares of the time that weights take, of all that the correction leaves alone."""
    parts = {name: float(part) for name, part in prediction.breakdown.items()}
    plain_s = float(prediction.time_s) - parts.pop(CORRECTION, 0.0)
    return {
        name: round(part / plain_s, _DIGITS)
        for name, part in parts.items()
        if abs(part / plain_s) >= _SMALLEST_SHARE
    }


def build_variant(space: SearchSpace, choice: Choice) -> Any:
    """Build a variant; whatever its builder raises becomes a `SearchSpaceError`."""
    try:
        return translation_unit(space.build(**choice))
    except (KeyboardInterrupt, GeneratorExit, CountingError):
        raise
    except BaseException as error:  # builders are anybody's code, and may call sys.exit
        raise SearchSpaceError(f"{type(error).__name__}: {error}") from error


def find_exceeded_limit(limits: DeviceLimits, resources: Any) -> str:
    """Say which limit a launch exceeds; empty if none."""
    items = resources.group_items
    if items is not None and items > limits.max_group_size:
        return f"groups of {items} work items; the device takes up to {limits.max_group_size}"
    for axis, (extent, most) in enumerate(
        zip(resources.group_shape, limits.max_group_shape, strict=False)
    ):
        if extent is not None and extent > most:
            return f"{extent} work items along axis {axis} of a group; the device takes {most}"
    local = resources.local_memory_bytes
    if local is not None and local > limits.local_memory_bytes:
        return f"{local} byte of local memory; the device has {limits.local_memory_bytes}"
    return ""
