"""Following code: loops, calls, branches that depend on data."""

from __future__ import annotations

from collections import Counter

import pytest

from countperf.errors import CountingError
from countperf.machine_code.blocks import Line
from countperf.machine_code.interpreter import Program
from countperf.machine_code.machine_state import REGISTERS, Machine


def program(code: str) -> Program:
    """Read lines of code, one address each; ``name:`` begins a function."""
    lines: list[Line] = []
    entries: dict[str, int] = {}
    for text in code.strip().splitlines():
        each = text.strip()
        if each.endswith(":"):
            entries[each[:-1]] = len(lines)
            continue
        mnemonic, _, operands = each.partition(" ")
        lines.append(Line(len(lines), mnemonic, operands.strip()))
    return Program(lines, entries)


def executed(code: str, most: int = 100_000, **registers: int) -> Counter[int]:
    machine = Machine()
    for name, value in registers.items():
        machine.registers[REGISTERS[f"%{name}"].number] = value
    return program(code).executed("f", machine, most)


COUNTED = {
    "up to equality": ("xor %eax,%eax", "inc %rax", "cmp %rdi,%rax", "jne 1"),
    "down to zero": ("mov %rdi,%rax", "nop", "dec %rax", "jne 1"),
    "from a negative number": ("mov $0xfffffffffffffffe,%rax", "inc %rax", "cmp %rdi,%rax", "jl 1"),
    "unsigned": ("mov $0x0,%eax", "add $0x1,%eax", "cmp %edi,%eax", "jb 1"),
    "as long as not greater": ("mov $0x1,%eax", "inc %eax", "cmp %edi,%eax", "jle 1"),
}


@pytest.mark.parametrize("length", [3, 4, 5, 17, 1000, 10**6])
@pytest.mark.parametrize("name", COUNTED)
def test_loops_of_one_block(name: str, length: int) -> None:
    code = "f:\n" + "\n".join((*COUNTED[name], "ret"))
    trips = length + 2 if name == "from a negative number" else length
    found = executed(code, rdi=length)
    assert found == {0: 1, 1: trips, 2: trips, 3: trips, 4: 1}


def test_loops_may_keep_their_count_in_memory() -> None:
    code = """
    f:
    movl $0x0,-0x8(%rsp)
    incl -0x8(%rsp)
    cmp %edi,-0x8(%rsp)
    jne 1
    ret
    """
    assert executed(code, most=200, rdi=10**6)[2] == 10**6


def test_counts_in_vectors() -> None:
    code = """
    f:
    vpxor %xmm0,%xmm0,%xmm0
    vpcmpeqd %xmm1,%xmm1,%xmm1
    vpsubq %xmm1,%xmm0,%xmm0
    vpextrq $0x1,%xmm0,%rax
    cmp %rdi,%rax
    jne 2
    ret
    """
    assert executed(code, rdi=1000)[3] == 1000


def test_nests_and_calls() -> None:
    code = """
    f:
    xor %eax,%eax
    xor %ecx,%ecx
    inc %ecx
    cmp $0x8,%ecx
    jne 2
    call 9 <g>
    inc %eax
    cmp %edi,%eax
    jne 1
    ret
    g:
    nop
    ret
    """
    found = executed(code.replace("call 9", "call a"), rdi=5)
    assert found[2] == 40
    assert found[10] == 5
    assert found[9] == 1


def test_branches_that_depend_on_data_go_on() -> None:
    code = """
    f:
    vucomiss (%rsi),%xmm0
    jae 3
    nop
    ret
    """
    assert executed(code, rsi=1 << 40) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_loops_that_depend_on_data_are_refused() -> None:
    code = """
    f:
    xor %eax,%eax
    inc %eax
    cmp (%rsi),%eax
    jl 1
    ret
    """
    with pytest.raises(CountingError, match="0x3 depends on data"):
        executed(code, rsi=1 << 40)


def test_a_guard_in_a_loop_is_passed() -> None:
    code = """
    f:
    xor %eax,%eax
    inc %eax
    cmp %edi,%eax
    je 7
    cmpb $0x1,(%rsi,%rax,1)
    jne 1
    jmp 1
    ret
    """
    assert executed(code, rsi=1 << 40, rdi=10)[6] == 9


def test_code_that_never_ends_is_given_up() -> None:
    with pytest.raises(CountingError, match="gave up"):
        executed("f:\nnop\njmp 0\nret")


def test_there_is_no_such_function() -> None:
    with pytest.raises(CountingError, match="no function 'f': g"):
        executed("g:\nret")
