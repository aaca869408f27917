"""Predicting the points of a space: one by one, and streamed by any executor in bounded memory.

A task is packed once, and unpacked once in each process: it holds some megabytes.
"""

from __future__ import annotations

import heapq
import math
import pickle
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import cloudpickle

from countperf import errors, text
from countperf.counting.analysis import with_transactions
from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.loopy_patches import without_disk_caches
from countperf.counting.frontend.producers import translation_unit
from countperf.counting.frontend.schedule import schedule_unit
from countperf.devices.compile.compiled_kernel import add_code
from countperf.devices.compile.objects import keep_compiler
from countperf.devices.device import DeviceLimits
from countperf.devices.workers import NOT_SENT, Pool, WorkerLostError, capacity, pool_or
from countperf.errors import CountingError, CountperfError, ParameterError, SearchSpaceError
from countperf.models.predictions import CORRECTION
from countperf.steps import end_if_interrupted, report
from countperf.text import Result, ShortRepr
from countperf.tuning.posterior import order_by_promise
from countperf.tuning.refusals import RefusalCount, RefusalCounter, Refused, Stage
from countperf.tuning.space import Choice, SearchSpace, Statistics, Value

if TYPE_CHECKING:
    from countperf.models.weights import WeightSet

_SMALLEST_SHARE = 0.01
_NAMED = 3  # reasons in a sentence
_DIGITS = 4  # of shares
_REASON = 1000  # characters of a reason
_LEVEL = 1  # of compression: a tenth of the size, in a tenth of the time of higher levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(ShortRepr):
    """A variant and its predicted time."""

    choice: dict[str, Value]  # which one
    time_s: float  # predicted time of a launch, s
    model: str = ""  # that predicts it
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
    # what predicts the most promising variants again, by their compiled code
    reading: WeightSet | None = None
    model_choice: str = ""  # which model was chosen, and why; empty where it was not free

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", self.space.sizes_with(self.sizes))

    def by_code(self) -> PredictionTask:
        """Return the task of predicting by compiled code, which leaves nothing out."""
        weights = self.reading or self.weights
        return replace(self, weights=weights, reading=None, incomplete_ok=False)

    def pack(self) -> bytes:
        """Pack the task for other processes; functions of imported modules go by their names."""
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
    # caches on the disk take longer than what variants would gain from them
    with without_disk_caches(), keep_compiler():
        return [predict_point(_unpack(packed), choice) for choice in choices]


def predict_point(task: PredictionTask, choice: Choice) -> Point:
    """Build, count and predict a variant."""
    space, weights = task.space, task.weights

    def refuse(stage: Stage, error: CountperfError | str) -> Refused:
        return Refused(
            choice=dict(choice),
            stage=stage,
            reason=text.cut(" ".join(str(error).split()), _REASON),
            statistics=getattr(error, "statistics", None),
        )

    stage: Stage = "build"
    try:
        unit = build_variant(space, choice)
        stage = "schedule"
        ready, resources = schedule_unit(unit)
        if task.limits is not None and (too_much := find_exceeded_limit(task.limits, resources)):
            return refuse("limits", too_much)
        stage = "count"
        statistics = space.statistics_at(choice, task.statistics)
        caches = weights.counted_caches
        vector = count_kernel(
            ready, statistics=statistics, view=weights.view, caches=caches, cache=False
        )
        named = weights.definition.named_transactions
        vector = with_transactions(vector, unit, named, statistics)
        stage = "predict"
        if weights.definition.reads_code:
            sizes, slug = vector.check_parameters(task.sizes, {}), weights.device.slug
            vector = add_code(vector, unit, sizes, slug, statistics)
        prediction = weights.predict_counts(vector, task.sizes, incomplete_ok=task.incomplete_ok)
    except CountperfError as error:
        if stage == "predict" and task.reading and isinstance(error, errors.PredictionError):
            return predict_point(task.by_code(), choice)  # for which there may be a weight
        if isinstance(error, CountingError):  # of a builder; or at sizes, of what has no formula
            stage = "schedule" if stage == "build" else "count" if stage == "predict" else stage
        elif stage == "predict" and isinstance(error, errors.MeasurementError | errors.DeviceError):
            stage = "compile" if getattr(error, "stage", "") == "build" else "count"
        elif stage == "predict" and not isinstance(error, errors.PredictionError):
            stage = "sizes"
        return refuse(stage, error)
    time_s = float(prediction.time_s)
    if not 0 < time_s < math.inf:
        return refuse("predict", f"the model predicts {time_s:.3g} s, which is no time")
    ends_s = prediction.interval_s
    parts = {name: float(part) for name, part in prediction.breakdown.items()}
    plain_s = time_s - parts.pop(CORRECTION, 0.0)
    shares = {name: part / plain_s for name, part in parts.items()}
    return Predicted(
        choice=dict(choice),
        time_s=time_s,
        model=text.short_name(weights.model),
        interval_s=None if ends_s is None else (float(ends_s[0]), float(ends_s[1])),
        interval_level=prediction.interval_level,
        missing=prediction.missing,
        # of the weights, in all that the correction leaves alone
        parts={n: round(s, _DIGITS) for n, s in shares.items() if abs(s) >= _SMALLEST_SHARE},
    )


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
    shapes = zip(resources.group_shape, limits.max_group_shape, strict=False)
    for axis, (extent, most) in enumerate(shapes):
        if extent is not None and extent > most:
            return f"{extent} work items along axis {axis} of a group; the device takes {most}"
    local = resources.local_memory_bytes
    if local is not None and local > limits.local_memory_bytes:
        return f"{local} byte of local memory; the device has {limits.local_memory_bytes}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(Result):
    """Points of a space by predicted time."""

    space: str  # its name
    sizes: Mapping[str, int]  # sizes for which it holds
    device: str  # slug of the device of the weights
    weights: str  # name of the weights, and of the model that was chosen
    model: str
    # fastest first; those that the chosen model predicts before those that another one does
    best: tuple[Predicted, ...]
    predicted: int  # how many points were predicted
    read: int = 0  # how many of these, the most promising, by their compiled code, after all
    unread: Mapping[str, RefusalCount] = field(default_factory=dict)  # of these, those that failed
    model_choice: str = ""  # which model was chosen, and why; empty where it was not free
    refusals: Mapping[str, RefusalCount]  # those that have no prediction, by stage
    complete: bool  # whether that is all of the space
    seconds: float  # time that it took, s

    __repr__ = Result.__str__

    @property
    def refused(self) -> int:
        """Number of points without a prediction."""
        return sum(refusal.count for refusal in self.refusals.values())

    def check_predicted(self) -> None:
        """Raise an error with the most frequent reasons if no variant has a prediction."""
        if self.predicted:
            return
        reasons = [(r, stage) for stage, refusal in self.refusals.items() for r in refusal.reasons]
        reasons.sort(key=lambda refusal: -refusal[0].count)
        said = [f"{r.count} ({stage}): {r.example.reason}" for r, stage in reasons[:_NAMED]]
        said += ["others for other reasons"] if len(reasons) > _NAMED else []
        why = f"{self.refused} refused: {'; '.join(said)}"
        raise errors.TuningError(
            f"no variant of '{self.space}' has a prediction: "
            f"{why if reasons else 'no choice satisfies the constraints'}",
            refusals=[reason.example.reason for reason, _ in reasons],
            statistics=reasons[0][0].example.statistics if reasons else None,
        )

    def lay_out(self, *, kept: str = "on_point=FUNCTION gets") -> text.Printed:
        """Give the best points, how many there were, and what was refused and why."""
        best = [lay_out_point(row) for row in self.best]
        plain = ({n: v for n, v in row.items() if n not in _ASIDE} for row in best)
        level = f"to ({text.format_percent(self.best[0].interval_level)})" if best else ""
        some = "" if self.complete else ", not all of the space"
        notes = [
            f"{self.space} on {self.device}, {text.point_text(self.sizes)}: {self.predicted} "
            f"variants predicted{some} in {text.format_seconds(self.seconds)};"
            f" {text.short_name(self.model)} model{text.weights_text(self.weights, self.device)}"
        ]
        if 0 < self.read < self.predicted or self.unread:
            notes.append(
                f"{self.read} of the most promising, predicted from their compiled code, stand"
                " first; the others have times by counts alone, which do not compare with these"
            )
            notes += write_refusals(self.unread, "by counts alone")
        if missing := sorted({name for row in self.best for name in row.missing}):
            notes.append(f"* without the cost of {', '.join(missing)}, of which there is no weight")
        notes += write_refusals(self.refusals)
        if self.refused:
            notes.append(f"{kept} every refused one with its reason")
        return text.Printed(
            head=[] if best else ["no variant has a prediction"],
            rows=[{"place": place, **row} for place, row in enumerate(plain, start=1)],
            shown=text.table_of(
                [{**row, "mark": "*" if row.get("missing") else None} for row in best],
                {
                    "predicted_s": text.Column("predicted", text.format_seconds),
                    **(text.columns_of("model") if self.read or self.unread else {}),
                    "mark": text.Column(),
                    **text.make_interval_columns(level),
                    "choice": text.EACH,
                },
            ),
            notes=notes,
            facts={
                **text.extract(self, "space", "device", "weights", "model"),
                **text.extract(self, "model_choice", "predicted", "read", "complete", "seconds"),
                "parameters": dict(self.sizes),
                "refused": list_refusals(self.refusals),
                "unread": list_refusals(self.unread),
                "best": best,
            },
        )


KEPT = 10_000  # default number of best predicted points that are kept

_AHEAD = 512  # points among which those of promise are looked for
_LATEST = 256  # points from which that is estimated
_SAMPLE = 8  # points that are predicted before any is chosen by promise
_CHUNK = 16  # points of a task
_READ_CHUNK = 4  # by compiled code, of a search, in which tasks are to be brief
_READ_S = 1.0  # for a point by compiled code in a search, on one core
READ = 64  # points that are predicted by their compiled code: the most promising by counts
_IN_FLIGHT = 4  # tasks for each worker
_WAIT_S = 0.25  # for the end of a task, before it is seen whether Ctrl-C was pressed
LONGEST_S = 60.0
"""After so long a process is given up that builds, counts and predicts one point, s."""

Numbered = tuple[int, dict[str, Value]]
_Chunk = tuple[bytes, list[Numbered]]  # a packed task, and points with their numbers


def rank_points(
    task: PredictionTask,
    *,
    executor: Executor | None = None,
    keep: int = KEPT,
    points: int | None = None,
    on_point: Callable[[Point], None] | None = None,
    longest_s: float = LONGEST_S,
) -> Ranking:
    """Predict the points of a space."""
    report("looking at variants", 0)
    space = task.space
    number = space.number_of_choices() if points is None else min(points, space.cardinality)
    with (
        pool_or(executor) as chosen,
        Ranker(
            task, chosen, keep=keep, points=points, on_point=on_point, longest_s=longest_s
        ) as ranker,
    ):
        while not ranker.is_done:
            report("predicting variants", ranker.answered, number)
            ranker.work(None)
        ranker.read_code()
        while ranker.tried < ranker.to_read:
            report("reading compiled code of variants", ranker.tried, ranker.to_read)
            ranker.work(None)
        return ranker.ranking()


@dataclass(eq=False)
class Ranker:
    """A ranking under way; a context manager that drops what has not begun."""

    task: PredictionTask
    executor: Executor
    _: KW_ONLY
    keep: int = KEPT
    points: int | None = None  # to predict, of those that were not begun
    on_point: Callable[[Point], None] | None = None
    now: Callable[[], float] = time.monotonic
    by_promise: bool = False
    longest_s: float = LONGEST_S

    def __post_init__(self) -> None:
        if not 0 < self.longest_s < math.inf:
            message = f"longest_s is {self.longest_s}; it is a finite time in seconds, more than 0"
            raise ParameterError(message, parameter="longest_s")
        self.answered = 0
        self.predicted = 0
        self.best: list[tuple[float, int, Predicted]] = []
        self.refusals = RefusalCounter()
        self.spent_s = 0.0
        self.packed = self.task.pack()
        self.read: dict[int, Predicted | None] = {}  # by their code; None for what does not compile
        self.unread = RefusalCounter()
        self.to_read = self.tried = 0
        self.waiting = enumerate(self.task.space.choices())
        self.ahead: list[Numbered] = []  # taken from it, and in no chunk yet
        self.chunks: deque[_Chunk] = deque()
        self.pending: dict[Future[list[Point]], _Chunk] = {}
        self.latest: deque[tuple[Choice, float | None]] = deque(maxlen=_LATEST)

    @property
    def is_done(self) -> bool:
        """True if all points, or as many as were wanted, are predicted."""
        self._fill()
        return not (self.chunks or self.pending)

    def read_code(self, seconds: float = math.inf) -> None:
        """Have the most promising points predicted by code next, as many as there is time for."""
        workers = capacity(self.executor)
        most = int(min(READ, seconds * workers / _READ_S))
        if self.task.reading is None or most < _READ_CHUNK:
            return
        first = sorted(self.best, reverse=True, key=lambda entry: entry[:2])[:most]
        chosen = [(-number, point.choice) for _, number, point in first]
        self.to_read = len(chosen)
        even = max(1, -(-len(chosen) // (2 * workers)))
        size = min(_READ_CHUNK if self.by_promise else _CHUNK, even)
        self._add_chunks(self.task.by_code().pack(), chosen, size)

    def work(self, seconds: float | None) -> None:
        """Keep the executor busy, and wait for an answer, so long at most."""
        began_s = self.now()
        workers = capacity(self.executor)
        brief = self.by_promise and isinstance(self.executor, Pool)
        while len(self.pending) < (workers if brief else _IN_FLIGHT * workers):
            self._fill()
            if not self.chunks:
                break
            chunk = self.chunks.popleft()
            packed, points = chunk
            asked = predict_packed, packed, [choice for _, choice in points]
            if isinstance(self.executor, Pool):
                task = self.executor.submit_within(self.longest_s, *asked)
            else:
                task = self.executor.submit(*asked)
            self.pending[task] = chunk
        self._collect(seconds)
        self.spent_s += self.now() - began_s

    def pause(self) -> None:
        """Put back what has not begun, and wait for what has, so that the executor is idle."""
        began_s = self.now()
        withdrawn = [task for task in self.pending if task.cancel()]
        self.chunks.extendleft(self.pending.pop(task) for task in reversed(withdrawn))
        while self.pending:
            end_if_interrupted()
            self._collect(_WAIT_S)
        self.spent_s += self.now() - began_s

    def ranking(self) -> Ranking:
        """Return what came back so far."""
        self._look_ahead(1)
        weights = self.task.reading or self.task.weights
        # of equal ones those first that are visited first
        counted = sorted(self.best, key=lambda entry: entry[:2], reverse=True)
        read = [(point.time_s, number, point) for number, point in self.read.items() if point]
        best = [point for *_, point in sorted(read, key=lambda entry: entry[:2])]
        best += [point for _, number, point in counted if -number not in self.read]
        return Ranking(
            space=self.task.space.name,
            sizes=self.task.sizes,
            device=weights.device.slug,
            weights=weights.name,
            model=weights.model,
            best=tuple(best[: self.keep]),
            predicted=self.predicted,
            read=len(read),
            unread=self.unread.by_stage(),
            model_choice=self.task.model_choice,
            refusals=self.refusals.by_stage(),
            complete=not (self.ahead or self.chunks or self.pending),
            seconds=self.spent_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.pending:
            task.cancel()

    def _fill(self) -> None:
        """Make chunks of more points when all those before are under way."""
        if self.chunks or self.points == 0:
            return
        if self.by_promise and self.pending and not self.answered:
            return  # what promises anything is not known before there is an answer
        self._look_ahead(_AHEAD)
        workers = capacity(self.executor)
        if not self.by_promise:
            chosen = list(range(len(self.ahead)))
            size = min(_CHUNK, max(1, -(-len(chosen) // (2 * workers))))
        else:
            chosen, size = self._promising(max(_SAMPLE, 2 * workers)), 1
            size = _READ_CHUNK if self.task.weights.definition.reads_code else size
        if self.points is not None:
            chosen = chosen[: self.points]
            self.points -= len(chosen)
        self._add_chunks(self.packed, [self.ahead[position] for position in chosen], size)
        for position in sorted(chosen, reverse=True):
            del self.ahead[position]

    def _add_chunks(self, packed: bytes, points: Sequence[Numbered], size: int) -> None:
        starts = reversed(range(0, len(points), size))
        self.chunks.extendleft((packed, [*points[start : start + size]]) for start in starts)

    def _look_ahead(self, count: int) -> None:
        self.ahead.extend(islice(self.waiting, max(0, count - len(self.ahead))))

    def _promising(self, count: int) -> list[int]:
        """Choose points: three of four promise short times, the others are the next ones."""
        there = range(min(count, len(self.ahead)))
        if not self.predicted:
            return list(there)
        choices = [choice for _, choice in self.ahead]
        order = order_by_promise(self.task.space.parameters, self.latest, choices)
        return list(dict.fromkeys([*order[: count - count // 4], *there]))[:count]

    def _collect(self, seconds: float | None) -> None:
        if not self.pending:
            return
        done, _ = wait(self.pending, seconds, return_when=FIRST_COMPLETED)
        for task in done:
            chunk = self.pending.pop(task)
            add = self._add if chunk[0] is self.packed else self._add_read
            for (number, _), point in zip(chunk[1], self._answer(task, chunk), strict=False):
                add(number, point)

    def _add(self, number: int, point: Point) -> None:
        """Take a point and its number in the order of `SearchSpace.choices`."""
        self.answered += 1
        if isinstance(point, Refused):
            self.refusals.add(number, point)
            self.latest.append((point.choice, None))
        else:
            self.predicted += 1
            heapq.heappush(self.best, (-point.time_s, -number, point))
            if len(self.best) > self.keep + READ:
                heapq.heappop(self.best)
            self.latest.append((point.choice, point.time_s))
        if self.on_point is not None:
            self.on_point(point)

    def _add_read(self, number: int, point: Point) -> None:
        """Take a point by its code; where that is not followed, it stays as it was by counts."""
        self.tried += 1
        if isinstance(point, Refused) and point.stage != "compile":
            self.unread.add(number, point)
            return
        self.read[number] = point if isinstance(point, Predicted) else None
        if isinstance(point, Refused):
            self.refusals.add(number, point)
            self.predicted -= 1
        if self.on_point is not None:
            self.on_point(point)

    def _answer(self, task: Future[list[Point]], chunk: _Chunk) -> list[Point]:
        """Return the points of a chunk; of one whose process was lost each is tried by itself."""
        try:
            return task.result()
        except WorkerLostError as error:
            packed, points = chunk
            if len(points) > 1:
                self._add_chunks(packed, points, 1)
                return []
            reason = f"the process that built and counted it was lost: {error}"
            if error.is_late:
                reason += f"; {errors.option('longest_s', 'SECONDS')} gives it more"
            return [Refused(choice=points[0][1], stage="build", reason=reason)]
        except ImportError as error:  # of a module that the task refers to
            raise self.task.refuse_sending(f"{type(error).__name__}: {error}") from error


_EXAMPLES = 3
_ASIDE = ("interval_level", "missing")


def lay_out_point(point: Point) -> dict[str, Any]:
    """Return a point as a row: its choice with the predicted time, or why it was refused."""
    if isinstance(point, Refused):
        return text.extract(point, "choice", "stage", "reason")
    missing = {"missing": list(point.missing)} if point.missing else {}
    ends = text.extract(point, "interval_s", "interval_level")
    predicted = {"choice": dict(point.choice), "predicted_s": point.time_s, "model": point.model}
    return {**predicted, **ends, **missing}


def list_refusals(refusals: Mapping[str, RefusalCount]) -> dict[str, Any]:
    """Return refusals by stage as JSON has them."""
    reasons = {
        stage: [{"count": r.count, "example": lay_out_point(r.example)} for r in refusal.reasons]
        for stage, refusal in refusals.items()
    }
    return {stage: {"count": r.count, "reasons": reasons[stage]} for stage, r in refusals.items()}


def write_refusals(refusals: Mapping[str, RefusalCount], how: str = "refused") -> list[str]:
    """Write the most frequent reasons of refusals."""
    return [
        f"{how} ({stage}): {reason.count} of {refusal.count}, such as"
        f" {text.choice_text(reason.example.choice)}: {reason.example.reason}"
        for stage, refusal in refusals.items()
        for reason in refusal.reasons[:_EXAMPLES]
    ]
