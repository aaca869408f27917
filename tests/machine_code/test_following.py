"""Following code: loops, in one go as if one by one, calls, branches that depend on data."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from countperf.devices.compile.objects import find_library
from countperf.devices.discovery import find_device
from countperf.errors import CountingError, DeviceError
from countperf.machine_code import loop_extrapolation
from countperf.machine_code.loop_extrapolation import note_of_step, to_change, to_equality
from countperf.machine_code.machine_state import REGISTERS, Flags, Machine
from countperf.machine_code.object_file import functions_of, program_of
from countperf.machine_code.tools import find_objdump
from countperf.machine_code.vector_unit import find_needed_lines
from tests.machine_code.machines import executed, program, value

needs_objdump = pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")

COUNTED = {
    "up to equality": "xor %eax,%eax; inc %rax; cmp %rdi,%rax; jne 1",
    "down to zero": "mov %rdi,%rax; nop; dec %rax; jne 1",
    "from a negative number": "mov $0xfffffffffffffffe,%rax; inc %rax; cmp %rdi,%rax; jl 1",
    "unsigned": "mov $0x0,%eax; add $0x1,%eax; cmp %edi,%eax; jb 1",
    "as long as not greater": "mov $0x1,%eax; inc %eax; cmp %edi,%eax; jle 1",
}


@pytest.mark.parametrize("length", [3, 4, 5, 17, 1000, 10**6])
@pytest.mark.parametrize("name", COUNTED)
def test_loops_of_one_block(name: str, length: int) -> None:
    trips = length + 2 if name == "from a negative number" else length
    expected = {0: 1, **dict.fromkeys((1, 2, 3), trips), 4: 1}
    assert executed(f"f: {COUNTED[name]}; ret", rdi=length) == expected


BY_VECTORS = """
f: vpxor %xmm0,%xmm0,%xmm0; vpcmpeqd %xmm1,%xmm1,%xmm1
vpsubq %xmm1,%xmm0,%xmm0; vpextrq $0x1,%xmm0,%rax; cmp %rdi,%rax; jne 2; ret
"""
BY_GATHERS = """
f: vpxor %xmm0,%xmm0,%xmm0; vmovdqa %ymm0,-0x20(%rsp); vpcmpeqd %ymm13,%ymm13,%ymm13
vmovdqa -0x20(%rsp),%ymm0; vpcmpneqq %ymm5,%ymm0,%k1; vgatherqps (%rdi,%ymm0,4),%xmm4{%k1}
vpsubq %ymm13,%ymm0,%ymm3; vmovdqa %ymm3,-0x20(%rsp); nop; jmp a
vmovq %xmm3,%rcx; cmp %rsi,%rcx; jne 3; ret
"""
"""Each item's count waits in memory; masks depend on it that only numbers are under."""
NESTS_AND_CALLS = """
f: xor %eax,%eax; xor %ecx,%ecx; inc %ecx; cmp $0x8,%ecx; jne 2
call a <g>; inc %eax; cmp %edi,%eax; jne 1; ret
g: nop; ret
"""
GUARD_IN_LOOP = """
f: xor %eax,%eax; inc %eax; cmp %edi,%eax; je 7
cmpb $0x1,(%rsi,%rax,1); jne 1; jmp 1; ret
"""
BY_REGISTER = """
f: mov $0x4,%eax; call *%rax; ret; nop
g: vcomiss %xmm0,%xmm1; je 9; nop; nop; nop; ret
"""
DIVIDED = """
f: vmovd %edi,%xmm0; vmovd %esi,%xmm1; call 7; vmovd %xmm0,%eax; dec %eax; jne 4; ret
__ocl_svml_z0_irem16: vdivps %zmm1,%zmm0,%zmm0; ret
"""
BY_LOWEST_BYTE = """
f: test %edi,%edi; setg %al; vmovd %eax,%xmm0; vpextrb $0x0,%xmm0,%ecx; dec %ecx; je 7; nop; ret"""
COUNTS_IN_MEMORY = "f: movl $0x0,-0x8(%rsp); incl -0x8(%rsp); cmp %edi,-0x8(%rsp); jne 1; ret"
LONGER_WAY_FIRST = BY_REGISTER.replace("je 9; nop; nop; nop; ret", "jne 8; ret; nop; nop; ret")


@pytest.mark.parametrize(
    ("code", "registers", "expected"),
    [
        (COUNTS_IN_MEMORY, {"rdi": 10**6}, {2: 10**6}),
        (BY_VECTORS, {"rdi": 1000}, {3: 1000}),
        (BY_GATHERS, {"rsi": 10**9}, {5: 10**9}),
        (BY_LOWEST_BYTE, {"rdi": 5}, {6: 0}),
        (NESTS_AND_CALLS, {"rdi": 5}, {2: 40, 9: 1, 10: 5}),
        # branches on data go on, and past a guard
        ("f: vucomiss (%rsi),%xmm0; jae 3; nop; ret", {"rsi": 1 << 40}, {2: 1, 3: 1}),
        (GUARD_IN_LOOP, {"rsi": 1 << 40, "rdi": 10}, {6: 9}),
        # of functions that are called, the shorter way
        (BY_REGISTER, {}, {0: 1, 1: 1, 2: 1, 4: 1, 5: 1, 6: 0, 9: 1}),
        (LONGER_WAY_FIRST, {}, {0: 1, 1: 1, 2: 1, 4: 1, 5: 1, 6: 1, 8: 0}),
        (DIVIDED, {"rdi": 17, "rsi": 5}, {4: 17 % 5}),
        (DIVIDED.replace("irem", "udiv"), {"rdi": 17, "rsi": 5}, {4: 17 // 5}),
    ],
)
def test_counts(code: str, registers: dict[str, int], expected: dict[int, int]) -> None:
    counts = executed(code, most=1000, **registers)
    assert {line: counts[line] for line in expected} == expected


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("f: xor %eax,%eax; inc %eax; cmp (%rsi),%eax; jl 1; ret", "0x3 depends on data"),
        ("f: nop; jmp 0; ret", "gave up"),
        ("g: ret", "no function 'f': g"),
    ],
)
def test_what_cannot_be_followed_is_refused(code: str, said: str) -> None:
    with pytest.raises(CountingError, match=said):
        executed(code, most=1000, rsi=1 << 40)


def test_unknown_functions_leave_nothing_known_that_they_need_not_restore() -> None:
    code = "f: mov $0x3,%ecx; mov $0x3,%ebx; call 999; dec %rbx; jne 3; ret"
    machine = Machine()
    assert program(code).follow_function("f", machine)[3] == 3
    assert (value(machine, "rcx"), value(machine, "rbx")) == (None, 0)


NESTED = """
f: xor %eax,%eax; xor %ecx,%ecx
inc %rcx; cmp $0x3,%rcx; jne 2; inc %rax; cmp %rdi,%rax; jne 1; ret
"""
GUARDED = "f: xor %eax,%eax; cmp %rsi,%rax; jl 4; nop; inc %rax; cmp %rdi,%rax; jne 1; ret"
TILED = """
f: xor %eax,%eax
mov $0x10,%ecx; mov %rdi,%rdx; sub %rax,%rdx; cmp %rcx,%rdx; cmovl %rdx,%rcx; xor %ebx,%ebx
inc %rbx; cmp %rcx,%rbx; jne 7
add $0x10,%rax; cmp %rdi,%rax; jl 1; ret
"""
IN_MEMORY = """
f: movq $0x0,-0x8(%rsp); xor %ecx,%ecx; nop; inc %rcx; cmp $0x2,%rcx; jne 2
mov -0x8(%rsp),%rax; inc %rax; mov %rax,-0x8(%rsp); cmp %rdi,%rax; jne 1; ret
"""
BY_TABLE = "\n".join(
    (
        "f:",
        *(f"movb ${int(k < 10):#x},-{0x20 - k:#x}(%rsp)" for k in range(14)),
        "xor %eax,%eax; cmpb $0x1,-0x20(%rsp,%rax,1); jne 18; nop",
        "inc %rax; cmp $0xe,%rax; jne 15; ret",
    )
)
BY_BITS = """
f: xor %eax,%eax
mov %rax,%rcx; shr $0x5,%rcx; test %rcx,%rcx; je 6; nop; inc %rax; cmp %rdi,%rax; jne 1; ret
"""
BY_HIGH_HALF = """
f: xor %ebx,%ebx; movabs $0x1000000000000000,%rcx
mov %rbx,%rax; imul %rcx; cmp $0x1,%rdx; jl 7; nop; inc %rbx; cmp %rdi,%rbx; jne 2; ret
"""
EVERY_THIRD = """
f: xor %eax,%eax; xor %ecx,%ecx
inc %rcx; cmp $0x3,%rcx; jne 6; xor %ecx,%ecx; inc %rax; cmp %rdi,%rax; jne 2; ret
"""
BY_LOW_BITS = """
f: xor %eax,%eax; xor %ebx,%ebx
mov %rbx,%rcx; or $0x1,%rcx; and $0xfffffffffffffff8,%rcx; cmp %rsi,%rcx; jl 8; nop
add $0x18,%rbx; inc %rax; cmp %rdi,%rax; jne 2; ret
"""
BY_UNEVEN_BITS = BY_LOW_BITS.replace("$0xfffffffffffffff8", "$0x1e")
"""Code whose masked value goes up and down while the value itself grows by 24."""
BY_WRITTEN = """
f: xor %eax,%eax
mov %rax,%rcx; mov %rcx,-0x10000(%rsp,%rax,8); inc %rax; cmp %rdi,%rax; jne 1; xor %eax,%eax
mov -0x10000(%rsp,%rax,8),%rdx; cmp %rsi,%rdx; jl 10; nop; inc %rax; cmp %rdi,%rax; jne 7; ret
"""
"""Numbers are written side by side, and decide when they are read."""
OVERWRITTEN = """
f: movb $0x1,-0x8(%rsp); xor %eax,%eax
mov %rax,%rcx; movzbl -0x8(%rsp),%ecx; cmp %rdx,%rcx; je 7; nop
inc %rax; cmp %rdi,%rax; jne 2; ret
"""
"""A register that grew takes a byte that does not."""
PACKED = """
f: xor %eax,%eax; movabs $0xffffff00,%rbx; movabs $0x100000001,%rdx
mov %rbx,%rcx; shr $0x20,%rcx; cmp %rsi,%rcx; jl 8; nop
add %rdx,%rbx; inc %rax; cmp %rdi,%rax; jne 3; ret
"""
"""Of two lanes in a register the upper one decides; the lower one carries after 256 iterations."""
LOOPS = (
    *(PACKED, OVERWRITTEN, NESTED, GUARDED, TILED, IN_MEMORY, BY_LOW_BITS, BY_TABLE, BY_BITS),
    *(BY_HIGH_HALF, EVERY_THIRD, BY_UNEVEN_BITS, BY_WRITTEN),
)


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 40, 1000])
@pytest.mark.parametrize("code", LOOPS, ids=range(len(LOOPS)))
def test_counts_are_those_of_single_steps(
    code: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped = executed(code, rdi=length, rsi=length // 2)
    monkeypatch.setattr(loop_extrapolation, "_ALIKE", 10**9)
    assert skipped == executed(code, rdi=length, rsi=length // 2)


@pytest.mark.parametrize("code", LOOPS[:7], ids=range(7))
def test_long_loops_take_few_steps(code: str) -> None:
    counts = executed(code, most=2000, rdi=16 * 10**6, rsi=8 * 10**6)
    assert max(counts.values()) >= 10**6


def test_everything_is_counted_as_often_as_it_is_executed() -> None:
    often = {2: 3, 3: 3, 4: 3, 1: 1, 5: 1, 6: 1, 7: 1}
    expected = {0: 1, 8: 1} | {line: times * 10**6 for line, times in often.items()}
    assert executed(NESTED, rdi=10**6) == expected
    with pytest.raises(CountingError, match="gave up"):  # what alternates is followed
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
    assert [to_equality(flags, step, 0) for step in (1, 2, 0)] == [6, None, None]


def test_shifts_that_lose_nothing_of_lanes_take_no_notes() -> None:
    assert note_of_step("vpslld", "$0x4,%ymm3,%ymm4") is None
    assert note_of_step("vpsllq", "$0x4,%ymm3,%ymm4") is not None


@pytest.mark.parametrize(
    ("line", "operands"),
    [
        *(("movzbl %dl,%ecx", 1), ("vpand %xmm1,%xmm2,%xmm3", 2), ("vptest %xmm1,%xmm2", 2)),
        *(("vpand %xmm1,%xmm2,%xmm3{%k1}", 3), ("vpternlogd $0x96,%xmm1,%xmm2,%xmm3", 3)),
    ],
)
def test_what_is_overwritten_need_not_grow_evenly(line: str, operands: int) -> None:
    note, machine = note_of_step(*line.split()), Machine()
    assert note is not None
    note(machine)
    ((_, values),) = machine.journal.stepped
    size = sum(len(values) if v is None else -(-v.bit_length() // (8 * 128)) for v in values)
    assert (size if "mm" in line else len(values)) == operands


MASK_OF_GATHER = """
vpcmpneqq 0x40(%rsp),%ymm1,%k1; vgatherqps 0x8(%rdi,%ymm0,4),%xmm4{%k1}
vaddps %xmm4,%xmm5,%xmm6; vmovaps %xmm6,(%rsp)
"""
TESTED_MASK = (
    "vmovdqa (%rax),%ymm0; vptestmd %ymm0,%ymm0,%k1; vmovdqa (%rax),%ymm2; kortestb %k1,%k1"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (MASK_OF_GATHER, {2, 3}),  # which are for numbers only
        (TESTED_MASK, {0, 1, 3}),
        # counts that wait in memory
        ("vmovdqa (%rsp),%ymm0; vpaddq %ymm7,%ymm0,%ymm3; vmovdqa %ymm3,(%rsp)", {0, 1, 2}),
        # lanes that a mask keeps, and what is written again
        ("vmovdqa (%rax),%ymm0; vmovdqa32 (%rbx),%ymm0{%k1}; vmovd %xmm0,%eax", {0, 1, 2}),
        ("vmovdqa (%rax),%ymm0; vmovdqa32 (%rbx),%ymm0{%k1}{z}; vmovd %xmm0,%eax", {1, 2}),
        # instructions without VEX, and products of numbers
        ("movdqa (%rax),%xmm0; paddd %xmm1,%xmm0; movd %xmm0,%eax", {0, 1, 2}),
        ("vmovaps (%rax),%ymm1; vmulps %ymm1,%ymm1,%ymm0; vmovd %xmm0,%eax", {1, 2}),
    ],
)
def test_needed_vectors(code: str, expected: set[int]) -> None:
    lines = [(line.mnemonic, line.operands) for line in program(code).lines]
    assert find_needed_lines(lines, [range(len(lines))]) == expected


def test_a_register_that_another_block_reads() -> None:
    lines = [("vmovdqa", "(%rax),%ymm0"), ("jmp", "0"), ("vmovd", "%xmm0,%eax")]
    assert find_needed_lines(lines, [[0, 1], [2]]) == {0, 2}
    assert find_needed_lines(lines[:2], [[0, 1]]) == set()
    assert find_needed_lines(lines[:2], [[0, 1]], always=[0]) == {0}


SOURCE = """
int leaf(int count) { int k; for (k = 0; k < count; k++) __asm__ volatile("cld"); return k; }
int group(int count) { return leaf(2 * count) + 1; }
"""


@needs_objdump
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
@pytest.mark.parametrize("protection", ["none", "branch"])
def test_stubs_lead_to_functions_of_the_same_object(tmp_path: Path, protection: str) -> None:
    source, library = tmp_path / "code.c", tmp_path / "code.so"
    source.write_text(SOURCE)
    flags = ["-O1", "-shared", "-fPIC", "-fno-inline", "-fsemantic-interposition"]
    command = ["cc", *flags, f"-fcf-protection={protection}", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    code = program_of(library, lambda _: None)
    assert "leaf@plt" in code.entries
    machine = Machine()
    machine.registers[REGISTERS["%rdi"].number] = 21
    counts = code.follow_function("group", machine)
    assert [counts[n] for n, line in enumerate(code.lines) if line.mnemonic == "cld"] == [42]


ROOT, REMAINDER = "__ocl_svml_z0_rsqrtf16", "__ocl_svml_z0_irem16"
PLACES = {ROOT: 0x5000_0000_0000, "puts": 0x5000_0010_0000, REMAINDER: 0x5000_0020_0000}


@pytest.mark.device
@needs_objdump
def test_functions_of_libraries_get_addresses_of_their_own() -> None:
    try:
        find_device("intel:0")
    except DeviceError as error:
        pytest.skip(str(error))
    functions = functions_of(PLACES, find_library)
    assert set(functions) == {ROOT, REMAINDER}
    for name, function in functions.items():
        assert function[0].address == PLACES[name]
        assert function[-1].mnemonic == "ret"
    assert any(line.mnemonic == "vrsqrt14ps" for line in functions[ROOT])


def test_other_functions_are_not_looked_for() -> None:
    assert not functions_of({"memset": 16, "__ocl_svml_none": 32}, find_library)
