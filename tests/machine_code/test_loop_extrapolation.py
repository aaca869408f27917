"""Loops of several blocks: gone through in one go, as if followed one by one."""

from __future__ import annotations

from collections import Counter

import pytest

from countperf.errors import CountingError
from countperf.machine_code import loop_extrapolation
from countperf.machine_code.loop_extrapolation import (
    note_of_step,
    to_change,
    to_equality,
    without_carry,
)
from countperf.machine_code.machine_state import Flags
from tests.machine_code.test_interpreter import executed

NESTED = """
f:
xor %eax,%eax
xor %ecx,%ecx
inc %rcx
cmp $0x3,%rcx
jne 2
inc %rax
cmp %rdi,%rax
jne 1
ret
"""
GUARDED = """
f:
xor %eax,%eax
cmp %rsi,%rax
jl 4
nop
inc %rax
cmp %rdi,%rax
jne 1
ret
"""
TILED = """
f:
xor %eax,%eax
mov $0x10,%ecx
mov %rdi,%rdx
sub %rax,%rdx
cmp %rcx,%rdx
cmovl %rdx,%rcx
xor %ebx,%ebx
inc %rbx
cmp %rcx,%rbx
jne 7
add $0x10,%rax
cmp %rdi,%rax
jl 1
ret
"""
IN_MEMORY = """
f:
movq $0x0,-0x8(%rsp)
xor %ecx,%ecx
nop
inc %rcx
cmp $0x2,%rcx
jne 2
mov -0x8(%rsp),%rax
inc %rax
mov %rax,-0x8(%rsp)
cmp %rdi,%rax
jne 1
ret
"""
BY_TABLE = """
f:
movb $0x1,-0x20(%rsp)
movb $0x1,-0x1f(%rsp)
movb $0x1,-0x1e(%rsp)
movb $0x1,-0x1d(%rsp)
movb $0x1,-0x1c(%rsp)
movb $0x1,-0x1b(%rsp)
movb $0x1,-0x1a(%rsp)
movb $0x1,-0x19(%rsp)
movb $0x1,-0x18(%rsp)
movb $0x1,-0x17(%rsp)
movb $0x0,-0x16(%rsp)
movb $0x0,-0x15(%rsp)
movb $0x0,-0x14(%rsp)
movb $0x0,-0x13(%rsp)
xor %eax,%eax
cmpb $0x1,-0x20(%rsp,%rax,1)
jne 18
nop
inc %rax
cmp $0xe,%rax
jne 15
ret
"""
BY_BITS = """
f:
xor %eax,%eax
mov %rax,%rcx
shr $0x5,%rcx
test %rcx,%rcx
je 6
nop
inc %rax
cmp %rdi,%rax
jne 1
ret
"""
BY_HIGH_HALF = """
f:
xor %ebx,%ebx
movabs $0x1000000000000000,%rcx
mov %rbx,%rax
imul %rcx
cmp $0x1,%rdx
jl 7
nop
inc %rbx
cmp %rdi,%rbx
jne 2
ret
"""
EVERY_THIRD = """
f:
xor %eax,%eax
xor %ecx,%ecx
inc %rcx
cmp $0x3,%rcx
jne 6
xor %ecx,%ecx
inc %rax
cmp %rdi,%rax
jne 2
ret
"""
BY_LOW_BITS = """
f:
xor %eax,%eax
xor %ebx,%ebx
mov %rbx,%rcx
or $0x1,%rcx
and $0xfffffffffffffff8,%rcx
cmp %rsi,%rcx
jl 8
nop
add $0x18,%rbx
inc %rax
cmp %rdi,%rax
jne 2
ret
"""
BY_WRITTEN = """
f:
xor %eax,%eax
mov %rax,%rcx
mov %rcx,-0x10000(%rsp,%rax,8)
inc %rax
cmp %rdi,%rax
jne 1
xor %eax,%eax
mov -0x10000(%rsp,%rax,8),%rdx
cmp %rsi,%rdx
jl 10
nop
inc %rax
cmp %rdi,%rax
jne 7
ret
"""
"""Numbers are written side by side, and decide when they are read."""
BY_UNEVEN_BITS = BY_LOW_BITS.replace("$0xfffffffffffffff8", "$0x1e")
"""Code whose masked value goes up and down while the value itself grows by 24."""


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 40, 1000])
@pytest.mark.parametrize(
    "code",
    [
        NESTED,
        GUARDED,
        TILED,
        IN_MEMORY,
        BY_TABLE,
        BY_BITS,
        BY_HIGH_HALF,
        EVERY_THIRD,
        BY_LOW_BITS,
        BY_UNEVEN_BITS,
        BY_WRITTEN,
    ],
    ids=range(11),
)
def test_counts_are_those_of_single_steps(
    code: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped = executed(code, rdi=length, rsi=length // 2)
    monkeypatch.setattr(loop_extrapolation, "_ALIKE", 10**9)
    assert skipped == executed(code, rdi=length, rsi=length // 2)


@pytest.mark.parametrize("code", [NESTED, GUARDED, TILED, IN_MEMORY, BY_LOW_BITS], ids=range(5))
def test_long_loops_take_few_steps(code: str) -> None:
    found = executed(code, most=2000, rdi=16 * 10**6, rsi=8 * 10**6)
    assert max(found.values()) >= 10**6


def test_what_alternates_is_followed() -> None:
    with pytest.raises(CountingError, match="gave up"):
        executed(EVERY_THIRD, most=2000, rdi=10**6)


@pytest.mark.parametrize(
    ("suffix", "first", "second", "step", "expected"),
    [("l", 3, 10, 1, 6), ("ge", 10, 3, -1, 7), ("b", 0, 8, 2, 3), ("a", 9, 8, -4, 0)],
)
def test_when_an_order_changes(
    suffix: str, first: int, second: int, step: int, expected: int
) -> None:
    flags = Flags("sub", first, second, (first - second) % (1 << 32), 32)
    assert to_change(flags, step, 0, suffix) == expected


def test_when_what_is_compared_is_equal() -> None:
    flags = Flags("sub", 3, 10, -7 % (1 << 32), 32)
    assert to_equality(flags, 1, 0) == 6
    assert to_equality(flags, 2, 0) is None
    assert to_equality(flags, 0, 0) is None


def test_everything_is_counted_as_often_as_it_is_executed() -> None:
    found = executed(NESTED, rdi=10**6)
    often = {2: 3, 3: 3, 4: 3, 1: 1, 5: 1, 6: 1, 7: 1}
    assert found == Counter({0: 1, 8: 1} | {line: each * 10**6 for line, each in often.items()})


def test_left_shifts_in_vectors_are_extrapolated_up_to_their_carry() -> None:
    rows = [(5 + 3 * k, 0, 1, 0) for k in range(4)]
    assert without_carry(rows, 4) == ((1 << 28) - 1 - 14) // 3
    assert without_carry([(40 - 3 * k, 0) for k in range(4)], 4) == 31 // 3
    assert without_carry([(1 << 29, 0), ((1 << 29) + 1, 0)], 4) is None
    assert without_carry([(k, k) for k in range(4)], 4) is None
    assert without_carry([(None, None)] * 4, 4) == 1 << 62
    assert note_of_step("vpslld", "$0x4,%ymm3,%ymm4") is None
    assert note_of_step("vpsllq", "$0x4,%ymm3,%ymm4") is not None
