"""Kernels in the style of grudge and meshmode: contractions and gathers over elements.

Elements have 10 nodes and 4 faces of 6 nodes; arrays begin at offsets, as array contexts make them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import loopy as lp

from tests.corpus import Unit
from tests.kernels import made

_EI, _EIJ, _EF = "e<n, i<10", "e<n, i<10, j<10", "e<n, i<6"
_XR = "x<3, r<3, e<n, i<10, j<10"
_MASS = "o[e, i] = sum(j, mass[i, j]*jac[e]*u[e, j])"

PROGRAMS: dict[str, tuple[str, str, str]] = {
    "mass": (_EIJ, _MASS, "u,o f64 n,10; mass f64 10,10; jac f64 n"),
    "inverse_mass": (
        _EIJ,
        "o[e, i] = sum(j, mass[i, j]*u[e, j])/jac[e]",
        "u,o f64 n,10; mass f64 10,10; jac f64 n",
    ),
    "mass_f32": (_EIJ, _MASS, "u,o f32 n,10; mass f32 10,10; jac f32 n"),
    "mass_complex": (
        _EIJ,
        "o[e, i] = sum(j, mass[i, j]*u[e, j])",
        "u,o c128 n,10; mass c128 10,10",
    ),
    "derivative": (
        _XR,
        "o[x, e, i] = sum((r, j), metric[x, r, e]*diff[r, i, j]*u[e, j])",
        "u f64 n,10; o f64 3,n,10; metric f64 3,3,n; diff f64 3,10,10",
    ),
    "divergence": (
        _XR,
        "o[e, i] = sum((x, r, j), metric[x, r, e]*diff[r, i, j]*v[x, e, j])",
        "v f64 3,n,10; o f64 n,10; metric f64 3,3,n; diff f64 3,10,10",
    ),
    "face_mass": (
        "e<n, i<10, f<4, j<6",
        "o[e, i] = sum((f, j), lift[i, f, j]*jac[f, e]*flux[f, e, j])",
        "o f64 n,10; lift f64 10,4,6; jac f64 4,n; flux f64 4,n,6",
    ),
    "filter": (
        _EIJ,
        "o[e, i] = u[e, i] - alpha*sum(j, modes[i, j]*u[e, j])",
        "u,o f64 n,10; modes f64 10,10; alpha f64",
    ),
    "runge_kutta_stage": (
        _EI,
        """
        k[e, i] = a*k[e, i] + dt*o[e, i] {id=k}
        u[e, i] = u[e, i] + b*k[e, i] {dep=k}
        """,
        "u,o,k f64 n,10; a,b,dt f64",
    ),
    "upwind_flux": (
        _EF,
        """
        <> vn = v[0, e, i]*normal[0, e] + v[1, e, i]*normal[1, e] {id=vn}
        o[e, i] = 0.5*vn*(inner[e, i] + outer[e, i]) - 0.5*fabs(vn)*(outer[e, i] - inner[e, i]) \
{dep=vn}
        """,
        "v f64 2,n,6; normal f64 2,n; o,inner,outer f64 n,6",
    ),
    "maxwell_cross": (
        _EI,
        """
        o[0, e, i] = u[1, e, i]*v[2, e, i] - u[2, e, i]*v[1, e, i]
        o[1, e, i] = u[2, e, i]*v[0, e, i] - u[0, e, i]*v[2, e, i]
        o[2, e, i] = u[0, e, i]*v[1, e, i] - u[1, e, i]*v[0, e, i]
        """,
        "u,v,o f64 3,n,10",
    ),
    "euler_flux": (
        _EI,
        """
        <> rho = q[0, e, i] {id=rho}
        <> u = q[1, e, i]/rho {id=u, dep=rho}
        <> v = q[2, e, i]/rho {id=v, dep=rho}
        <> p = (gamma - 1)*(q[3, e, i] - 0.5*rho*(u*u + v*v)) {id=p, dep=u:v}
        o[0, e, i] = q[1, e, i]
        o[1, e, i] = q[1, e, i]*u + p {dep=p}
        o[2, e, i] = q[1, e, i]*v {dep=v}
        o[3, e, i] = u*(q[3, e, i] + p) {dep=p}
        """,
        "q,o f64 4,n,10; gamma f64",
    ),
    "element_maximum": (_EIJ, "o[e, i] = max(j, fabs(u[e, j]))", "u,o f64 n,10"),
    "element_sum": (_EIJ, "o[e] = sum(j, u[e, j])", "u f64 n,10; o f64 n"),
    "jacobian": (
        _EI,
        """
        o[e, i] = (d[0, 0, e, i]*(d[1, 1, e, i]*d[2, 2, e, i] - d[1, 2, e, i]*d[2, 1, e, i])
                 - d[0, 1, e, i]*(d[1, 0, e, i]*d[2, 2, e, i] - d[1, 2, e, i]*d[2, 0, e, i])
                 + d[0, 2, e, i]*(d[1, 0, e, i]*d[2, 1, e, i] - d[1, 1, e, i]*d[2, 0, e, i]))
        """,
        "d f64 3,3,n,10; o f64 n,10",
    ),
    "normals": (
        _EF,
        """
        <> size = sqrt(t[0, e, i]**2 + t[1, e, i]**2) {id=size}
        o[0, e, i] = t[1, e, i]/size {dep=size}
        o[1, e, i] = -t[0, e, i]/size {dep=size}
        """,
        "t,o f64 2,n,6",
    ),
    "interpolate_by_matrix": (
        "e<nb, i<6, j<10",
        "o[to[e], i] = sum(j, resample[i, j]*u[source[e], j])",
        "o f64 n,6; resample f64 6,10; u f64 n,10; to,source i32 nb; nb i32",
    ),
    "pick_nodes": (
        "e<nb, i<6",
        "o[to[e], i] = u[source[e], picks[kind[e], i]]",
        "o f64 n,6; u f64 n,10; picks i32 4,6; to,source,kind i32 nb; nb i32",
    ),
    "flatten": ("k<10*n", "flat[k] = u[k // 10, k % 10]", "u f64 n,10; flat f64 10*n"),
    "unflatten": (
        _EI,
        "o[e, i] = flat[start[0] + 10*e + i]",
        "o f64 n,10; flat f64 10*n+16; start i32 1",
    ),
    "inverse_metric": (
        _EIJ,
        """
        for e, i
            <> xr = sum(j, dr[i, j]*x[e, j]) {id=xr}
            <> yr = sum(j, dr[i, j]*y[e, j]) {id=yr}
            <> xs = sum(j, ds[i, j]*x[e, j]) {id=xs}
            <> ys = sum(j, ds[i, j]*y[e, j]) {id=ys}
            <> det = xr*ys - xs*yr {id=det, dep=xr:yr:xs:ys}
            rx[e, i] = ys/det {dep=det}
            sx[e, i] = -yr/det {dep=det}
        end
        """,
        "dr,ds f64 10,10; x,y,rx,sx f64 n,10",
    ),
    "subset_of_axis": ("e<n, i<4", "o[e, i] = u[e, 2*i + 1]", "u f64 n,10; o f64 n,4"),
    "no_offsets": (_EI, "o[e, i] = exp(-u[e, i]**2)", "u,o f64 n,10"),
}


def _program(name: str) -> Any:
    loops, text, arguments = PROGRAMS[name]
    return made(
        loops,
        text,
        f"{arguments}; n i32",
        split="k:64" if name == "flatten" else "e:32",
        arrays={} if name == "no_offsets" else {"offset": lp.auto},
    )


UNITS: list[Unit] = [
    (name, partial(_program, name), {"n": 1000, **({"nb": 300} if "nb" in loops else {})})
    for name, (loops, _, _) in PROGRAMS.items()
]
