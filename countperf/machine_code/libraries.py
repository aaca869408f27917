"""Functions that compiled kernels call in libraries of their runtime: their machine code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from countperf.machine_code.blocks import Line
from countperf.machine_code.classify_x86 import HEADER, instruction_in
from countperf.machine_code.objdump import disassemble_function

_FUNCTION = re.compile(r"__ocl_svml_([a-z]\d)_\w+")
"""Functions of Intel's short vector math library, and for which processors."""
_TARGET = re.compile(r"^(?:0x)?([0-9a-f]+)")


FindLibrary = Callable[[str], Path | None]
"""Function from the name of a shared library to its file, or None if there is none."""


def functions_of(
    symbols: Iterable[str], start: int, apart: int, find_library: FindLibrary
) -> dict[str, tuple[Line, ...]]:
    """Return the code of the functions that are found, each at an address of its own."""
    functions: dict[str, tuple[Line, ...]] = {}
    for number, symbol in enumerate(symbols):
        if named := _FUNCTION.fullmatch(symbol):
            path = find_library(f"libocl_svml_{named[1]}.so")
            if path is not None and (lines := _function(symbol, path)):
                functions[symbol] = _moved(lines, start + number * apart - lines[0].address)
    return functions


@lru_cache(maxsize=256)
def _function(symbol: str, path: Path) -> tuple[Line, ...]:
    lines: list[Line] = []
    is_inside = False
    for text_line in disassemble_function(path, symbol).splitlines():
        if header := HEADER.match(text_line):
            is_inside = header[2] == symbol
        elif is_inside and (found := instruction_in(text_line)):
            lines.append(Line(*found))
    return tuple(lines)


def _moved(lines: Iterable[Line], by: int) -> tuple[Line, ...]:
    """Give lines other addresses, and branches the targets that go with them."""
    moved: list[Line] = []
    for line in lines:
        operands = line.operands
        if line.mnemonic[0] == "j" or line.mnemonic.startswith("call"):
            operands = _TARGET.sub(lambda t: f"{int(t[1], 16) + by:x}", operands)
        moved.append(Line(line.address + by, line.mnemonic, operands))
    return tuple(moved)
