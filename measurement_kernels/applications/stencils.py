"""Stencils on regular grids, and a small filter."""

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

_N, _M = Extent("n"), Extent("m")
_N_WITH_HALO, _M_WITH_HALO = Extent("n", offset=2), Extent("m", offset=2)
_SECOND_DIFFERENCES = " + ".join(
    f"0.125*(a[{up}] - 2*a[i+1, j+1, k+1] + a[{down}])"
    for up, down in (
        ("i+2, j+1, k+1", "i, j+1, k+1"),
        ("i+1, j+2, k+1", "i+1, j, k+1"),
        ("i+1, j+1, k+2", "i+1, j+1, k"),
    )
)


def _jacobi_2d(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    del parameters
    (a,) = in_f64(arguments, "a")
    around = a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1]
    return {"b": 0.2 * (a[1:-1, 1:-1] + around)}


def _heat_3d(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    del parameters
    (a,) = in_f64(arguments, "a")
    b = a[1:-1, 1:-1, 1:-1].copy()
    for axis in range(3):
        inner = tuple(slice(None) if k == axis else slice(1, -1) for k in range(3))
        b += 0.125 * np.diff(a[inner], 2, axis)
    return {"b": b}


def _fdtd_2d(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    del parameters
    ex, ey, hz, hn = in_f64(arguments, "ex", "ey", "hz", "hn")
    ey[1:] -= 0.5 * np.diff(hz, axis=0)
    ey[0] = 0.25
    ex[:, 1:] -= 0.5 * np.diff(hz, axis=1)
    curl = np.diff(ex, axis=1)[:-1] + np.diff(ey, axis=0)[:, :-1]
    hn[:-1, :-1] = hz[:-1, :-1] - 0.7 * curl
    return {"ex": ex, "ey": ey, "hn": hn}


def _conv2d(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    n, m = parameters["n"], parameters["m"]
    a, w = in_f64(arguments, "a", "w")
    b = np.zeros((n, m))
    for k in range(3):
        for l in range(3):  # noqa: E741 - its name in the kernel
            b += w[k, l] * a[k : k + n, l : l + m]
    return {"b": b}


def _tile(unit: TranslationUnit, group_shape: GroupShape) -> TranslationUnit:
    """Have a group fetch its tile and the halo, and unroll the rows of the filter."""
    import loopy as lp

    from measurement_kernels.units import map_to_items, prefetch

    unit = map_to_items(unit, {"i": 1, "j": 0}, group_shape)
    unit = prefetch(
        unit,
        "a",
        sweep=["i_inner", "j_inner", "k", "l"],
        within=["i_outer", "j_outer"],
        axes={"a_row": 1, "a_column": 0},
        group_shape=group_shape,
    )
    return lp.tag_inames(unit, {"l": "unr"})


APPLICATIONS = (
    Application(
        family="jacobi-2d",
        group_shape=(32, 8),
        description="mean of a point and its four neighbors",
        exponents=range(9, 21),
        sizes=any_sizes("n"),
        arguments=(
            ArrayArgument(name="a", shape=(_N_WITH_HALO, _N_WITH_HALO)),
            ArrayArgument(name="b", shape=(_N, _N), role="output"),
        ),
        check_parameters={"n": 75},
        domain="{ [i, j] : 0 <= i, j < n }",
        instructions="""
            b[i, j] = 0.2*(a[i+1, j+1] + a[i+1, j] + a[i+1, j+2] + a[i+2, j+1] + a[i, j+1])
        """,
        transform=mapped(i=1, j=0),
        expected=_jacobi_2d,
    ),
    Application(
        family="heat-3d",
        group_shape=(32, 4),
        element_type="f64",
        description="step of the heat equation, a column of points for each item",
        exponents=range(12, 28),
        sizes=any_sizes("n", thirds=1),
        arguments=(
            ArrayArgument(name="a", shape=(_N_WITH_HALO, _N_WITH_HALO, _N_WITH_HALO)),
            ArrayArgument(name="b", shape=(_N, _N, _N), role="output"),
        ),
        check_parameters={"n": 37},
        domain="{ [i, j, k] : 0 <= i, j, k < n }",
        instructions=f"b[i, j, k] = {_SECOND_DIFFERENCES} + a[i+1, j+1, k+1]",
        transform=mapped(j=1, k=0),
        expected=_heat_3d,
    ),
    Application(
        family="fdtd-2d",
        group_shape=(32, 8),
        description="time step of Maxwell's equations in the plane, two launches",
        exponents=range(9, 21),
        sizes=any_sizes("n", "m"),
        arguments=(
            *(ArrayArgument(name=f, shape=(_N, _M), role="updated") for f in ("ex", "ey", "hn")),
            ArrayArgument(name="hz", shape=(_N, _M)),
            ScalarArgument(name="source", value=0.25),
        ),
        check_parameters={"n": 45, "m": 75},
        domain=(
            "{ [i, j] : 0 <= i < n and 0 <= j < m }",
            "{ [p, q] : 0 <= p < n - 1 and 0 <= q < m - 1 }",
        ),
        # the branches exclude each other: that one depends on the other orders them for Loopy
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
    Application(
        family="conv2d",
        group_shape=(16, 16),
        description="3 by 3 filter, tile and halo in local memory",
        exponents=range(9, 21),
        sizes=lambda group_shape: (
            SizeParameter(name="n", multiple=group_shape[1], thirds=2),
            SizeParameter(name="m", multiple=group_shape[0], thirds=2),
        ),
        arguments=(
            ArrayArgument(name="a", shape=(_N_WITH_HALO, _M_WITH_HALO)),
            ArrayArgument(name="w", shape=(3, 3)),
            ArrayArgument(name="b", shape=(_N, _M), role="output"),
        ),
        check_parameters={"n": 48, "m": 80},
        domain="{ [i, j, k, l] : 0 <= i < n and 0 <= j < m and 0 <= k, l < 3 }",
        instructions="b[i, j] = sum([k, l], w[k, l]*a[i + k, j + l])",
        transform=_tile,
        expected=_conv2d,
    ),
)
