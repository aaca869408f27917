"""Kernels in the style of arraycontext and of discontinuous Galerkin codes upon it.

Element-wise functions and einsums over elements and nodes, resampling between discretizations by
index arrays, and reductions. Arrays have automatic offsets, some have automatic strides; loops over
elements are split into groups of 16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp

from tests.corpus import Unit
from tests.kernels import made


def _elements(
    loops: str, text: str, arguments: str, *, split: str = "e:16", **arrays: Any
) -> Callable[[], Any]:
    """Split the loop over elements as the transformations of array contexts do."""
    options = {"offset": lp.auto, **arrays}
    return partial(made, loops, text, f"{arguments}; n i32", split=split, arrays=options)


def _elementwise(
    text: str, kind: str = "f64", *, order: str = "C", flat: bool = False
) -> Callable[[], Any]:
    """Apply a function to every node of every element."""
    names = "x,y,out" if "y[" in text else "x,out"
    if flat:
        return _elements("e<n", text.replace("@", "e"), f"{names} {kind} n", order=order)
    arguments = f"{names} {kind} n,m; m i32"
    return _elements("e<n, i<m", text.replace("@", "e, i"), arguments, order=order)


def _reduction(operation: str, kind: str = "f64", *, value: str = "x[e, i]") -> Callable[[], Any]:
    """Reduce all nodes to one number, sequentially as the default transformation leaves it."""
    out = "f64" if "abs" in value else kind
    arguments = f"x,y {kind} n,m; out {out} 1; m i32"
    return _elements("e<n, i<m", f"out[0] = {operation}([e, i], {value})", arguments, split="")


_NODES = {"n": 1000, "m": 10}
_ELEMENTWISE = {
    "add": "out[@] = x[@] + y[@]",
    "divide": "out[@] = x[@] / y[@]",
    "arctan2": "out[@] = atan2(x[@], y[@])",
    "where": "out[@] = if(x[@] > y[@], x[@], y[@])",
}
_EINSUMS: dict[str, Callable[[], Any]] = {
    "mass": _elements(
        "e<n, i<10, j<10",
        "out[e, i] = sum(j, mass[i, j]*u[e, j]*jac[e, j])",
        "mass f64 10,10; u,jac,out f64 n,10",
    ),
    "derivative": _elements(
        "e<n, i<10, j<10, r<2",
        "out[r, e, i] = sum(j, d[r, i, j]*u[e, j])",
        "d f64 2,10,10; u f64 n,10; out f64 2,n,10",
    ),
    "divergence": _elements(
        "e<n, i<10, j<10, x<2, r<2",
        "out[e, i] = sum([x, r, j], g[x, r, e, j]*d[r, i, j]*u[x, e, j])",
        "g f64 2,2,n,10; d f64 2,10,10; u f64 2,n,10; out f64 n,10",
    ),
    "faces": _elements(
        "e<n, i<10, j<4, f<3",
        "out[e, i] = sum([f, j], lift[i, f, j]*scale[f, e]*flux[f, e, j])",
        "lift f64 10,3,4; scale f64 3,n; flux f64 3,n,4; out f64 n,10",
    ),
    "strides": _elements(
        "e<n, i<10, j<10",
        "out[e, i] = sum(j, mass[i, j]*u[e, j])",
        "mass f64 10,10; u,out f64 n,10",
        dim_tags="stride:auto,stride:auto",
    ),
}
_MAKERS: list[tuple[str, Callable[[], Any], dict[str, int]]] = [
    *((f"elementwise_{name}", _elementwise(text), _NODES) for name, text in _ELEMENTWISE.items()),
    ("elementwise_f32", _elementwise(_ELEMENTWISE["add"], "f32"), _NODES),
    ("elementwise_complex", _elementwise("out[@] = x[@]*y[@]", "c128"), _NODES),
    ("elementwise_columns", _elementwise(_ELEMENTWISE["add"], order="F"), _NODES),
    ("elementwise_flat", _elementwise(_ELEMENTWISE["add"], flat=True), {"n": 9999}),
    *((f"einsum_{name}", build, {"n": 1000}) for name, build in _EINSUMS.items()),
    ("reduction_max", _reduction("max", value="fabs(x[e, i])"), _NODES),
    ("reduction_dot", _reduction("sum", value="x[e, i]*y[e, i]"), _NODES),
    ("reduction_complex_norm", _reduction("sum", "c128", value="abs(x[e, i])**2"), _NODES),
    (
        "resample_by_picking",  # nodes of other elements, chosen by two levels of index arrays
        _elements(
            "e<n, i<nodes",
            "out[e, i] = vec[from_elements[e], picks[lists[e], i]]",
            "vec f64 n_from,nodes_from; from_elements,lists i32 n; picks i32 n_lists,nodes;"
            "out f64 n,nodes; nodes,n_from,nodes_from,n_lists i32",
        ),
        {"n": 500, "nodes": 6, "n_from": 400, "nodes_from": 10, "n_lists": 3},
    ),
    (
        "flux",  # upwind, at the nodes of faces
        _elements(
            "e<n, i<6",
            """
            <> normal_velocity = nx[e, i]*vx + ny[e, i]*vy
            <> average = 0.5*(u[e, i] + v[e, i])
            <> jump = u[e, i] - v[e, i]
            out[e, i] = normal_velocity*average + 0.5*fabs(normal_velocity)*jump
            """,
            "u,v,nx,ny,out f64 n,6; vx,vy f64",
        ),
        {"n": 3000},
    ),
    (
        "gas_2d",  # fluxes of an ideal gas from conserved variables
        _elements(
            "e<n, i<10",
            """
            <> p = 0.4*(q[1, e, i] - 0.5*(q[2, e, i]**2 + q[3, e, i]**2)/q[0, e, i])
            flux[0, e, i] = q[2, e, i]
            flux[1, e, i] = (q[1, e, i] + p)*q[2, e, i]/q[0, e, i]
            flux[2, e, i] = q[2, e, i]*q[2, e, i]/q[0, e, i] + p
            flux[3, e, i] = q[3, e, i]*q[2, e, i]/q[0, e, i]
            """,
            "q,flux f64 4,n,10",
        ),
        {"n": 1000},
    ),
    (
        "limiter",  # to a range around the mean of each element
        _elements(
            "e<n, i<6, j<6, k<6, l<6",
            """
            <> mean = sum(i, w[i]*u[e, i])
            <> low = min(j, u[e, j])
            <> high = max(k, u[e, k])
            <> theta = fmin(1.0, fmin(fabs((top - mean)/(high - mean + 1e-13)), \
                fabs((bottom - mean)/(low - mean + 1e-13))))
            out[e, l] = theta*(u[e, l] - mean) + mean
            """,
            "u,out f64 n,6; w f64 6; top,bottom f64",
        ),
        {"n": 1000},
    ),
]
UNITS: list[Unit] = list(_MAKERS)
