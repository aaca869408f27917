"""From the samples of a case to its time and how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the samples of a case come to.

    Attributes
    ----------
    time_s : float
        The statistic: the minimum of all runs that were not dropped, s.
    spread : float
        How far the median of the fastest round lies above its minimum, relative.
    noise_floor : float
        How well the time repeats: how far the median of the rounds' minima lies above the smallest
        of them, relative; of a single round, its spread. Never below the timer's resolution.
    """

    time_s: float
    spread: float
    noise_floor: float


def summarize(
    samples_s: Sequence[Sequence[float]], dropped: int, *, resolution_s: float = 0.0
) -> Summary:
    """Reduce the samples of a case to its time and how far to trust it.

    Parameters
    ----------
    samples_s : sequence of sequence of float
        Run times in rounds, s; every round has more than `dropped` of them.
    dropped : int
        How many runs at the start of each round do not count.
    resolution_s : float, optional
        Resolution of the timer, s.

    Returns
    -------
    Summary
        Time, spread and noise floor.

    Notes
    -----
    Linear-model protocol of Stevens and Klöckner (2016): 30 runs, the first 4 dropped, the minimum
    of the others. Rounds separated in time are ours: other load can hold up all runs of a round.

    Examples
    --------
    >>> summarize([[9.0, 1.0, 1.5, 2.0], [9.0, 3.0, 3.0, 3.0]], dropped=1)
    Summary(time_s=1.0, spread=0.5, noise_floor=1.0)
    """
    kept = [list(runs[dropped:]) for runs in samples_s]
    minima = [min(runs) for runs in kept]
    fastest = min(kept, key=min)
    time_s = min(fastest)
    if time_s <= 0:
        return Summary(time_s=time_s, spread=0.0, noise_floor=0.0)
    spread = median(fastest) / time_s - 1
    repeats = median(minima) / time_s - 1 if len(minima) > 1 else spread
    return Summary(time_s=time_s, spread=spread, noise_floor=max(repeats, resolution_s / time_s))
