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
    """Predict the throughput of the fast class of a mix, instruction/cycle."""
    if sharing == "one subsystem":
        return ratio / (ratio * cpi_fast + cpi_slow)
    bound = min(1 / cpi_fast, ratio / cpi_slow)
    if sharing == "two subsystems":
        return bound
    return min(bound, ratio / (ratio + 1) * issue_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixVerdict:
    """Verdict on whether two classes of instructions share a pipeline."""

    sharing: Sharing  # which of the three
    # instructions per cycle over all subsystems, if that is what limits the mix
    issue_limit: float | None
    error: float  # root mean square of the relative errors of the throughputs that this implies


def judge_mix(throughputs: Mapping[int, float], cpi_fast: float, cpi_slow: float) -> MixVerdict:
    """Decide between one subsystem, two, and two with an issue limit."""

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
    """A level of the memory hierarchy, as a pointer chase sees it."""

    size_bytes: int | None  # largest working set that it holds, byte
    latency_s: float  # time of a dependent load, s


def find_cache_levels(
    sizes: Sequence[int], latencies: Sequence[float], *, rise: float = 1.3
) -> tuple[CacheLevel, ...]:
    """Find plateaus of the time of a load over the size of the working set."""
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


def fit_transfer(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """Fit the time of a transfer as start-up (s) plus size over bandwidth (byte/s)."""
    measured = np.asarray(times, np.float64)
    design = np.column_stack([np.ones(len(measured)), np.asarray(sizes, np.float64)])
    scale = 1 / np.linalg.norm(design / measured[:, None], axis=0)
    weighted = design * scale / measured[:, None]
    solution, *_ = np.linalg.lstsq(weighted, np.ones(len(measured)), rcond=None)
    startup, slope = solution * scale
    return max(0.0, float(startup)), 1 / max(float(slope), 1e-15)


def bank_count(passes: Mapping[int, float]) -> int | None:
    """Find the number of banks from the cost of a local load by stride."""
    worst = max(passes.values())
    if worst < 1.5:
        return None
    return min(stride for stride, cost in passes.items() if cost >= 0.8 * worst)
