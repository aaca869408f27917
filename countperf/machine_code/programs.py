"""Programs that read machine code: named in the environment, or the newest on the path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path


def find_program(
    variable: str, names: tuple[str, ...], *, newest: str, oldest: int = -1
) -> Path | None:
    """Find a program."""
    named = os.environ.get(variable)
    if named:
        found = shutil.which(named)
        return None if found is None or -1 < _version(Path(found)) < oldest else Path(found)
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    there = [
        path for folder in folders for path in (*folder.glob(newest), *folder.glob(f"{newest}-*"))
    ]
    best = max(there, key=_version, default=None)
    return best if best is not None and _version(best) >= oldest else None


@lru_cache(maxsize=64)
def _version(path: Path) -> int:
    number = path.resolve().name.rpartition("-")[2]
    number = number if number.isdigit() else path.name.rpartition("-")[2]
    if number.isdigit():
        return int(number)
    said = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True)
    version = re.search(r"LLVM version (\d+)", said.stdout.decode())
    return int(version[1]) if version else -1
