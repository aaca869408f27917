"""The first variants of a ranking or of a search, put in order by their compiled code."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field, replace

from countperf.counting.producers import translation_unit
from countperf.deferred_interrupts import end_if_interrupted
from countperf.errors import CountperfError, PredictionError
from countperf.harness.compile.compiled_kernel import CompiledKernel, counts_of_many, read_compiled
from countperf.harness.device import Device
from countperf.harness.devices import discover, select_device
from countperf.models.compiled import COMPILED
from countperf.models.weights import WeightSet
from countperf.properties.count_properties import count_kernel
from countperf.tuning.points import Predicted, PredictionTask, interval_of
from countperf.tuning.pools import Pool, capacity
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import Key, as_key
from countperf.tuning.sending import NOT_SENT, Packed
from countperf.tuning.space import SearchSpace


def ranked_by_code(
    ranking: Ranking, space: SearchSpace, weights: WeightSet, device: Device, *, first: int
) -> Ranking:
    """Compile the first variants of a ranking, and predict them by what their code executes.

    Nothing is timed. A variant whose code cannot be followed keeps the time that it had.
    """
    if not weights.definition.reads_code:
        raise PredictionError(
            f"the {weights.model} model reads no compiled code: rank by weights of one that does,"
            " such as load_weights(device, model='compiled')"
        )
    sizes = {**space.sizes, **ranking.sizes}
    chosen = ranking.best[:first]
    units = [(translation_unit(space.build(**point.choice)), sizes) for point in chosen]
    read = read_compiled(units, device) if units else ()
    followed = iter(
        counts_of_many(
            [
                (each, sizes, {}, weights.counted_caches.code)
                for each in read
                if isinstance(each, CompiledKernel)
            ]
        )
    )
    ranked = [
        _by_code(
            point,
            unit,
            next(followed) if isinstance(compiled, CompiledKernel) else compiled,
            weights,
            sizes,
        )
        for point, (unit, _), compiled in zip(chosen, units, read, strict=True)
    ]
    ranked.sort(key=lambda point: point.time_s)
    return replace(ranking, best=(*ranked, *ranking.best[first:]))


def _by_code(
    point: Predicted,
    unit: object,
    code: Mapping[str, int] | Exception,
    weights: WeightSet,
    sizes: Mapping[str, int],
) -> Predicted:
    if isinstance(code, Exception):
        return point
    try:
        vector = count_kernel(unit, view="structure", caches=weights.counted_caches)
        vector = vector.with_counts_at(lambda _: code, "code")
        prediction = weights.predict_counts(vector, sizes, incomplete_ok=True)
    except CountperfError:
        return point
    time_s = float(prediction.time_s)
    if not time_s > 0:
        return point
    return replace(
        point,
        time_s=time_s,
        interval_s=interval_of(prediction),
        interval_level=prediction.interval_level,
        missing=prediction.missing,
        model=COMPILED,
    )


MOST = 16
"""Variants that are read."""

SHARE = 0.2
"""Fraction of the seconds that reading them may take."""

_BATCH = 4
_READ_S = 1.0  # for a variant to be compiled and followed, as long as none was
_FEWEST = 4
_WAIT_S = 0.2  # before it is seen whether Ctrl-C was pressed
_LONGEST_S = 60.0
_APART = 1e-7  # of times that the other model predicts alike


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReader:
    """Weights of a model that reads compiled code, and the device that compiles."""

    weights: WeightSet  # the weights
    label: str  # of the device, as for `countperf.harness.devices.select_device`


@dataclass(slots=True)
class CodeOrder:
    """Order of variants by their code, as times that put a ranking into it."""

    times_s: dict[Key, float] = field(default_factory=dict[Key, float])
    seconds: float = 0.0  # time that reading took, s

    def applied(self, ranking: Ranking) -> Ranking:
        """Return a ranking in this order."""
        if not self.times_s:
            return ranking
        best = [
            replace(point, time_s=self.times_s.get(as_key(point.choice), point.time_s))
            for point in ranking.best
        ]
        return replace(ranking, best=tuple(sorted(best, key=lambda point: point.time_s)))


def read_order(
    ranking: Ranking,
    asked: Packed | PredictionTask,
    reader: CodeReader,
    pool: Executor,
    *,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
) -> CodeOrder:
    """Have processes compile the first variants of a ranking; order them by their code."""
    workers = capacity(pool) if isinstance(pool, Pool) else 0
    number = min(MOST, len(ranking.best), int(min(seconds, _LONGEST_S) * workers / _READ_S))
    if not isinstance(pool, Pool) or number < _FEWEST:
        return CodeOrder()
    began_s = now()
    until_s = began_s + min(seconds, _LONGEST_S)
    chosen = ranking.best[:number]
    batches = [chosen[first : first + _BATCH] for first in range(0, number, _BATCH)]
    builds: list[Future[list[Predicted | None]]] = []
    try:
        for some in batches:
            part = replace(ranking, best=some)
            left_s = until_s - now()
            builds.append(pool.submit_within(left_s, _read, asked, part, reader))
    except NOT_SENT:
        return CodeOrder()
    done, late = wait(builds, timeout=0.0)
    while late and (left_s := until_s - now()) > 0:
        end_if_interrupted()
        done, late = wait(builds, timeout=min(_WAIT_S, left_s))
    pool.drop(late)
    read = [
        point
        for build in builds
        if build in done and not build.cancelled() and build.exception() is None
        for point in build.result()
        if point is not None
    ]
    return CodeOrder(_permuted(chosen, read), now() - began_s)


def _permuted(chosen: Sequence[Predicted], read: Sequence[Predicted]) -> dict[Key, float]:
    """Return the times of chosen variants that were read, in the order of their code."""
    order = [as_key(point.choice) for point in sorted(read, key=lambda point: point.time_s)]
    known = set(order)
    own = sorted(point.time_s for point in chosen if as_key(point.choice) in known)
    return {
        key: time_s * (1 + _APART * position)
        for position, (key, time_s) in enumerate(zip(order, own, strict=True))
    }


def _read(
    asked: Packed | PredictionTask, part: Ranking, reader: CodeReader
) -> list[Predicted | None]:
    """Predict variants by their code; None for one whose code cannot be followed."""
    question = asked.question() if isinstance(asked, Packed) else asked
    before: Mapping[Key, Predicted] = {as_key(point.choice): point for point in part.best}
    try:
        device = select_device(reader.label, discover().devices)
        ordered = ranked_by_code(
            part, question.found_space(), reader.weights, device, first=len(part.best)
        )
    except CountperfError:
        return [None] * len(part.best)
    return [None if point is before[as_key(point.choice)] else point for point in ordered.best]
