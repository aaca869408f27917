"""Search spaces by name; ranking their variants, and searching for the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path

from countperf.api.prediction import choose_weights
from countperf.devices.device import Device, EventClock
from countperf.devices.discovery import find_device
from countperf.devices.identity import available_cores
from countperf.devices.workers import pool_or
from countperf.errors import SearchSpaceError, nearest
from countperf.measuring.runner import ApartRunner
from countperf.models.weights import WeightSet
from countperf.sizes import checks_keywords, merge_sizes
from countperf.steps import report
from countperf.tuning.ranker import Point, PredictionTask, Ranking, rank_points
from countperf.tuning.result import Budget, Plan, TuningResult
from countperf.tuning.search import tune_space
from countperf.tuning.space import SearchSpace, Statistics, find_space
from measurement_kernels.variants import spaces


def load_space(
    specification: SearchSpace | str, sizes: Mapping[str, int] | None = None
) -> SearchSpace:
    """Return the search space that a text names; refuse sizes that it does not have."""
    named = specification if isinstance(specification, str) else type(specification).__name__
    if isinstance(specification, SearchSpace):
        space = specification
    elif ":" in named:
        space = find_space(named)
    elif (space := (known := spaces()).get(named)) is None:
        raise SearchSpaceError(
            f"{named!r} is no search space; there are {', '.join(known)}, path/file.py:name, and"
            f" in Python countperf.SearchSpace{nearest(named, known)}"
        )
    space.sizes_with(sizes or {})
    return space


@checks_keywords
def rank(
    space: SearchSpace | str,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    device: str | None = None,
    force: bool = False,
    incomplete_ok: bool = False,
    keep: int = 20,
    points: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    on_point: Callable[[Point], None] | None = None,
    longest_s: float = 60.0,
    statistics: Statistics | None = None,
    **more: int,
) -> Ranking:
    """Predict all variants of a kernel and keep those that should be fastest.

    Parameters
    ----------
    space, parameters, **more
        The variants, or a text for `countperf.api.searching.load_space`; sizes, in place of its.
    weights, model, device, force, incomplete_ok
        As for `predict`; of a device that is named the limits are looked at, too. Where by default
        the model that reads compiled code is chosen, it predicts the 64 variants that are the most
        promising by counts. These come first; the others keep the times of the structural model,
        which ``model`` of each tells. A model that is named predicts all variants.
    keep, points : int, optional
        How many to keep; how many to predict, scattered over the space, by default all.
    executor : concurrent.futures.Executor, optional
        What predicts: Dask's (``Client.get_executor()``), MPI's (``MPIPoolExecutor``), or any
        other; by default a pool of `workers` processes, one for each processor.
    on_point : callable, optional
        Is told of every point as it comes, and again of one that is then predicted by its code.
    longest_s : float
        What a variant may take, s; one that takes longer, or crashes, is refused.
    statistics : Mapping from str to number or str, or callable, optional
        What counting has to know of the data, in place of the space's `SearchSpace.statistics`, or
        of some of them; also as a function of the choice.

    Raises
    ------
    SearchSpaceError, ParameterError, PredictionError, DeviceError, DocumentError
        Wrong space, sizes, weights or device. What is wrong with single points is in the result.
    """
    sizes = merge_sizes(parameters, more)
    space = load_space(space, sizes)
    target = None if device is None else find_device(device)
    task = _make_task(space, sizes, weights, model, target, force, incomplete_ok, statistics)
    with pool_or(executor, workers) as pool:
        return rank_points(
            task, executor=pool, keep=keep, points=points, on_point=on_point, longest_s=longest_s
        )


@checks_keywords
def tune(
    space: SearchSpace | str,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    seconds: float | None = None,
    measurements: int | None = None,
    device: str | None = None,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    force: bool = False,
    incomplete_ok: bool = True,
    store: Path | str | None = None,
    confidence: float = 0.95,
    tolerance: float = 0.02,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
    longest_s: float | None = None,
    statistics: Statistics | None = None,
    **more: int,
) -> TuningResult:
    """Find the fastest variant of a kernel on a device within a budget.

    Parameters
    ----------
    space, parameters, **more
        As for `rank`.
    seconds, measurements
        The budget: time, predictions included, s; variants to run. At least one of the two.
    device : str, optional
        As for `measure`; by default the first GPU that works, else the first device.
    weights, model, force
        As for `rank`; weights are by default the device's.
    incomplete_ok : bool
        Whether variants that have properties without a weight take part; what their predictions
        leave out is learnt from measurements.
    store : Path or str, optional
        A file; the same call goes on where it stopped, and a larger budget goes on from there.
    confidence, tolerance : float
        At which to stop, and at which the regret is bounded; gains below are not looked for.
    executor, workers, longest_s, statistics, progress
        As for `rank`; by default half of the seconds, but 3 s at least and a minute at most. What
        happens is told to `progress`, a line at a time.

    Raises
    ------
    TuningError
        No variant can be predicted, or none runs.
    SearchSpaceError, ParameterError, PredictionError, DeviceError, DocumentError, MeasurementError
        Wrong space, sizes, weights or device; or the store cannot be used.
    """
    began_s = EventClock().now()
    budget = Budget(seconds=seconds, measurements=measurements)
    plan = Plan(confidence=confidence, tolerance=tolerance)
    report("preparing the search", 0)
    sizes = merge_sizes(parameters, more)
    space = load_space(space, sizes)
    target = find_device(device)
    task = _make_task(space, sizes, weights, model, target, force, incomplete_ok, statistics)
    longest_s = budget.longest_s if longest_s is None else longest_s
    more_than_one = target.identity.device_type == "cpu"
    number = min(_BUILDERS, workers or available_cores()) if more_than_one else 1
    with pool_or(executor, workers) as pool, ExitStack() as stack:
        runners = [stack.enter_context(ApartRunner(target, longest_s)) for _ in range(number)]
        return tune_space(
            task,
            runners[0],
            budget,
            store=store,
            plan=plan,
            executor=pool,
            progress=progress,
            began_s=began_s,
            longest_s=longest_s,
            builders=runners[1:],
        )


_BUILDERS = 8
"""Processes that build variants at most; for other devices they would disturb its timings."""


def _make_task(
    space: SearchSpace,
    sizes: Mapping[str, int],
    weights: WeightSet | Path | str | None,
    model: str | None,
    device: Device | None,
    force: bool,
    incomplete_ok: bool,
    statistics: Statistics | None,
) -> PredictionTask:
    """Return the task to predict variants, with weights that match the device, and its limits."""
    chosen = choose_weights(
        weights,
        model=model,
        device=None if device is None else device.identity,
        force=force,
    )
    by_counts = chosen.choose_by_counts
    return PredictionTask(
        space=space,
        weights=chosen.weights if by_counts is None else by_counts("").weights,
        reading=None if by_counts is None else chosen.weights,
        model_choice=chosen.why,
        sizes=sizes,
        limits=None if device is None else device.limits,
        incomplete_ok=incomplete_ok,
        statistics=statistics,
    )
