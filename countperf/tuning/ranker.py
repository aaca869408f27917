"""Predicting the points of a space: streamed, by any executor, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from functools import cached_property
from itertools import islice
from typing import Self

from countperf.errors import ParameterError, SearchSpaceError
from countperf.steps import report
from countperf.tuning.exclusive_timing import Standstill
from countperf.tuning.points import Point, PredictionTask, Refused
from countperf.tuning.pools import Pool, WorkerLostError, capacity, pool_or
from countperf.tuning.posterior import Surrogate
from countperf.tuning.ranking import Ranking, Tally
from countperf.tuning.result import Key
from countperf.tuning.sending import NOT_SENT, Packed, checked_space, predict_each, predict_sent
from countperf.tuning.space import Value

KEPT = 10_000
"""Default number of best predicted points that are kept."""

_WINDOW = 2048  # points that are sorted together
_SAMPLE = 8  # points that are predicted before any is chosen by promise
_PROMISING_WINDOW = 16
_AHEAD = 512  # points among which those of promise are looked for
_LARGEST_CHUNK = 16
_BRIEF_CHUNK = 2  # that measurements wait for
_IN_FLIGHT = 4
_BRIEF_IN_FLIGHT = 24
_MOST_BRIEF = 192  # of those, on large clusters
_PATIENCE_S = 1.0  # with what is under way when nothing more is wanted

LONGEST_S = 60.0
"""After so long a process is given up that builds, counts and predicts one point, s."""

Numbered = tuple[int, dict[str, Value]]


def rank_points(
    question: PredictionTask,
    *,
    executor: Executor | None = None,
    keep: int = KEPT,
    points: int | None = None,
    on_point: Callable[[Point], None] | None = None,
    longest_s: float = LONGEST_S,
) -> Ranking:
    """Predict the points of a space."""
    report("looking at variants", 0)
    checked_space(question.space, question.sizes)
    with (
        pool_or(executor) as chosen,
        Ranker(
            question,
            chosen,
            keep=keep,
            points=points,
            on_point=on_point,
            longest_s=longest_s,
        ) as ranker,
    ):
        while not ranker.is_done:
            report("predicting variants", ranker.answered, points)
            ranker.work(None)
        return ranker.ranking()


class Ranker:
    """A ranking under way; a context manager that withdraws what is left to do.

    Points are taken in the order of `SearchSpace.choices`, windows of which are sorted, so that the
    points of a task share steps of their builder and counts. Where not all may be predicted, points
    of promise come first, after a sample from all over the space.
    """

    def __init__(
        self,
        question: PredictionTask,
        executor: Executor,
        *,
        keep: int = KEPT,
        points: int | None = None,
        on_point: Callable[[Point], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        by_promise: bool = False,
        longest_s: float = LONGEST_S,
    ) -> None:
        if not 0 < longest_s < float("inf"):
            message = f"longest_s is {longest_s}; it is a finite time in seconds, more than 0"
            raise ParameterError(message, parameter="longest_s")
        space = question.found_space()
        self._question = question
        self._space = space
        self._executor = executor
        self._on_point = on_point
        self._now = now
        self._longest_s = longest_s
        self._tally = Tally(keep)
        self._spent_s = 0.0
        self._left = points
        self._waiting = enumerate(space.choices())
        self._ahead: list[Numbered] = []  # taken from it, and in no chunk yet
        self._chunks: deque[list[Numbered]] = deque()
        self._pending: dict[Future[list[Point]], list[Numbered]] = {}
        self._promise = Surrogate(space) if by_promise else None
        self.answered = 0

    @property
    def is_done(self) -> bool:
        """Whether all points, or as many as were wanted, are predicted."""
        self._fill()
        return not (self._chunks or self._pending)

    @property
    def has_predictions(self) -> bool:
        """Whether there is a variant with a prediction."""
        return self._tally.predicted > 0

    def work(
        self, until_s: float | None, *, most: int | None = None, wait_s: float | None = None
    ) -> None:
        """Keep the executor busy, and wait until there is an answer."""
        began_s = self._now()
        self._submit(until_s, self._most_in_flight() if most is None else most)
        self._collect(wait_s if until_s is None else max(0.0, until_s - self._now()))
        self._spent_s += self._now() - began_s

    def feed(self) -> None:
        """Take the answers that there are, and keep the executor busy without waiting."""
        self._collect(0.0)
        self._submit(None, self._most_in_flight())

    def correct(self, times_s: Mapping[Key, float]) -> None:
        """Have these times of points, s, say what promises short ones, not the predicted times."""
        if self._promise is not None:
            self._promise.correct(times_s)

    def withdraw(self) -> None:
        """Take back what has not begun, so that the executor can do something else first."""
        withdrawn = [task for task in self._pending if task.cancel()]
        self._chunks.extendleft(self._pending.pop(task) for task in reversed(withdrawn))

    def pause(self) -> None:
        """Withdraw what has not begun, and wait for what has, so that the executor is idle.

        A pool of ours ends what takes too long, which then counts as not begun.
        """
        began_s = self._now()
        self.withdraw()
        until_s = time.monotonic() + _PATIENCE_S
        while self._pending:
            left_s = None
            if isinstance(self._executor, Pool):
                left_s = max(0.0, until_s - time.monotonic())
                if not left_s:
                    self._executor.drop(self._pending)
                    left_s = _PATIENCE_S
            self._collect(left_s)
        self._spent_s += self._now() - began_s

    @property
    def standstill(self) -> Standstill | None:
        """Context manager that suspends the executor within a task; None if it cannot."""
        return getattr(self._executor, "standstill", None)

    def ranking(self) -> Ranking:
        """Return what came back so far."""
        self._look_ahead(1)
        return Ranking(
            space=self._space.name,
            sizes={**self._space.sizes, **self._question.sizes},
            device=self._question.weights.device.slug,
            best=self._tally.best(),
            predicted=self._tally.predicted,
            refusals=self._tally.refusals(),
            complete=not (self._ahead or self._chunks or self._pending),
            seconds=self._spent_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._pending:
            task.cancel()
        if isinstance(self._executor, Pool):
            self._executor.drop(self._pending)

    def _fill(self) -> None:
        """Make chunks of more points when all those before are under way."""
        if self._chunks or self._left == 0:
            return
        if self._promise is None:
            self._look_ahead(_WINDOW)
            chosen = list(range(len(self._ahead)))
        elif self._pending and not self.answered:
            return  # for what promises anything is not known before there is an answer
        else:
            self._look_ahead(_AHEAD)
            chosen = self._promising(self._promise)
        if self._left is not None:
            chosen = chosen[: self._left]
            self._left -= len(chosen)
        self._chunks.extend(self._cut([self._ahead[position] for position in chosen]))
        taken = set(chosen)
        self._ahead = [each for position, each in enumerate(self._ahead) if position not in taken]

    def _look_ahead(self, count: int) -> None:
        self._ahead.extend(islice(self._waiting, max(0, count - len(self._ahead))))

    def _promising(self, promise: Surrogate) -> list[int]:
        """Choose points: mostly those that promise short times, and some next ones.

        Those that are predicted together with one come with it.
        """
        if not self._tally.predicted:
            return list(range(min(_SAMPLE, len(self._ahead))))
        choices = [choice for _, choice in self._ahead]
        company_of = {
            place: company for company in self._space.companies(choices) for place in company
        }
        count = max(_PROMISING_WINDOW, 4 * capacity(self._executor))
        chosen: dict[int, None] = {}
        for order, most in (
            (promise.order(choices), count - count // 4),
            (range(len(choices)), count),
        ):
            for place in order:
                if len(chosen) >= most:
                    break
                chosen.update(dict.fromkeys(company_of[place]))
        return list(chosen)

    def _most_in_flight(self) -> int:
        """Return how many chunks keep the executor busy until the next time it is fed."""
        workers = capacity(self._executor)
        if self._promise is None or self.standstill is not None:
            return _IN_FLIGHT * workers
        return max(_IN_FLIGHT * workers, min(_BRIEF_IN_FLIGHT * workers, _MOST_BRIEF))

    def _cut(self, points: list[Numbered]) -> list[list[Numbered]]:
        """Cut points into chunks, whose points share steps and counts."""
        points.sort(key=lambda each: self._space.index(each[1]))
        if self._promise is None:
            size = max(1, -(-len(points) // (2 * capacity(self._executor))))
            return _pieces(points, min(size, _LARGEST_CHUNK))
        most = _LARGEST_CHUNK if self.standstill is not None else _BRIEF_CHUNK
        return [
            piece
            for places in self._space.companies(choice for _, choice in points)
            for piece in _pieces([points[position] for position in places], most)
        ]

    def _submit(self, until_s: float | None, most: int) -> None:
        while len(self._pending) < most and (until_s is None or self._now() < until_s):
            self._fill()
            if not self._chunks:
                return
            chunk = self._chunks.popleft()
            self._pending[self._begin([choice for _, choice in chunk])] = chunk

    def _begin(self, choices: list[dict[str, Value]]) -> Future[list[Point]]:
        if isinstance(self._executor, Pool):
            return self._executor.submit_within(self._longest_s, predict_each, self.asked, choices)
        return self._executor.submit(predict_sent, self.asked, choices)

    @cached_property
    def asked(self) -> Packed | PredictionTask:
        """The question as the executor gets it, packed if it can be and has to.

        What cannot be is refused before a pool gets it, which may never end; other executors, which
        may find ways of their own to send things, are left to it.
        """
        if isinstance(self._executor, ThreadPoolExecutor):  # its tasks see what they are given
            return self._question
        try:
            return Packed.of(self._question)
        except NOT_SENT as error:
            if isinstance(self._executor, Pool | ProcessPoolExecutor):
                raise self._not_sent(str(error)) from error
            return self._question

    def _collect(self, seconds: float | None) -> None:
        if not self._pending:
            return
        done, _ = wait(self._pending, seconds, return_when=FIRST_COMPLETED)
        for task in done:
            chunk = self._pending.pop(task)
            points = self._answer(task, chunk)
            if len(points) < len(chunk):
                self._chunks.appendleft(chunk[len(points) :])
            for (number, _), point in zip(chunk, points, strict=False):
                self._tally.add(number, point)
                if self._promise is not None:
                    time_s = None if isinstance(point, Refused) else point.time_s
                    self._promise.add(point.choice, time_s)
                self.answered += 1
                if self._on_point is not None:
                    self._on_point(point)

    def _answer(self, task: Future[list[Point]], chunk: list[Numbered]) -> list[Point]:
        """Return the points of a chunk; the first ones if its process was lost at one of them."""
        try:
            return task.result()
        except WorkerLostError as error:
            points: list[Point] = list(error.parts)
            if not error.is_dropped:
                _, choice = chunk[len(points)]
                reason = f"the process that built and counted it was lost: {error.reason}"
                if error.is_late:
                    reason += "; longest_s=SECONDS gives it more"
                points.append(Refused(choice=choice, stage="build", reason=reason))
            return points
        except ImportError as error:  # of a module that the question refers to
            raise self._not_sent(f"{type(error).__name__}: {error}") from error
        except Exception as error:
            reason = _why_not_sent(self._question)
            if reason is None:
                raise
            raise self._not_sent(reason) from error

    def _not_sent(self, reason: str) -> SearchSpaceError:
        return SearchSpaceError(
            f"space '{self._space.name}' cannot be sent to the processes that count: {reason}; "
            "let its functions be functions of a module that they can import, which hold no locks,"
            " files or the like, or name it: 'path/file.py:name'"
        )


def _pieces(points: list[Numbered], size: int) -> list[list[Numbered]]:
    return [points[start : start + size] for start in range(0, len(points), size)]


def _why_not_sent(question: PredictionTask) -> str | None:
    try:
        Packed.of(question)
    except NOT_SENT as error:
        return str(error)
    return None
