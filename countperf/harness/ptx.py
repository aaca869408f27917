"""PTX of CUDA C, as nvcc generates it."""

from __future__ import annotations

import re

from countperf.harness.nvcc import run_nvcc

_FOR = re.compile(r"^(\s*)for \(\w+ (\w+) =", re.MULTILINE)


def compile_ptx(source: str, capability: str = "9.0") -> str:
    """Translate CUDA C to PTX; loops stay loops."""
    return run_nvcc(with_loops_kept(source), capability, "-ptx")[1].decode()


def with_loops_kept(source: str) -> str:
    """Return CUDA C whose loops are not unrolled, as far as Loopy wrote them."""
    return _FOR.sub(r"\1#pragma unroll 1\n\g<0>", source)
