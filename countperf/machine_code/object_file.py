"""Object files as programs that can be followed: instructions, functions, constants.

Functions that kernels call in libraries of their runtime are read from these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from countperf.errors import DeviceError
from countperf.machine_code.classify_x86 import HEADER, instruction_in
from countperf.machine_code.interpreter import Line, MachineProgram
from countperf.machine_code.tools import OBJDUMP_ADVICE, find_objdump, run_program

_FORMAT = re.compile(r"file format (\S+)")
_MESSAGE_LIMIT = 800


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


def _output(path: Path, *options: str) -> str:
    program = find_objdump()
    if program is None:
        raise DeviceError(f"no objdump found: {OBJDUMP_ADVICE}")
    result = run_program(program, *options, path)
    if result.returncode:
        said = (result.stderr or result.stdout).strip()[:_MESSAGE_LIMIT]
        raise DeviceError(f"{program} does not read {path.name}: {said}; {OBJDUMP_ADVICE}")
    return result.stdout


_RELOCATION = re.compile(r"^\s+[0-9a-f]+: R_X86_64_64\s+(\S+?)(?:\+0x([0-9a-f]+))?$")
_NEXT_TO_CODE = re.compile(r"-?0x[0-9a-f]+\(%rip\)")
_PLACE = re.compile(r"#\s*([0-9a-f]+) <")
_SECTION = re.compile(r"^Contents of section (\S+):$")
_BYTES = re.compile(r"^ ([0-9a-f]+) ((?:[0-9a-f]+ ){1,4})")
_CONSTANTS = (".rodata", ".lrodata", ".data")
_STUB = "@plt"
_SECTIONS_AT = 0x4000_0000_0000
_SYMBOLS_AT = 0x5000_0000_0000
_SYMBOLS_APART = 1 << 20
_FUNCTION = re.compile(r"__ocl_svml_([a-z]\d)_\w+")
"""Functions of Intel's short vector math library, and for which processors."""

_TARGET = re.compile(r"^(?:0x)?([0-9a-f]+)")
FindLibrary = Callable[[str], Path | None]
"""Function from the name of a shared library to its file, or None if there is none."""


def program_of(path: Path, find_library: FindLibrary) -> MachineProgram:
    """Read the code of an x86-64 object; sections of one that is not linked get places."""
    text = disassemble(path, "-dr")
    is_linked = "R_X86_64" not in text
    places: dict[str, int] = {}
    symbols: dict[str, int] = {}
    constants: dict[int, bytes] = {}
    for number, (name, (start, rows)) in enumerate(_sections(_output(path, "-s")).items()):
        if name.startswith(_CONSTANTS):
            places[name] = start if is_linked else _SECTIONS_AT + (number << 32)
            constants[places[name]] = b"".join(rows)
    entries: dict[str, int] = {}
    lines: list[Line] = []
    for text_line in text.splitlines():
        if header := HEADER.match(text_line):
            entries[header[2]] = int(header[1], 16)
        elif relocation := _RELOCATION.match(text_line):
            name = relocation[1]
            if name not in places:
                places[name] = symbols[name] = _SYMBOLS_AT + len(symbols) * _SYMBOLS_APART
            # the address of a section or symbol, in the instruction that refers to it
            address, last = places[name] + int(relocation[2] or "0", 16), lines[-1]
            operands = re.sub(r"^\$0x0\b", f"${address:#x}", last.operands)
            lines[-1] = last._replace(operands=operands)
        elif instruction := instruction_in(_absolute(text_line)):
            lines.append(Line(*instruction))
    lines = _link_stubs(lines, entries)
    for name, function in functions_of(symbols, find_library).items():
        entries[name] = symbols[name]
        lines += function
    return MachineProgram(lines, entries, constants)


def functions_of(
    symbols: Mapping[str, int], find_library: FindLibrary
) -> dict[str, tuple[Line, ...]]:
    """Return the code of the functions that are found, moved to the addresses of their symbols."""
    functions: dict[str, tuple[Line, ...]] = {}
    for symbol, address in symbols.items():
        if named := _FUNCTION.fullmatch(symbol):
            path = find_library(f"libocl_svml_{named[1]}.so")
            if path is not None and (lines := _function(symbol, path)):
                by = address - lines[0].address
                functions[symbol] = tuple(_move_line(line, by) for line in lines)
    return functions


@lru_cache(maxsize=256)
def _function(symbol: str, path: Path) -> tuple[Line, ...]:
    lines: list[Line] = []
    is_inside, program = False, find_objdump()
    is_llvm = program is not None and program.name.startswith("llvm")
    text = disassemble(path, f"--disassemble{'-symbols' * is_llvm}={symbol}")
    for text_line in text.splitlines():
        if header := HEADER.match(text_line):
            is_inside = header[2] == symbol
        elif is_inside and (instruction := instruction_in(text_line)):
            lines.append(Line(*instruction))
    return tuple(lines)


def _move_line(line: Line, by: int) -> Line:
    """Give a line another address, and a branch the target that goes with it."""
    operands = line.operands
    if line.mnemonic[0] == "j" or line.mnemonic.startswith("call"):
        operands = _TARGET.sub(lambda t: f"{int(t[1], 16) + by:x}", operands)
    return Line(line.address + by, line.mnemonic, operands)


def _link_stubs(lines: Sequence[Line], entries: Mapping[str, int]) -> list[Line]:
    """Have stubs of the linker, ``f@plt``, jump to functions of the same object."""
    targets = {
        address: entries[name.removesuffix(_STUB)]
        for name, address in entries.items()
        if name.endswith(_STUB) and name.removesuffix(_STUB) in entries
    }
    linked = [*lines]
    target: int | None = None
    for number, line in enumerate(lines):
        target = targets.get(line.address, target)
        if target is not None and line.mnemonic == "jmp":
            linked[number], target = line._replace(operands=f"{target:x}"), None
    return linked


def _absolute(line: str) -> str:
    """Give an operand next to the code its address, which the disassembler says behind it."""
    place = _PLACE.search(line)
    return _NEXT_TO_CODE.sub(f"0x{place[1]}()", line.partition("#")[0]).rstrip() if place else line


def _sections(text: str) -> dict[str, tuple[int, list[bytes]]]:
    """Read what ``objdump -s`` writes: the start of each section, and rows of its content."""
    sections: dict[str, tuple[int, list[bytes]]] = {}
    name = ""
    for line in text.splitlines():
        if section := _SECTION.match(line):
            name = section[1]
        elif row := _BYTES.match(line):
            _, rows = sections.setdefault(name, (int(row[1], 16), []))
            rows.append(bytes.fromhex(row[2].replace(" ", "")))
    return sections


def entry_of(program: MachineProgram, kernel: str, group_shape: Sequence[int]) -> str:
    """Return the function that runs a group of a kernel.

    Of Intel's runtime that is a version in vectors, if there is one and rows are multiples of them;
    of PoCL's objects there is one for each shape of groups.
    """
    pocl = f"_pocl_kernel_{kernel}_workgroup"
    if pocl in program.entries:
        return pocl
    vector = re.compile(rf"_ZGV[a-z][NM](\d+)[a-z]*_{re.escape(kernel)}")
    named = (match for name in program.entries if (match := vector.fullmatch(name)))
    return next((match[0] for match in named if not group_shape[0] % int(match[1])), kernel)
