"""Applications with dense matrices and vectors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import ScalarArgument, Sizes, arrays
from measurement_kernels.loopy_kernels import (
    ONE_PER_ITEM,
    Arrays,
    LoopyKernel,
    Results,
    Tile,
    any_sizes,
    computed_from,
    in_f64,
    mapped,
    sizes_along,
)
from measurement_kernels.paper import tiled_product

_application = partial(LoopyKernel, purpose="application", exponents=range(6, 19))
_of_vectors = partial(LoopyKernel, purpose="application", exponents=range(9, 21))
_ALPHA, _BETA = ScalarArgument(name="alpha", value=1.5), ScalarArgument(name="beta", value=0.75)

# --- products of matrices


def _two_products(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any]) -> Results:
    t = 1.5 * (a @ b)
    return {"t": t, "d": t @ c + 0.75 * d}


def _covariance(arguments: Arrays, parameters: Sizes) -> Results:
    (data,) = in_f64(arguments, "data")
    mean = data.mean(axis=0)
    centered = data - mean
    covariances = centered.T @ centered / (parameters["n"] - 1)
    return {"mean": mean, "centered": centered, "cov": covariances}


_PRODUCTS = (
    _application(
        family="gemm",
        groups=((16, 16),),
        sizes=sizes_along(thirds=2, n=1, m=0, l=0),
        arguments=(*arrays("a[n, l], b[l, m], updated c[n, m]"), _ALPHA, _BETA),
        check={"n": 3, "m": 2, "l": 4},
        domain="{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }",
        instructions="c[i, j] = beta*c[i, j] + alpha*sum(k, a[i, k]*b[k, j])",
        transform=tiled_product(),
        expected=computed_from("a b c", lambda a, b, c: {"c": 0.75 * c + 1.5 * (a @ b)}),
    ),
    _application(
        name="two_mm",
        family="2mm",
        groups=((32, 8),),
        sizes=any_sizes("n", "m", "l", "o"),
        arguments=(
            *arrays("a[n, l], b[l, m], c[m, o], output t[n, m], updated d[n, o]"),
            _ALPHA,
            _BETA,
        ),
        check={"n": 35, "m": 50, "l": 41, "o": 45},
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
        expected=computed_from("a b c d", _two_products),
    ),
    _application(
        family="syrk",
        groups=((16, 16),),
        element_types=("f64",),
        sizes=any_sizes("n", "m"),
        arguments=(*arrays("a[n, m], updated c[n, n]"), _ALPHA, _BETA),
        check={"n": 53, "m": 37},
        domain="{ [i, j, k] : 0 <= j <= i < n and 0 <= k < m }",
        instructions="c[i, j] = beta*c[i, j] + alpha*sum(k, a[i, k]*a[j, k])",
        transform=ONE_PER_ITEM,
        expected=computed_from(
            "a c", lambda a, c: {"c": np.triu(c, 1) + np.tril(0.75 * c + 1.5 * (a @ a.T))}
        ),
    ),
    _application(
        family="trmm",
        groups=((32, 8),),
        sizes=any_sizes("n", "m"),
        arguments=(*arrays("a[n, n], b[n, m], output c[n, m]"), _ALPHA),
        check={"n": 43, "m": 53},
        # in one domain with k, there would be no last row, for which nothing is summed
        domain=("{ [i, j] : 0 <= i < n and 0 <= j < m }", "{ [k] : i < k < n }"),
        instructions="c[i, j] = alpha*(b[i, j] + sum(k, a[k, i]*b[k, j]))",
        transform=ONE_PER_ITEM,
        expected=computed_from("a b", lambda a, b: {"c": 1.5 * (b + np.tril(a, -1).T @ b)}),
    ),
    _application(
        family="covariance",
        groups=((32, 8),),
        sizes=any_sizes("n", "m"),
        arguments=(
            *arrays("data[n, m], output mean[m], output centered[n, m], output cov[m, m]"),
            ScalarArgument(name="count", value=lambda sizes: sizes["n"]),
        ),
        check={"n": 61, "m": 43},
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
    _application(
        family="batched-gemm",
        groups=((16, 16),),
        exponents=range(4, 17),
        exponent_steps=(0, 2, 4, 6),
        sizes=sizes_along(n=None),
        arguments=arrays("a[n, 16, 16], b[n, 16, 16], output c[n, 16, 16]"),
        check={"n": 11},
        domain="{ [e, i, j, k] : 0 <= e < n and 0 <= i, j, k < 16 }",
        instructions="c[e, i, j] = sum(k, a[e, i, k]*b[e, k, j])",
        transform=mapped(
            Tile("a", "i k", "e", {"a_matrix": None, "a_row": 1, "a_column": 0}),
            Tile("b", "k j", "e", {"b_matrix": None, "b_row": 1, "b_column": 0}),
            tags={"e": "g.0", "i": "l.1", "j": "l.0"},
        ),
        expected=computed_from("a b", lambda a, b: {"c": a @ b}),
    ),
)

# --- matrices times vectors: every item takes a row or a column, as in PolyBench's GPU versions


_VECTORS = (
    _of_vectors(
        family="atax",
        groups=((128, 1),),
        sizes=any_sizes("n", "m"),
        arguments=arrays("a[n, m], x[m], output t[n], output y[m]"),
        check={"n": 300, "m": 141},
        domain="{ [i, j, p, q] : 0 <= i, q < n and 0 <= j, p < m }",
        instructions="""
            t[i] = sum(j, a[i, j]*x[j]) {id=first}
            ... gbarrier {id=wait, dep=first}
            y[p] = sum(q, a[q, p]*t[q]) {dep=wait}
        """,
        transform=mapped(i=0, p=0),
        expected=computed_from("a x", lambda a, x: {"t": a @ x, "y": a.T @ (a @ x)}),
    ),
    _of_vectors(
        family="mvt",
        groups=((256, 1),),
        sizes=any_sizes("n"),
        arguments=arrays("a[n, n], updated x[n], updated y[n], v[n], w[n]"),
        check={"n": 300},
        domain="{ [i, j, k] : 0 <= i, j, k < n }",
        instructions="""
            x[i] = x[i] + sum(j, a[i, j]*v[j])
            y[i] = y[i] + sum(k, a[k, i]*w[k])
        """,
        transform=mapped(i=0),
        expected=computed_from(
            "a x y v w", lambda a, x, y, v, w: {"x": x + a @ v, "y": y + a.T @ w}
        ),
    ),
    _of_vectors(
        family="gesummv",
        groups=((64, 1),),
        sizes=any_sizes("n"),
        arguments=(
            *arrays("a[n, n], b[n, n], x[n], output y[n]"),
            ScalarArgument(name="alpha", value=1.5),
            ScalarArgument(name="beta", value=1.25),
        ),
        check={"n": 300},
        domain="{ [i, j] : 0 <= i, j < n }",
        instructions="y[i] = alpha*sum(j, a[i, j]*x[j]) + beta*sum(j, b[i, j]*x[j])",
        transform=mapped(i=0),
        expected=computed_from("a b x", lambda a, b, x: {"y": 1.5 * (a @ x) + 1.25 * (b @ x)}),
    ),
)

DENSE = (*_PRODUCTS, *_VECTORS)
"""All of them."""
