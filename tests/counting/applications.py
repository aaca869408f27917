"""Application kernels in the style of PolyBench 4.2.1 (Pouchet and Yuki), and a sparse product.

Each is written in Loopy from the mathematics, mapped to work groups as a user would: tiles that
need not divide the sizes, local memory, several launches where phases depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import loopy as lp
import numpy as np

TILE = 4


@dataclass(frozen=True, kw_only=True)
class Application:
    """A kernel and two sets of sizes.

    Attributes
    ----------
    build : callable
        Makes the kernel.
    sizes : pair of mappings
        Values of the parameters.
    statistics : mapping from str to number
        What data decides, at both sizes.
    contents : callable
        From parameters to the contents of arrays on which control flow or addresses depend.
    """

    build: Callable[[], Any]
    sizes: tuple[Mapping[str, int], Mapping[str, int]]
    statistics: Mapping[str, Fraction | int] = field(default_factory=dict[str, int])
    contents: Callable[[Mapping[str, int]], Mapping[str, Sequence[int]]] = lambda _: {}


def _make(
    domains: Any,
    body: str,
    arrays: Mapping[str, Any],
    sizes: str,
    assumptions: str,
    *,
    scalars: str = "",
    dtype: Any = np.float32,
) -> Any:
    arguments: list[Any] = [lp.GlobalArg(names, dtype, shape=s) for names, s in arrays.items()]
    arguments += [lp.ValueArg(sizes, np.int32)]
    arguments += [lp.ValueArg(scalars, dtype)] if scalars else []
    return lp.make_kernel(domains, body, arguments, assumptions=assumptions, lang_version=(2018, 2))


def _spread(t_unit: Any, *inames: str, width: int = TILE) -> Any:
    """Map loops to group and local axes in tiles; the last one to axis 0."""
    for axis, iname in enumerate(reversed(inames)):
        t_unit = lp.split_iname(t_unit, iname, width, outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    return t_unit


def gemm() -> Any:
    kernel = _make(
        "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }",
        "c[i, j] = beta*c[i, j] + alpha*sum(k, a[i, k]*b[k, j])",
        {"a": ("n", "l"), "b": ("l", "m"), "c": ("n", "m")},
        "n,m,l",
        "n >= 4 and n mod 4 = 0 and m >= 4 and m mod 4 = 0 and l >= 4 and l mod 4 = 0",
        scalars="alpha,beta",
    )
    kernel = _spread(kernel, "i", "j")
    kernel = lp.split_iname(kernel, "k", TILE)
    for array, sweep in (("a", ["i_inner", "k_inner"]), ("b", ["k_inner", "j_inner"])):
        kernel = lp.add_prefetch(
            kernel, array, sweep, fetch_bounding_box=True, default_tag="l.auto"
        )
    return lp.add_inames_for_unused_hw_axes(kernel)


def atax() -> Any:
    kernel = _make(
        "{ [i, j, p, q] : 0 <= i, q < n and 0 <= j, p < m }",
        """
        t[i] = sum(j, a[i, j]*x[j]) {id=first}
        ... gbarrier {id=wait, dep=first}
        y[p] = sum(q, a[q, p]*t[q]) {dep=wait}
        """,
        {"a": ("n", "m"), "x,y": "m", "t": "n"},
        "n,m",
        "n >= 1 and m >= 1",
    )
    return _spread(_spread(kernel, "i"), "p")


def mvt() -> Any:
    kernel = _make(
        "{ [i, j, k] : 0 <= i, j, k < n }",
        """
        x[i] = x[i] + sum(j, a[i, j]*v[j])
        y[i] = y[i] + sum(k, a[k, i]*w[k])
        """,
        {"a": ("n", "n"), "x,y,v,w": "n"},
        "n",
        "n >= 1",
    )
    return _spread(kernel, "i")


def jacobi_2d() -> Any:
    kernel = _make(
        "{ [i, j] : 1 <= i, j < n - 1 }",
        "b[i, j] = 0.2*(a[i, j] + a[i, j-1] + a[i, j+1] + a[i+1, j] + a[i-1, j])",
        {"a,b": ("n", "n")},
        "n",
        "n >= 3",
    )
    return _spread(kernel, "i", "j")


def fdtd_2d() -> Any:
    kernel = _make(
        [
            "{ [i, j] : 0 <= i < n and 0 <= j < m }",
            "{ [p, q] : 0 <= p < n - 1 and 0 <= q < m - 1 }",
        ],
        """
        for i, j
            if i > 0
                ey[i, j] = ey[i, j] - 0.5*(hz[i, j] - hz[i-1, j]) {id=ey}
            else
                ey[i, j] = source {id=border}
            end
            ex[i, j] = ex[i, j] - 0.5*(hz[i, j] - hz[i, j-1]) {id=ex, if=j > 0}
        end
        ... gbarrier {id=wait, dep=ex:ey:border}
        hn[p, q] = hz[p, q] - 0.7*(ex[p, q+1] - ex[p, q] + ey[p+1, q] - ey[p, q]) {dep=wait}
        """,
        {"ex,ey,hz,hn": ("n", "m")},
        "n,m",
        "n >= 2 and m >= 2",
        scalars="source",
    )
    return _spread(_spread(kernel, "i", "j"), "p", "q")


def trmm() -> Any:
    kernel = _make(
        "{ [i, j, k] : 0 <= i < n and 0 <= j < m and i < k < n }",
        "c[i, j] = alpha*(b[i, j] + sum(k, a[k, i]*b[k, j]))",
        {"a": ("n", "n"), "b,c": ("n", "m")},
        "n,m",
        "n >= 1 and m >= 1",
        scalars="alpha",
    )
    return _spread(kernel, "i", "j")


def syrk() -> Any:
    kernel = _make(
        "{ [i, j, k] : 0 <= j <= i < n and 0 <= k < m }",
        "c[i, j] = beta*c[i, j] + alpha*sum(k, a[i, k]*a[j, k])",
        {"a": ("n", "m"), "c": ("n", "n")},
        "n,m",
        "n >= 1 and m >= 1",
        scalars="alpha,beta",
        dtype=np.float64,
    )
    return _spread(kernel, "i", "j")


def covariance() -> Any:
    kernel = _make(
        [
            "{ [j, i] : 0 <= j < m and 0 <= i < n }",
            "{ [p, q] : 0 <= p < n and 0 <= q < m }",
            "{ [r, s, t] : 0 <= r < m and r <= s < m and 0 <= t < n }",
        ],
        """
        mean[j] = sum(i, data[i, j]) / count {id=mean}
        ... gbarrier {id=first, dep=mean}
        centered[p, q] = data[p, q] - mean[q] {id=center, dep=first}
        ... gbarrier {id=second, dep=center}
        for r, s
            <> c = sum(t, centered[t, r]*centered[t, s]) / (count - 1) {id=c, dep=second}
            cov[r, s] = c {id=upper, dep=c}
            cov[s, r] = c {id=lower, dep=c:upper}
        end
        """,
        {"data,centered": ("n", "m"), "mean": "m", "cov": ("m", "m")},
        "n,m",
        "n >= 2 and m >= 1",
        scalars="count",
    )
    return _spread(_spread(_spread(kernel, "j"), "p", "q"), "r", "s")


def conv2d() -> Any:
    kernel = _make(
        "{ [i, j, k, l] : 0 <= i < n and 0 <= j < m and 0 <= k, l < 3 }",
        "b[i, j] = sum([k, l], w[k, l]*a[i + k, j + l])",
        {"a": ("n + 2", "m + 2"), "b": ("n", "m"), "w": (3, 3)},
        "n,m",
        "n >= 4 and n mod 4 = 0 and m >= 4 and m mod 4 = 0",
    )
    kernel = _spread(kernel, "i", "j")
    kernel = lp.add_prefetch(
        kernel,
        "a",
        ["i_inner", "j_inner", "k", "l"],
        fetch_bounding_box=True,
        default_tag="l.auto",
    )
    return lp.add_inames_for_unused_hw_axes(lp.tag_inames(kernel, {"l": "unr"}))


def heat_3d() -> Any:
    terms = " + ".join(
        f"0.125*(a[{up}] - 2*a[i, j, k] + a[{down}])"
        for up, down in (
            ("i+1, j, k", "i-1, j, k"),
            ("i, j+1, k", "i, j-1, k"),
            ("i, j, k+1", "i, j, k-1"),
        )
    )
    kernel = _make(
        "{ [i, j, k] : 1 <= i, j, k < n - 1 }",
        f"b[i, j, k] = {terms} + a[i, j, k]",
        {"a,b": ("n", "n", "n")},
        "n",
        "n >= 3",
        dtype=np.float64,
    )
    return _spread(kernel, "j", "k")


def gesummv() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i, j < n }",
        "y[i] = alpha*sum(j, a[i, j]*x[j]) + beta*sum(j, b[i, j]*x[j])",
        {"a,b": ("n", "n"), "x,y": "n"},
        "n",
        "n >= 1",
        scalars="alpha,beta",
    )
    return _spread(kernel, "i")


ROW_LENGTHS = (2, 5, 3, 6)
"""Nonzeros of the rows of the sparse matrix, over and over; four on average."""


def spmv() -> Any:
    kernel = lp.make_kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < length }"],
        """
        for i
            <> start = starts[i] {id=start}
            <> length = starts[i + 1] - start {id=length, dep=start}
            y[i] = sum(j, values[start + j]*x[columns[start + j]]) {dep=length:start}
        end
        """,
        [
            lp.GlobalArg("starts", np.int32, shape="n + 1"),
            lp.GlobalArg("columns", np.int32, shape="nonzeros"),
            lp.GlobalArg("values", np.float32, shape="nonzeros"),
            lp.GlobalArg("x,y", np.float32, shape="n"),
            lp.ValueArg("n,nonzeros", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return _spread(kernel, "i")


def _sparse_matrix(parameters: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
    n = parameters["n"]
    lengths = [ROW_LENGTHS[row % len(ROW_LENGTHS)] for row in range(n)]
    starts = [sum(lengths[:row]) for row in range(n + 1)]
    return {"starts": starts, "columns": [(7 * k + 3) % n for k in range(starts[-1])]}


APPLICATIONS: dict[str, Application] = {
    "gemm": Application(build=gemm, sizes=({"n": 8, "m": 4, "l": 12}, {"n": 12, "m": 16, "l": 8})),
    "atax": Application(build=atax, sizes=({"n": 9, "m": 6}, {"n": 8, "m": 13})),
    "mvt": Application(build=mvt, sizes=({"n": 9}, {"n": 16})),
    "jacobi-2d": Application(build=jacobi_2d, sizes=({"n": 10}, {"n": 15})),
    "fdtd-2d": Application(build=fdtd_2d, sizes=({"n": 9, "m": 6}, {"n": 8, "m": 13})),
    "trmm": Application(build=trmm, sizes=({"n": 9, "m": 6}, {"n": 12, "m": 7})),
    "syrk": Application(build=syrk, sizes=({"n": 9, "m": 5}, {"n": 14, "m": 3})),
    "covariance": Application(build=covariance, sizes=({"n": 6, "m": 9}, {"n": 11, "m": 6})),
    "conv2d": Application(build=conv2d, sizes=({"n": 8, "m": 4}, {"n": 12, "m": 16})),
    "heat-3d": Application(build=heat_3d, sizes=({"n": 7}, {"n": 10})),
    "gesummv": Application(build=gesummv, sizes=({"n": 7}, {"n": 12})),
    "spmv": Application(
        build=spmv,
        sizes=({"n": 8, "nonzeros": 32}, {"n": 20, "nonzeros": 80}),
        statistics={"j": 4},
        contents=_sparse_matrix,
    ),
}
