"""Caches of a processor, and what misses them when groups are executed one after the other.

Caches are set-associative, and the line that was used least recently makes way. A line that is
fetched is near where one next to it was fetched shortly before, as prefetchers have it.

Source of the replacement: Hennessy, Patterson (2019), "Computer Architecture: A Quantitative
Approach", 6th edition, appendix B.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from countperf.harness.compiled.accesses import Accesses

LINE_BYTES = 64
_RECENT = 16
"""Lines that were fetched before one to which it may be near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A cache: so many sets, each of so many lines of 64 bytes."""

    sets: int
    ways: int


LEVELS = (Cache(sets=64, ways=12), Cache(sets=1024, ways=16))
"""The first two caches of today's processors, as an AMD Zen 5 has them: 48 KiB and 1 MiB."""


@dataclass(slots=True)
class Caches:
    """The state of two levels of caches, and how far instructions have come.

    Attributes
    ----------
    levels : tuple of Cache
        What they are.
    """

    levels: tuple[Cache, Cache] = LEVELS
    _lines: tuple[list[dict[int, None]], list[dict[int, None]]] = field(init=False)
    _seen: set[int] = field(default_factory=set[int], init=False)
    _fetched: dict[int, int] = field(default_factory=dict[int, int], init=False)
    _clock: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        first, second = self.levels
        self._lines = [{} for _ in range(first.sets)], [{} for _ in range(second.sets)]

    def run(self, accesses: Accesses) -> Counter[str]:
        """Execute accesses; return how many lines come from where.

        Returns
        -------
        Counter
            ``miss1`` lines that the first cache has no more, but the second has; ``miss2``, which
            neither has any more; ``cold``, which are accessed for the first time; each followed by
            ``_near`` or ``_far``, and ``_load`` or ``_store``.
        """
        found: Counter[tuple[str, bool, bool]] = Counter()
        lines, stores = _lines_of(accesses)
        first, second = self._lines
        sets, more_sets = (level.sets for level in self.levels)
        ways, more_ways = (level.ways for level in self.levels)
        fetched, seen = self._fetched, self._seen
        clock, never = self._clock, -_RECENT
        for line, is_store in zip(lines.tolist(), stores.tolist(), strict=True):
            here = first[line % sets]
            if line in here:
                del here[line]  # the newest are last
                here[line] = None
                continue
            here[line] = None
            if len(here) > ways:
                del here[next(iter(here))]
            clock += 1
            before, after = fetched.get(line - 1, never), fetched.get(line + 1, never)
            is_near = max(before, after) > clock - _RECENT
            fetched[line] = clock
            behind = second[line % more_sets]
            if line in behind:
                del behind[line]
                what = "miss1"
            else:
                what = "miss2" if line in seen else "cold"
                seen.add(line)
            behind[line] = None
            if len(behind) > more_ways:
                del behind[next(iter(behind))]
            found[what, is_near, is_store] += 1
        self._clock = clock
        return Counter(
            {
                f"{what}_{'near' if is_near else 'far'}_{'store' if is_store else 'load'}": number
                for (what, is_near, is_store), number in found.items()
            }
        )


def _lines_of(accesses: Accesses) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the lines that are accessed, without repetitions in a row, and whether by stores."""
    start = accesses.address // LINE_BYTES
    end = (accesses.address + np.maximum(accesses.size, 1) - 1) // LINE_BYTES
    crossing = end > start
    times = 1 + crossing.astype(np.intp)
    lines = np.repeat(start, times)
    lines[np.cumsum(times)[crossing] - 1] += 1
    if not len(lines):
        return lines, np.empty(0, dtype=np.bool_)
    changes = np.concatenate([[True], lines[1:] != lines[:-1]])
    return lines[changes], np.repeat(accesses.is_store, times)[changes]


def run_groups(groups: Iterable[Accesses], warm: int) -> Counter[str]:
    """Execute groups one after the other; count what misses caches in the last ones.

    Parameters
    ----------
    groups : iterable of Accesses
        The groups.
    warm : int
        How many of them only fill the caches.
    """
    caches = Caches()
    found: Counter[str] = Counter()
    for number, accesses in enumerate(groups):
        missed = caches.run(accesses)
        if number >= warm:
            found += missed
    return found
