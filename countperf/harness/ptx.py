"""Profiles of Loopy kernels whose instructions come from PTX, as nvcc generates it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from countperf.harness.nvcc import run_nvcc
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.ptx import PtxLaunch, PtxProgram

_FOR = re.compile(r"^(\s*)for \(\w+ (\w+) =", re.MULTILINE)


def compile_ptx(source: str, capability: str = "9.0") -> str:
    """Translate CUDA C to PTX; loops stay loops."""
    return run_nvcc(with_loops_kept(source), capability, "-ptx")[1].decode()


def with_loops_kept(source: str) -> str:
    """Return CUDA C whose loops are not unrolled, as far as Loopy wrote them."""
    return _FOR.sub(r"\1#pragma unroll 1\n\g<0>", source)


def with_ptx(profiled: ProfiledKernel, written: PtxProgram, launch: PtxLaunch) -> ProfiledKernel:
    """Return a profile with the instructions and dependencies of PTX; errors as of its graph."""
    graph = written.graph(launch=launch)
    graph = replace(graph, nodes=_with_lines(graph.nodes, profiled.profile.alpha))
    profile = replace(
        profiled.profile,
        idg=graph,
        sub_group_idgs=None,
        idg_is_sample=False,
        alpha={name: float(count) for name, count in graph.counts().items()},
        alpha_comp=None,
        alpha_mem=None,
        alpha_sync=None,
        ins_cuda=None,
        ins_issued=None,
    )
    return ProfiledKernel(profile=profile, launch=profiled.launch)


def _with_lines(nodes: Sequence[str], alpha: Mapping[str, float]) -> list[str]:
    """Give accesses the mean excess that Loopy's side found for their kind."""
    totals: dict[str, tuple[float, float]] = {}
    for name, count in alpha.items():
        if name.startswith(("load.", "store.")):
            base, _, excess = name.partition(".x")
            number, product = totals.get(base, (0.0, 0.0))
            weight = float(excess) if excess else 1.0
            totals[base] = (number + count, product + count * weight)
    names = {
        base: f"{base}.x{product / number:.4g}" if product > number else base
        for base, (number, product) in totals.items()
        if number
    }
    return [names.get(name, name) for name in nodes]
