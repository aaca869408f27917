"""Shared objects as programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from countperf.machine_code.machine_state import REGISTERS, Machine
from countperf.machine_code.object_file import find_objdump, program_of

SOURCE = """
int leaf(int count) { int k; for (k = 0; k < count; k++) __asm__ volatile("bswap %eax"); return k; }
int group(int count) { return leaf(2 * count) + 1; }
"""


@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
@pytest.mark.parametrize("protection", ["none", "branch"])
def test_stubs_lead_to_functions_of_the_same_object(tmp_path: Path, protection: str) -> None:
    source, library = tmp_path / "code.c", tmp_path / "code.so"
    source.write_text(SOURCE)
    flags = ["-O1", "-shared", "-fPIC", "-fno-inline", "-fsemantic-interposition"]
    command = ["cc", *flags, f"-fcf-protection={protection}", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    program = program_of(library, lambda _: None)
    assert "leaf@plt" in program.entries
    machine = Machine()
    machine.registers[REGISTERS["%rdi"].number] = 21
    executed = program.executed("group", machine)
    swaps = [n for n, line in enumerate(program.lines) if line.mnemonic == "bswap"]
    assert [executed[n] for n in swaps] == [42]
