"""Which vector instructions can decide anything."""

from __future__ import annotations

import pytest

from countperf.machine_code.blocks import needed_lines
from tests.machine_code.test_interpreter import executed

CASES = {
    "masks of gathers are for numbers only": (
        """
        vpcmpneqq 0x40(%rsp),%ymm1,%k1
        vgatherqps 0x8(%rdi,%ymm0,4),%xmm4{%k1}
        vaddps %xmm4,%xmm5,%xmm6
        vmovaps %xmm6,(%rsp)
        """,
        {2, 3},
    ),
    "a mask that is tested": (
        "vmovdqa (%rax),%ymm0\nvptestmd %ymm0,%ymm0,%k1\nvmovdqa (%rax),%ymm2\nkortestb %k1,%k1",
        {0, 1, 3},
    ),
    "counts that wait in memory": (
        "vmovdqa (%rsp),%ymm0\nvpaddq %ymm7,%ymm0,%ymm3\nvmovdqa %ymm3,(%rsp)",
        {0, 1, 2},
    ),
    "lanes that a mask keeps": (
        "vmovdqa (%rax),%ymm0\nvmovdqa32 (%rbx),%ymm0{%k1}\nvmovd %xmm0,%eax",
        {0, 1, 2},
    ),
    "what is written again": (
        "vmovdqa (%rax),%ymm0\nvmovdqa32 (%rbx),%ymm0{%k1}{z}\nvmovd %xmm0,%eax",
        {1, 2},
    ),
    "instructions without VEX": (
        "movdqa (%rax),%xmm0\npaddd %xmm1,%xmm0\nmovd %xmm0,%eax",
        {0, 1, 2},
    ),
    "products of numbers": (
        "vmovaps (%rax),%ymm1\nvmulps %ymm1,%ymm1,%ymm0\nvmovd %xmm0,%eax",
        {1, 2},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_needed(name: str) -> None:
    code, expected = CASES[name]
    lines: list[tuple[str, str]] = []
    for text in code.strip().splitlines():
        mnemonic, _, operands = text.strip().partition(" ")
        lines.append((mnemonic, operands))
    assert needed_lines(lines, [range(len(lines))]) == expected


def test_a_register_that_another_block_reads() -> None:
    lines = [("vmovdqa", "(%rax),%ymm0"), ("jmp", "0"), ("vmovd", "%xmm0,%eax")]
    assert needed_lines(lines, [[0, 1], [2]]) == {0, 2}
    assert needed_lines(lines[:2], [[0, 1]]) == set()
    assert needed_lines(lines[:2], [[0, 1]], always=[0]) == {0}


def test_loops_whose_items_count_in_memory_are_gone_through_in_one_go() -> None:
    """Each item's count waits in memory; masks depend on it that only numbers are under."""
    code = """
    f:
    vpxor %xmm0,%xmm0,%xmm0
    vmovdqa %ymm0,-0x20(%rsp)
    vpcmpeqd %ymm13,%ymm13,%ymm13
    vmovdqa -0x20(%rsp),%ymm0
    vpcmpneqq %ymm5,%ymm0,%k1
    vgatherqps (%rdi,%ymm0,4),%xmm4{%k1}
    vpsubq %ymm13,%ymm0,%ymm3
    vmovdqa %ymm3,-0x20(%rsp)
    nop
    jmp a
    vmovq %xmm3,%rcx
    cmp %rsi,%rcx
    jne 3
    ret
    """
    found = executed(code, most=1000, rsi=10**9)
    assert found[5] == 10**9
