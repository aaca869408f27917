"""Caches on disk: where they are, and that one which cannot be used stops nothing.

Loopy and pyopencl raise when they are imported if the folder of their databases cannot be written
to or a file is damaged; PoCL does nothing without a cache.
"""

from __future__ import annotations

import atexit
import warnings
from contextlib import suppress
from os import environ
from pathlib import Path

from platformdirs import user_cache_path

from countperf.errors import CacheWarning

CACHE_HOME = "XDG_CACHE_HOME"
OBJECTS, POCL = "COUNTPERF_OBJECT_CACHE", "POCL_CACHE_DIR"
"""Environment variables: the folder of all caches, and those of single ones."""

OBJECT_FILES = "object files of kernels"
LOOPYS, POCLS = "code that Loopy generated", "kernels that PoCL compiled"
_CACHES = {
    OBJECT_FILES: ("countperf/objects", OBJECTS),
    LOOPYS: ("pytools", CACHE_HOME),
    POCLS: ("pocl", POCL),
}
"""Folder of each content among those of caches, and the variable that names another one."""

_told: set[str] = set()


def cache_folder(name: str, variable: str) -> Path:
    """Return the folder that an environment variable names, else one of the user's caches."""
    named = environ.get(variable) if variable != CACHE_HOME else None
    return Path(named) if named else user_cache_path() / name


def unwritable_caches() -> tuple[str, ...]:
    """Say which caches cannot be written, why, and which variable names another folder."""
    asked = (c for c, (_, variable) in _CACHES.items() if environ.get(variable) not in ("", "off"))
    return tuple(filter(None, map(_describe_problem, asked)))


def _describe_problem(content: str) -> str:
    name, variable = _CACHES[content]
    folder = cache_folder(name, variable)
    setting = variable if variable in environ else CACHE_HOME
    said = _why_not(folder)
    return said and (
        f"{content}: not kept in {folder} ({said}); to keep them, set {setting} to a folder that"
        " you may write to, with free space"
    )


def give_a_cache(content: str) -> None:
    """Have what cannot be without a cache use a temporary one if its own cannot be used."""
    if said := _describe_problem(content):
        from shutil import rmtree
        from tempfile import mkdtemp

        tell_not_kept(content, said)
        with suppress(OSError):
            environ[_CACHES[content][1]] = temporary = mkdtemp(prefix="countperf-cache-")
            atexit.register(rmtree, temporary, ignore_errors=True)


def _why_not(folder: Path) -> str:
    """Return why a folder cannot be written to; empty if it can."""
    from tempfile import TemporaryFile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder, buffering=0) as file:
            file.write(b"\0" * 4096)
        for database in folder.glob("*.sqlite"):
            with database.open("rb") as file:
                if file.read(15) not in (b"", b"SQLite format 3"):
                    return f"{database} is damaged: delete it"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def tell_not_kept(content: str, error: Exception | str) -> None:
    """Warn, once in a process, that something cannot be kept in a cache, or be read from it."""
    said = "; ".join(unwritable_caches()) or f"{content} cannot be used ({error}): name another"
    if said not in _told:
        _told.add(said)
        warnings.warn(said, CacheWarning, stacklevel=2)
