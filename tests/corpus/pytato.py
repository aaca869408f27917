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
from tests.kernels import arguments_of, made

_AUTO = {"offset": lp.auto}
_NM = "i<n, j<m"

PROGRAMS: dict[str, tuple[str, str, str]] = {
    "axpy": ("i<n", "out[i] = a*x[i] + y[i]", "x,y,out f64 n; a f64; n i32"),
    "roll": ("i<40, j<m", "out[i, j] = x[(i + 37) % 40, j]", "x,out f64 40,m; m i32"),
    "roll_symbolic": ("i<n", "out[i] = x[(i + 1) % n] - x[(i + n - 1) % n]", "x,out f64 n; n i32"),
    "reshape": ("i<12*n", "out[i] = 2*x[i // 12, i % 12]", "x f64 n,12; out f64 12*n; n i32"),
    "reshape_three": (
        "i<n, j<24",
        "out[i, j] = x[i, j // 6, (j // 2) % 3, j % 2]",
        "x f64 n,4,3,2; out f64 n,24; n i32",
    ),
    "reshape_fortran": (
        "i<6, j<n",
        "out[i, j] = x[i % 2, i // 2, j]",
        "x f64 2,3,n; out f64 6,n; n i32",
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
    "transpose": (_NM, "out[j, i] = x[i, j] + 1", "x f64 n,m; out f64 m,n; n,m i32"),
    "matmul": (
        "i<n, j<m, k<l",
        "out[i, j] = sum(k, a[i, k]*b[k, j])",
        "a f64 n,l; b f64 l,m; out f64 n,m; n,m,l i32",
    ),
    "batched_matmul": (
        "e<n, i<8, j<8, k<8",
        "out[e, i, j] = sum(k, a[e, i, k]*b[e, k, j])",
        "a,b,out f64 n,8,8; n i32",
    ),
    "einsum_three": (
        "e<n, i<10, j<10, r<3",
        "out[e, i] = sum([r, j], g[r, e]*d[r, i, j]*u[e, j])",
        "g f64 3,n; d f64 3,10,10; u,out f64 n,10; n i32",
    ),
    "trace": ("i<n", "out = sum(i, a[i, i])", "a f64 n,n; out f64 (); n i32"),
    "sum_axis": (_NM, "out[i] = sum(j, x[i, j])", "x f64 n,m; out f64 n; n,m i32"),
    "sum_integers": (_NM, "out[i] = sum(j, x[i, j]*3)", "x i64 n,m; out i64 n; n,m i32"),
    "max_axis": (_NM, "out[j] = max(i, x[i, j])", "x f64 n,m; out f64 m; n,m i32"),
    "product": (_NM, "out[i] = product(j, x[i, j])", "x f32 n,m; out f32 n; n,m i32"),
    "pad": (
        "i<n+2, j<m+2",
        "out[i, j] = if(i >= 1 and i < n + 1 and j >= 1 and j < m + 1, x[i - 1, j - 1], 0)",
        "x f64 n,m; out f64 n+2,m+2; n,m i32",
    ),
    "where": ("i<n", "out[i] = if(x[i] > 0, x[i], 0.01*x[i])", "x,out f64 n; n i32"),
    "strided_slice": ("i<n", "out[i] = x[3*i + 1]", "x f64 3*n+2; out f64 n; n i32"),
    "reversed": ("i<n", "out[i] = x[n - 1 - i]", "x,out f64 n; n i32"),
    "advanced_index": (
        _NM,
        "out[i, j] = x[rows[i], j]",
        "x f64 l,m; rows i64 n; out f64 n,m; n,m,l i32",
    ),
    "advanced_index_wrapped": (
        "i<n",
        "out[i] = x[if(at[i] >= 0, at[i], at[i] + m)]",
        "x f64 m; at i64 n; out f64 n; n,m i32",
    ),
    "eye": ("i<n, j<n", "out[i, j] = if(i == j, 1.0, 0.0)", "out f64 n,n; n i32"),
    "arange": ("i<n", "out[i] = 0.5 + 0.1*i", "out f64 n; n i32"),
    "functions": ("i<n", "out[i] = sin(x[i])*exp(-x[i]) + sqrt(fabs(x[i]))", "x,out f64 n; n i32"),
    "atan2": ("i<n", "out[i] = atan2(y[i], x[i])", "x,y,out f64 n; n i32"),
    "complex_product": ("i<n", "out[i] = x[i]*y[i] + 2*x[i]", "x,y,out c128 n; n i32"),
    "complex_parts": ("i<n", "out[i] = real(x[i])*imag(x[i])", "x c128 n; out f64 n; n i32"),
    "power": ("i<n", "out[i] = x[i]**3 + x[i]**2", "x,out f64 n; n i32"),
    "two_outputs": (
        "i<n; j<m",
        "a[i] = 2*x[i]\nb[j] = 3*y[j] + 1",
        "x f64 n; y f64 m; a f64 n; b f64 m; n,m i32",
    ),
    # a rule of substitution, with a stencil around it
    "substitution": (
        "i<n",
        "f(p) := 0.5*x[p]*x[p]\nout[i] = f(i + 2) - 2*f(i + 1) + f(i)",
        "x f64 n+2; out f64 n; n i32",
    ),
}
_SPLIT = {"einsum_three": "e:128", "sum_integers": "i:128", "advanced_index": "i:128"}
_POSITIVE = {"matmul": "l", "trace": "n", "sum_axis": "m", "sum_integers": "m", "max_axis": "n",
             "product": "m"}  # fmt: skip
"""Lengths of reductions, which are assumed to be positive; others may be 0."""


def _program(name: str) -> Any:
    loops, text, arguments = PROGRAMS[name]
    size = _POSITIVE.get(name)
    return made(
        loops.split("; "),
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


def _call() -> Any:
    """Call a Loopy function on whole arrays, as `pytato.loopy.call_loopy` does."""
    inner = lp.make_function(
        "{ [p] : 0 <= p < 20 }",
        "r[p] = 2*s[p] + 1",
        [*arguments_of("r f64 20", is_input=False), *arguments_of("s f64 20")],
        name="twice",
        lang_version=(2018, 2),
    )
    outer = made("i<n", "out[i, :] = twice(x[i, :])", "x,out f64 n,20; n i32", assumptions="")
    return lp.merge([outer, inner])


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
    "call": (_call, {"n": 100}),
}
UNITS: list[Unit] = [(name, build, sizes) for name, (build, sizes) in _MAKERS.items()]
