"""Kernels in the style of arraycontext and of discontinuous Galerkin codes upon it.

Element-wise functions and einsums over elements and nodes, resampling between discretizations by
index arrays, and reductions. Arrays have automatic offsets, some have automatic strides; loops over
elements are split into groups of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from tests.corpus import Unit

F4, F8, C16, I4, I8, B = np.float32, np.float64, np.complex128, np.int32, np.int64, np.int8
LANGUAGE: dict[str, Any] = {"lang_version": (2018, 2)}


def _array(name: str, dtype: Any, shape: Any, **more: Any) -> Any:
    return lp.GlobalArg(name, dtype, shape=shape, offset=lp.auto, **more)


def _elements(unit: Any, iname: str = "e") -> Any:
    """Split the loop over elements as the transformations of array contexts do."""
    return lp.split_iname(unit, iname, 16, outer_tag="g.0", inner_tag="l.0")


def _elementwise(text: str, *, dtype: Any = F8, order: str = "C", flat: bool = False) -> Any:
    """Apply a function to every node of every element."""
    shape = "n" if flat else "n,m"
    domain = "{ [e] : 0 <= e < n }" if flat else "{ [e, i] : 0 <= e < n and 0 <= i < m }"
    unit = lp.make_kernel(
        domain,
        text.replace("@", "e" if flat else "e, i"),
        [
            *(_array(name, dtype, shape, order=order) for name in ("x", "y", "out")),
            lp.ValueArg("n" if flat else "n,m", I4),
        ],
        name="actx_special",
        assumptions="n >= 1" if flat else "n >= 1 and m >= 1",
        **LANGUAGE,
    )
    return _elements(lp.remove_unused_arguments(unit) if "y[" not in text else unit)


def _einsum(
    text: str,
    arrays: dict[str, str],
    extents: Mapping[str, str | int],
    *,
    dtype: Any = F8,
    symbolic_strides: bool = False,
    split: bool = True,
) -> Any:
    """Contract arrays over elements, nodes, axes and faces."""
    bounds = " and ".join(f"0 <= {name} < {extent}" for name, extent in extents.items())
    unit = lp.make_kernel(
        f"{{ [{', '.join(extents)}] : {bounds} }}",
        text,
        [
            *(
                _array(
                    name,
                    dtype,
                    shape,
                    **(
                        {"dim_tags": ",".join(["stride:auto"] * (shape.count(",") + 1))}
                        if symbolic_strides
                        else {}
                    ),
                )
                for name, shape in arrays.items()
            ),
            lp.ValueArg("n", I4),
        ],
        name="einsum",
        assumptions="n >= 1",
        **LANGUAGE,
    )
    return _elements(unit) if split else unit


def _reduction(operation: str, *, dtype: Any = F8, value: str = "x[e, i]") -> Any:
    """Reduce all nodes to one number, sequentially as the default transformation leaves it."""
    return lp.make_kernel(
        "{ [e, i] : 0 <= e < n and 0 <= i < m }",
        f"out[0] = {operation}([e, i], {value})",
        [
            _array("x,y", dtype, "n,m"),
            _array("out", np.dtype(dtype).type(0).real.dtype if "abs" in value else dtype, "1"),
            lp.ValueArg("n,m", I4),
        ],
        name="reduction",
        assumptions="n >= 1 and m >= 1",
        **LANGUAGE,
    )


def _resample_by_picking(*, is_partial: bool = False, dtype: Any = F8) -> Any:
    """Take nodes of other elements, chosen by two levels of index arrays."""
    value = "vec[from_elements[e], picks[lists[e], i]]"
    if is_partial:
        value = f"if(from_elements[e] >= 0, {value}, 0)"
    return _elements(
        lp.make_kernel(
            "{ [e, i] : 0 <= e < n and 0 <= i < nodes }",
            f"out[e, i] = {value}",
            [
                _array("vec", dtype, "n_from,nodes_from"),
                _array("from_elements,lists", I4, "n"),
                _array("picks", I4, "n_lists,nodes"),
                _array("out", dtype, "n,nodes"),
                lp.ValueArg("n,nodes,n_from,nodes_from,n_lists", I4),
            ],
            name="resample_by_picking",
            assumptions="n >= 1 and nodes >= 1",
            **LANGUAGE,
        )
    )


def _resample_by_matrix() -> Any:
    """Interpolate from other elements, which index arrays choose."""
    return _elements(
        lp.make_kernel(
            "{ [e, i, j] : 0 <= e < n and 0 <= i < 6 and 0 <= j < 10 }",
            "out[to_elements[e], i] = sum(j, matrix[i, j]*vec[from_elements[e], j])",
            [
                _array("vec", F8, "n_from,10"),
                _array("out", F8, "n_to,6"),
                _array("matrix", F8, "6,10"),
                _array("from_elements,to_elements", I4, "n"),
                lp.ValueArg("n,n_from,n_to", I4),
            ],
            name="resample_by_matrix",
            assumptions="n >= 1",
            **LANGUAGE,
        )
    )


def _flux() -> Any:
    """Evaluate an upwind flux at the nodes of faces."""
    return _elements(
        lp.make_kernel(
            "{ [e, i] : 0 <= e < n and 0 <= i < 6 }",
            """
            <> normal_velocity = nx[e, i]*vx + ny[e, i]*vy
            <> average = 0.5*(u[e, i] + v[e, i])
            <> jump = u[e, i] - v[e, i]
            out[e, i] = normal_velocity*average + 0.5*fabs(normal_velocity)*jump
            """,
            [
                _array("u,v,nx,ny,out", F8, "n,6"),
                lp.ValueArg("vx,vy", F8),
                lp.ValueArg("n", I4),
            ],
            name="flux",
            assumptions="n >= 1",
            **LANGUAGE,
        )
    )


def _from_faces() -> Any:
    """Add the values of faces to the nodes of elements, face by face."""
    return _elements(
        lp.make_kernel(
            "{ [e, i, f] : 0 <= e < n and 0 <= i < 10 and 0 <= f < 3 }",
            "out[e, i] = sum(f, if(at[e, f] >= 0, faces[f, at[e, f], i], 0))",
            [
                _array("out", F8, "n,10"),
                _array("at", I4, "n,3"),
                _array("faces", F8, "3,n_faces,10"),
                lp.ValueArg("n,n_faces", I4),
            ],
            name="from_faces",
            assumptions="n >= 1",
            **LANGUAGE,
        )
    )


def _gas(dim: int) -> Any:
    """Evaluate the fluxes of an ideal gas from conserved variables."""
    momentum = " + ".join(f"q[{2 + axis}, e, i]**2" for axis in range(dim))
    fluxes = "\n".join(
        f"flux[{2 + a}, e, i] = q[{2 + a}, e, i]*q[2, e, i]/q[0, e, i]{' + p' if a == 0 else ''}"
        for a in range(dim)
    )
    return _elements(
        lp.make_kernel(
            "{ [e, i] : 0 <= e < n and 0 <= i < 10 }",
            f"""
            <> p = 0.4*(q[1, e, i] - 0.5*({momentum})/q[0, e, i])
            flux[0, e, i] = q[2, e, i]
            flux[1, e, i] = (q[1, e, i] + p)*q[2, e, i]/q[0, e, i]
            {fluxes}
            """,
            [_array("q,flux", F8, f"{dim + 2},n,10"), lp.ValueArg("n", I4)],
            name="gas",
            assumptions="n >= 1",
            **LANGUAGE,
        )
    )


def _limiter() -> Any:
    """Limit the values of elements to a range around their mean."""
    return _elements(
        lp.make_kernel(
            "{ [e, i, j, k, l] : 0 <= e < n and 0 <= i, j, k, l < 6 }",
            """
            <> mean = sum(i, w[i]*u[e, i])
            <> low = min(j, u[e, j])
            <> high = max(k, u[e, k])
            <> theta = fmin(1.0, fmin(fabs((top - mean)/(high - mean + 1e-13)), \
                fabs((bottom - mean)/(low - mean + 1e-13))))
            out[e, l] = theta*(u[e, l] - mean) + mean
            """,
            [
                _array("u,out", F8, "n,6"),
                _array("w", F8, "6"),
                lp.ValueArg("top,bottom", F8),
                lp.ValueArg("n", I4),
            ],
            name="limiter",
            assumptions="n >= 1",
            **LANGUAGE,
        )
    )


DERIVATIVE = ({"d": "2,10,10", "u": "n,10", "out": "2,n,10"}, {"e": "n", "i": 10, "j": 10, "r": 2})
NODES = {"n": 1000, "m": 10}
PICKS = {"n": 500, "nodes": 6, "n_from": 400, "nodes_from": 10, "n_lists": 3}


def _unit(name: str, build: Callable[[], Any], sizes: dict[str, int]) -> Unit:
    return name, build, sizes


ELEMENTWISE = {
    "add": "out[@] = x[@] + y[@]",
    "divide": "out[@] = x[@] / y[@]",
    "sine": "out[@] = sin(x[@])",
    "exponential": "out[@] = exp(x[@])*y[@]",
    "arctan2": "out[@] = atan2(x[@], y[@])",
    "maximum": "out[@] = fmax(x[@], y[@])",
    "where": "out[@] = if(x[@] > y[@], x[@], y[@])",
    "logarithm": "out[@] = log(x[@]) + tanh(y[@])",
}

UNITS: list[Unit] = [
    *(
        _unit(f"elementwise_{name}", partial(_elementwise, text), NODES)
        for name, text in ELEMENTWISE.items()
    ),
    _unit("elementwise_f32", partial(_elementwise, ELEMENTWISE["add"], dtype=F4), NODES),
    _unit("elementwise_complex", partial(_elementwise, "out[@] = x[@]*y[@]", dtype=C16), NODES),
    _unit("elementwise_columns", partial(_elementwise, ELEMENTWISE["add"], order="F"), NODES),
    _unit("elementwise_flat", partial(_elementwise, ELEMENTWISE["add"], flat=True), {"n": 9999}),
    _unit(
        "einsum_mass",
        partial(
            _einsum,
            "out[e, i] = sum(j, mass[i, j]*u[e, j]*jac[e, j])",
            {"mass": "10,10", "u": "n,10", "jac": "n,10", "out": "n,10"},
            {"e": "n", "i": 10, "j": 10},
        ),
        {"n": 1000},
    ),
    _unit(
        "einsum_derivative",
        partial(_einsum, "out[r, e, i] = sum(j, d[r, i, j]*u[e, j])", *DERIVATIVE),
        {"n": 1000},
    ),
    _unit(
        "einsum_derivative_f32",
        partial(_einsum, "out[r, e, i] = sum(j, d[r, i, j]*u[e, j])", *DERIVATIVE, dtype=F4),
        {"n": 1000},
    ),
    _unit(
        "einsum_derivative_whole",
        partial(_einsum, "out[r, e, i] = sum(j, d[r, i, j]*u[e, j])", *DERIVATIVE, split=False),
        {"n": 1000},
    ),
    _unit(
        "einsum_divergence",
        partial(
            _einsum,
            "out[e, i] = sum([x, r, j], g[x, r, e, j]*d[r, i, j]*u[x, e, j])",
            {"g": "2,2,n,10", "d": "2,10,10", "u": "2,n,10", "out": "n,10"},
            {"e": "n", "i": 10, "j": 10, "x": 2, "r": 2},
        ),
        {"n": 1000},
    ),
    _unit(
        "einsum_faces",
        partial(
            _einsum,
            "out[e, i] = sum([f, j], lift[i, f, j]*scale[f, e]*flux[f, e, j])",
            {"lift": "10,3,4", "scale": "3,n", "flux": "3,n,4", "out": "n,10"},
            {"e": "n", "i": 10, "j": 4, "f": 3},
        ),
        {"n": 1000},
    ),
    _unit(
        "einsum_strides",
        partial(
            _einsum,
            "out[e, i] = sum(j, mass[i, j]*u[e, j])",
            {"mass": "10,10", "u": "n,10", "out": "n,10"},
            {"e": "n", "i": 10, "j": 10},
            symbolic_strides=True,
        ),
        {"n": 1000},
    ),
    _unit("reduction_sum", partial(_reduction, "sum"), NODES),
    _unit("reduction_max", partial(_reduction, "max", value="fabs(x[e, i])"), NODES),
    _unit("reduction_dot", partial(_reduction, "sum", value="x[e, i]*y[e, i]"), NODES),
    _unit("reduction_integers", partial(_reduction, "sum", dtype=I8), NODES),
    _unit(
        "reduction_complex_norm",
        partial(_reduction, "sum", dtype=C16, value="abs(x[e, i])**2"),
        NODES,
    ),
    _unit("resample_by_picking", _resample_by_picking, PICKS),
    _unit("resample_by_picking_partial", partial(_resample_by_picking, is_partial=True), PICKS),
    _unit("resample_by_picking_f32", partial(_resample_by_picking, dtype=F4), PICKS),
    _unit("resample_by_matrix", _resample_by_matrix, {"n": 300, "n_from": 400, "n_to": 300}),
    _unit("flux", _flux, {"n": 3000}),
    _unit("from_faces", _from_faces, {"n": 1000, "n_faces": 900}),
    _unit("gas_2d", partial(_gas, 2), {"n": 1000}),
    _unit("gas_3d", partial(_gas, 3), {"n": 1000}),
    _unit("limiter", _limiter, {"n": 1000}),
]
