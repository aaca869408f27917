"""Object files of kernels, kept between processes by all that they are made from.

A process that compiles takes more than a second to start; what it makes depends on the generated
code, the shapes of groups, the runtime and the processor, and nothing else. The files lie in the
user's cache folder; ``COUNTPERF_OBJECT_CACHE`` names another one, or is ``off``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loopy.diagnostic import LoopyError

from countperf.caches import OBJECTS, cache_folder, tell_not_kept
from countperf.errors import CountperfError
from countperf.harness.compile.build import fewest_groups
from countperf.harness.compile.launches import HostCode
from countperf.harness.device import Device

VARIABLE = OBJECTS
"""Environment variable that names the folder, or is ``off``."""

MOST_ENTRIES = 2000
"""Kernels that are kept; beyond, the quarter that was not used for longest is removed."""

_CHECKSUM = "sha256"
_VERSION = "2"
_RUNTIME_SETTINGS = ("POCL_", "CL_", "OCL_", "CPU_")


def objects_folder() -> Path | None:
    """Return the folder of kept objects; None if nothing is kept."""
    return (
        None if os.environ.get(VARIABLE) == "off" else cache_folder("countperf/objects", VARIABLE)
    )


def key_of(unit: Any, parameters: Mapping[str, int], device: Device) -> str | None:
    """Return the name under which a kernel's objects are kept; None if they are not."""
    if objects_folder() is None:
        return None
    try:
        code = HostCode.of(unit)
        launches = code.launches(parameters)
    except (CountperfError, LoopyError, KeyError, TypeError, ValueError):
        return None
    parts = [
        *(_VERSION, device.identity.model_dump_json(), code.text, code.device_code),
        *(repr(unit.default_entrypoint.options.build_options),),
        *(
            repr((e.kernel, e.group_shape, fewest_groups(e.groups, e.group_shape)))
            for e in launches
        ),
        *(f"{n}={v}" for n, v in sorted(os.environ.items()) if n.startswith(_RUNTIME_SETTINGS)),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def kept(key: str | None) -> list[Path] | None:
    """Return the objects that are kept under a name; None if there are none, or not as written."""
    folder = objects_folder()
    if key is None or folder is None or not os.path.isdir(folder / key):  # noqa: PTH112 - raises nothing
        return None
    entry = folder / key
    with suppress(OSError):
        os.utime(entry)  # so that no other process removes what is being read
        paths = sorted(entry.glob("*/*"))
        if paths and (entry / _CHECKSUM).read_text() == _digest(paths):
            return paths
    _remove(entry)
    return None


def keep(key: str | None, paths: Sequence[Path]) -> None:
    """Copy objects into the cache; that a folder cannot be written to is told, no more."""
    folder = objects_folder()
    if key is None or folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
        try:
            for number, path in enumerate(paths):
                (made / str(number)).mkdir()
                shutil.copy(path, made / str(number) / path.name)
            (made / _CHECKSUM).write_text(_digest(sorted(made.glob("*/*"))))
            with suppress(OSError):  # another process was faster
                made.replace(folder / key)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        _remove_oldest(folder)
    except OSError as error:
        tell_not_kept(f"the cache of object files {folder}", error)


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _remove_oldest(folder: Path) -> None:
    entries = [entry for entry in folder.iterdir() if entry.is_dir()]
    if len(entries) > MOST_ENTRIES:
        entries.sort(key=lambda entry: entry.stat().st_mtime)
        for entry in entries[: len(entries) // 4]:
            _remove(entry)


def _remove(entry: Path) -> None:
    """Remove objects at once, so that nobody reads a part of them."""
    with suppress(OSError):
        removed = Path(tempfile.mkdtemp(prefix="old-", dir=entry.parent))
        with suppress(OSError):  # another process removes it
            entry.replace(removed)
        shutil.rmtree(removed, ignore_errors=True)
