"""Programs that read machine code: a disassembler, and LLVM's machine code analyzer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

OBJDUMP_ADVICE = (
    "install binutils ('apt-get install binutils') or LLVM, or name the program in the environment"
    " variable COUNTPERF_OBJDUMP"
)
ANALYZER_ADVICE = (
    "install LLVM 16 or newer ('apt-get install llvm-19'), or name its llvm-mca in the environment"
    " variable COUNTPERF_LLVM_MCA"
)
_OLDEST_ANALYZER = 16


def find_objdump() -> Path | None:
    """Find a disassembler."""
    return find_program("COUNTPERF_OBJDUMP", ("objdump", "llvm-objdump"), newest="llvm-objdump")


def find_analyzer() -> Path | None:
    """Find LLVM's machine code analyzer."""
    return find_program("COUNTPERF_LLVM_MCA", (), newest="llvm-mca", oldest=_OLDEST_ANALYZER)


def run_program(*command: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what it says as text, whatever its status is."""
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, errors="replace", **more
    )


def find_program(
    variable: str, names: tuple[str, ...], *, newest: str, oldest: int = -1
) -> Path | None:
    """Find a program."""
    named = os.environ.get(variable)
    if named:
        path = shutil.which(named)
        return None if path is None or -1 < _version(Path(path)) < oldest else Path(path)
    for name in names:
        if path := shutil.which(name):
            return Path(path)
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
