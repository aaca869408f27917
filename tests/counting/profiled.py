"""Small kernels whose programs are written down by hand."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np

from tests.kernels import made

_SILENCED = ["write_race*", "array_access_out_of_bounds", "iname-order", "v1_scheduler_fallback"]


def make(domain: str, instructions: str, arrays: str, *, assumptions: str = "n >= 1") -> Any:
    """Return a kernel of single-precision arrays, declared as ``x(n+2) y(n,n)``."""
    declared = [part.rstrip(")").split("(") for part in arrays.split()]
    return made(
        domain,
        instructions,
        "a f32; n i32",
        *(lp.GlobalArg(name, np.float32, shape=shape) for name, shape in declared),
        assumptions=assumptions,
        silenced_warnings=_SILENCED,
    )


def spread(t_unit: Any, name: str, width: int, axis: int = 0) -> Any:
    """Map a loop to work items and groups."""
    return lp.split_iname(t_unit, name, width, outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")


def saxpy() -> Any:
    """One work item per element."""
    unit = make(
        "{ [i]: 0 <= i < n }",
        "z[i] = a*x[i] + y[i]",
        "x(n) y(n) z(n)",
        assumptions="n mod 64 = 0 and n >= 64",
    )
    return spread(unit, "i", 64)


def guarded_saxpy() -> Any:
    """The same for sizes that fill no group."""
    unit = make("{ [i]: 0 <= i < n }", "z[i] = a*x[i] + y[i]", "x(n) y(n) z(n)")
    return spread(unit, "i", 64)


def stencil() -> Any:
    """Three neighbors."""
    unit = make(
        "{ [i]: 0 <= i < n }",
        "z[i] = x[i] + x[i + 1] + x[i + 2]",
        "x(n+2) z(n)",
        assumptions="n mod 64 = 0 and n >= 64",
    )
    return spread(unit, "i", 64)


def transpose() -> Any:
    """Reads rows, writes columns; groups of 32 by 8."""
    unit = make(
        "{ [i, j]: 0 <= i, j < n }",
        "y[j, i] = x[i, j]",
        "x(n,n) y(n,n)",
        assumptions="n mod 32 = 0 and n >= 32",
    )
    return spread(spread(unit, "j", 32), "i", 8, 1)


def row_sums() -> Any:
    """A chain of additions over the elements of a triangular row."""
    unit = make(
        "{ [i, k]: 0 <= k <= i < n }",
        """
        <> total = 0 {id=begin, inames=i}
        total = total + x[k, i] {id=add, dep=begin}
        z[i] = total {dep=add}
        """,
        "x(n,n) z(n)",
        assumptions="n mod 64 = 0 and n >= 64",
    )
    return spread(unit, "i", 64)


def four_accumulators() -> Any:
    """Four chains, in a private array over an unrolled loop."""
    unit = make(
        "{ [i, k, u, v, w]: 0 <= i < n and 0 <= k < 8 and 0 <= u, v, w < 4 }",
        """
        <float32> sums[u] = 0 {id=begin, inames=i:u}
        sums[v] = sums[v] + x[4*k + v, i] {id=add, dep=begin}
        y[w, i] = sums[w] {dep=add}
        """,
        "x(32,n) y(4,n)",
        assumptions="n mod 64 = 0 and n >= 64",
    )
    return spread(unit, "i", 64)
