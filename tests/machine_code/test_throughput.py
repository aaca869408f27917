"""Cycles on the processor of reference, by LLVM's analyzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.errors import DeviceError
from countperf.machine_code.throughput import Analyzed, cycles_of
from countperf.machine_code.tools import find_analyzer
from tests.machine_code.machines import executed, program

needs_llvm = pytest.mark.skipif(find_analyzer() is None, reason="llvm-mca is not installed")

CHAIN = "f: xor %eax,%eax; vaddps %zmm0,%zmm1,%zmm1; inc %rax; cmp %rdi,%rax; jne 1; ret"
APART = CHAIN.replace("vaddps %zmm0,%zmm1,%zmm1", "vaddps %zmm0,%zmm1,%zmm2")


def cycles(code: str, known: Analyzed | None = None, **registers: int) -> dict[str, int]:
    return dict(
        cycles_of(program(code), executed(code, **registers), {} if known is None else known)
    )


@needs_llvm
def test_results_are_waited_for() -> None:
    chain, apart = cycles(CHAIN, rdi=10_000), cycles(APART, rdi=10_000)
    assert chain["cycles_throughput"] == apart["cycles_throughput"]
    assert chain["cycles"] > 2 * apart["cycles"]
    assert chain["cycles_loop"] == chain["cycles"]  # what is outside is next to nothing
    assert chain["cycles_operations"] >= 3 * 10_000


@needs_llvm
def test_cycles_grow_with_iterations_and_blocks_are_analyzed_once() -> None:
    known: Analyzed = {}
    once = cycles(CHAIN, known, rdi=1000)
    blocks = dict(known)
    assert blocks
    assert cycles(CHAIN, known, rdi=2000)["cycles"] == pytest.approx(2 * once["cycles"], rel=0.01)
    assert known == blocks


@needs_llvm
def test_instructions_that_are_not_known_are_left_out() -> None:
    odd = CHAIN.replace("inc %rax", "inc %rax; vnothing %zmm3,%zmm4")
    expected = cycles(CHAIN, rdi=1000)["cycles"]
    assert cycles(odd, rdi=1000)["cycles"] == pytest.approx(expected, rel=0.1)


def test_without_an_analyzer_there_is_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COUNTPERF_LLVM_MCA", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="COUNTPERF_LLVM_MCA"):
        cycles(CHAIN, rdi=10)


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
