"""Kernels in the style of pytato: one instruction for each array of an expression graph.

Arrays begin at an automatic offset, loops are untagged or split once, subscripts are made of
rotations, reshapes and concatenations, and arrays that are kept are temporaries in global memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp
from loopy.symbolic import TypeCast
from pymbolic import Variable

from tests.corpus import Unit
from tests.kernels import made

_AUTO = {"offset": lp.auto}
_NM = "i<n, j<m"

PROGRAMS: dict[str, tuple[str, str, str]] = {
    "axpy": ("i<n", "out[i] = a*x[i] + y[i]", "x,y,out f64 n; a f64; n i32"),
    "roll": ("i<40, j<m", "out[i, j] = x[(i + 37) % 40, j]", "x,out f64 40,m; m i32"),
    "reshape": ("i<12*n", "out[i] = 2*x[i // 12, i % 12]", "x f64 n,12; out f64 12*n; n i32"),
    "reshape_three": (
        "i<n, j<24",
        "out[i, j] = x[i, j // 6, (j // 2) % 3, j % 2]",
        "x f64 n,4,3,2; out f64 n,24; n i32",
    ),
    "concatenate": (
        "i<n+10",
        "out[i] = if(i < 10, x[i], y[i - 10])",
        "x f64 10; y f64 n; out f64 n+10; n i32",
    ),
    "stack": (
        "i<3, j<n",
        "out[i, j] = if(i == 0, x[j], if(i == 1, y[j], x[j] + y[j]))",
        "x,y f64 n; out f64 3,n; n i32",
    ),
    "matmul": (
        "i<n, j<m, k<l",
        "out[i, j] = sum(k, a[i, k]*b[k, j])",
        "a f64 n,l; b f64 l,m; out f64 n,m; n,m,l i32",
    ),
    "einsum_three": (
        "e<n, i<10, j<10, r<3",
        "out[e, i] = sum([r, j], g[r, e]*d[r, i, j]*u[e, j])",
        "g f64 3,n; d f64 3,10,10; u,out f64 n,10; n i32",
    ),
    "sum_integers": (_NM, "out[i] = sum(j, x[i, j]*3)", "x i64 n,m; out i64 n; n,m i32"),
    "max_axis": (_NM, "out[j] = max(i, x[i, j])", "x f64 n,m; out f64 m; n,m i32"),
    "pad": (
        "i<n+2, j<m+2",
        "out[i, j] = if(i >= 1 and i < n + 1 and j >= 1 and j < m + 1, x[i - 1, j - 1], 0)",
        "x f64 n,m; out f64 n+2,m+2; n,m i32",
    ),
    "strided_slice": ("i<n", "out[i] = x[3*i + 1]", "x f64 3*n+2; out f64 n; n i32"),
    "reversed": ("i<n", "out[i] = x[n - 1 - i]", "x,out f64 n; n i32"),
    "eye": ("i<n, j<n", "out[i, j] = if(i == j, 1.0, 0.0)", "out f64 n,n; n i32"),
    "complex_product": ("i<n", "out[i] = x[i]*y[i] + 2*x[i]", "x,y,out c128 n; n i32"),
    "complex_parts": ("i<n", "out[i] = real(x[i])*imag(x[i])", "x c128 n; out f64 n; n i32"),
    "power": ("i<n", "out[i] = x[i]**3 + x[i]**2", "x,out f64 n; n i32"),
    # a rule of substitution, with a stencil around it
    "substitution": (
        "i<n",
        "f(p) := 0.5*x[p]*x[p]\nout[i] = f(i + 2) - 2*f(i + 1) + f(i)",
        "x f64 n+2; out f64 n; n i32",
    ),
}
_SPLIT = {"einsum_three": "e:128", "sum_integers": "i:128"}
_POSITIVE = {"matmul": "l", "sum_integers": "m", "max_axis": "n"}
"""Lengths of reductions, which are assumed to be positive; others may be 0."""


def _program(name: str) -> Any:
    loops, text, arguments = PROGRAMS[name]
    size = _POSITIVE.get(name)
    return made(
        loops,
        text,
        arguments,
        assumptions=f"{size} >= 1" if size else "",
        split=_SPLIT.get(name, ""),
        arrays=_AUTO,
    )


def _kept() -> Any:
    """Keep an array in global memory between two instructions, which makes two launches."""
    return made(
        "i<n, j<n",
        """
        kept[i] = x[i]*x[i] {id=first}
        ... gbarrier {id=barrier, dep=first}
        out[j] = kept[j] + kept[n - 1 - j] {id=second, dep=barrier}
        """,
        "x,out f64 n; kept f64 n global; n i32",
        split="i:64 j:64",
        arrays=_AUTO,
    )


def _cast() -> Any:
    """Multiply single with double precision, where types are promoted by casts."""
    x, y, out, i = (Variable(name) for name in ("x", "y", "out", "i"))
    product = TypeCast("float64", x[i]) * y[i]
    arguments = "x f32 n; y,out f64 n; n i32"
    return made("i<n", [lp.Assignment(out[i], product)], arguments, assumptions="", arrays=_AUTO)


_SIZES = {"n": 1000, "m": 60, "l": 70}
_MAKERS: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    **{
        name: (
            partial(_program, name),
            {size: _SIZES[size] for size in arguments.split("; ")[-1].split()[0].split(",")},
        )
        for name, (_, _, arguments) in PROGRAMS.items()
    },
    "cast": (_cast, {"n": 1000}),
    "kept": (_kept, {"n": 1024}),
}
UNITS: list[Unit] = [(name, build, sizes) for name, (build, sizes) in _MAKERS.items()]
