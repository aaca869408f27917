"""Small kernels whose programs are written down by hand."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np

from tests.kernels import made

_SILENCED = ["write_race*", "array_access_out_of_bounds", "iname-order", "v1_scheduler_fallback"]


_WHOLE = "n mod 64 = 0 and n >= 64"


def make(
    loops: str, body: str, arrays: str, *, assumptions: str = "n >= 1", split: str = ""
) -> Any:
    """Return a kernel of single-precision arrays, declared as ``x(n+2) y(n,n)``."""
    declared = [part.rstrip(")").split("(") for part in arrays.split()]
    return made(
        loops,
        body,
        "a f32; n i32",
        *(lp.GlobalArg(name, np.float32, shape=shape) for name, shape in declared),
        assumptions=assumptions,
        silenced_warnings=_SILENCED,
        split=split,
    )


def saxpy(assumptions: str = _WHOLE) -> Any:
    """One work item per element."""
    arrays = "x(n) y(n) z(n)"
    return make("i<n", "z[i] = a*x[i] + y[i]", arrays, assumptions=assumptions, split="i:64")


def guarded_saxpy() -> Any:
    """The same for sizes that fill no group."""
    return saxpy("n >= 1")


def stencil() -> Any:
    """Three neighbors."""
    body = "z[i] = x[i] + x[i + 1] + x[i + 2]"
    return make("i<n", body, "x(n+2) z(n)", assumptions=_WHOLE, split="i:64")


def transpose() -> Any:
    """Reads rows, writes columns; groups of 32 by 8."""
    whole, split = "n mod 32 = 0 and n >= 32", "j:32 i:8:1"
    return make("i<n, j<n", "y[j, i] = x[i, j]", "x(n,n) y(n,n)", assumptions=whole, split=split)


def row_sums() -> Any:
    """A chain of additions over the elements of a triangular row."""
    return make(
        "{ [i, k]: 0 <= k <= i < n }",
        """
        <> total = 0 {id=begin, inames=i}
        total = total + x[k, i] {id=add, dep=begin}
        z[i] = total {dep=add}
        """,
        "x(n,n) z(n)",
        assumptions=_WHOLE,
        split="i:64",
    )


def four_accumulators() -> Any:
    """Four chains, in a private array over an unrolled loop."""
    return make(
        "i<n, k<8, u<4, v<4, w<4",
        """
        <float32> sums[u] = 0 {id=begin, inames=i:u}
        sums[v] = sums[v] + x[4*k + v, i] {id=add, dep=begin}
        y[w, i] = sums[w] {dep=add}
        """,
        "x(32,n) y(4,n)",
        assumptions=_WHOLE,
        split="i:64",
    )
