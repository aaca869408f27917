"""Counts that rest on assumptions about compilers and caches, and are no facts of the program.

The structure view sorts executions by where a compiler is assumed to put them and by which cache is
assumed to serve them. How many there are in all is exact; how they are sorted is not, and is never
called so.
"""

from __future__ import annotations

from collections.abc import Iterator

from countperf.execution.keys import (
    AccessKey,
    ByData,
    ExecutionKey,
    GroupBytesKey,
    GroupSegmentsKey,
    GuardedAccessKey,
    KernelBytesKey,
    LiveValuesKey,
    Step,
    ToOtherLines,
)
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.properties.site_names import parse_execution

_MISSES = ("miss.", "spill.")


def assumption_of(name: str, caches: CountedCaches | None = None) -> str:
    """Return what a property takes for granted; empty for facts of the program."""
    caches = caches or DEFAULT_CACHES
    if name.startswith(_MISSES):
        return f"assumes a first-level cache of {caches.code.text}"
    key = parse_execution(name)
    return "" if key is None else "; ".join(_assumptions(key, caches))


def _assumptions(key: ExecutionKey, caches: CountedCaches) -> Iterator[str]:
    if isinstance(key, GroupBytesKey | GroupSegmentsKey | KernelBytesKey):
        return
    if key.site.placement == "short":
        yield "assumes which loops a compiler unrolls"
    if isinstance(key, LiveValuesKey):
        yield "assumes what a compiler keeps over barriers"
    if isinstance(key, AccessKey | GuardedAccessKey) and any(map(_names_cache, _steps(key))):
        yield f"assumes caches of {caches.text}"


def _steps(key: AccessKey | GuardedAccessKey) -> Iterator[Step | None]:
    yield key.between_items.along_row
    yield key.between_items.across_rows
    if isinstance(key, AccessKey):
        yield key.in_loop


def _names_cache(step: Step | None) -> bool:
    match step:
        case ToOtherLines(level, grade):
            return level != "l1" or grade > 0
        case ByData(level):
            return level != "l1"
        case _:
            return False
