"""Kernels in the style of TSFC, PyOP2 and feinsum: element tensors, gathers, contractions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from tests.corpus import Unit
from tests.kernels import arguments_of, made

_DETERMINANT = """
<> j00 = x[2] - x[0] {id=j00}
<> j01 = x[4] - x[0] {id=j01}
<> j10 = x[3] - x[1] {id=j10}
<> j11 = x[5] - x[1] {id=j11}
<> det = fabs(j00*j11 - j01*j10) {id=det, dep=j00:j01:j10:j11}
"""


def _local(points: int, basis: int, body: str, arguments: str, *, has_end: bool = True) -> Any:
    """Return an element kernel: quadrature and basis loops, tables, and an empty instruction."""
    text = body if "det" not in body else _DETERMINANT + body
    shapes = {"w": (points,), "phi": (points, basis), "dphi": (2, points, basis)}
    tables = [
        lp.TemporaryVariable(
            name,
            np.float64,
            shape=shape,
            initializer=np.ones(shape),
            read_only=True,
            address_space=lp.AddressSpace.GLOBAL,
        )
        for name, shape in shapes.items()
        if f"{name}[" in text
    ]
    return made(
        f"q<{points}, i<{basis}, j<{basis}, k<{basis}, d<2",
        [text, *([lp.CInstruction((), "", id="end")] if has_end else [])],
        arguments,
        *tables,
    )


_ELEMENTS: dict[str, tuple[int, int, str, str]] = {
    "mass_p1": (
        *(3, 3, "A[i, j] = A[i, j] + sum(q, w[q]*phi[q, i]*phi[q, j])*det {dep=det}"),
        "A f64 3,3; x f64 6",
    ),
    "mass_p2": (
        *(6, 6, "A[i, j] = A[i, j] + sum(q, w[q]*phi[q, i]*phi[q, j])*det {dep=det}"),
        "A f64 6,6; x f64 6",
    ),
    "stiffness": (
        *(3, 6, "A[i, j] = A[i, j] + sum((q, d), w[q]*dphi[d, q, i]*dphi[d, q, j])*det {dep=det}"),
        "A f64 6,6; x f64 6",
    ),
    "action": (
        *(6, 6, "A[i] = A[i] + sum(q, w[q]*phi[q, i]*sum(j, phi[q, j]*u[j]))*det {dep=det}"),
        "A,u,x f64 6",
    ),
    "helmholtz": (
        3,
        3,
        """
        A[i, j] = A[i, j] + det*(sum(q, w[q]*phi[q, i]*phi[q, j])
            + sum((q, d), w[q]*dphi[d, q, i]*dphi[d, q, j])) {dep=det}
        """,
        "A f64 3,3; x f64 6",
    ),
    "nonlinear": (
        6,
        6,
        """
        for q
            <> uq = sum(j, phi[q, j]*u[j]) {id=uq}
            <> flow = (1 + uq*uq)**1.5 {id=flow, dep=uq}
            for i
                A[i] = A[i] + w[q]*flow*det*phi[q, i] {dep=flow:det}
            end
        end
        """,
        "A,u,x f64 6",
    ),
    "upwind": (
        2,
        3,
        """
        for q
            <> un = sum(j, phi[q, j]*v[j]) {id=un}
            <> up = 0.5*(un + fabs(un)) {id=up, dep=un}
            for i
                A[i] = A[i] + w[q]*up*phi[q, i]*sum(k, phi[q, k]*u[k]) {dep=up}
            end
        end
        """,
        "A,u,v f64 3",
    ),
    "evaluation": (6, 6, "A[q] = sum(j, phi[q, j]*u[j])", "A,u f64 6"),
    "elasticity": (
        3,
        3,
        """
        A[i, d, j] = A[i, d, j] + sum(q, w[q]*(2*mu*dphi[d, q, i]*dphi[d, q, j]
            + lam*dphi[d, q, i]*(dphi[0, q, j] + dphi[1, q, j])))
        """,
        "A f64 3,2,3; mu,lam f64 ()",
    ),
}


def _wrapped(dofs: int) -> Any:
    """Return a loop over cells that gathers, calls an element kernel, and scatters."""
    element = lp.make_function(
        f"{{ [i, j] : 0 <= i, j < {dofs} }}",
        "A[i] = A[i] + sum(j, M[i, j]*u[j]) {id=A}",
        [
            *arguments_of(f"A f64 {dofs}", is_input=True, is_output=True),
            *arguments_of(f"u f64 {dofs}; M f64 {dofs},{dofs}"),
        ],
        name="element",
        lang_version=(2018, 2),
    )
    wrapper = made(
        f"c<n, i0<{dofs}, i1<{dofs}, i2<{dofs}",
        """
        for c
            for i0
                t_u[i0] = u[cells[c, i0]] {id=gather}
            end
            for i1
                t_a[i1] = 0.0 {id=zero}
            end
            t_a[:] = element(t_a[:], t_u[:], M[:, :]) {id=call, dep=gather:zero}
            for i2
                y[cells[c, i2]] = y[cells[c, i2]] + t_a[i2] {dep=call}
            end
        end
        """,
        f"u,y f64 n_dofs; cells i32 n,{dofs}; M f64 {dofs},{dofs};"
        f"t_u,t_a f64 {dofs} -; n,n_dofs i32",
    )
    return lp.inline_callable_kernel(lp.merge([wrapper, element]), "element")


def _extruded() -> Any:
    """Return a loop over columns of cells whose layers data bounds."""
    return made(
        ["c<n", "bottom<=l<top, i<6"],
        """
        for c
            <> bottom = layers[c, 0] {id=bottom}
            <> top = layers[c, 1] {id=top}
            for l, i
                y[cells[c, i] + l] = y[cells[c, i] + l] + 0.5*h {dep=bottom:top}
            end
        end
        """,
        "layers i32 n,2; cells i32 n,6; y f64 n_dofs; h f64; n,n_dofs i32",
    )


def _contracted(subscripts: str, kind: str = "f64", *, split: str = "e:32") -> Any:
    """Return a batched contraction, over elements in ``e``."""
    inputs, output = subscripts.split("->")
    operands = inputs.split(",")
    names = sorted(set("".join(operands)))
    summed = [name for name in names if name not in output]
    factors = [f"a{k}[{', '.join(operand)}]" for k, operand in enumerate(operands)]
    arrays = {**{f"a{k}": operand for k, operand in enumerate(operands)}, "o": output}
    return made(
        ", ".join(f"{name}<{_EXTENTS[name]}" for name in names),
        f"o[{', '.join(output)}] = sum(({', '.join(summed)},), {'*'.join(factors)})",
        "; ".join(
            f"{array} {kind} {','.join(_EXTENTS[name] for name in axes)}"
            for array, axes in arrays.items()
        )
        + "; n i32",
        split=split,
    )


_EXTENTS = {"e": "n", "i": "35", "j": "35", "f": "4", "x": "3", "r": "3", "k": "15"}
_EINSUMS = {
    "local_derivative": "xre,rij,ej->xei",
    "local_divergence": "xre,rij,xej->ei",
    "face_mass": "ifk,fe,fek->ei",
    "mass": "ij,e,ej->ei",
    "batched_matvec": "eij,ej->ei",
}

_MAKERS: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    **{f"element_{name}": (partial(_local, *parts), {}) for name, parts in _ELEMENTS.items()},
    "element_without_end": (partial(_local, *_ELEMENTS["mass_p1"], has_end=False), {}),
    "cells_inlined": (partial(_wrapped, 3), {"n": 1000, "n_dofs": 600}),
    "cells_p2": (partial(_wrapped, 6), {"n": 1000, "n_dofs": 2100}),
    "extruded": (_extruded, {"n": 500, "n_dofs": 9000}),
    **{
        f"einsum_{name}": (partial(_contracted, text), {"n": 1000})
        for name, text in _EINSUMS.items()
    },
    "einsum_untransformed": (partial(_contracted, _EINSUMS["mass"], split=""), {"n": 1000}),
    "einsum_f32": (partial(_contracted, _EINSUMS["face_mass"], "f32"), {"n": 1000}),
}

UNITS: list[Unit] = [(name, make, sizes) for name, (make, sizes) in _MAKERS.items()]
