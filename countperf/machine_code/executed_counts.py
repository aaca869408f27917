"""Counts of the instructions that a kernel's groups execute, by class.

The code that an OpenCL runtime compiled is read and followed (`execution`) for a group in the
middle, at given sizes; nothing runs. Counts are those of all groups, if all were like that one.

=======================  ==========================================================================
property                 instructions
=======================  ==========================================================================
``code.all``             all
``code.arithmetic_*``    additions, products, fused ones, comparisons, roundings; ``scalar`` or
                         ``vector``, as in the next three
``code.div_*``           divisions, and so on for ``sqrt`` and ``special``; with the type
``code.iop_*``           integer operations; ``code.idiv``: divisions
``code.load_*``          loads; ``scalar``, ``vector`` (of other than whole registers: by bits),
                         ``constant``; and ``code.store_*``
``code.spill_load_*``    of places on the stack, ``integer`` or ``vector``; ``code.spill_store_*``
``code.gather``          and ``code.gather_lanes``: elements of them; ``code.scatter`` likewise
``code.shuffle_lane``    permutations within 128 bits; ``code.shuffle_cross``: of all lanes
others                   ``insert``, ``extract``, ``broadcast``, ``convert``, ``mask``, ``move``,
                         ``branch``, ``call``, ``other``
``code.cycles``          cycles of a processor of reference (`throughput`); ``cycles_loop``, those
                         of innermost loops; ``cycles_throughput``, if nothing waited for results;
                         ``cycles_operations``, micro operations
``miss.conflict.load``   loads that come back too late for a first-level cache, since their lines
                         crowd a set; and ``miss.conflict.store``
=======================  ==========================================================================

Runtimes for CPUs run the items of a group one after the other between barriers, so that whatever
an item needs behind a barrier waits in arrays on the stack, which may be a power of two apart.
*Conflicting* accesses are those of a block, such as the body of a loop over items, that go to more
lines of a set than a cache has ways. If they come by in turns, as in a loop, of :math:`n` lines at
least a share of :math:`(n - w)/(n - 1)` is gone again, whatever is replaced (Belady, 1966, "A Study
of Replacement Algorithms for a Virtual-Storage Computer", IBM Systems Journal 5(2)): that share of
the accesses counts. Addresses are those of the first time that an instruction is executed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from countperf.execution.memory_hierarchy import DEFAULT_CACHES, LINE_BYTES, CacheSize
from countperf.machine_code.classify_x86 import classify
from countperf.machine_code.interpreter import Program
from countperf.machine_code.operands import widest

ROOT = "code"
"""First part of the names of these properties."""

CONFLICT = "miss.conflict"
"""First part of the names of properties of accesses that miss a first-level cache."""

CYCLES = f"{ROOT}.cycles"
"""Cycles on the processor of reference."""

_SIMPLE = ("add", "mul", "fma", "minmax", "compare", "round")
_CROSS = re.compile(r"v?p?erm(?!il)|vperm|valign|vshuf[fi]|vpmov|vinsert|vextract")
_WIDE_ELEMENTS = re.compile(r"(?:q|qps|qpd|dpd)$")


def missed(
    program: Program,
    executed: Mapping[int, int],
    accessed: Mapping[int, int],
    cache: CacheSize = DEFAULT_CACHES.code,
) -> Counter[str]:
    """Return what a group accesses that comes back too late for a first-level cache."""
    shares = set_conflicts((block for block, _ in program.straight(executed)), accessed, cache)
    found: Counter[str] = Counter()
    for number, share in shares.items():
        line = program.lines[number]
        for direction in _directions(line.mnemonic, line.operands):
            found[f"{CONFLICT}.{direction}"] += round(share * executed[number])
    return found


def set_conflicts(
    blocks: Iterable[Sequence[int]],
    accessed: Mapping[int, int],
    cache: CacheSize = DEFAULT_CACHES.code,
) -> dict[int, float]:
    """Return which share of the accesses misses, of instructions whose lines share a set."""
    shares: dict[int, float] = {}
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
                shares.update((number, share) for some in lines.values() for number in some)
    return shares


def _directions(mnemonic: str, operands: str) -> list[str]:
    """Return the directions of an instruction's accesses: ``load``, ``store`` or both."""
    kinds = (kind.removeprefix("spill.") for kind in classify(mnemonic, operands))
    return [kind.split(".")[0] for kind in kinds if kind.startswith(("load", "store"))]


@lru_cache(maxsize=2**15)
def properties_of(mnemonic: str, operands: str) -> tuple[tuple[str, int], ...]:
    """Return what executing an instruction counts as, by property name."""
    names: list[tuple[str, int]] = [("all", 1)]
    for kind in classify(mnemonic, operands):
        if kind in ("gather", "scatter"):
            bits = 64 if _WIDE_ELEMENTS.search(mnemonic) else 32
            names += [(kind, 1), (f"{kind}_lanes", 8 * widest(operands) // bits)]
        else:
            names.append((_named(kind, mnemonic), 1))
    return tuple((f"{ROOT}.{name}", number) for name, number in names)


def _named(kind: str, mnemonic: str) -> str:
    parts = kind.split(".")
    match parts[0]:
        case "flop":
            unit = "scalar" if parts[3] == "1" else "vector"
            name = "arithmetic" if parts[1] in _SIMPLE else f"{parts[1]}_{parts[2]}"
            return f"{name}_{unit}"
        case "load" | "store":
            unit = "scalar" if parts[1] == "integer" else parts[1]
            return f"{parts[0]}_{unit}"
        case "spill":
            return f"spill_{parts[1]}_{'integer' if parts[2] == 'integer' else 'vector'}"
        case "shuffle":
            return f"shuffle_{'cross' if _CROSS.match(mnemonic) else 'lane'}"
        case _:
            return "_".join(parts)
