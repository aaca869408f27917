"""The first variants of a ranking, put in order again by their compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from countperf.counting.producers import translation_unit
from countperf.errors import CountperfError, PredictionError
from countperf.harness.compile.compiled_kernel import CompiledKernel, counts_of_many, read_compiled
from countperf.harness.device import Device
from countperf.models.compiled import COMPILED
from countperf.models.weights import WeightSet
from countperf.properties.count_properties import count_kernel
from countperf.tuning.points import Predicted, interval_of
from countperf.tuning.ranking import Ranking
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
    found = [
        _by_code(
            point,
            unit,
            next(followed) if isinstance(compiled, CompiledKernel) else compiled,
            weights,
            sizes,
        )
        for point, (unit, _), compiled in zip(chosen, units, read, strict=True)
    ]
    found.sort(key=lambda point: point.time_s)
    return replace(ranking, best=(*found, *ranking.best[first:]))


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
        vector = vector.with_code(lambda _: code)
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
