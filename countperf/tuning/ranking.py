"""Predicting all points of a space, streamed: the best are kept, the refused are summed up."""

from __future__ import annotations

import heapq
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from countperf.tuning.points import (
    Point,
    Predicted,
    Question,
    Refused,
    load_space,
    predict_points,
)
from countperf.tuning.space import Value

KEPT = 10_000
"""How many of the best predicted points are kept unless the caller says otherwise."""

_CHUNK = 4
_IN_FLIGHT = 4
_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """How many points fell out at a stage.

    Attributes
    ----------
    count : int
        How many.
    examples : tuple of Refused
        The first few.
    """

    count: int
    examples: tuple[Refused, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Points of a space by predicted time.

    Attributes
    ----------
    space : str
        Its name.
    sizes : Mapping from str to int
        Sizes for which it holds.
    device : str
        Slug of the device of the weights.
    best : tuple of Predicted
        Fastest first; at most as many as were to be kept.
    predicted : int
        How many points were predicted.
    refusals : Mapping from str to RefusalCount
        Those that have no prediction, by stage.
    position : int
        How far the space was gone through, in numbers of `SearchSpace.visit`.
    complete : bool
        Whether that is all of it.
    seconds : float
        Time that it took, s.
    """

    space: str
    sizes: Mapping[str, int]
    device: str
    best: tuple[Predicted, ...]
    predicted: int
    refusals: Mapping[str, RefusalCount]
    position: int
    complete: bool
    seconds: float

    @property
    def refused(self) -> int:
        """How many points have no prediction."""
        return sum(each.count for each in self.refusals.values())


@dataclass(slots=True)
class _Tally:
    """What is kept of the points that came by."""

    keep: int
    heap: list[tuple[float, int, Predicted]] = field(default_factory=list)
    predicted: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Refused]] = field(default_factory=dict)

    def add(self, point: Point) -> None:
        match point:
            case Predicted():
                self.predicted += 1
                item = (-point.time_s, -self.predicted, point)
                if len(self.heap) < self.keep:
                    heapq.heappush(self.heap, item)
                else:
                    heapq.heappushpop(self.heap, item)
            case Refused():
                self.counts[point.stage] = self.counts.get(point.stage, 0) + 1
                examples = self.examples.setdefault(point.stage, [])
                if len(examples) < _EXAMPLES:
                    examples.append(point)

    def best(self) -> tuple[Predicted, ...]:
        return tuple(point for *_, point in sorted(self.heap, reverse=True, key=lambda i: i[:2]))

    def refusals(self) -> dict[str, RefusalCount]:
        return {
            stage: RefusalCount(count=count, examples=tuple(self.examples[stage]))
            for stage, count in sorted(self.counts.items())
        }


def rank_points(
    question: Question,
    *,
    executor: Executor | None = None,
    keep: int = KEPT,
    points: int | None = None,
    deadline_s: float | None = None,
    resume: Ranking | None = None,
    on_point: Callable[[Point], None] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Ranking:
    """Predict the points of a space.

    Parameters
    ----------
    question : Question
        Space, weights, sizes, limits.
    executor : concurrent.futures.Executor, optional
        What builds, counts and predicts; by default a pool of as many processes as there are
        processors. Any other will do: threads, Dask's, MPI's.
    keep : int
        How many of the best to keep.
    points : int, optional
        Stop after so many; they are scattered over the space.
    deadline_s : float, optional
        Stop when `now` has come so far, s; what is under way is finished.
    resume : Ranking, optional
        Where an earlier call stopped.
    on_point : callable, optional
        Is told of every point, refused ones included, as it comes.
    now : callable
        A clock, s.

    Returns
    -------
    Ranking
        In the same order whatever the executor.

    Raises
    ------
    SearchSpaceError
        A constraint cannot be evaluated.
    """
    began = now()
    space = load_space(question.space) if isinstance(question.space, str) else question.space
    tally = _Tally(keep=keep)
    position, before_s = 0, 0.0
    if resume is not None:
        position, before_s = resume.position, resume.seconds
        for point in resume.best:
            tally.add(point)
        tally.predicted = resume.predicted
        tally.counts = {stage: each.count for stage, each in resume.refusals.items()}
        tally.examples = {stage: list(each.examples) for stage, each in resume.refusals.items()}
    visited = 0 if resume is None else resume.predicted + resume.refused
    left = None if points is None else max(0, points - visited)
    waiting = islice(space.visit(position), left)
    end = space.cardinality
    with _pool(executor) as chosen:
        for reached, answers in _answers(question, waiting, chosen, deadline_s, now):
            position = reached
            for point in answers:
                tally.add(point)
                if on_point is not None:
                    on_point(point)
    beyond = next(space.visit(position), None) if position < end else None
    return Ranking(
        space=space.name,
        sizes={**space.sizes, **question.sizes},
        device=question.weights.device.slug,
        best=tally.best(),
        predicted=tally.predicted,
        refusals=tally.refusals(),
        position=position if beyond else end,
        complete=beyond is None,
        seconds=before_s + now() - began,
    )


def _answers(
    question: Question,
    waiting: Iterator[tuple[int, dict[str, Value]]],
    executor: Executor,
    deadline_s: float | None,
    now: Callable[[], float],
) -> Iterator[tuple[int, list[Point]]]:
    """Keep the executor busy with a bounded number of chunks; answers come in order."""
    workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    pending: list[tuple[int, Future[list[Point]]]] = []
    exhausted = answered = False

    def is_late() -> bool:
        return deadline_s is not None and bool(pending or answered) and now() >= deadline_s

    try:
        while True:
            while not exhausted and len(pending) < _IN_FLIGHT * workers and not is_late():
                chunk = list(islice(waiting, _CHUNK))
                exhausted = not chunk
                if chunk:
                    task = executor.submit(predict_points, question, [c for _, c in chunk])
                    pending.append((chunk[-1][0], task))
            late = is_late()
            # what is done or running is waited for, and a first chunk in any case
            while late and len(pending) > (0 if answered else 1) and pending[-1][1].cancel():
                pending.pop()
            if not pending:
                return
            if deadline_s is not None and not late:
                wait([pending[0][1]], max(0.0, deadline_s - now()), FIRST_COMPLETED)
                if not pending[0][1].done():
                    continue
            reached, task = pending.pop(0)
            answered = True
            yield reached, task.result()
    finally:
        for _, task in pending:
            task.cancel()


@contextmanager
def _pool(executor: Executor | None) -> Generator[Executor]:
    if executor is not None:
        yield executor
        return
    with process_pool() as pool:
        yield pool


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of fresh processes, one for each processor unless told otherwise.

    Fresh, since those forked from one that has drivers loaded may hang.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["countperf.tuning.preload"])
    return ProcessPoolExecutor(workers or processors(), mp_context=context, initializer=_quiet)


def _quiet() -> None:
    """Keep what Loopy warns of thousands of variants from the terminal; leave Ctrl-C to others."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def processors() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
