"""Kernels in the style of TSFC, PyOP2 and feinsum: element tensors, gathers, contractions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from tests.corpus import Unit

F4, F8, I4 = np.float32, np.float64, np.int32
_DETERMINANT = """
<> j00 = x[2] - x[0] {id=j00}
<> j01 = x[4] - x[0] {id=j01}
<> j10 = x[3] - x[1] {id=j10}
<> j11 = x[5] - x[1] {id=j11}
<> det = fabs(j00*j11 - j01*j10) {id=det, dep=j00:j01:j10:j11}
"""


def _local(
    points: int, basis: int, body: str, arrays: dict[str, str], *, has_end: bool = True
) -> Any:
    """Return an element kernel: quadrature and basis loops, tables, and an empty instruction."""
    tables = {
        "w": lp.TemporaryVariable(
            "w", F8, shape=(points,), initializer=np.ones(points), read_only=True,
            address_space=lp.AddressSpace.GLOBAL,
        ),
        "phi": lp.TemporaryVariable(
            "phi", F8, shape=(points, basis), initializer=np.ones((points, basis)),
            read_only=True, address_space=lp.AddressSpace.GLOBAL,
        ),
        "dphi": lp.TemporaryVariable(
            "dphi", F8, shape=(2, points, basis), initializer=np.ones((2, points, basis)),
            read_only=True, address_space=lp.AddressSpace.GLOBAL,
        ),
    }  # fmt: skip
    text = body if "det" not in body else _DETERMINANT + body
    return lp.make_kernel(
        f"{{ [q, i, j, k, d] : 0 <= q < {points} and 0 <= i, j, k < {basis} and 0 <= d < 2 }}",
        [
            text,
            *([lp.CInstruction((), "", id="end")] if has_end else []),
        ],
        [
            *(lp.GlobalArg(name, F8, shape=shape) for name, shape in arrays.items()),
            *(table for name, table in tables.items() if f"{name}[" in text),
        ],
        name="element",
        lang_version=(2018, 2),
    )


_ELEMENTS: dict[str, tuple[int, int, str, dict[str, str]]] = {
    "mass_p1": (
        *(3, 3, "A[i, j] = A[i, j] + sum(q, w[q]*phi[q, i]*phi[q, j])*det {dep=det}"),
        {"A": "3,3", "x": "6"},
    ),
    "mass_p2": (
        *(6, 6, "A[i, j] = A[i, j] + sum(q, w[q]*phi[q, i]*phi[q, j])*det {dep=det}"),
        {"A": "6,6", "x": "6"},
    ),
    "stiffness": (
        3,
        6,
        "A[i, j] = A[i, j] + sum((q, d), w[q]*dphi[d, q, i]*dphi[d, q, j])*det {dep=det}",
        {"A": "6,6", "x": "6"},
    ),
    "action": (
        *(6, 6, "A[i] = A[i] + sum(q, w[q]*phi[q, i]*sum(j, phi[q, j]*u[j]))*det {dep=det}"),
        {"A": "6", "u": "6", "x": "6"},
    ),
    "helmholtz": (
        3,
        3,
        """
        A[i, j] = A[i, j] + det*(sum(q, w[q]*phi[q, i]*phi[q, j])
            + sum((q, d), w[q]*dphi[d, q, i]*dphi[d, q, j])) {dep=det}
        """,
        {"A": "3,3", "x": "6"},
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
        {"A": "6", "u": "6", "x": "6"},
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
        {"A": "3", "u": "3", "v": "3"},
    ),
    "evaluation": (*(6, 6, "A[q] = sum(j, phi[q, j]*u[j])"), {"A": "6", "u": "6"}),
    "elasticity": (
        3,
        3,
        """
        A[i, d, j] = A[i, d, j] + sum(q, w[q]*(2*mu*dphi[d, q, i]*dphi[d, q, j]
            + lam*dphi[d, q, i]*(dphi[0, q, j] + dphi[1, q, j])))
        """,
        {"A": "3,2,3", "mu": "()", "lam": "()"},
    ),
}


def _wrapped(*, is_inlined: bool, dofs: int = 3) -> Any:
    """Return a loop over cells that gathers, calls an element kernel, and scatters."""
    element = lp.make_function(
        f"{{ [i, j] : 0 <= i, j < {dofs} }}",
        "A[i] = A[i] + sum(j, M[i, j]*u[j]) {id=A}",
        [
            lp.GlobalArg("A", F8, shape=(dofs,), is_input=True, is_output=True),
            lp.GlobalArg("u", F8, shape=(dofs,)),
            lp.GlobalArg("M", F8, shape=(dofs, dofs)),
        ],
        name="element",
        lang_version=(2018, 2),
    )
    wrapper = lp.make_kernel(
        f"{{ [c, i0, i1, i2] : 0 <= c < n and 0 <= i0, i1, i2 < {dofs} }}",
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
        [
            lp.GlobalArg("u,y", F8, shape="n_dofs"),
            lp.GlobalArg("cells", I4, shape=f"n,{dofs}"),
            lp.GlobalArg("M", F8, shape=(dofs, dofs)),
            lp.TemporaryVariable("t_u", F8, shape=(dofs,)),
            lp.TemporaryVariable("t_a", F8, shape=(dofs,)),
            lp.ValueArg("n,n_dofs", I4),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    unit = lp.merge([wrapper, element])
    return lp.inline_callable_kernel(unit, "element") if is_inlined else unit


def _extruded() -> Any:
    """Return a loop over columns of cells whose layers data bounds."""
    return lp.make_kernel(
        ["{ [c] : 0 <= c < n }", "{ [l, i] : bottom <= l < top and 0 <= i < 6 }"],
        """
        for c
            <> bottom = layers[c, 0] {id=bottom}
            <> top = layers[c, 1] {id=top}
            for l, i
                y[cells[c, i] + l] = y[cells[c, i] + l] + 0.5*h {dep=bottom:top}
            end
        end
        """,
        [
            lp.GlobalArg("layers", I4, shape="n,2"),
            lp.GlobalArg("cells", I4, shape="n,6"),
            lp.GlobalArg("y", F8, shape="n_dofs"),
            lp.ValueArg("h", F8),
            lp.ValueArg("n,n_dofs", I4),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )


def _contracted(
    subscripts: str, extents: dict[str, int | str], *, dtype: Any = F8, is_tiled: bool = True
) -> Any:
    """Return a batched contraction, over elements in ``e``."""
    inputs, output = subscripts.split("->")
    operands = inputs.split(",")
    names = sorted(set("".join(operands)))
    summed = [name for name in names if name not in output]
    shape = {name: str(extents[name]) for name in names}
    product = "*".join(f"a{k}[{', '.join(each)}]" for k, each in enumerate(operands))
    bounds = " and ".join(f"0 <= {name} < {shape[name]}" for name in names)
    unit = lp.make_kernel(
        f"{{ [{', '.join(names)}] : {bounds} }}",
        f"o[{', '.join(output)}] = sum(({', '.join(summed)},), {product})",
        [
            *(
                lp.GlobalArg(f"a{k}", dtype, shape=",".join(shape[name] for name in each))
                for k, each in enumerate(operands)
            ),
            lp.GlobalArg("o", dtype, shape=",".join(shape[name] for name in output)),
            lp.ValueArg("n", I4),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    if is_tiled:
        unit = lp.split_iname(unit, "e", 32, outer_tag="g.0", inner_tag="l.0")
    return unit


_EXTENTS: dict[str, int | str] = {"e": "n", "i": 35, "j": 35, "f": 4, "x": 3, "r": 3, "k": 15}
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
    "cells_calling": (partial(_wrapped, is_inlined=False), {"n": 1000, "n_dofs": 600}),
    "cells_inlined": (partial(_wrapped, is_inlined=True), {"n": 1000, "n_dofs": 600}),
    "cells_p2": (partial(_wrapped, is_inlined=True, dofs=6), {"n": 1000, "n_dofs": 2100}),
    "extruded": (_extruded, {"n": 500, "n_dofs": 9000}),
    **{
        f"einsum_{name}": (partial(_contracted, text, _EXTENTS), {"n": 1000})
        for name, text in _EINSUMS.items()
    },
    "einsum_untransformed": (
        partial(_contracted, _EINSUMS["mass"], _EXTENTS, is_tiled=False),
        {"n": 1000},
    ),
    "einsum_f32": (partial(_contracted, _EINSUMS["face_mass"], _EXTENTS, dtype=F4), {"n": 1000}),
}

UNITS: list[Unit] = [(name, make, sizes) for name, (make, sizes) in _MAKERS.items()]
