"""Classes of instructions, and which of their accesses come back too late for a cache."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.counting.structure.memory_hierarchy import load_hierarchy
from countperf.machine_code.classify_x86 import (
    classify,
    count_misses,
    instruction_in,
    set_conflicts,
)
from countperf.machine_code.machine_state import REGISTERS, Machine
from tests.machine_code.machines import program

CLASSES = {
    "arithmetic_vector": (
        "vaddps %ymm0,%ymm5,%ymm0; vmaxps %xmm1,%xmm5,%xmm3; vcmpltps %ymm1,%ymm3,%k1; "
        "vroundps $0x9,%ymm0,%ymm0"
    ),
    "arithmetic_vector broadcast load_scalar": "vaddps (%rdi,%rax,4){1to16},%zmm5,%zmm0",
    "arithmetic_scalar load_scalar": "vsubsd 0x8(%rdi),%xmm1,%xmm2",
    "arithmetic_vector load_vector": "vfnmadd231pd (%rdi),%ymm1,%ymm2",
    "arithmetic_vector spill_load_vector": "vfmadd213ps 0x470(%rsp),%xmm6,%xmm4",
    "arithmetic_scalar": "mulss %xmm1,%xmm0",
    "div_f32_vector": "vdivps %zmm1,%zmm22,%zmm1",
    "sqrt_f64_scalar": "vsqrtsd %xmm1,%xmm1,%xmm1",
    "special_f32_vector": "vrsqrt14ps %ymm1,%ymm1",
    "arithmetic_scalar load_constant": "vucomiss 0x4(%rip),%xmm0",
    "load_vector": "vmovups (%r8,%rdx,4),%zmm0; vmovdqu64 0x40(%rsp,%rax,1),%zmm0",
    "store_vector": "vmovups %ymm0,(%rdi,%rax,4){%k1}",
    "spill_store_vector": "vmovaps %xmm1,0x530(%rsp)",
    "spill_load_vector": "vmovaps -0x50(%rbp),%ymm1",
    "load_constant": "vmovaps 0x1000(%rip),%ymm1",
    "move": "vmovaps %zmm10,%zmm16",
    "load_scalar": "vmovss (%rbx,%rcx,4),%xmm4; mov 0x20(%rdi),%rdi; movslq (%rax,%r13,4),%r8",
    "store_scalar": "vmovsd %xmm4,(%r9); movl $0x0,(%r9,%rdx,4)",
    "extract store_scalar": "vmovlps %xmm4,(%r9); vextractps $0x1,%xmm1,(%r14,%rsi,4)",
    "insert load_scalar": "vmovhps (%r9),%xmm1,%xmm4; vinsertps $0x10,(%r15,%rsi,4),%xmm2,%xmm1",
    "insert": "vmovd %ecx,%xmm0",
    "extract": "vmovq %xmm1,%rcx; vpextrq $0x1,%xmm4,%rax",
    "extract store_vector": "vextractf128 $0x1,%ymm1,0x10(%rdi)",
    "broadcast load_scalar": "vbroadcastss (%rdi),%ymm10",
    "broadcast": "vpbroadcastd %r8d,%ymm1",
    "gather": "vgatherdps (%rsi,%xmm5,4),%xmm7{%k1}",
    "scatter": "vscatterqps %xmm7,(%r11,%ymm15,4){%k1}",
    "shuffle_cross load_vector": "vpermt2ps 0x20(%rdi,%rax,4),%ymm0,%ymm2",
    "shuffle_lane": "vblendps $0xf0,%ymm3,%ymm2,%ymm2; vunpcklps %xmm1,%xmm2,%xmm3",
    "convert": "vcvttss2si %xmm0,%eax; vpmovsxdq %xmm5,%ymm5",
    "convert load_scalar": "vcvtsi2ss (%rdi),%xmm0,%xmm0",
    "iop_vector spill_load_vector": "vpaddd 0x1920(%rsp),%ymm1,%ymm1",
    "iop_vector": "vxorps %xmm7,%xmm7,%xmm7; vpmaxsd %ymm1,%ymm2,%ymm3",
    "mask": "kxnorw %k0,%k0,%k1",
    "spill_store_integer": "mov %eax,0x30(%rsp)",
    "iop_scalar load_scalar store_scalar": "addl $0xa,0x18(%rdi)",
    "iop_scalar load_scalar": "cmpb $0x0,0x7f(%rdi); imul 0x3c(%rdi),%r9d",
    "iop_scalar": "lea 0x80(%rax),%r8d; popcnt %eax,%eax; cltq",
    "idiv load_scalar": "idivl 0x8(%rdi)",
    "branch": "jne 1020 <f+0x20>",
    "call": "call 1000 <g>",
    "": "nopw 0x0(%rax,%rax,1); xchg %ax,%ax",
    "other": "push %rbp",
}


@pytest.mark.parametrize(
    ("code", "classes"),
    [(code, classes) for classes, codes in CLASSES.items() for code in codes.split("; ")],
)
def test_classes(code: str, classes: str) -> None:
    mnemonic, _, operands = code.partition(" ")
    assert " ".join(classify(mnemonic, operands)) == classes


GNU = """
/tmp/f.so:     file format elf64-x86-64

0000000000001000 <f>:
    1000:\txor    %eax,%eax
    1002:\tdata16 cs nopw 0x0(%rax,%rax,1)
    1010:\tvmovaps 0x2000(%rip),%xmm0        # 3000 <f+0x2000>
    1028:\tnotrack jmp *%rcx
    1034:\tjne    102a <f+0x2a>
\t...

0000000000002000 <g>:
    2000:\tret
"""
LLVM = """
/tmp/f.so:\tfile format elf64-x86-64

0000000000001000 <f>:
    1000:      \txorl\t%eax, %eax
    1010:      \tvmovaps\t8192(%rip), %xmm0              # 0x3000 <f+0x2000>
    1034:      \tjne\t0x102a <f+0x2a>
    1036:      \tretq
"""


@pytest.mark.parametrize(
    ("text", "number", "first", "last"),
    [
        (GNU, 6, (0x1000, "xor", "%eax,%eax"), (0x1034, "jne", "102a")),
        (LLVM, 4, (0x1000, "xorl", "%eax, %eax"), (0x1034, "jne", "0x102a")),
    ],
)
def test_lines_of_a_listing(
    text: str, number: int, first: tuple[int, str, str], last: tuple[int, str, str]
) -> None:
    found = [each for line in text.splitlines() if (each := instruction_in(line))]
    assert len(found) == number
    assert found[0] == first
    assert last in found
    if text == GNU:  # without prefixes
        assert found[1][1:] == ("nopw", "0x0(%rax,%rax,1)")
        assert found[3][1:] == ("jmp", "*%rcx")


LINE_BYTES, SETS, WAYS = 64, 64, 8
WAY_BYTES = LINE_BYTES * SETS
ZEN_5 = load_hierarchy("amd-zen5").counted  # 48 KiB of 12 ways


@pytest.mark.parametrize("lines", [WAYS, WAYS + 1])
@pytest.mark.parametrize("apart", [WAY_BYTES, 3 * WAY_BYTES, WAY_BYTES // 2, LINE_BYTES])
def test_as_many_lines_of_a_set_as_a_cache_has_are_kept(lines: int, apart: int) -> None:
    shared = WAY_BYTES // apart if apart < WAY_BYTES else 1  # sets that they are spread over
    accessed = {number: 64 + apart * number for number in range(lines * shared)}
    conflicts = set_conflicts([range(lines * shared)], accessed)
    assert conflicts == (dict.fromkeys(accessed, 1 / WAYS) if lines > WAYS else {})


def test_accesses_to_the_same_line_are_one_of_it() -> None:
    accessed = {number: WAY_BYTES * (number // 2) + 8 * (number % 2) for number in range(2 * WAYS)}
    assert not set_conflicts([range(2 * WAYS)], accessed)
    accessed[2 * WAYS] = WAY_BYTES * WAYS
    assert len(set_conflicts([range(2 * WAYS + 1)], accessed)) == 2 * WAYS + 1


def test_blocks_are_taken_one_by_one() -> None:
    accessed = {number: WAY_BYTES * number for number in range(2 * WAYS)}
    assert not set_conflicts([range(WAYS), range(WAYS, 2 * WAYS)], accessed)
    assert set_conflicts([range(2 * WAYS)], accessed)
    some = {number: at for number, at in accessed.items() if number % 2}
    assert not set_conflicts([range(2 * WAYS)], some)  # the others have unknown addresses


def items_of(arrays: int, items: int, array_bytes: int) -> str:
    """A loop over items that loads one element from each of some arrays on the stack."""
    loads = [f"vmovss {k * array_bytes}(%rax,%rcx,4),%xmm{k % 16}" for k in range(arrays)]
    top = ("f:", f"lea -{arrays * array_bytes}(%rsp),%rax", "xor %ecx,%ecx")
    return "\n".join((*top, *loads, "inc %rcx", f"cmp ${items:#x},%rcx", "jne 2", "ret"))


@pytest.mark.parametrize(
    ("cache", "arrays", "array_bytes", "share_conflicting"),
    [
        *((None, 8, 4096, 0), (None, 9, 4096, 1 / 8), (None, 33, 4096, 25 / 32)),
        *((None, 16, 1024, 0), (None, 36, 1024, 1 / 8), (None, 12, 4096 + 64, 0)),
        *((ZEN_5.code, arrays, 4096, 0) for arrays in (9, 12)),
        *((ZEN_5.code, 13, 4096, 1 / 12), (ZEN_5.code, 33, 4096, 21 / 32)),
    ],
)
def test_what_items_keep_on_the_stack(
    cache: Any, arrays: int, array_bytes: int, share_conflicting: float
) -> None:
    items = array_bytes // 4
    code = program(items_of(arrays, items, array_bytes))
    machine = Machine()
    counts = code.follow_function("f", machine)
    misses = count_misses(code, counts, machine.accessed, *([cache] if cache else []))
    assert misses["miss.conflict.load"] == round(share_conflicting * items) * arrays
    assert not misses["miss.conflict.store"]


def test_addresses_are_those_of_the_first_time() -> None:
    machine = Machine()
    machine.registers[REGISTERS["%rdi"].number] = 1 << 20
    code = program("f: mov $0x0,%eax; mov (%rdi,%rax,8),%rdx; inc %rax; cmp $0x64,%rax; jne 1; ret")
    assert code.follow_function("f", machine)[1] == 100
    assert machine.accessed == {1: 1 << 20}
