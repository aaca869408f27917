"""Caches of a GPU, simulated: LRU with hashed sets, groups in launch order, resident ones in step.

GPUs hash addresses to sets: Nugteren, van den Braak, Corporaal & Bal 2014, "A detailed GPU cache
model based on reuse distance theory", doi:10.1109/HPCA.2014.6835955.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

SECTOR = 32
Access = tuple[str, Iterable[int]]  # "load" or "store", addresses of a sub-group in bytes
Steps = Callable[[int], Iterator[Iterable[Access]]]  # of a group: what it does step by step


class Cache:
    """A cache of sectors."""

    def __init__(self, size: int, ways: int = 16) -> None:
        self.sets = [OrderedDict[int, bool]() for _ in range(size // SECTOR // ways)]
        self.ways, self.written = ways, 0

    def touch(self, sector: int, *, stores: bool) -> bool:
        """Return whether a sector is there; it is afterwards."""
        mixed = (sector * 0x9E3779B97F4A7C15) & (2**64 - 1)
        lines = self.sets[(mixed >> 32) % len(self.sets)]
        is_there = sector in lines
        is_dirty = lines.pop(sector, False) or stores
        if len(lines) == self.ways:
            self.written += lines.popitem(last=False)[1]
        lines[sector] = is_dirty
        return is_there

    def flush(self) -> int:
        """Return how many sectors were written back in all."""
        return self.written + sum(sum(lines.values()) for lines in self.sets)


def simulate(
    steps: Steps, groups: int, *, units: int, resident: int, l1: int, l2: int
) -> dict[str, int]:
    """Return the bytes that sub-groups ask for, that reach L2, and that reach memory."""
    first, second = [Cache(l1) for _ in range(units)] if l1 else [], Cache(l2)
    sectors = dict.fromkeys(("asked", "l2", "memory"), 0)
    for start in range(0, groups, units * resident):
        wave = range(start, min(start + units * resident, groups))
        running = [(number % units, steps(number)) for number in wave]
        while running:
            going = []
            for unit, group in running:
                if (now := next(group, None)) is None:
                    continue
                going.append((unit, group))
                for direction, addresses in now:
                    for sector in {address // SECTOR for address in addresses}:
                        sectors["asked"] += 1
                        stores = direction == "store"
                        if l1 and not stores and first[unit].touch(sector, stores=False):
                            continue
                        sectors["l2"] += 1
                        if not second.touch(sector, stores=stores) and not stores:
                            sectors["memory"] += 1
            running = going
    sectors["memory"] += second.flush()
    return {name: SECTOR * number for name, number in sectors.items()}
