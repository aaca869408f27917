"""Products of matrices, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from measurement_kernels.applications.common import Application, any_sizes, in_f64, mapped
from measurement_kernels.arguments import (
    ArrayArgument,
    Extent,
    ScalarArgument,
    SizeParameter,
    Sizes,
)
from measurement_kernels.groups import GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

_N, _M, _L = Extent("n"), Extent("m"), Extent("l")
_ALPHA, _BETA = ScalarArgument(name="alpha", value=1.5), ScalarArgument(name="beta", value=0.75)
_BLOCK = 16
"""Rows and columns of the matrices of a batch."""


def _tiled_sizes(group_shape: GroupShape) -> tuple[SizeParameter, ...]:
    columns, rows = group_shape
    multiples = {"n": rows, "m": columns, "l": columns}
    return tuple(SizeParameter(name=n, multiple=m, thirds=2) for n, m in multiples.items())


def _tile(unit: TranslationUnit, group_shape: GroupShape) -> TranslationUnit:
    """Have a group fetch a tile of a and of b for each step along k."""
    import loopy as lp

    from measurement_kernels.units import map_to_items, prefetch

    unit = map_to_items(unit, {"i": 1, "j": 0}, group_shape)
    unit = lp.split_iname(unit, "k", group_shape[0])
    for array, sweep in (("a", ["i_inner", "k_inner"]), ("b", ["k_inner", "j_inner"])):
        unit = prefetch(
            unit,
            array,
            sweep=sweep,
            within=["i_outer", "j_outer", "k_outer"],
            axes={f"{array}_row": 1, f"{array}_column": 0},
            group_shape=group_shape,
        )
    return unit


def _one_to_a_group(unit: TranslationUnit, group_shape: GroupShape) -> TranslationUnit:
    """Have a group fetch a pair of matrices, and each item make one entry of the product."""
    import loopy as lp

    from measurement_kernels.units import prefetch

    unit = lp.tag_inames(unit, {"e": "g.0", "i": "l.1", "j": "l.0"})
    for array, sweep in (("a", ["i", "k"]), ("b", ["k", "j"])):
        unit = prefetch(
            unit,
            array,
            sweep=sweep,
            within=["e"],
            axes={f"{array}_matrix": None, f"{array}_row": 1, f"{array}_column": 0},
            group_shape=group_shape,
        )
    return unit


def _gemm(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    a, b, c = in_f64(arguments, "a", "b", "c")
    return {"c": 0.75 * c + 1.5 * (a @ b)}


def _two_products(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    a, b, c, d = in_f64(arguments, "a", "b", "c", "d")
    t = 1.5 * (a @ b)
    return {"t": t, "d": t @ c + 0.75 * d}


def _syrk(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    del parameters
    a, c = in_f64(arguments, "a", "c")
    return {"c": np.triu(c, 1) + np.tril(0.75 * c + 1.5 * (a @ a.T))}


def _trmm(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    del parameters
    a, b = in_f64(arguments, "a", "b")
    return {"c": 1.5 * (b + np.tril(a, -1).T @ b)}


def _covariance(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    (data,) = in_f64(arguments, "data")
    mean = data.mean(axis=0)
    centered = data - mean
    covariances = centered.T @ centered / (parameters["n"] - 1)
    return {"mean": mean, "centered": centered, "cov": covariances}


def _batch(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    a, b = in_f64(arguments, "a", "b")
    return {"c": a @ b}


APPLICATIONS = (
    Application(
        family="gemm",
        group_shape=(16, 16),
        description="matrix product added to a matrix, tiles of both factors in local memory",
        exponents=range(6, 19),
        sizes=_tiled_sizes,
        arguments=(
            ArrayArgument(name="a", shape=(_N, _L)),
            ArrayArgument(name="b", shape=(_L, _M)),
            ArrayArgument(name="c", shape=(_N, _M), role="updated"),
            _ALPHA,
            _BETA,
        ),
        check_parameters={"n": 48, "m": 32, "l": 64},
        domain="{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }",
        instructions="c[i, j] = beta*c[i, j] + alpha*sum(k, a[i, k]*b[k, j])",
        transform=_tile,
        expected=_gemm,
    ),
    Application(
        family="2mm",
        group_shape=(32, 8),
        description="product of three matrices added to a matrix, two launches",
        exponents=range(6, 19),
        sizes=any_sizes("n", "m", "l", "o"),
        arguments=(
            ArrayArgument(name="a", shape=(_N, _L)),
            ArrayArgument(name="b", shape=(_L, _M)),
            ArrayArgument(name="c", shape=(_M, Extent("o"))),
            ArrayArgument(name="t", shape=(_N, _M), role="output"),
            ArrayArgument(name="d", shape=(_N, Extent("o")), role="updated"),
            _ALPHA,
            _BETA,
        ),
        check_parameters={"n": 35, "m": 50, "l": 41, "o": 45},
        domain=(
            "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }",
            "{ [p, q, r] : 0 <= p < n and 0 <= q < o and 0 <= r < m }",
        ),
        instructions="""
            t[i, j] = alpha*sum(k, a[i, k]*b[k, j]) {id=first}
            ... gbarrier {id=wait, dep=first}
            d[p, q] = sum(r, t[p, r]*c[r, q]) + beta*d[p, q] {dep=wait}
        """,
        transform=mapped(i=1, j=0, p=1, q=0),
        expected=_two_products,
    ),
    Application(
        family="syrk",
        group_shape=(16, 16),
        element_type="f64",
        description="lower triangle of a matrix times its transpose, added to a matrix",
        exponents=range(6, 19),
        sizes=any_sizes("n", "m"),
        arguments=(
            ArrayArgument(name="a", shape=(_N, _M)),
            ArrayArgument(name="c", shape=(_N, _N), role="updated"),
            _ALPHA,
            _BETA,
        ),
        check_parameters={"n": 53, "m": 37},
        domain="{ [i, j, k] : 0 <= j <= i < n and 0 <= k < m }",
        instructions="c[i, j] = beta*c[i, j] + alpha*sum(k, a[i, k]*a[j, k])",
        transform=mapped(i=1, j=0),
        expected=_syrk,
    ),
    Application(
        family="trmm",
        group_shape=(32, 8),
        description="product of a triangular matrix, transposed, and a matrix",
        exponents=range(6, 19),
        sizes=any_sizes("n", "m"),
        arguments=(
            ArrayArgument(name="a", shape=(_N, _N)),
            ArrayArgument(name="b", shape=(_N, _M)),
            ArrayArgument(name="c", shape=(_N, _M), role="output"),
            _ALPHA,
        ),
        check_parameters={"n": 43, "m": 53},
        # in one domain with k, there would be no last row: nothing is summed for it
        domain=(
            "{ [i, j] : 0 <= i < n and 0 <= j < m }",
            "{ [k] : i < k < n }",
        ),
        instructions="c[i, j] = alpha*(b[i, j] + sum(k, a[k, i]*b[k, j]))",
        transform=mapped(i=1, j=0),
        expected=_trmm,
    ),
    Application(
        family="covariance",
        group_shape=(32, 8),
        description="means, centered data and covariances of columns, three launches",
        exponents=range(6, 19),
        sizes=any_sizes("n", "m"),
        arguments=(
            ArrayArgument(name="data", shape=(_N, _M)),
            ArrayArgument(name="mean", shape=(_M,), role="output"),
            ArrayArgument(name="centered", shape=(_N, _M), role="output"),
            ArrayArgument(name="cov", shape=(_M, _M), role="output"),
            ScalarArgument(name="count", value=lambda sizes: sizes["n"]),
        ),
        check_parameters={"n": 61, "m": 43},
        domain=(
            "{ [j, i] : 0 <= j < m and 0 <= i < n }",
            "{ [p, q] : 0 <= p < n and 0 <= q < m }",
            "{ [r, s, t] : 0 <= r < m and r <= s < m and 0 <= t < n }",
        ),
        instructions="""
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
        transform=mapped(j=0, p=1, q=0, r=1, s=0),
        expected=_covariance,
    ),
    Application(
        family="batched-gemm",
        group_shape=(_BLOCK, _BLOCK),
        description="products of many 16 by 16 matrices, both factors in local memory",
        exponents=range(4, 17),
        exponent_steps=(0, 2, 4, 6),
        sizes=lambda _: (SizeParameter(name="n"),),
        arguments=(
            ArrayArgument(name="a", shape=(_N, _BLOCK, _BLOCK)),
            ArrayArgument(name="b", shape=(_N, _BLOCK, _BLOCK)),
            ArrayArgument(name="c", shape=(_N, _BLOCK, _BLOCK), role="output"),
        ),
        check_parameters={"n": 11},
        domain=f"{{ [e, i, j, k] : 0 <= e < n and 0 <= i, j, k < {_BLOCK} }}",
        instructions="c[e, i, j] = sum(k, a[e, i, k]*b[e, k, j])",
        transform=_one_to_a_group,
        expected=_batch,
    ),
)
