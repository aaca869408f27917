"""Executed code as loops within each other."""

from __future__ import annotations

import pytest

from countperf.machine_code.loop_nests import iterations
from countperf.machine_code.throughput import cycles_of
from tests.machine_code.machines import executed, program
from tests.machine_code.test_throughput import needs_llvm

NEST = """f: xor %eax,%eax
vxorps %xmm1,%xmm1,%xmm1; xor %ecx,%ecx
vaddps %zmm0,%zmm1,%zmm1; inc %rcx; cmp %rsi,%rcx; jne 3
inc %rax; cmp %rdi,%rax; jne 1; ret"""
SHARED = """f: xor %eax,%eax; xor %ecx,%ecx
inc %rcx; test $3,%cl; jne 2
inc %rax; cmp %rdi,%rax; jne 2; ret"""


def parts(code: str, longest: int = 512, **registers: int) -> list[tuple[int, int, int]]:
    """Return iterations, instructions of each, and executed instructions of the parts."""
    ran = executed(code, **registers)
    made = list(iterations(program(code), ran, longest))
    assert sum(part.executed for part in made) == sum(ran.values())
    return [(part.count, len(part.iteration()), part.executed) for part in made]


def test_short_loops_belong_to_the_iteration_around_them() -> None:
    assert parts(NEST, rdi=100, rsi=4) == [(1, 1, 1), (100, 21, 2100), (1, 1, 1)]


def test_long_loops_are_apart_from_what_is_around_them() -> None:
    outside = [(100, 2, 200), (400, 4, 1600), (100, 3, 300)]
    assert parts(NEST, longest=20, rdi=100, rsi=4) == [(1, 1, 1), *outside, (1, 1, 1)]


def test_loops_that_begin_alike_are_told_apart() -> None:
    assert parts(SHARED, rdi=100) == [(1, 2, 2), (100, 15, 1500), (1, 1, 1)]


@needs_llvm
def test_short_loops_overlap_what_follows_them() -> None:
    rolled = cycles_of(program(NEST), executed(NEST, rdi=1000, rsi=4), {})
    step = "vaddps %zmm0,%zmm1,%zmm1; inc %rcx; cmp %rsi,%rcx"
    unrolled = NEST.replace(f"{step}; jne 3", "; ".join([f"{step}; test %rdx,%rdx"] * 4))
    told = cycles_of(program(unrolled), executed(unrolled, rdi=1000, rsi=1000), {})
    assert rolled["cycles_overlapped"] == pytest.approx(told["cycles_loop"], rel=0.15)
    assert rolled["cycles"] > 2 * rolled["cycles_overlapped"]  # 4 additions of 3 cycles each


@needs_llvm
def test_of_long_loops_nothing_overlaps() -> None:
    long = cycles_of(program(NEST), executed(NEST, rdi=10, rsi=1000), {})
    assert long["cycles_overlapped"] == pytest.approx(long["cycles"], rel=0.01)
