"""Cache-set conflicts: accesses of a group that miss a first-level cache because lines share a set.

Runtimes for CPUs run the items of a group one after the other between barriers, so that whatever
an item has before a barrier and needs behind it (results, intermediate vectors, even addresses)
waits in arrays on the stack, an element per item each. The larger the group, the farther apart they
are:

1. *Conflicting* accesses are those of a block, such as the body of a loop over items, that go to
   more lines of a set than a cache has ways. If they come by in turns, as in a loop, of :math:`n`
   lines at least a share of :math:`(n - w)/(n - 1)` is gone again, whatever is replaced: that share
   of the accesses counts.
2. *Spilled* bytes are those accessed on the stack by instructions that go along it (spills of
   single values, which stay where they are, do not); the share of them that is *beyond* a cache is
   that of the stack in use.

Addresses are those of the first time that an instruction is executed. The cache is the nearest one
of the device that a kernel is counted for; where none is named, that of
`countperf.execution.memory_hierarchy.COMPILED`.

Source of the best that a replacement can do: Belady (1966), "A Study of Replacement Algorithms for
a Virtual-Storage Computer", IBM Systems Journal 5(2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from countperf.execution.memory_hierarchy import DEFAULT_CACHES, LINE_BYTES, CacheSize
from countperf.machine_code.classify_x86 import classify
from countperf.machine_code.machine_state import REGISTERS
from countperf.machine_code.operands import operands_of

_LARGEST_STACK = 1 << 30
_ADDRESS_BYTES, _WORD_BYTES = 8, 4


def set_conflicts(
    blocks: Iterable[Sequence[int]],
    accessed: Mapping[int, int],
    cache: CacheSize = DEFAULT_CACHES.code,
) -> dict[int, float]:
    """Return which share of the accesses misses, of instructions whose lines share a set."""
    found: dict[int, float] = {}
    for block in blocks:
        by_set: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list[int])
        )
        for number in block:
            if number in accessed:
                line = accessed[number] // LINE_BYTES
                by_set[line % cache.sets][line].append(number)
        for lines in by_set.values():
            if len(lines) > cache.ways:
                share = (len(lines) - cache.ways) / (len(lines) - 1)
                found.update((number, share) for some in lines.values() for number in some)
    return found


def beyond_cache(
    accessed: Mapping[int, int], top: int, cache: CacheSize = DEFAULT_CACHES.code
) -> float:
    """Return the share of the stack in use that is beyond a first-level cache."""
    lowest = min((at for at in accessed.values() if is_on_stack(at, top)), default=top)
    return max(0.0, 1 - cache.size_bytes / max(1, top - lowest))


def is_on_stack(address: int, top: int) -> bool:
    """Return whether an address is on a stack that begins at `top`."""
    return top - _LARGEST_STACK < address <= top


def directions_of(mnemonic: str, operands: str) -> tuple[tuple[str, int, bool], ...]:
    """Return the accesses of an instruction: ``load`` or ``store``, bytes, no spill."""
    directions: list[tuple[str, int, bool]] = []
    for kind in classify(mnemonic, operands):
        names = kind.split(".")
        is_spill = names[0] == "spill"
        names = names[is_spill:]
        if names[0] in ("load", "store"):
            size = int(names[-1]) // 8 if names[-1].isdigit() else _bytes_of(mnemonic, operands)
            directions.append((names[0], size, not is_spill))
    return tuple(directions)


def _bytes_of(mnemonic: str, operands: str) -> int:
    """Return the bytes that an instruction with integer registers accesses, of whole words."""
    widths = [REGISTERS[each].bits for each in operands_of(operands) if each in REGISTERS]
    is_wide = 64 in widths or (not widths and mnemonic.endswith("q"))
    return _ADDRESS_BYTES if is_wide else _WORD_BYTES
