"""Rules of integer instructions, against the processor that executes them."""

from __future__ import annotations

import platform
import random
import shutil
import subprocess
from collections.abc import Callable

import pytest

from countperf.machine_code.conditions import condition_of
from countperf.machine_code.machine_state import REGISTERS, Machine
from tests.machine_code.machines import run, value

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("cc") is None,
    reason="needs an x86-64 processor and a C compiler (cc)",
)

NAMES = ("rax", "rbx", "rcx", "rdx")
ALL = "besol"
CASES: dict[str, str] = {
    # instruction: the conditions that it leaves defined
    "add %rbx,%rax": ALL,
    "sub %ebx,%eax": ALL,
    "adc %rbx,%rax": ALL,
    "adc %ebx,%eax": ALL,
    "sbb %rbx,%rax": ALL,
    "sbb %eax,%eax": ALL,
    "sbb $0x5,%rax": ALL,
    "neg %rax": ALL,
    "cmp %bl,%al": ALL,
    "test %ebx,%eax": ALL,
    "mul %rbx": "bo",
    "mul %ebx": "bo",
    "imul %rbx": "bo",
    "imul %ebx": "bo",
    "imul %ebx,%eax": "bo",
    "imul $0x7,%rbx,%rax": "bo",
    "mulx %rbx,%rcx,%rax": "",
    "shl $0x1,%rax": ALL,
    "shl $0x3,%eax": "bes",
    "shl %cl,%eax": "es",
    "shr $0x1,%eax": ALL,
    "shr $0x5,%rax": "bes",
    "shr %cl,%rax": "es",
    "sar $0x1,%rax": ALL,
    "sar $0x9,%eax": "bes",
    "sar %cl,%eax": "es",
    "rol $0x3,%eax": "",
    "ror %cl,%rax": "",
    "shld $0x9,%rbx,%rax": "bes",
    "shrd $0x9,%ebx,%eax": "bes",
    "shld %cl,%ebx,%eax": "es",
    "shrd %cl,%rbx,%rax": "es",
    "bsf %rbx,%rax": "e",
    "bsr %ebx,%eax": "e",
    "bts %rbx,%rax": "b",
    "btr $0x5,%eax": "b",
    "btc %ebx,%eax": "b",
    "bt %rbx,%rax": "b",
    "bswap %rax": "",
    "bswap %eax": "",
    "xchg %rbx,%rax": "",
    "xchg %bl,%al": "",
    "xadd %ebx,%eax": ALL,
    "cwtl": "",
    "cbtw": "",
    "cltq": "",
    "cltd": "",
    "cqto": "",
    "movsbl %bl,%eax": "",
    "movzwl %bx,%eax": "",
    "movslq %ebx,%rax": "",
    "lea 0x11(%rbx,%rcx,4),%rax": "",
    "seto %al": "",
    "setb %bl": "",
    "cmovb %rbx,%rax": "",
    "cmovs %ebx,%eax": "",
    "tzcnt %rbx,%rax": "be",
    "lzcnt %ebx,%eax": "be",
    "popcnt %rbx,%rax": "e",
    "blsr %rbx,%rax": "es",
    "blsi %ebx,%eax": "bes",
    "blsmsk %rbx,%rax": "bso",
    "bextr %rcx,%rbx,%rax": "beo",
    "bzhi %rcx,%rbx,%rax": "es",
    "pext %rcx,%rbx,%rax": "",
    "pdep %ecx,%ebx,%eax": "",
    "andn %rcx,%rbx,%rax": "beso",
    "rorx $0x7,%rbx,%rax": "",
    "shlx %rcx,%rbx,%rax": "",
    "sarx %ecx,%ebx,%eax": "",
}
_VALUES = (0, 1, 2, 5, 0x7F, 0x80, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 63, 2**64 - 1)
_FLAGS: dict[str, Callable[[int], bool]] = {
    "b": lambda flags: bool(flags & 1),
    "e": lambda flags: bool(flags >> 6 & 1),
    "s": lambda flags: bool(flags >> 7 & 1),
    "o": lambda flags: bool(flags >> 11 & 1),
    "l": lambda flags: bool(flags >> 7 & 1) != bool(flags >> 11 & 1),
}
"""Conditions, from the register of flags."""

_PROGRAM = """
#include <stdio.h>
#include <string.h>
typedef unsigned long word;
int main(void)
{
    int which;
    word in[6], out[5];
    while (scanf("%d %lu %lu %lu %lu %lu %lu", &which, in, in + 1, in + 2, in + 3, in + 4, in + 5)
           == 7) {
        switch (which) {
@CASES@
        }
        printf("%lu %lu %lu %lu %lu\\n", out[0], out[1], out[2], out[3], out[4]);
    }
}
"""
_CASE = """        case {number}:
            __asm__ volatile("mov 32(%0),%%rax\\n cmp 40(%0),%%rax\\n mov 0(%0),%%rax\\n"
                "mov 8(%0),%%rbx\\n mov 16(%0),%%rcx\\n mov 24(%0),%%rdx\\n"
                "{code}\\n"
                "mov %%rax,0(%1)\\n mov %%rbx,8(%1)\\n mov %%rcx,16(%1)\\n mov %%rdx,24(%1)\\n"
                "pushfq\\n pop 32(%1)"
                : : "r"(in), "r"(out) : "rax", "rbx", "rcx", "rdx", "memory", "cc");
            break;"""


def followed(code: str, given: list[int]) -> Machine:
    """Compare two numbers, then follow an instruction with values in registers."""
    machine = Machine()
    for name, number in zip(NAMES, given, strict=False):
        machine.registers[REGISTERS[f"%{name}"].number] = number
    machine.registers[8:10] = given[4:]
    return run(f"cmp %r9,%r8\n{code}", machine)


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[tuple[list[int], list[int]]]]:
    """Return registers before and after each instruction, as the processor leaves them."""
    folder = tmp_path_factory.mktemp("processor")
    cases = "\n".join(
        _CASE.format(number=number, code=code.replace("%", "%%"))
        for number, code in enumerate(CASES)
    )
    (folder / "program.c").write_text(_PROGRAM.replace("@CASES@", cases))
    subprocess.run(
        ["cc", "-O0", "-mno-red-zone", "-o", "program", "program.c"], cwd=folder, check=True
    )
    numbers = random.Random(7)

    def drawn() -> int:
        return numbers.choice((*_VALUES, numbers.getrandbits(64), numbers.getrandbits(31)))

    given = [(code, [drawn() for _ in range(6)]) for code in CASES for _ in range(60)]
    order = list(CASES)
    lines = (f"{order.index(code)} {' '.join(map(str, values))}" for code, values in given)
    said = subprocess.run(
        [folder / "program"], input="\n".join(lines), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found: dict[str, list[tuple[list[int], list[int]]]] = {code: [] for code in CASES}
    for (code, values), line in zip(given, said, strict=True):
        found[code].append((values, [int(each) for each in line.split()]))
    return found


@pytest.mark.parametrize("code", CASES)
def test_results_and_flags(
    results: dict[str, list[tuple[list[int], list[int]]]], code: str
) -> None:
    known = 0
    for given, (*registers, flags) in results[code]:
        machine = followed(code, given)
        for name, right in zip(NAMES, registers, strict=True):
            said = value(machine, name)
            assert said in (None, right), (name, [hex(each) for each in given])
            known += said is not None
        for suffix in CASES[code]:
            condition = condition_of(suffix)
            assert condition is not None
            decided = condition(machine)
            assert decided in (None, _FLAGS[suffix](flags)), (suffix, [hex(each) for each in given])
            known += decided is not None
    # bsf and bsr of zero leave what they write undefined; all else is known
    assert known >= len(results[code]) * (len(NAMES) + len(CASES[code])) * 0.8


def test_only_instructions_on_strings_move_their_pointers() -> None:
    machine = Machine()
    machine.store(64 + 24, 32, 0xFFFF_FFFE)
    assert value(run("movslq 0x18(%rdi),%r8", machine, rdi=64), "r8") == 2**64 - 2
    assert value(machine, "rdi") == 64
    assert value(run("stos %al,%es:(%rdi)", machine), "rdi") is None
