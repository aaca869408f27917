"""Cycles on the processor of reference, by LLVM's analyzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.errors import DeviceError
from countperf.machine_code import throughput
from countperf.machine_code.throughput import cycles_of, iterations
from countperf.machine_code.tools import find_analyzer
from tests.machine_code.machines import executed, program

needs_llvm = pytest.mark.skipif(find_analyzer() is None, reason="llvm-mca is not installed")

CHAIN = "f: xor %eax,%eax; vaddps %zmm0,%zmm1,%zmm1; inc %rax; cmp %rdi,%rax; jne 1; ret"
APART = CHAIN.replace("vaddps %zmm0,%zmm1,%zmm1", "vaddps %zmm0,%zmm1,%zmm2")


@pytest.fixture(autouse=True)
def nothing_analyzed(monkeypatch: pytest.MonkeyPatch) -> dict[object, object]:
    known: dict[object, object] = {}
    monkeypatch.setattr(throughput, "_ANALYZED", known)
    return known


def cycles(code: str, **registers: int) -> dict[str, int]:
    return dict(cycles_of(program(code), executed(code, **registers)))


@needs_llvm
def test_results_are_waited_for() -> None:
    chain, apart = cycles(CHAIN, rdi=10_000), cycles(APART, rdi=10_000)
    assert chain["cycles_throughput"] == apart["cycles_throughput"]
    assert chain["cycles"] > 2 * apart["cycles"]
    assert chain["cycles_loop"] == chain["cycles"]  # what is outside is next to nothing
    assert chain["cycles_operations"] >= 3 * 10_000


@needs_llvm
def test_cycles_grow_with_iterations_and_blocks_are_analyzed_once(
    nothing_analyzed: dict[object, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = cycles(CHAIN, rdi=1000)
    assert nothing_analyzed
    monkeypatch.setattr(throughput, "_run", None)
    assert cycles(CHAIN, rdi=2000)["cycles"] == pytest.approx(2 * once["cycles"], rel=0.01)


@needs_llvm
def test_instructions_that_are_not_known_are_left_out() -> None:
    odd = CHAIN.replace("inc %rax", "inc %rax; vnothing %zmm3,%zmm4")
    expected = cycles(CHAIN, rdi=1000)["cycles"]
    assert cycles(odd, rdi=1000)["cycles"] == pytest.approx(expected, rel=0.1)


def test_old_analyzers_are_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COUNTPERF_LLVM_MCA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_analyzer() is None
    for version in (14, 17):
        path = tmp_path / f"llvm-mca-{version}"
        path.touch(mode=0o755)
    assert find_analyzer() == tmp_path / "llvm-mca-17"
    monkeypatch.setenv("COUNTPERF_LLVM_MCA", str(tmp_path / "llvm-mca-14"))
    assert find_analyzer() is None
    with pytest.raises(DeviceError, match="COUNTPERF_LLVM_MCA"):
        cycles(CHAIN, rdi=10)


@pytest.mark.parametrize(
    ("says", "problem"),
    [("'znver4' is not a recognized processor", "does not know znver4"), ("broken", "broken")],
)
def test_an_analyzer_that_does_not_do_it_is_told(
    says: str, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "llvm-mca"
    fake.write_text(f'#!/bin/sh\ncat >/dev/null\necho "{says}" >&2\n')
    fake.chmod(0o755)
    monkeypatch.setenv("COUNTPERF_LLVM_MCA", str(fake))
    with pytest.raises(DeviceError, match=problem):
        cycles(CHAIN, rdi=10)


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
    outside = [(100, 2, 200), (400, 4, 1600), (100, 3, 300)]
    assert parts(NEST, longest=20, rdi=100, rsi=4) == [(1, 1, 1), *outside, (1, 1, 1)]
    assert parts(SHARED, rdi=100) == [(1, 2, 2), (100, 15, 1500), (1, 1, 1)]


@needs_llvm
def test_short_loops_overlap_what_follows_them() -> None:
    rolled = cycles_of(program(NEST), executed(NEST, rdi=1000, rsi=4))
    step = "vaddps %zmm0,%zmm1,%zmm1; inc %rcx; cmp %rsi,%rcx"
    unrolled = NEST.replace(f"{step}; jne 3", "; ".join([f"{step}; test %rdx,%rdx"] * 4))
    told = cycles_of(program(unrolled), executed(unrolled, rdi=1000, rsi=1000))
    assert rolled["cycles_overlapped"] == pytest.approx(told["cycles_loop"], rel=0.15)
    assert rolled["cycles"] > 2 * rolled["cycles_overlapped"]  # 4 additions of 3 cycles each


@needs_llvm
def test_of_long_loops_nothing_overlaps() -> None:
    long = cycles_of(program(NEST), executed(NEST, rdi=10, rsi=1000))
    assert long["cycles_overlapped"] == pytest.approx(long["cycles"], rel=0.01)
