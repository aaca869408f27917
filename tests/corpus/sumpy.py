"""Kernels in the style of sumpy: interactions of points, all with all or by lists of boxes.

Coordinates are arrays whose slowest axis is separate (an argument for each coordinate), and boxes
have their points and their neighbors in lists of the kind of compressed sparse rows. Arrays of
boxes are declared without a shape. Expansions are in ``sumpy_expansions``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from tests.corpus import Unit

F4, F8, C16, I4 = np.float32, np.float64, np.complex128, np.int32
LANGUAGE: dict[str, Any] = {"lang_version": (2018, 2)}
AXES = "xyz"

SQUARE = {2: "(dx*dx + dy*dy)", 3: "(dx*dx + dy*dy + dz*dz)"}
"""Squared distance by dimension."""

GREEN: dict[str, tuple[int, str]] = {
    "laplace2": (2, "log(sqrt(r2))"),
    "laplace3": (3, "rsqrt(r2)"),
    "yukawa3": (3, "exp(-lam*sqrt(r2))*rsqrt(r2)"),
    "biharmonic2": (2, "r2*log(sqrt(r2))"),
    "biharmonic3": (3, "sqrt(r2)"),
    "helmholtz3_real": (3, "cos(lam*sqrt(r2))*rsqrt(r2)"),
    "gradient3": (3, "-dx/(r2*sqrt(r2))"),
    "elasticity3": (3, "rsqrt(r2) + dx*dy/(r2*sqrt(r2))"),
}
"""Kernels of potentials by name: dimension, and value at the differences dx, dy, dz."""


def coordinates(name: str, dim: int, count: str, dtype: Any, *, separate: bool) -> Any:
    tags = "sep,C" if separate else "C,C"
    return lp.GlobalArg(name, dtype, shape=f"{dim},{count}", dim_tags=tags)


def _differences(dim: int, target: str, source: str) -> str:
    return "\n".join(
        f"<> d{AXES[axis]} = targets[{axis}, {target}] - sources[{axis}, {source}]"
        for axis in range(dim)
    )


def _pairs(
    kernel: str,
    dtype: Any = F8,
    *,
    separate: bool = True,
    excludes_self: bool = False,
    groups: int = 0,
) -> Any:
    """Sum a potential at all targets over all sources."""
    dim, value = GREEN[kernel]
    value = f"if(isrc == own[itgt], 0, {value})" if excludes_self else value
    arguments = [
        coordinates("targets", dim, "nt", dtype, separate=separate),
        coordinates("sources", dim, "ns", dtype, separate=separate),
        lp.GlobalArg("strength", dtype, shape="1,ns", dim_tags="sep,C" if separate else "C,C"),
        lp.GlobalArg("result", dtype, shape="1,nt", dim_tags="sep,C" if separate else "C,C"),
        lp.ValueArg("nt,ns", I4),
    ]
    if excludes_self:
        arguments.append(lp.GlobalArg("own", I4, shape="nt"))
    if "lam" in value:
        arguments.append(lp.ValueArg("lam", dtype))
    unit = lp.make_kernel(
        "{ [itgt, isrc] : 0 <= itgt < nt and 0 <= isrc < ns }",
        f"""
        <> scaling = 0.25
        for itgt, isrc
            {_differences(dim, "itgt", "isrc")}
            <> r2 = {SQUARE[dim]}
            <> pair = strength[0, isrc]*{value}
        end
        result[0, itgt] = scaling*simul_reduce(sum, isrc, pair) {{inames=itgt}}
        """,
        arguments,
        name=f"p2p_{kernel}",
        assumptions="nt >= 1 and ns >= 1",
        **LANGUAGE,
    )
    if not groups:
        return unit
    unit = lp.split_iname(unit, "itgt", groups, outer_tag="g.0")
    return lp.add_inames_to_insn(unit, frozenset(["itgt_outer"]), "writes:scaling")


def _helmholtz_complex() -> Any:
    """Sum a complex potential, whose exponential is of an imaginary number."""
    return lp.make_kernel(
        "{ [itgt, isrc] : 0 <= itgt < nt and 0 <= isrc < ns }",
        f"""
        for itgt, isrc
            {_differences(3, "itgt", "isrc")}
            <> r = sqrt(dx*dx + dy*dy + dz*dz)
            <> wave = exp(1j*k*r)
            <> pair = strength[isrc]*wave/r
        end
        result[itgt] = simul_reduce(sum, isrc, pair) {{inames=itgt}}
        """,
        [
            coordinates("targets", 3, "nt", F8, separate=True),
            coordinates("sources", 3, "ns", F8, separate=True),
            lp.GlobalArg("strength,result", C16, shape=lp.auto),
            lp.ValueArg("k", F8),
            lp.ValueArg("nt,ns", I4),
        ],
        name="p2p_helmholtz_complex",
        assumptions="nt >= 1 and ns >= 1",
        **LANGUAGE,
    )


def _matrix(kernel: str, dtype: Any = F8) -> Any:
    """Write the dense matrix of interactions."""
    dim, value = GREEN[kernel]
    unit = lp.make_kernel(
        "{ [itgt, isrc] : 0 <= itgt < nt and 0 <= isrc < ns }",
        f"""
        for itgt, isrc
            {_differences(dim, "itgt", "isrc")}
            <> r2 = {SQUARE[dim]}
            matrix[itgt, isrc] = 0.5*{value}
        end
        """,
        [
            coordinates("targets", dim, "nt", dtype, separate=True),
            coordinates("sources", dim, "ns", dtype, separate=True),
            lp.GlobalArg("matrix", dtype, shape="nt,ns"),
            *([lp.ValueArg("lam", dtype)] if "lam" in value else []),
            lp.ValueArg("nt,ns", I4),
        ],
        name=f"matrix_{kernel}",
        assumptions="nt >= 1 and ns >= 1",
        **LANGUAGE,
    )
    return lp.split_iname(unit, "itgt", 64, outer_tag="g.0", inner_tag="l.0")


def _subset(kernel: str) -> Any:
    """Evaluate chosen entries of the matrix of interactions."""
    dim, value = GREEN[kernel]
    unit = lp.make_kernel(
        "{ [i] : 0 <= i < nresult }",
        f"""
        for i
            <> itgt = tgtindices[i]
            <> isrc = srcindices[i]
            {_differences(dim, "itgt", "isrc")}
            <> r2 = {SQUARE[dim]}
            result[i] = 0.5*{value}
        end
        """,
        [
            coordinates("targets", dim, "nt", F8, separate=True),
            coordinates("sources", dim, "ns", F8, separate=True),
            lp.GlobalArg("srcindices,tgtindices", I4, shape="nresult"),
            lp.GlobalArg("result", F8, shape="nresult"),
            lp.ValueArg("nt,ns,nresult", I4),
        ],
        name=f"subset_{kernel}",
        assumptions="nresult >= 1",
        **LANGUAGE,
    )
    return lp.split_iname(unit, "i", 128, outer_tag="g.0", inner_tag="l.0")


BOXES = [
    lp.GlobalArg("target_boxes", I4, shape=None),
    lp.GlobalArg("source_starts,source_lists", I4, shape=None, offset=lp.auto),
    lp.GlobalArg("first_target,number_of_targets", I4, shape=None),
    lp.GlobalArg("first_source,number_of_sources", I4, shape=None),
]


def _boxes_to_points(kernel: str, *, excludes_self: bool = False, tags: str = "g.0") -> Any:
    """Sum interactions of the points of boxes with those of boxes in lists."""
    dim, value = GREEN[kernel]
    value = f"if(isrc == own[itgt], 0, {value})" if excludes_self else value
    unit = lp.make_kernel(
        [
            "{ [ibox] : 0 <= ibox < nboxes }",
            "{ [ilist] : list_start <= ilist < list_stop }",
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
        [
            *BOXES,
            coordinates("targets", dim, "nt", F8, separate=True),
            coordinates("sources", dim, "ns", F8, separate=True),
            lp.GlobalArg("strength", F8, shape="ns"),
            lp.GlobalArg("result", F8, shape="nt"),
            *([lp.GlobalArg("own", I4, shape="nt")] if excludes_self else []),
            lp.ValueArg("nboxes,nt,ns", I4),
        ],
        name=f"boxes_{kernel}",
        assumptions="nboxes >= 1",
        **LANGUAGE,
    )
    return lp.tag_inames(unit, {"ibox": tags})


def _associate(dim: int) -> Any:
    """Count the targets of boxes that lie close to one of their centers."""
    distance = " + ".join(f"(targets[{a}, it] - centers[{a}, ic])**2" for a in range(dim))
    unit = lp.make_kernel(
        "{ [it, ic] : 0 <= it < nt and 0 <= ic < nc }",
        f"close[it] = sum(ic, if({distance} < radius[ic]**2, 1, 0))",
        [
            coordinates("targets", dim, "nt", F8, separate=True),
            coordinates("centers", dim, "nc", F8, separate=True),
            lp.GlobalArg("radius", F8, shape="nc"),
            lp.GlobalArg("close", I4, shape="nt"),
            lp.ValueArg("nt,nc", I4),
        ],
        name=f"associate_{dim}d",
        assumptions="nt >= 1 and nc >= 1",
        **LANGUAGE,
    )
    return lp.split_iname(unit, "it", 64, outer_tag="g.0", inner_tag="l.0")


POINTS = {"nt": 1000, "ns": 800}
IN_BOXES = {"nboxes": 64, "nt": 2000, "ns": 2000}

UNITS: list[Unit] = [
    *((f"p2p_{name}", partial(_pairs, name), POINTS) for name in GREEN),
    ("p2p_f32", partial(_pairs, "laplace3", F4), POINTS),
    ("p2p_groups", partial(_pairs, "laplace3", groups=128), POINTS),
    ("p2p_stacked", partial(_pairs, "laplace2", separate=False), POINTS),
    ("p2p_without_self", partial(_pairs, "laplace3", excludes_self=True), POINTS),
    ("p2p_helmholtz_complex", _helmholtz_complex, POINTS),
    *((f"matrix_{name}", partial(_matrix, name), POINTS) for name in ("laplace2", "yukawa3")),
    *(
        (f"subset_{name}", partial(_subset, name), {**POINTS, "nresult": 500})
        for name in ("laplace3", "biharmonic2")
    ),
    *(
        (f"boxes_{name}", partial(_boxes_to_points, name), IN_BOXES)
        for name in ("laplace2", "laplace3")
    ),
    ("boxes_without_self", partial(_boxes_to_points, "laplace3", excludes_self=True), IN_BOXES),
    ("boxes_sequential", partial(_boxes_to_points, "laplace2", tags="for"), IN_BOXES),
    ("associate", partial(_associate, 2), {"nt": 1000, "nc": 100}),
]
