"""Kernels in the style of pytato: one instruction for each array of an expression graph.

Arrays begin at an automatic offset, loops are untagged or split once, subscripts are made of
rotations, reshapes and concatenations, and arrays that are kept are temporaries in global memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import TypeCast
from pymbolic import Variable

from tests.corpus import Unit

F4, F8, C16, I4, I8 = np.float32, np.float64, np.complex128, np.int32, np.int64
LANGUAGE: dict[str, Any] = {"lang_version": (2018, 2)}


def _arrays(text: str) -> list[Any]:
    """Return arguments of a text such as ``x f64 n,4; n i32``; those with a shape are arrays."""
    types = {"f32": F4, "f64": F8, "c128": C16, "i32": I4, "i64": I8}
    found: list[Any] = []
    for part in text.split(";"):
        name, dtype, *shape = part.split()
        if shape:
            found.append(lp.GlobalArg(name, types[dtype], shape=shape[0], offset=lp.auto))
        else:
            found.append(lp.ValueArg(name, types[dtype]))
    return found


def _program(
    domain: str | list[str],
    text: str,
    arguments: str,
    *,
    assumptions: str = "",
    split: str = "",
    more: tuple[Any, ...] = (),
) -> Any:
    unit = lp.make_kernel(
        domain,
        text,
        [*_arrays(arguments), *more],
        name="_pt_kernel",
        assumptions=assumptions,
        **LANGUAGE,
    )
    if split:
        unit = lp.split_iname(unit, split, 128, outer_tag="g.0", inner_tag="l.0")
    return unit


_N = "{ [i] : 0 <= i < n }"
_NM = "{ [i, j] : 0 <= i < n and 0 <= j < m }"
_NMK = "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }"

PROGRAMS: dict[str, dict[str, Any]] = {
    "axpy": {
        "domain": _N,
        "text": "out[i] = a*x[i] + y[i]",
        "arguments": "x f64 n; y f64 n; out f64 n; a f64; n i32",
    },
    "roll": {
        "domain": "{ [i, j] : 0 <= i < 40 and 0 <= j < m }",
        "text": "out[i, j] = x[(i + 37) % 40, j]",
        "arguments": "x f64 40,m; out f64 40,m; m i32",
    },
    "roll_symbolic": {
        "domain": _N,
        "text": "out[i] = x[(i + 1) % n] - x[(i + n - 1) % n]",
        "arguments": "x f64 n; out f64 n; n i32",
    },
    "reshape": {
        "domain": "{ [i] : 0 <= i < 12*n }",
        "text": "out[i] = 2*x[i // 12, i % 12]",
        "arguments": "x f64 n,12; out f64 12*n; n i32",
    },
    "reshape_three": {
        "domain": "{ [i, j] : 0 <= i < n and 0 <= j < 24 }",
        "text": "out[i, j] = x[i, j // 6, (j // 2) % 3, j % 2]",
        "arguments": "x f64 n,4,3,2; out f64 n,24; n i32",
    },
    "reshape_fortran": {
        "domain": "{ [i, j] : 0 <= i < 6 and 0 <= j < n }",
        "text": "out[i, j] = x[i % 2, i // 2, j]",
        "arguments": "x f64 2,3,n; out f64 6,n; n i32",
    },
    "concatenate": {
        "domain": "{ [i] : 0 <= i < n + 10 }",
        "text": "out[i] = if(i < 10, x[i], y[i - 10])",
        "arguments": "x f64 10; y f64 n; out f64 n+10; n i32",
    },
    "stack": {
        "domain": "{ [i, j] : 0 <= i < 3 and 0 <= j < n }",
        "text": "out[i, j] = if(i == 0, x[j], if(i == 1, y[j], x[j] + y[j]))",
        "arguments": "x f64 n; y f64 n; out f64 3,n; n i32",
    },
    "transpose": {
        "domain": _NM,
        "text": "out[j, i] = x[i, j] + 1",
        "arguments": "x f64 n,m; out f64 m,n; n i32; m i32",
    },
    "matmul": {
        "domain": _NMK,
        "text": "out[i, j] = sum(k, a[i, k]*b[k, j])",
        "arguments": "a f64 n,l; b f64 l,m; out f64 n,m; n i32; m i32; l i32",
        "assumptions": "l >= 1",
    },
    "batched_matmul": {
        "domain": "{ [e, i, j, k] : 0 <= e < n and 0 <= i, j, k < 8 }",
        "text": "out[e, i, j] = sum(k, a[e, i, k]*b[e, k, j])",
        "arguments": "a f64 n,8,8; b f64 n,8,8; out f64 n,8,8; n i32",
    },
    "einsum_three": {
        "domain": "{ [e, i, j, r] : 0 <= e < n and 0 <= i, j < 10 and 0 <= r < 3 }",
        "text": "out[e, i] = sum([r, j], g[r, e]*d[r, i, j]*u[e, j])",
        "arguments": "g f64 3,n; d f64 3,10,10; u f64 n,10; out f64 n,10; n i32",
        "split": "e",
    },
    "trace": {
        "domain": "{ [i] : 0 <= i < n }",
        "text": "out = sum(i, a[i, i])",
        "arguments": "a f64 n,n; n i32",
        "assumptions": "n >= 1",
        "more": (lp.GlobalArg("out", F8, shape=()),),
    },
    "sum_axis": {
        "domain": _NM,
        "text": "out[i] = sum(j, x[i, j])",
        "arguments": "x f64 n,m; out f64 n; n i32; m i32",
        "assumptions": "m >= 1",
    },
    "sum_integers": {
        "domain": _NM,
        "text": "out[i] = sum(j, x[i, j]*3)",
        "arguments": "x i64 n,m; out i64 n; n i32; m i32",
        "assumptions": "m >= 1",
        "split": "i",
    },
    "max_axis": {
        "domain": _NM,
        "text": "out[j] = max(i, x[i, j])",
        "arguments": "x f64 n,m; out f64 m; n i32; m i32",
        "assumptions": "n >= 1",
    },
    "product": {
        "domain": _NM,
        "text": "out[i] = product(j, x[i, j])",
        "arguments": "x f32 n,m; out f32 n; n i32; m i32",
        "assumptions": "m >= 1",
    },
    "pad": {
        "domain": "{ [i, j] : 0 <= i < n + 2 and 0 <= j < m + 2 }",
        "text": "out[i, j] = if(i >= 1 and i < n + 1 and j >= 1 and j < m + 1, x[i - 1, j - 1], 0)",
        "arguments": "x f64 n,m; out f64 n+2,m+2; n i32; m i32",
    },
    "where": {
        "domain": _N,
        "text": "out[i] = if(x[i] > 0, x[i], 0.01*x[i])",
        "arguments": "x f64 n; out f64 n; n i32",
    },
    "strided_slice": {
        "domain": _N,
        "text": "out[i] = x[3*i + 1]",
        "arguments": "x f64 3*n+2; out f64 n; n i32",
    },
    "reversed": {
        "domain": _N,
        "text": "out[i] = x[n - 1 - i]",
        "arguments": "x f64 n; out f64 n; n i32",
    },
    "advanced_index": {
        "domain": _NM,
        "text": "out[i, j] = x[rows[i], j]",
        "arguments": "x f64 l,m; rows i64 n; out f64 n,m; n i32; m i32; l i32",
        "split": "i",
    },
    "advanced_index_wrapped": {
        "domain": _N,
        "text": "out[i] = x[if(at[i] >= 0, at[i], at[i] + m)]",
        "arguments": "x f64 m; at i64 n; out f64 n; n i32; m i32",
    },
    "eye": {
        "domain": "{ [i, j] : 0 <= i, j < n }",
        "text": "out[i, j] = if(i == j, 1.0, 0.0)",
        "arguments": "out f64 n,n; n i32",
    },
    "arange": {
        "domain": _N,
        "text": "out[i] = 0.5 + 0.1*i",
        "arguments": "out f64 n; n i32",
    },
    "functions": {
        "domain": _N,
        "text": "out[i] = sin(x[i])*exp(-x[i]) + sqrt(fabs(x[i]))",
        "arguments": "x f64 n; out f64 n; n i32",
    },
    "atan2": {
        "domain": _N,
        "text": "out[i] = atan2(y[i], x[i])",
        "arguments": "x f64 n; y f64 n; out f64 n; n i32",
    },
    "complex_product": {
        "domain": _N,
        "text": "out[i] = x[i]*y[i] + 2*x[i]",
        "arguments": "x c128 n; y c128 n; out c128 n; n i32",
    },
    "complex_parts": {
        "domain": _N,
        "text": "out[i] = real(x[i])*imag(x[i])",
        "arguments": "x c128 n; out f64 n; n i32",
    },
    "power": {
        "domain": _N,
        "text": "out[i] = x[i]**3 + x[i]**2",
        "arguments": "x f64 n; out f64 n; n i32",
    },
}
"""Programs of a single instruction by name."""


def _kept() -> Any:
    """Keep an array in global memory between two instructions, which makes two launches."""
    unit = lp.make_kernel(
        "{ [i, j, k] : 0 <= i, j, k < n }",
        """
        kept[i] = x[i]*x[i] {id=first}
        ... gbarrier {id=barrier, dep=first}
        out[j] = kept[j] + kept[n - 1 - j] {id=second, dep=barrier}
        """,
        [
            *_arrays("x f64 n; out f64 n; n i32"),
            lp.TemporaryVariable(
                "kept", F8, shape=(Variable("n"),), address_space=lp.AddressSpace.GLOBAL
            ),
        ],
        name="_pt_kernel",
        assumptions="n >= 1",
        **LANGUAGE,
    )
    unit = lp.remove_unused_inames(unit)
    for name in "ij":
        unit = lp.split_iname(unit, name, 64, outer_tag="g.0", inner_tag="l.0")
    return unit


def _two_outputs() -> Any:
    """Compute two arrays of different sizes in one program."""
    return lp.make_kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < m }"],
        "a[i] = 2*x[i]\nb[j] = 3*y[j] + 1",
        _arrays("x f64 n; y f64 m; a f64 n; b f64 m; n i32; m i32"),
        name="_pt_kernel",
        **LANGUAGE,
    )


def _substitution() -> Any:
    """Evaluate an expression that is a rule of substitution, with a stencil around it."""
    return lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        """
        f(p) := 0.5*x[p]*x[p]
        out[i] = f(i + 2) - 2*f(i + 1) + f(i)
        """,
        _arrays("x f64 n+2; out f64 n; n i32"),
        name="_pt_kernel",
        **LANGUAGE,
    )


def _call() -> Any:
    """Call a Loopy function on whole arrays, as `pytato.loopy.call_loopy` does."""
    inner = lp.make_function(
        "{ [p] : 0 <= p < 20 }",
        "r[p] = 2*s[p] + 1",
        [lp.GlobalArg("r", F8, shape=20, is_input=False), lp.GlobalArg("s", F8, shape=20)],
        name="twice",
        **LANGUAGE,
    )
    outer = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "out[i, :] = twice(x[i, :])",
        [lp.GlobalArg("x,out", F8, shape="n,20"), lp.ValueArg("n", I4)],
        name="_pt_kernel",
        **LANGUAGE,
    )
    return lp.merge([outer, inner])


def _cast() -> Any:
    """Multiply single with double precision, where types are promoted by casts."""
    x, y, i = (Variable(name) for name in "xyi")
    return lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        [lp.Assignment(Variable("out")[i], TypeCast(F8, x[i]) * y[i])],
        _arrays("x f32 n; y f64 n; out f64 n; n i32"),
        name="_pt_kernel",
        **LANGUAGE,
    )


def _numbers(program: dict[str, Any]) -> dict[str, int]:
    """Return sizes of the integer arguments of a program."""
    known = {"n": 1000, "m": 60, "l": 70}
    names = [part.split()[0] for part in program["arguments"].split(";") if "i32" in part]
    return {name: known[name] for name in names if name in known}


def _built(name: str) -> Callable[[], Any]:
    return partial(_program, **PROGRAMS[name])


UNITS: list[Unit] = [
    *((name, _built(name), _numbers(program)) for name, program in PROGRAMS.items()),
    ("cast", _cast, {"n": 1000}),
    ("kept", _kept, {"n": 1024}),
    ("two_outputs", _two_outputs, {"n": 1000, "m": 60}),
    ("substitution", _substitution, {"n": 1000}),
    ("call", _call, {"n": 100}),
]
