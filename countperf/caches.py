"""Caches on disk: where they are, and that one which cannot be used stops nothing.

Loopy and pyopencl keep generated code in databases of `pytools.persistent_dict`, which raise when
they are imported if the folder cannot be written to, and later if the disk is full or a file is
damaged. `guard_persistent_dicts` has those databases find nothing and keep nothing instead.
"""

from __future__ import annotations

import atexit
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from os import environ
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from countperf.errors import CacheWarning

CACHE_HOME = "XDG_CACHE_HOME"
OBJECTS, POCL = "COUNTPERF_OBJECT_CACHE", "POCL_CACHE_DIR"
"""Environment variables: the folder of all caches, and those of single ones."""

_CACHES = {
    "object files of kernels": ("countperf/objects", OBJECTS),
    "code that Loopy generated": ("pytools", CACHE_HOME),
    "kernels that PoCL compiled": ("pocl", POCL),
}
"""What is kept: its folder among those of caches, and the variable that names another one."""

_DICTS = "pytools.persistent_dict"
_told: set[tuple[str, ...]] = set()


def cache_folder(name: str, variable: str) -> Path:
    """Return the folder that an environment variable names, else one of the user's caches."""
    named = environ.get(variable) if variable != CACHE_HOME else None
    return Path(named) if named else user_cache_path() / name


def unwritable_caches() -> tuple[str, ...]:
    """Say which caches cannot be written, why, and which variable names another folder."""
    found: dict[tuple[Path, str, str], list[str]] = {}
    for content, (name, variable) in _CACHES.items():
        if (named := environ.get(variable)) in ("", "off"):
            continue
        folder = cache_folder(name, variable)
        if said := _why_not(folder):
            is_named = named is not None and variable != CACHE_HOME
            place = folder if is_named else cache_folder("", CACHE_HOME)
            found.setdefault((place, said, variable if is_named else CACHE_HOME), []).append(
                content
            )
    return tuple(
        f"{', '.join(contents)}: not kept in {place} ({said}); to keep them, set {setting} to a"
        " folder that you may write to, with free space"
        for (place, said, setting), contents in found.items()
    )


def give_pocl_a_cache() -> None:
    """Have PoCL, which does nothing without a cache, use a temporary one if its own cannot be."""
    if _why_not(cache_folder("pocl", POCL)):
        from shutil import rmtree
        from tempfile import mkdtemp

        tell_not_kept(f"the cache of PoCL {cache_folder('pocl', POCL)}", None)
        with suppress(OSError):
            environ[POCL] = folder = mkdtemp(prefix="countperf-pocl-")
            atexit.register(rmtree, folder, ignore_errors=True)


def _why_not(folder: Path) -> str:
    """Return why a folder cannot be written to; empty if it can."""
    from tempfile import TemporaryFile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder, buffering=0) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def tell_not_kept(content: str, error: Exception | None) -> None:
    """Warn, once in a process, that something cannot be kept in a cache, or be read from it."""
    other = f"{content} cannot be used ({error}): delete what is damaged there, or name another"
    said = unwritable_caches() or (other,)
    if said in _told:
        return
    _told.add(said)
    warnings.warn("; ".join(said), CacheWarning, stacklevel=2)


def guard_persistent_dicts() -> None:
    """Have the databases that Loopy makes when it is imported raise nothing."""
    if _DICTS not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the module of the databases once, and replaces a class in it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _DICTS:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec: Any = next((spec for spec in found if spec is not None), None)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_guard(module: Any) -> None:
                execute(module)
                module.WriteOncePersistentDict = _guarded(module)

            spec.loader.exec_module = execute_and_guard
        return spec


def _guarded(module: Any) -> Any:
    base = module.WriteOncePersistentDict
    broken = (
        *(OSError, EOFError, ImportError, UnicodeError),
        *(module.sqlite3.Error, module.pickle.UnpicklingError),
    )

    class WriteOncePersistentDict(base):
        """One that finds nothing and keeps nothing where its file cannot be used."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._is_open = False
            with suppress(KeyError):
                self._try(super().__init__, *arguments, **options)
                self._is_open = hasattr(self, "_fetch")

        def __del__(self) -> None:
            if hasattr(self, "mutex"):
                super().__del__()

        def fetch(self, key: Any) -> Any:
            if not self._is_open:
                raise module.NoSuchEntryError(key)
            return self._try(super().fetch, key)

        def store(self, *arguments: Any, **options: Any) -> None:
            if self._is_open:
                with suppress(module.NoSuchEntryError):
                    self._try(super().store, *arguments, **options)

        def _try(self, do: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            try:
                return do(*arguments, **options)
            except broken as error:
                tell_not_kept(f"the cache of generated code {self.container_dir}", error)
                raise module.NoSuchEntryError(arguments[0]) from error

    return WriteOncePersistentDict
