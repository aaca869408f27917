"""Matrices times vectors: every item takes a row or a column, as in PolyBench's GPU versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from measurement_kernels.applications.common import Application, any_sizes, in_f64, mapped
from measurement_kernels.arguments import ArrayArgument, Extent, ScalarArgument, Sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_N, _M = Extent("n"), Extent("m")


def _atax(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    a, x = in_f64(arguments, "a", "x")
    t = a @ x
    return {"t": t, "y": a.T @ t}


def _mvt(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    a, x, y, v, w = in_f64(arguments, "a", "x", "y", "v", "w")
    return {"x": x + a @ v, "y": y + a.T @ w}


def _gesummv(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    a, b, x = in_f64(arguments, "a", "b", "x")
    return {"y": 1.5 * (a @ x) + 1.25 * (b @ x)}


APPLICATIONS = (
    Application(
        family="atax",
        group_shape=(128, 1),
        description="a transposed times a times x, two launches",
        exponents=range(9, 21),
        sizes=any_sizes("n", "m"),
        arguments=(
            ArrayArgument(name="a", shape=(_N, _M)),
            ArrayArgument(name="x", shape=(_M,)),
            ArrayArgument(name="t", shape=(_N,), role="output"),
            ArrayArgument(name="y", shape=(_M,), role="output"),
        ),
        check_parameters={"n": 300, "m": 141},
        domain="{ [i, j, p, q] : 0 <= i, q < n and 0 <= j, p < m }",
        instructions="""
            t[i] = sum(j, a[i, j]*x[j]) {id=first}
            ... gbarrier {id=wait, dep=first}
            y[p] = sum(q, a[q, p]*t[q]) {dep=wait}
        """,
        transform=mapped(i=0, p=0),
        expected=_atax,
    ),
    Application(
        family="mvt",
        group_shape=(256, 1),
        description="products with a matrix and with its transpose, added to vectors",
        exponents=range(9, 21),
        sizes=any_sizes("n"),
        arguments=(
            ArrayArgument(name="a", shape=(_N, _N)),
            ArrayArgument(name="x", shape=(_N,), role="updated"),
            ArrayArgument(name="y", shape=(_N,), role="updated"),
            ArrayArgument(name="v", shape=(_N,)),
            ArrayArgument(name="w", shape=(_N,)),
        ),
        check_parameters={"n": 300},
        domain="{ [i, j, k] : 0 <= i, j, k < n }",
        instructions="""
            x[i] = x[i] + sum(j, a[i, j]*v[j])
            y[i] = y[i] + sum(k, a[k, i]*w[k])
        """,
        transform=mapped(i=0),
        expected=_mvt,
    ),
    Application(
        family="gesummv",
        group_shape=(64, 1),
        description="sum of two products of a matrix and a vector",
        exponents=range(9, 21),
        sizes=any_sizes("n"),
        arguments=(
            ArrayArgument(name="a", shape=(_N, _N)),
            ArrayArgument(name="b", shape=(_N, _N)),
            ArrayArgument(name="x", shape=(_N,)),
            ArrayArgument(name="y", shape=(_N,), role="output"),
            ScalarArgument(name="alpha", value=1.5),
            ScalarArgument(name="beta", value=1.25),
        ),
        check_parameters={"n": 300},
        domain="{ [i, j] : 0 <= i, j < n }",
        instructions="y[i] = alpha*sum(j, a[i, j]*x[j]) + beta*sum(j, b[i, j]*x[j])",
        transform=mapped(i=0),
        expected=_gesummv,
    ),
)
