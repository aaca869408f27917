"""Counts that were found before, by this process or by another one.

The key is the content of the kernel (Loopy's own persistent hash of the translation unit), every
option of the counting, and everything that decides what a count is: the versions of Loopy,
pymbolic, islpy and countperf, the counting rules, and the source files of the counter. So an entry
of another version is never found, and nothing has to be invalidated.

Entries are documents of property vectors in a SQLite database. They are data, not pickles: reading
one runs no code. Each carries a checksum over its key and its text; what does not match, does not
parse or cannot be read is counted again. Errors are not remembered.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import loopy.symbolic
import loopy.tools
import loopy.version
import pymbolic.version
from loopy.tools import LoopyKeyBuilder

from countperf.caches import COUNTS, cache_folder, tell_not_kept
from countperf.documents import parse_json
from countperf.errors import DocumentError
from countperf.properties.taxonomy import COUNTING_RULES_VERSION
from countperf.properties.vector import PropertyVector
from countperf.properties.vector_document import VERSION
from countperf.symbolic.memory import forget_counts
from countperf.version import __version__

_FILE = "counts.sqlite3"
_MAXIMUM_ENTRIES = 20_000
_MAXIMUM_IN_MEMORY = 512
_COUNTED_BETWEEN = 64
"""After so many counts is forgotten what counting keeps in the process, and what Loopy keeps in
memory, with its kernels 160 kB for each of them."""

_READ_PATIENCE_S = 0.1
_WRITE_PATIENCE_S = 1.0

_NOTHING = (None, False, {})
"""Values of options that state nothing."""

_memory: dict[tuple[Path, str], PropertyVector] = {}
_memory_lock = threading.Lock()
_counted = itertools.count(1)


def remembered(
    t_unit: Any,
    options: Mapping[str, Any],
    count: Callable[[], PropertyVector],
    cache: bool | str | os.PathLike[str],
) -> PropertyVector:
    """Return the counts of a kernel from the cache, or count and remember them."""
    folder = directory(cache)
    key = None if folder is None else content_key(t_unit, options)
    if folder is None or key is None:
        return _counted_anew(count)
    place = (folder, key)
    with _memory_lock:
        found = _memory.pop(place, None)
    if found is None:
        found = _fetch(folder / _FILE, key)
    if found is None:
        found = _counted_anew(count)
        _store(folder / _FILE, key, found)
    with _memory_lock:
        _memory[place] = found  # the most recent one is the last
        if len(_memory) > _MAXIMUM_IN_MEMORY:
            del _memory[next(iter(_memory))]
    return found


def _counted_anew(count: Callable[[], PropertyVector]) -> PropertyVector:
    found = count()
    if next(_counted) % _COUNTED_BETWEEN == 0:
        _forget_kernels_of_loopy()
        forget_counts()
    return found


def _forget_kernels_of_loopy() -> None:
    """Clear Loopy's caches in memory, of 256 kernels and 64 MB of pages each or without a bound."""
    loopy.tools.clear_in_mem_caches()
    for each in loopy.tools.caches:
        with suppress(AttributeError, sqlite3.Error):  # closed, or in use
            cast("Any", each).conn.execute("PRAGMA shrink_memory")
    memoized = getattr(loopy.symbolic, "_get_dependencies_and_reduction_inames", None)
    getattr(getattr(memoized, "__wrapped__", None), "_memoize_dic", {}).clear()


def directory(cache: bool | str | os.PathLike[str]) -> Path | None:
    """Return the folder of the cache; None if it is switched off."""
    if cache is False:
        return None
    if cache is not True:
        return Path(cache)
    if os.environ.get(COUNTS) == "":
        return None
    return cache_folder("countperf", COUNTS)


def forget() -> None:
    """Forget what this process remembers; entries on disk stay."""
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
    return hashlib.sha256(json.dumps([*content, *entries, *_versions()]).encode()).hexdigest()


@lru_cache(maxsize=1)
def _key_builder() -> Callable[[Any], str]:
    class KeyBuilder(LoopyKeyBuilder):
        """Loopy's, exact fractions, which statistics may be, and fields of structured types.

        Loopy's own names all vectors and structures of one size alike.
        """

        def update_for_Fraction(self, key_hash: Any, key: Any) -> None:  # noqa: N802
            key_hash.update(repr(key).encode())

        def update_for_specific_dtype(self, key_hash: Any, key: Any) -> None:
            key_hash.update(repr(key).encode())

    return KeyBuilder()


@lru_cache(maxsize=1)
def _versions() -> tuple[Any, ...]:
    return (
        VERSION,
        COUNTING_RULES_VERSION,
        __version__,
        _sources(),
        loopy.version.VERSION_TEXT,
        pymbolic.version.VERSION_TEXT,
        metadata.version("islpy"),
    )


def _sources() -> str:
    """Digest name, size and time of the counter's source files, as Python's own cache does."""
    root = Path(__file__).parents[1]
    files = (
        f
        for part in ("counting", "execution", "symbolic", "properties")
        for f in root.glob(f"{part}/*.py")
    )
    facts = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(files)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


# --- disk


def _checksum(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()


def _fetch(path: Path, key: str) -> PropertyVector | None:
    """Return an entry, if there is one and it is whole."""
    if not os.path.exists(path):  # noqa: PTH110 - which `Path.exists` raises for some folders
        return None
    try:
        with closing(sqlite3.connect(path, timeout=_READ_PATIENCE_S)) as connection:
            row = connection.execute(
                "SELECT checksum, document FROM counts WHERE key = ?", (key,)
            ).fetchone()
    except sqlite3.OperationalError:  # locked, unreadable, or no table yet
        return None
    except sqlite3.DatabaseError as error:
        tell_not_kept(f"the cache of counts {path}", error)
        return None
    if row is None or row[0] != _checksum(key, str(row[1])):
        return None
    try:
        return PropertyVector.from_document(parse_json(str(row[1])))
    except DocumentError:
        return None


def _store(path: Path, key: str, vector: PropertyVector) -> None:
    """Write an entry; that a folder cannot be written to is told, and stops nothing."""
    text = json.dumps(vector.to_document())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=_WRITE_PATIENCE_S)) as connection, connection:
            # an entry that a crash of the system damages is found by its checksum
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS counts "
                "(key TEXT PRIMARY KEY, checksum TEXT NOT NULL, document TEXT NOT NULL)"
            )
            cursor = connection.execute(
                "INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", (key, _checksum(key, text), text)
            )
            connection.execute(
                "DELETE FROM counts WHERE rowid <= ?", ((cursor.lastrowid or 0) - _MAXIMUM_ENTRIES,)
            )
    except (OSError, sqlite3.DatabaseError) as error:
        if "locked" not in str(error):  # by others, for long
            tell_not_kept(f"the cache of counts {path}", error)
