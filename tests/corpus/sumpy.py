"""Kernels in the style of sumpy: interactions of points, all with all or by lists of boxes.

Coordinates are arrays whose slowest axis is separate (an argument for each coordinate), and boxes
have their points and their neighbors in lists of the kind of compressed sparse rows. Arrays of
boxes are declared without a shape. Expansions are in ``sumpy_expansions``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import loopy as lp

from tests.corpus import Unit
from tests.kernels import made

AXES = "xyz"

SQUARE = {2: "(dx*dx + dy*dy)", 3: "(dx*dx + dy*dy + dz*dz)"}
"""Squared distance by dimension."""

GREEN: dict[str, tuple[int, str]] = {
    "laplace2": (2, "log(sqrt(r2))"),
    "laplace3": (3, "rsqrt(r2)"),
    "yukawa3": (3, "exp(-lam*sqrt(r2))*rsqrt(r2)"),
    "biharmonic2": (2, "r2*log(sqrt(r2))"),
    "biharmonic3": (3, "sqrt(r2)"),
}
"""Kernels of potentials by name: dimension, and value at the differences dx, dy, dz."""


def points(dim: int, kind: str = "f64", tags: str = "sep,C") -> str:
    """Declare the coordinates of targets and sources."""
    return f"targets {kind} {dim},nt {tags}; sources {kind} {dim},ns {tags}"


def _differences(dim: int, target: str, source: str) -> str:
    return "\n".join(
        f"<> d{AXES[axis]} = targets[{axis}, {target}] - sources[{axis}, {source}]"
        for axis in range(dim)
    )


def _pairs(
    kernel: str, kind: str = "f64", *, tags: str = "sep,C", excludes_self: bool = False
) -> Any:
    """Sum a potential at all targets over all sources."""
    dim, value = GREEN[kernel]
    value = f"if(isrc == own[itgt], 0, {value})" if excludes_self else value
    return made(
        "itgt<nt, isrc<ns",
        f"""
        <> scaling = 0.25
        for itgt, isrc
            {_differences(dim, "itgt", "isrc")}
            <> r2 = {SQUARE[dim]}
            <> pair = strength[0, isrc]*{value}
        end
        result[0, itgt] = scaling*simul_reduce(sum, isrc, pair) {{inames=itgt}}
        """,
        f"{points(dim, kind, tags)}; strength {kind} 1,ns {tags}; result {kind} 1,nt {tags};"
        f"{'own i32 nt;' if excludes_self else ''}{f'lam {kind};' if 'lam' in value else ''}"
        "nt,ns i32",
    )


def _grouped() -> Any:
    unit = lp.split_iname(_pairs("laplace3"), "itgt", 128, outer_tag="g.0")
    return lp.add_inames_to_insn(unit, frozenset(["itgt_outer"]), "writes:scaling")


def _helmholtz_complex() -> Any:
    """Sum a complex potential, whose exponential is of an imaginary number."""
    return made(
        "itgt<nt, isrc<ns",
        f"""
        for itgt, isrc
            {_differences(3, "itgt", "isrc")}
            <> r = sqrt(dx*dx + dy*dy + dz*dz)
            <> wave = exp(1j*k*r)
            <> pair = strength[isrc]*wave/r
        end
        result[itgt] = simul_reduce(sum, isrc, pair) {{inames=itgt}}
        """,
        f"{points(3)}; strength c128 ns; result c128 nt; k f64; nt,ns i32",
    )


def _matrix() -> Any:
    """Write the dense matrix of interactions."""
    dim, value = GREEN["yukawa3"]
    return made(
        "itgt<nt, isrc<ns",
        f"""
        for itgt, isrc
            {_differences(dim, "itgt", "isrc")}
            <> r2 = {SQUARE[dim]}
            matrix[itgt, isrc] = 0.5*{value}
        end
        """,
        f"{points(dim)}; matrix f64 nt,ns; lam f64; nt,ns i32",
        split="itgt:64",
    )


def _subset(kernel: str) -> Any:
    """Evaluate chosen entries of the matrix of interactions."""
    dim, value = GREEN[kernel]
    return made(
        "i<nresult",
        f"""
        for i
            <> itgt = tgtindices[i]
            <> isrc = srcindices[i]
            {_differences(dim, "itgt", "isrc")}
            <> r2 = {SQUARE[dim]}
            result[i] = 0.5*{value}
        end
        """,
        f"{points(dim)}; srcindices,tgtindices i32 nresult; result f64 nresult;nt,ns,nresult i32",
        split="i:128",
    )


BOXES = (
    "target_boxes i32 -",
    "source_starts,source_lists i32 - auto",
    "first_target,number_of_targets i32 -",
    "first_source,number_of_sources i32 -",
)


def _boxes_to_points(kernel: str, *, excludes_self: bool = False, tags: str = "g.0") -> Any:
    """Sum interactions of the points of boxes with those of boxes in lists."""
    dim, value = GREEN[kernel]
    value = f"if(isrc == own[itgt], 0, {value})" if excludes_self else value
    return made(
        [
            "ibox<nboxes",
            "list_start<=ilist<list_stop",
            "[ilist, tgt_start, tgt_stop] -> { [itgt] : tgt_start <= itgt < tgt_stop }",
            "[itgt, src_start, src_stop] -> { [isrc] : src_start <= isrc < src_stop }",
        ],
        f"""
        for ibox
            <> tbox = target_boxes[ibox]
            <> tgt_start = first_target[tbox]
            <> tgt_stop = tgt_start + number_of_targets[tbox]
            <> list_start = source_starts[ibox]
            <> list_stop = source_starts[ibox + 1]
            for ilist
                <> sbox = source_lists[ilist]
                <> src_start = first_source[sbox]
                <> src_stop = src_start + number_of_sources[sbox]
                for itgt
                    for isrc
                        {_differences(dim, "itgt", "isrc")}
                        <> r2 = {SQUARE[dim]}
                        <> pair = strength[isrc]*{value}
                    end
                    result[itgt] = result[itgt] + simul_reduce(sum, isrc, pair)
                end
            end
        end
        """,
        f"{'; '.join(BOXES)}; {points(dim)}; strength f64 ns; result f64 nt;"
        f"{'own i32 nt;' if excludes_self else ''} nboxes,nt,ns i32",
        tags={"ibox": tags},
    )


POINTS = {"nt": 1000, "ns": 800}
IN_BOXES = {"nboxes": 64, "nt": 2000, "ns": 2000}

UNITS: list[Unit] = [
    *((f"p2p_{name}", partial(_pairs, name), POINTS) for name in GREEN if name != "biharmonic2"),
    ("p2p_f32", partial(_pairs, "laplace3", "f32"), POINTS),
    ("p2p_groups", _grouped, POINTS),
    ("p2p_stacked", partial(_pairs, "laplace2", tags="C,C"), POINTS),
    ("p2p_without_self", partial(_pairs, "laplace3", excludes_self=True), POINTS),
    ("p2p_helmholtz_complex", _helmholtz_complex, POINTS),
    ("matrix_yukawa3", _matrix, POINTS),
    *(
        (f"subset_{name}", partial(_subset, name), {**POINTS, "nresult": 500})
        for name in ("laplace3", "biharmonic2")
    ),
    ("boxes_without_self", partial(_boxes_to_points, "laplace3", excludes_self=True), IN_BOXES),
    ("boxes_sequential", partial(_boxes_to_points, "laplace2", tags="for"), IN_BOXES),
]
