"""Predicted time of one choice, or the reason why there is none; the task of predicting some.

A task holds a model with all that was measured for it, some megabytes: packing and unpacking it for
each chunk, and finding anew what a model remembers of kernels, takes as long as predicting. So it
is packed once, and unpacked once in each process.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import cloudpickle

from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.loopy_patches import without_disk_caches
from countperf.counting.frontend.producers import translation_unit
from countperf.counting.frontend.schedule import scheduled
from countperf.counting.transactions import with_transactions
from countperf.devices.device import DeviceLimits
from countperf.devices.workers import NOT_SENT, WorkerLostError, process_pool
from countperf.errors import (
    CountingError,
    CountperfError,
    ParameterError,
    PredictionError,
    SearchSpaceError,
    UnknownSizeError,
    nearest,
)
from countperf.models.breakdown import CORRECTION
from countperf.text import ShortRepr, cut
from countperf.tuning.space import Choice, SearchSpace, Statistics, Value
from countperf.user_code import find_in_user_code

if TYPE_CHECKING:
    from countperf.models.predictions import Prediction
    from countperf.models.weights import WeightSet


_SMALLEST_SHARE = 0.01
_DIGITS = 4  # of shares
_REASON = 1000  # characters of a reason
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

    space: SearchSpace | str  # the space, or a text for `user_space`, which names it in any process
    weights: WeightSet  # what predicts
    sizes: Mapping[str, int]  # sizes of the kernel
    limits: DeviceLimits | None = None  # of the device
    incomplete_ok: bool = False  # whether to leave out properties without a weight
    statistics: Statistics | None = None  # in place of the space's, or of some of them

    def named_space(self) -> SearchSpace:
        """Return the space, found by its name if that is what is given."""
        return user_space(self.space) if isinstance(self.space, str) else self.space


def predict_points(question: PredictionTask, choices: Sequence[Choice]) -> list[Point]:
    """Predict some points."""
    space = question.named_space()
    with without_disk_caches():  # which take longer than what variants would gain from them
        return [predict_point(question, space, choice) for choice in choices]


def predict_point(question: PredictionTask, space: SearchSpace, choice: Choice) -> Point:
    """Build, count and predict a variant."""
    kept = dict(choice)

    def refused(stage: Stage, error: CountperfError | str) -> Refused:
        return Refused(
            choice=kept,
            stage=stage,
            reason=cut(" ".join(str(error).split()), _REASON),
            statistics=getattr(error, "statistics", None),
        )

    try:
        unit = built(space, choice)
        ready, resources = scheduled(unit)
    except SearchSpaceError as error:
        return refused("build", error)
    except CountingError as error:
        return refused("schedule", error)
    if question.limits is not None and (too_much := exceeded(question.limits, resources)):
        return refused("limits", too_much)
    weights = question.weights
    sizes = {**space.sizes, **question.sizes}
    try:
        vector = count_kernel(
            ready,
            statistics=space.statistics_at(choice, question.statistics),
            view=weights.view,
            caches=weights.counted_caches,
            cache=False,
        )
        vector = with_transactions(vector, unit, weights.definition.named_transactions)
    except CountperfError as error:
        return refused("count", error)
    try:
        prediction = weights.predict_counts(vector, sizes, incomplete_ok=question.incomplete_ok)
    except PredictionError as error:
        return refused("predict", error)
    except CountingError as error:  # at sizes, of what has no formula
        return refused("count", error)
    except ParameterError as error:
        return refused("sizes", error)
    time_s = float(prediction.time_s)
    if not 0 < time_s < math.inf:
        return refused("predict", f"the model predicts {time_s:.3g} s, which is no time")
    return Predicted(
        choice=kept,
        time_s=time_s,
        interval_s=interval_of(prediction),
        interval_level=prediction.interval_level,
        missing=prediction.missing,
        parts=_shares(prediction),
    )


def interval_of(prediction: Prediction) -> tuple[float, float] | None:
    """Return the ends of the interval of a single time, s; None where the model cannot tell."""
    if prediction.interval_s is None:
        return None
    low, high = prediction.interval_s
    return float(low), float(high)


def _shares(prediction: Prediction) -> dict[str, float]:
    """Return the shares of the time that weights take, of all that the correction leaves alone."""
    parts = {k: float(part) for k, part in prediction.breakdown.items() if k != CORRECTION}
    plain_s = float(prediction.time_s) - float(prediction.breakdown.get(CORRECTION, 0.0))
    shares = {name: part / plain_s for name, part in parts.items()}
    return {
        name: round(share, _DIGITS)
        for name, share in shares.items()
        if abs(share) >= _SMALLEST_SHARE
    }


def built(space: SearchSpace, choice: Choice) -> Any:
    """Build a variant; whatever its builder raises becomes a `SearchSpaceError`."""
    try:
        return translation_unit(space.build(**choice))
    except (KeyboardInterrupt, GeneratorExit, CountingError):
        raise
    except BaseException as error:  # builders are anybody's code, and may call sys.exit
        raise SearchSpaceError(f"{type(error).__name__}: {error}") from error


def exceeded(limits: DeviceLimits, resources: Any) -> str:
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


@lru_cache(maxsize=32)
def user_space(specification: str) -> SearchSpace:
    """Find the search space of a user's code that a text names."""
    space = find_in_user_code(
        specification,
        SearchSpace,
        kind_name="countperf.SearchSpace",
        error=SearchSpaceError,
    )
    assert isinstance(space, SearchSpace)
    return space


_LEVEL = 1  # of compression: a tenth of the size, in a tenth of the time of higher levels


@dataclass(frozen=True, slots=True)
class Packed:
    """A question on its way.

    Functions of the caller's main module, of notebooks and of functions go along by value, those of
    other modules by name.
    """

    digest: str  # of the content, by which processes know it again
    content: bytes = field(compare=False)  # the question, pickled and compressed

    @classmethod
    def of(cls, question: PredictionTask) -> Packed:
        """Pack a question."""
        pickled: bytes = cloudpickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        content = zlib.compress(pickled, _LEVEL)
        return cls(hashlib.sha256(content).hexdigest(), content)

    def question(self) -> PredictionTask:
        """Unpack it, or return what this process unpacked before."""
        return _unpacked(self)


@lru_cache(maxsize=4)
def _unpacked(packed: Packed) -> PredictionTask:
    return pickle.loads(zlib.decompress(packed.content))


def predict_sent(asked: Packed, choices: Sequence[Choice]) -> list[Point]:
    """Predict some points; what a process of the pool is asked to do."""
    return predict_points(asked.question(), choices)


_PROBED = 8  # variants, to find out which sizes kernels of a space have
_PROBE_S = 10.0  # for each of them


def checked_space(space: SearchSpace | str, sizes: Mapping[str, int]) -> SearchSpace:
    """Find a space, and see to it before any work that it can be asked for these sizes."""
    if isinstance(space, str):
        space = user_space(space)
    for name, value in sizes.items():
        if value < 0 or (not value and name not in _known_sizes(space)[1]):
            raise ParameterError(
                f"space '{space.name}': {name} = {value}; sizes are positive", parameter=name
            )
    unknown = [name for name in sizes if name not in space.sizes]
    there = {*space.sizes, *_known_sizes(space)[0]} if unknown else set[str]()
    for name in unknown:
        if there and name not in there:
            raise UnknownSizeError(
                f"space '{space.name}' has no size {name}; there are {', '.join(sorted(there))}"
                f"{nearest(name, there)}",
                parameter=name,
            )
    return space


@lru_cache(maxsize=32)
def _known_sizes(space: SearchSpace) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the parameters of the first variant that can be counted, and those with defaults.

    A process of its own builds and counts variants, since builders are anybody's code. Both are
    empty if none of the first variants can be counted.
    """
    with process_pool(1) as pool:
        for choice in islice(space.choices(), _PROBED):
            try:
                return pool.submit_within(_PROBE_S, _parameters_of, space, dict(choice)).result()
            except (CountperfError, WorkerLostError):
                continue
            except NOT_SENT:
                break
    return (), frozenset()


def _parameters_of(space: SearchSpace, choice: Choice) -> tuple[tuple[str, ...], frozenset[str]]:
    statistics = space.statistics_at(choice)
    vector = count_kernel(built(space, choice), statistics=statistics, cache=False)
    return tuple(vector.parameters), frozenset(vector.defaults)
