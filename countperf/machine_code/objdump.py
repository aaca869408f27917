"""Programs that read machine code, and the disassembler: GNU's or LLVM's ``objdump``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from countperf.errors import DeviceError

INSTALL_ADVICE = (
    "install binutils ('apt-get install binutils') or LLVM, or name the program in the environment"
    " variable COUNTPERF_OBJDUMP"
)
_FORMAT = re.compile(r"file format (\S+)")
_MESSAGE_LIMIT = 800


def find_objdump() -> Path | None:
    """Find a disassembler."""
    return find_program("COUNTPERF_OBJDUMP", ("objdump", "llvm-objdump"), newest="llvm-objdump")


def disassemble(path: Path, what: str = "-d") -> str:
    """Write out the machine code of an x86-64 object."""
    text = _output(path, what, "--no-show-raw-insn")
    match = _FORMAT.search(text)
    name = match[1] if match else "unknown format"
    if name != "elf64-x86-64":
        raise DeviceError(
            f"{path.name} holds code of {name}; compiled code is read for elf64-x86-64 only: count"
            " the kernel instead (countperf count --view compiled)"
        )
    return text


def disassemble_function(path: Path, symbol: str) -> str:
    """Write out the machine code of one function of an object."""
    program = find_objdump()
    is_llvm = program is not None and program.name.startswith("llvm")
    return disassemble(path, f"--disassemble{'-symbols' * is_llvm}={symbol}")


def dump_sections(path: Path) -> str:
    """Write out the contents of all sections of an object, in hexadecimal digits."""
    return _output(path, "-s")


def _output(path: Path, *options: str) -> str:
    program = find_objdump()
    if program is None:
        raise DeviceError(f"no objdump found: {INSTALL_ADVICE}")
    result = subprocess.run(
        [str(program), *options, str(path)],
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    if result.returncode:
        said = (result.stderr or result.stdout).strip()[:_MESSAGE_LIMIT]
        raise DeviceError(f"{program} does not read {path.name}: {said}; {INSTALL_ADVICE}")
    return result.stdout


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
