"""Counts that this process found before.

The key is the content of the kernel (Loopy's own persistent hash of the translation unit) and every
option of the counting. Errors are not remembered.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, cast

import loopy.symbolic
import loopy.tools
from loopy.tools import LoopyKeyBuilder

from countperf.properties.vector import PropertyVector

_MAXIMUM_IN_MEMORY = 512
_COUNTED_BETWEEN = 64
"""After so many counts is forgotten what Loopy keeps in memory, 160 kB for each kernel."""

_NOTHING = (None, False, {})
"""Values of options that state nothing."""

_memory: dict[str, PropertyVector] = {}
_memory_lock = threading.Lock()
_counted = itertools.count(1)


def remembered(
    t_unit: Any, options: Mapping[str, Any], count: Callable[[], PropertyVector]
) -> PropertyVector:
    """Return the counts of a kernel from memory, or count and remember them."""
    key = content_key(t_unit, options)
    if key is None:
        return counted_anew(count)
    with _memory_lock:
        vector = _memory.pop(key, None)
    if vector is None:
        vector = counted_anew(count)
    with _memory_lock:
        _memory[key] = vector  # the most recent one is the last
        if len(_memory) > _MAXIMUM_IN_MEMORY:
            del _memory[next(iter(_memory))]
    return vector


def counted_anew(count: Callable[[], PropertyVector]) -> PropertyVector:
    """Count, and have Loopy forget from time to time what it keeps of other kernels."""
    vector = count()
    if next(_counted) % _COUNTED_BETWEEN == 0:
        _forget_kernels_of_loopy()
    return vector


def _forget_kernels_of_loopy() -> None:
    """Clear Loopy's caches in memory, of 256 kernels and 64 MB of pages each or without a bound."""
    loopy.tools.clear_in_mem_caches()
    for cache in loopy.tools.caches:
        with suppress(AttributeError, sqlite3.Error):  # closed, or in use
            cast("Any", cache).conn.execute("PRAGMA shrink_memory")
    memoized = getattr(loopy.symbolic, "_get_dependencies_and_reduction_inames", None)
    getattr(getattr(memoized, "__wrapped__", None), "_memoize_dic", {}).clear()


def forget() -> None:
    """Forget what this process remembers."""
    with _memory_lock:
        _memory.clear()


def content_key(t_unit: Any, options: Mapping[str, Any]) -> str | None:
    """Return what identifies the counts of a kernel; None if something has no content hash."""
    build = _key_builder()
    entries = sorted(map(str, getattr(t_unit, "entrypoints", ())))
    if any(t_unit[name].overridden_get_grid_sizes_for_insn_ids for name in entries):
        return None  # a function, which Loopy leaves out of its hash
    try:
        stated = sorted((name, value) for name, value in options.items() if value not in _NOTHING)
        content = [build(t_unit), build(tuple(stated))]
    except TypeError:  # "unsupported type for persistent hash keying"
        return None
    return hashlib.sha256(json.dumps([*content, *entries]).encode()).hexdigest()


@lru_cache(maxsize=1)
def _key_builder() -> Callable[[Any], str]:
    class KeyBuilder(LoopyKeyBuilder):
        """Loopy's, exact fractions, which statistics may be, and fields of structured types.

        Loopy's own names all vectors and structures of one size alike, and warns of NaN, which
        statistics are refused for later.
        """

        def update_for_float(self, key_hash: Any, key: float) -> None:
            key_hash.update(repr(key).encode())

        def update_for_Fraction(self, key_hash: Any, key: Any) -> None:  # noqa: N802
            key_hash.update(repr(key).encode())

        def update_for_specific_dtype(self, key_hash: Any, key: Any) -> None:
            key_hash.update(repr(key).encode())

    return KeyBuilder()
