"""Applications on regular grids, finite elements and sparse matrices."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from numpy.typing import NDArray

from measurement_kernels.arguments import (
    ArrayArgument,
    Extent,
    ScalarArgument,
    SizeParameter,
    Sizes,
    arrays,
)
from measurement_kernels.groups import GroupShape
from measurement_kernels.index_arrays import ROW_LOOPS, row_starts, row_sums, uneven_lengths
from measurement_kernels.loopy_kernels import (
    ONE_PER_ITEM,
    Arrays,
    LoopyKernel,
    Results,
    any_sizes,
    computed_from,
    in_f64,
    mapped,
    sizes_along,
    tile_of,
)
from measurement_kernels.units import prefetch

_application = partial(LoopyKernel, purpose="application", exponents=range(9, 21))

# --- stencils on regular grids, and a small filter

_SECOND_DIFFERENCES = " + ".join(
    f"0.125*(a[{up}] - 2*a[i+1, j+1, k+1] + a[{down}])"
    for up, down in (
        ("i+2, j+1, k+1", "i, j+1, k+1"),
        ("i+1, j+2, k+1", "i+1, j, k+1"),
        ("i+1, j+1, k+2", "i+1, j+1, k"),
    )
)


def _jacobi_2d(a: NDArray[Any]) -> Results:
    around = a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1]
    return {"b": 0.2 * (a[1:-1, 1:-1] + around)}


def _heat_3d(a: NDArray[Any]) -> Results:
    b = a[1:-1, 1:-1, 1:-1].copy()
    for axis in range(3):
        inner = tuple(slice(None) if k == axis else slice(1, -1) for k in range(3))
        b += 0.125 * np.diff(a[inner], 2, axis)
    return {"b": b}


def _fdtd_2d(arguments: Arrays, parameters: Sizes) -> Results:
    del parameters
    ex, ey, hz, hn = in_f64(arguments, "ex ey hz hn")
    ey[1:] -= 0.5 * np.diff(hz, axis=0)
    ey[0] = 0.25
    ex[:, 1:] -= 0.5 * np.diff(hz, axis=1)
    curl = np.diff(ex, axis=1)[:-1] + np.diff(ey, axis=0)[:, :-1]
    hn[:-1, :-1] = hz[:-1, :-1] - 0.7 * curl
    return {"ex": ex, "ey": ey, "hn": hn}


def _conv2d(arguments: Arrays, parameters: Sizes) -> Results:
    n, m = parameters["n"], parameters["m"]
    a, w = in_f64(arguments, "a w")
    b = np.zeros((n, m))
    for row in range(3):
        for column in range(3):
            b += w[row, column] * a[row : row + n, column : column + m]
    return {"b": b}


_STENCILS = (
    _application(
        family="jacobi-2d",
        groups=((32, 8),),
        sizes=any_sizes("n"),
        arguments=arrays("a[n + 2, n + 2], output b[n, n]"),
        check={"n": 75},
        domain="{ [i, j] : 0 <= i, j < n }",
        instructions="""
            b[i, j] = 0.2*(a[i+1, j+1] + a[i+1, j] + a[i+1, j+2] + a[i+2, j+1] + a[i, j+1])
        """,
        transform=ONE_PER_ITEM,
        expected=computed_from("a", _jacobi_2d),
    ),
    _application(
        family="heat-3d",
        groups=((32, 4),),
        element_types=("f64",),
        exponents=range(12, 28),
        sizes=sizes_along(thirds=1, n=None),  # a cube grows by a factor of 2 with the exponent
        arguments=arrays("a[n + 2, n + 2, n + 2], output b[n, n, n]"),
        check={"n": 37},
        domain="{ [i, j, k] : 0 <= i, j, k < n }",
        instructions=f"b[i, j, k] = {_SECOND_DIFFERENCES} + a[i+1, j+1, k+1]",
        transform=mapped(j=1, k=0),
        expected=computed_from("a", _heat_3d),
    ),
    _application(
        family="fdtd-2d",
        groups=((32, 8),),
        sizes=any_sizes("n", "m"),
        arguments=(
            *arrays("updated ex[n, m], updated ey[n, m], updated hn[n, m], hz[n, m]"),
            ScalarArgument(name="source", value=0.25),
        ),
        check={"n": 45, "m": 75},
        domain=(
            "{ [i, j] : 0 <= i < n and 0 <= j < m }",
            "{ [p, q] : 0 <= p < n - 1 and 0 <= q < m - 1 }",
        ),
        # only one of the branches is taken; the dependency gives them an order for Loopy
        instructions="""
            for i, j
                if i > 0
                    ey[i, j] = ey[i, j] - 0.5*(hz[i, j] - hz[i-1, j]) {id=ey}
                else
                    ey[i, j] = source {id=border, dep=ey}
                end
                ex[i, j] = ex[i, j] - 0.5*(hz[i, j] - hz[i, j-1]) {id=ex, if=j > 0}
            end
            ... gbarrier {id=wait, dep=ex:ey:border}
            hn[p, q] = hz[p, q] - 0.7*(ex[p, q+1] - ex[p, q] + ey[p+1, q] - ey[p, q]) {dep=wait}
        """,
        transform=mapped(i=1, j=0, p=1, q=0),
        expected=_fdtd_2d,
    ),
    _application(
        family="conv2d",
        groups=((16, 16),),
        sizes=sizes_along(thirds=2, n=1, m=0),
        arguments=arrays("a[n + 2, m + 2], w[3, 3], output b[n, m]"),
        check={"n": 3, "m": 5},
        domain="{ [i, j, k, l] : 0 <= i < n and 0 <= j < m and 0 <= k, l < 3 }",
        instructions="b[i, j] = sum([k, l], w[k, l]*a[i + k, j + l])",
        transform=mapped(
            tile_of("a", "i_inner j_inner k l", "i_outer j_outer"), unrolled="l", i=1, j=0
        ),
        expected=_conv2d,
    ),
)

# --- discontinuous Galerkin: derivatives of a field on tetrahedra of order 3
#
# ``res[e, i] = sum(g[r, e] * sum(d[r, j, i] * u[e, j] for j) for r)`` over the reference directions
# r: the chain rule. Groups take several elements and all nodes, lanes along nodes, and keep the
# field of their elements in local memory; matrices are stored so that lanes read neighbors.

NODES = 20
"""Nodes of an element, which lanes run along."""


def _by_elements(unit: TranslationUnit, group_shape: GroupShape) -> TranslationUnit:
    unit = lp.split_iname(unit, "e", group_shape[1], outer_tag="g.0", inner_tag="l.1")
    unit = lp.tag_inames(unit, {"i": "l.0", "r": "unr"})
    axes = {"u_element": 1, "u_node": 0}
    return prefetch(unit, "u", ["e_inner", "j"], ["e_outer"], axes, group_shape)


_GALERKIN = (
    _application(
        family="dg-derivative",
        groups=((NODES, 8),),
        exponents=range(6, 19),
        exponent_steps=(0, 2, 4, 6),
        sizes=sizes_along(elements=1),
        arguments=arrays(
            f"d[3, {NODES}, {NODES}], g[3, elements], u[elements, {NODES}], "
            f"output res[elements, {NODES}]"
        ),
        check={"elements": 13},
        domain=f"{{ [e, i, j, r] : 0 <= e < elements and 0 <= i, j < {NODES} and 0 <= r < 3 }}",
        instructions="res[e, i] = sum(r, g[r, e]*sum(j, d[r, j, i]*u[e, j]))",
        transform=_by_elements,
        expected=computed_from(
            "d g u", lambda d, g, u: {"res": np.einsum("re,rji,ej->ei", g, d, u, optimize=True)}
        ),
    ),
)

# --- sparse matrix times vector in compressed rows (CSR), a row for each item
#
# Trip counts and addresses depend on data, so counts need statistics: the mean number of nonzeros
# of a row, and how lanes use what they load. Rows lie one behind the other: lanes read values and
# columns with strides of about a row's length, and all of them over the loop, hence ``4ofn``.
#
# ``random`` has rows of 1 to 31 nonzeros, 16 on average, at random columns: reads of x are
# ``indirect``. In ``banded``, columns are at most 8 from the diagonal: 17 nonzeros in a row, fewer
# in the first and last rows; lanes read neighbors of x.

_MEAN = 16
_HALF_WIDTH = 8


def _random_columns(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    n = sizes["n"]
    return random.integers(n, size=_MEAN * n, dtype="int32")


def _band(sizes: Sizes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first column and the number of nonzeros by row."""
    row = np.arange(sizes["n"])
    first = np.maximum(row - _HALF_WIDTH, 0)
    return first, np.minimum(row + _HALF_WIDTH, sizes["n"] - 1) + 1 - first


def _banded_columns(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    del random
    first, lengths = _band(sizes)
    begins = np.cumsum(lengths) - lengths
    columns = np.zeros((2 * _HALF_WIDTH + 1) * sizes["n"], "int32")
    used = int(lengths.sum())
    columns[:used] = np.arange(used) + np.repeat(first - begins, lengths)
    return columns


def _banded_mean(sizes: Sizes) -> Fraction:
    n = sizes["n"]
    missing = 2 * sum(_HALF_WIDTH - row for row in range(min(_HALF_WIDTH, n)))  # at both ends
    return 2 * _HALF_WIDTH + 1 - Fraction(missing, n)


def _sparse_product(arguments: Arrays, parameters: Sizes) -> Results:
    del parameters
    starts, columns = arguments["starts"], arguments["columns"]
    values, x = in_f64(arguments, "values x")
    used = slice(int(starts[-1]))
    products = values[used] * x[columns[used]]
    return {"y": np.add.reduceat(products, starts[:-1])}


_SPARSE = tuple(
    _application(
        name=f"spmv_{variant}",
        family="spmv",
        variant=variant,
        groups=((128, 1),),
        exponents=range(8, 22),
        exponent_steps=(0, 1, 3, 5),
        sizes=sizes,
        arguments=(
            row_starts(lengths),
            ArrayArgument(name="columns", shape=(Extent("n", factor=capacity),), indices=columns),
            *arrays(f"values[{capacity}*n], x[n], output y[n]"),
        ),
        check=check,
        domain=ROW_LOOPS,
        instructions=row_sums("y", "values[start + j]*x[columns[start + j]]"),
        transform=mapped(i=0),
        expected=_sparse_product,
        statistics={"values": "4ofn", "columns": "4ofn", "j": mean, "x": reads},
    )
    for variant, capacity, sizes, lengths, columns, mean, reads, check in (
        (
            "random",
            _MEAN,
            lambda _: (SizeParameter("n", 2),),  # pairs of rows
            partial(uneven_lengths, _MEAN, 12),
            _random_columns,
            _MEAN,
            "indirect",
            {"n": 500},
        ),
        (
            "banded",
            2 * _HALF_WIDTH + 1,
            sizes_along(n=None),
            lambda sizes: _band(sizes)[1],
            _banded_columns,
            _banded_mean,
            "stride1",
            {"n": 1000},
        ),
    )
)

GRIDS = (*_STENCILS, *_GALERKIN, *_SPARSE)
"""All of them."""
