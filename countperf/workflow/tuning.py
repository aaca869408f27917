"""Search spaces by name; ranking their variants, and searching for the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.errors import CountperfError, ParameterError, SearchSpaceError
from countperf.harness.clock import EventClock
from countperf.harness.devices import find_device
from countperf.harness.runner import KernelRunner
from countperf.models.compiled import COMPILED
from countperf.models.library import load_weights, short_name
from countperf.models.weights import WeightSet
from countperf.sizes import given_sizes
from countperf.steps import report
from countperf.tuning.apart import ApartRunner
from countperf.tuning.code_order import CodeReader, ranked_by_code
from countperf.tuning.mechanistic_cost import MechanisticCost
from countperf.tuning.points import PredictionTask, user_space
from countperf.tuning.pools import pool_or
from countperf.tuning.ranker import LONGEST_S, rank_points
from countperf.tuning.result import Budget, Plan
from countperf.tuning.search import tune_space
from countperf.tuning.sending import checked_space
from countperf.tuning.space import SearchSpace
from countperf.workflow.prediction import (
    Target,
    choice_text,
    failed_reading,
    is_fit,
    reading_weights,
)
from measurement_kernels.variants import spaces

if TYPE_CHECKING:
    from countperf.harness.clock import Clock
    from countperf.harness.device import Device
    from countperf.harness.runner import CaseRunner
    from countperf.tuning.points import Point
    from countperf.tuning.ranking import Ranking
    from countperf.tuning.result import TuningResult
    from countperf.tuning.space import SearchSpace
    from countperf.tuning.state import Watch


def load_space(specification: str) -> SearchSpace:
    """Return the search space that a text names."""
    if ":" in specification:
        return user_space(specification)
    known = spaces()
    if specification not in known:
        raise SearchSpaceError(
            f"no search space is called {specification!r}; there are {', '.join(known)}, and"
            " path/file.py:name"
        )
    return known[specification]


def named_in_processes(space: SearchSpace | str) -> SearchSpace | str:
    """Return a space as processes get it: a space of users' code by its text, others themselves.

    Functions of a user's file cannot be sent to other processes, so each reads the file.
    """
    return load_space(space) if isinstance(space, str) and ":" not in space else space


def rank(
    space: SearchSpace | str,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    weights: WeightSet | MechanisticCost | Path | str | None = None,
    device: str | None = None,
    force: bool = False,
    incomplete_ok: bool = False,
    keep: int = 20,
    points: int | None = None,
    by_code: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    on_point: Callable[[Point], None] | None = None,
    longest_s: float = 60.0,
    **more: int,
) -> Ranking:
    """Predict all variants of a kernel and keep those that should be fastest.

    Parameters
    ----------
    space : SearchSpace or str
        The variants, or a text for `countperf.workflow.tuning.load_space`.
    parameters, **more : int
        Sizes, in place of the space's.
    weights, device, force, incomplete_ok
        As for `predict`; of a device that is named the limits are looked at, too. A mechanistic
        model (`countperf.mechanistic_cost`) may stand in the place of weights.
    keep : int
        How many to keep.
    points : int, optional
        Predict only so many, scattered over the space.
    by_code : int, optional
        Compile so many of the best on `device`, and put them in order by what their code executes,
        with weights of the model ``compiled``. By default 16 if no model is named, the weights'
        device is here and it has such weights. ``model_choice`` of the ranking says which and why.
    executor : concurrent.futures.Executor, optional
        What predicts: Dask's (``Client.get_executor()``), MPI's (``MPIPoolExecutor``), or any
        other; by default a pool of `workers` processes, one for each processor.
    on_point : callable, optional
        Is told of every point as it comes.
    longest_s : float
        What a variant may take, s; one that takes longer, or crashes, is refused.

    Returns
    -------
    Ranking

    Raises
    ------
    SearchSpaceError, PredictionError, DeviceError, DocumentError
        Wrong space, weights or device. What is wrong with single points is in the result.
    ParameterError
        A size is not positive, or is none of the space.
    """
    sizes = given_sizes(parameters, more)
    space = named_in_processes(space)
    asked = checked_space(space, sizes)
    found = None if device is None else find_device(device)
    if by_code and found is None:
        message = "variants are compiled on a device: name it (device=DEVICE)"
        raise ParameterError(message, parameter="device")
    reading = _reading(weights, found) if by_code is None else ""
    first = _FIRST_BY_CODE if by_code is None and isinstance(reading, WeightSet) else by_code or 0
    question = _task(space, sizes, weights, found, force=force, incomplete_ok=incomplete_ok)
    weights = question.weights
    with pool_or(executor, workers) as pool:
        ranking = rank_points(
            question,
            executor=pool,
            keep=max(keep, first),
            points=points,
            on_point=on_point,
            longest_s=longest_s,
        )
    if isinstance(reading, WeightSet):
        ranking = _ordered_if_readable(ranking, asked, reading, weights.model, first)
    elif reading:
        ranking = replace(ranking, model_choice=choice_text(weights.model, reading))
    elif first and found is not None:
        by_name = load_weights(weights.device.slug, model=COMPILED)
        ranking = ranked_by_code(ranking, asked, by_name, found, first=first)
    best = ranking.best[:keep]
    if any(point.model for point in best) and isinstance(weights, WeightSet):
        usual = short_name(weights.model)
        best = tuple(replace(point, model=point.model or usual) for point in best)
    return replace(ranking, best=best)


_FIRST_BY_CODE = 16
"""Number of variants that are compiled where no number is asked for."""


def _reading(
    weights: WeightSet | MechanisticCost | Path | str | None, device: Device | None
) -> WeightSet | str:
    """Return weights that read compiled code as `predict` chooses them, or why not.

    The reason is empty where weights were given that leave no choice.
    """
    if not (weights is None or is_fit(weights)):
        return ""
    if weights is None and device is None:
        device = find_device()
    return reading_weights(weights, None if device is None else device.identity)


def _ordered_if_readable(
    ranking: Ranking, space: SearchSpace, reading: WeightSet, usual: str, first: int
) -> Ranking:
    """Order the first variants by their code; leave them if it cannot be read on the device."""
    try:
        device = find_device(reading.device.slug)
        ordered = ranked_by_code(ranking, space, reading, device, first=first)
    except CountperfError as error:
        return replace(ranking, model_choice=choice_text(usual, failed_reading(error)))
    choice = (
        f"model {short_name(usual)} for all variants, then model {COMPILED} for the first"
        f" {min(first, len(ranking.best))}: the device of the weights is here"
    )
    return replace(ordered, model_choice=choice)


def tune(
    space: SearchSpace | str,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    seconds: float | None = None,
    measurements: int | None = None,
    device: str | None = None,
    weights: WeightSet | MechanisticCost | Path | str | None = None,
    force: bool = False,
    incomplete_ok: bool = True,
    store: Path | str | None = None,
    confidence: float = 0.95,
    tolerance: float = 0.02,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
    longest_s: float | None = None,
    watch: Watch | None = None,
    **more: int,
) -> TuningResult:
    """Find the fastest variant of a kernel on a device within a budget.

    Parameters
    ----------
    space : SearchSpace or str
        The variants, or a text for `countperf.workflow.tuning.load_space`.
    parameters, **more : int
        Sizes, in place of the space's.
    seconds, measurements
        The budget: time, predictions included, s; variants to run. At least one of the two.
    device : str, optional
        As for `measure`; by default the working device with the highest copy bandwidth.
    weights, force
        As for `rank`; by default the device's.
    incomplete_ok : bool
        Whether variants that have properties without a weight take part; what their predictions
        leave out is learnt from measurements.
    store : Path or str, optional
        A file; the same call goes on where it stopped, and a larger budget goes on from there.
    confidence, tolerance : float
        At which to stop, and at which the regret is bounded; gains below are not looked for.
    executor, workers, longest_s
        As for `rank`; by default a quarter of the seconds, but 3 s at least and a minute at most.
    progress, watch : callable, optional
        Are told what happens, a line at a time, and the `SearchState`, about once a second.

    Returns
    -------
    TuningResult

    Raises
    ------
    TuningError
        No variant can be predicted, or none runs.
    SearchSpaceError, ParameterError, PredictionError, DeviceError, DocumentError, MeasurementError
        Wrong space, sizes, weights or device; or the store cannot be used.
    """
    clock = EventClock()
    began_s = clock.now()
    budget = Budget(seconds=seconds, measurements=measurements)
    plan = Plan(confidence=confidence, tolerance=tolerance)
    sizes = given_sizes(parameters, more)
    space = named_in_processes(space)
    report("preparing the search", 0)
    checked_space(space, sizes)
    found = find_device(device)
    question = _task(space, sizes, weights, found, force=force, incomplete_ok=incomplete_ok)
    reading = _reading(weights, found)
    if isinstance(reading, str) and reading and progress is not None:
        progress(choice_text(question.weights.model, reading))
    with pool_or(executor, workers) as pool, _runner(found, clock, executor, longest_s) as runner:
        return tune_space(
            question,
            runner,
            budget,
            store=store,
            plan=plan,
            executor=pool,
            progress=progress,
            began_s=began_s,
            longest_s=longest_s,
            watch=watch,
            reader=CodeReader(weights=reading, label=found.label)
            if isinstance(reading, WeightSet)
            else None,
        )


def _runner(
    device: Device, clock: Clock, executor: Executor | None, longest_s: float | None
) -> AbstractContextManager[CaseRunner]:
    """Give what runs variants in a process of its own, unless building processes run them all."""
    if executor is None and device.identity.device_type == "cpu":
        return nullcontext(KernelRunner.open(device, clock))
    return ApartRunner(device, clock, longest_s=LONGEST_S if longest_s is None else longest_s)


def _task(
    space: SearchSpace | str,
    sizes: Mapping[str, int],
    weights: WeightSet | MechanisticCost | Path | str | None,
    device: Device | None,
    *,
    force: bool,
    incomplete_ok: bool,
) -> PredictionTask:
    """Return the task to predict variants, with weights that match the device, and its limits."""
    if not isinstance(weights, MechanisticCost):
        identity = None if device is None else device.identity
        weights = Target(weights=weights, device=identity, force=force).checked()
        if weights.definition.reads_code:
            raise ParameterError(
                "variants are ranked by a model that reads no compiled code, and the first of them"
                " then by their code where it can be read: take weights of such a model,"
                " model='structural'",
                parameter="model",
            )
    limits = None if device is None else device.limits
    return PredictionTask(
        space=space, weights=weights, sizes=sizes, limits=limits, incomplete_ok=incomplete_ok
    )
