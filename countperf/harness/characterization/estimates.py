"""Estimates from measured series: shared pipelines, cache sizes, transfer costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Sharing = Literal["one subsystem", "two subsystems", "two subsystems with an issue limit"]

_BETTER = 0.75  # a model with a parameter more has to leave at most this share of the error


def mix_throughput(
    ratio: float, cpi_fast: float, cpi_slow: float, sharing: Sharing, issue_limit: float = np.inf
) -> float:
    """Predict the throughput of the fast class of a mix, instruction/cycle.

    Notes
    -----
    Eqs. (43) to (45) of the source, with the bound of the slow class at ``ratio / cpi_slow``: one
    slow instruction comes with ``ratio`` fast ones (the printed ``1 / cpi_slow`` puts the ridge
    elsewhere than the text does).

    Examples
    --------
    >>> mix_throughput(4, 1, 4, "one subsystem")
    0.5
    >>> mix_throughput(4, 1, 4, "two subsystems")
    1.0
    >>> mix_throughput(4, 1, 4, "two subsystems with an issue limit", 1.0)
    0.8
    """
    if sharing == "one subsystem":
        return ratio / (ratio * cpi_fast + cpi_slow)
    bound = min(1 / cpi_fast, ratio / cpi_slow)
    if sharing == "two subsystems":
        return bound
    return min(bound, ratio / (ratio + 1) * issue_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixVerdict:
    """Verdict on whether two classes of instructions share a pipeline.

    Attributes
    ----------
    sharing : str
        Which of the three.
    issue_limit : float or None
        Instructions per cycle over all subsystems, if that is what limits the mix.
    error : float
        Root mean square of the relative errors of the throughputs that this implies.
    """

    sharing: Sharing
    issue_limit: float | None
    error: float


def judge_mix(throughputs: Mapping[int, float], cpi_fast: float, cpi_slow: float) -> MixVerdict:
    """Decide between one subsystem, two, and two with an issue limit.

    Parameters
    ----------
    throughputs : Mapping from int to float
        Measured throughput of the fast class by ratio, instruction/cycle.
    cpi_fast, cpi_slow : float
        Cost of the classes alone, cycle/instruction.

    Returns
    -------
    MixVerdict
        The simplest that explains the measurements: an issue limit has to explain a quarter more.
    """

    def error(sharing: Sharing, limit: float = np.inf) -> float:
        wrong = [
            mix_throughput(ratio, cpi_fast, cpi_slow, sharing, limit) / measured - 1
            for ratio, measured in throughputs.items()
        ]
        return float(np.sqrt(np.mean(np.square(wrong))))

    one, two = error("one subsystem"), error("two subsystems")
    totals = [(ratio + 1) / ratio * measured for ratio, measured in throughputs.items()]
    limits = np.linspace(0.9 * min(totals), 1.1 * max(totals), 201)
    errors = [error("two subsystems with an issue limit", float(limit)) for limit in limits]
    best = int(np.argmin(errors))
    simple = min(one, two)
    if errors[best] < _BETTER * simple and errors[best] < simple - 0.01:
        return MixVerdict(
            sharing="two subsystems with an issue limit",
            issue_limit=float(limits[best]),
            error=errors[best],
        )
    sharing: Sharing = "one subsystem" if one <= two else "two subsystems"
    return MixVerdict(sharing=sharing, issue_limit=None, error=simple)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLevel:
    """A level of the memory hierarchy, as a pointer chase sees it.

    Attributes
    ----------
    size_bytes : int or None
        Largest working set that it holds, byte; None for the last one, which is memory.
    latency_s : float
        Time of a dependent load, s.
    """

    size_bytes: int | None
    latency_s: float


def find_cache_levels(
    sizes: Sequence[int], latencies: Sequence[float], *, rise: float = 1.3
) -> tuple[CacheLevel, ...]:
    """Find plateaus of the time of a load over the size of the working set.

    Parameters
    ----------
    sizes : sequence of int
        Working sets, byte, ascending.
    latencies : sequence of float
        Time of a dependent load in each, s.
    rise : float, optional
        How much slower a level is than the one before it, at least.

    Returns
    -------
    tuple of CacheLevel
        Fastest first. A level ends at the largest working set that is still within a third of the
        way (on a logarithmic scale) to the next level's time.

    Examples
    --------
    >>> for level in find_cache_levels([1, 2, 4, 8, 16, 32], [5, 5, 5, 20, 21, 20]):
    ...     print(level.size_bytes, level.latency_s)
    4 5.0
    None 20.0
    """
    # larger sets are not faster, and nothing is faster than a picosecond: what is, is noise
    times = np.maximum.accumulate(np.maximum(np.asarray(latencies, np.float64), 1e-12))
    plateaus: list[list[int]] = [[0]]
    for index in range(1, len(times)):
        if times[index] < rise * np.median(times[plateaus[-1]]):
            plateaus[-1].append(index)
        else:
            plateaus.append([index])
    # a lone point between two plateaus is the edge of the one before
    kept = [p for n, p in enumerate(plateaus) if len(p) > 1 or n in (0, len(plateaus) - 1)]
    levels: list[CacheLevel] = []
    for number, plateau in enumerate(kept):
        latency = max(float(np.median(np.asarray(latencies)[plateau])), 1e-12)
        if number + 1 == len(kept):
            levels.append(CacheLevel(size_bytes=None, latency_s=latency))
            break
        low, high = (float(np.median(times[each])) for each in kept[number : number + 2])
        edge = low * (high / low) ** (1 / 3)
        inside = [plateau[0], *(k for k in range(kept[number + 1][0]) if times[k] <= edge)]
        levels.append(CacheLevel(size_bytes=int(sizes[max(inside)]), latency_s=latency))
    return tuple(levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCost:
    """Start-up time (s) and bandwidth (byte/s) of transfers in one direction."""

    startup_s: float
    bandwidth_byte_per_s: float


def fit_transfer(sizes: Sequence[int], times: Sequence[float]) -> TransferCost:
    """Fit the time of a transfer as start-up plus size over bandwidth.

    Parameters
    ----------
    sizes : sequence of int
        Byte; at least two different ones.
    times : sequence of float
        s.

    Returns
    -------
    TransferCost
        By least squares of the relative errors.

    Examples
    --------
    >>> fit_transfer([1000, 1000000], [1.1e-5, 1.01e-3]).bandwidth_byte_per_s.__round__()
    1000000000
    """
    measured = np.asarray(times, np.float64)
    design = np.column_stack([np.ones(len(measured)), np.asarray(sizes, np.float64)])
    scale = 1 / np.linalg.norm(design / measured[:, None], axis=0)
    weighted = design * scale / measured[:, None]
    solution, *_ = np.linalg.lstsq(weighted, np.ones(len(measured)), rcond=None)
    startup, slope = solution * scale
    return TransferCost(
        startup_s=max(0.0, float(startup)), bandwidth_byte_per_s=1 / max(float(slope), 1e-15)
    )


def bank_count(passes: Mapping[int, float]) -> int | None:
    """Find the number of banks from the cost of a local load by stride.

    Parameters
    ----------
    passes : Mapping from int to float
        Cost of a load relative to stride 1, by stride in words (powers of two).

    Returns
    -------
    int or None
        The smallest stride from which on the cost does not grow any more, if it grew at all.

    Examples
    --------
    >>> bank_count({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.1, 16: 16.0, 32: 31.8, 64: 32.0})
    32
    >>> bank_count({1: 1.0, 2: 1.0, 4: 1.1}) is None
    True
    """
    worst = max(passes.values())
    if worst < 1.5:
        return None
    return min(stride for stride, cost in passes.items() if cost >= 0.8 * worst)
