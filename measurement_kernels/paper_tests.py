"""The paper's test kernels."""

from __future__ import annotations

import numpy as np

from measurement_kernels.arguments import SizeParameter, Sizes, arrays
from measurement_kernels.loopy_kernels import (
    Arrays,
    LoopyKernel,
    Results,
    Tile,
    changed,
    in_f64,
    mapped,
    sizes_along,
    tile_of,
)
from measurement_kernels.paper import TILED_PRODUCT, TILED_SIZES

# --- 5-point stencil with a quadratic source term

STENCIL_ARGUMENTS = arrays("u[n + 2, n + 2], output res[n, n]")
"""Arguments of the stencil: n by n points and a halo of one."""

STENCIL = """
    res[i, j] = (u[i+1, j+1]**2 - 1 - 4*u[i+1, j+1]
        + u[i+2, j+1] + u[i, j+1] + u[i+1, j+2] + u[i+1, j])
"""
"""Instructions of the stencil."""

STENCIL_DOMAIN = "{ [i, j]: 0 <= i < n and 0 <= j < n }"
"""Loops of the stencil."""


def stencil(arguments: Arrays, parameters: Sizes) -> Results:
    """Apply the stencil."""
    del parameters
    (u,) = in_f64(arguments, "u")
    center = u[1:-1, 1:-1]
    neighbors = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return {"res": center**2 - 1 - 4 * center + neighbors}


# A tile and its halo have 18 by 18 points for 16 by 16 items: four slots per item, most of them
# guarded, and one barrier.
_FINITE_DIFFERENCES = LoopyKernel(
    family="finite-differences",
    purpose="test",
    groups=((16, 16),),
    exponents=range(6, 13),
    sizes=sizes_along(n=0),
    arguments=STENCIL_ARGUMENTS,
    check={"n": 3},
    domain=STENCIL_DOMAIN,
    instructions=STENCIL,
    transform=mapped(tile_of("u", "i_inner j_inner", "i_outer j_outer"), i=1, j=0),
    expected=stencil,
)

# --- tiled matrix product with n = l = m/8

_SKINNY = TILED_PRODUCT(
    family="matmul-skinny",
    purpose="test",
    groups=((16, 16),),
    exponents=range(7, 14),
    sizes=changed(TILED_SIZES, n={"shift": 3}, l={"shift": 3}),
    check={"n": 2, "m": 4, "l": 3},
)

# --- three 7 by 7 filters on RGB images of n by n
#
# ``r[i, j, x, y] = sum(m[i, w+x-xi, w+y-eta, c] * f[j, w+xi, w+eta, c])`` over colors c and offsets
# xi, eta from -w to w = 3; images have a margin of w. The paper's layout: local axis 0 runs along
# x, so that stores have stride n; filters j lie along the third axis of the NDRange. Each group
# keeps its filter in local memory, loops over the images, and fetches one color of its tile and
# halo at a time, lanes along y (stride 3). The number of images is a parameter: the paper says
# three, and its counts are for four.

_WIDTH = 3
_TAPS = 2 * _WIDTH + 1


def _filtered_images(arguments: Arrays, parameters: Sizes) -> Results:
    n, images = parameters["n"], parameters["images"]
    m, f = in_f64(arguments, "m f")
    r = np.zeros((images, 3, n, n))
    for row in range(_TAPS):
        for column in range(_TAPS):
            x, y = 2 * _WIDTH - row, 2 * _WIDTH - column
            window = m[:, x : x + n, y : y + n, :]
            r += np.einsum("ixyc,jc->ijxy", window, f[:, row, column, :])
    return {"r": r}


_CONVOLUTION = LoopyKernel(
    family="convolution",
    purpose="test",
    groups=((16, 16),),
    exponents=range(4, 11),
    sizes=changed(sizes_along(n=0, images=None), images={"fixed": 3}),
    arguments=arrays(
        f"m[images, n + {_TAPS - 1}, n + {_TAPS - 1}, 3], f[3, {_TAPS}, {_TAPS}, 3], "
        "output r[images, 3, n, n]"
    ),
    check={"n": 2, "images": 2},
    domain=f"""{{ [i, j, x, y, xi, eta, c]:
        0 <= i < images and 0 <= j < 3 and 0 <= x < n and 0 <= y < n
        and -{_WIDTH} <= xi, eta <= {_WIDTH} and 0 <= c < 3 }}""",
    instructions=f"""
        r[i, j, x, y] = sum((c, xi, eta),
            m[i, {_WIDTH} + x - xi, {_WIDTH} + y - eta, c]
            * f[j, {_WIDTH} + xi, {_WIDTH} + eta, c])
    """,
    transform=mapped(
        Tile(
            "f",
            "xi eta c",
            "x_outer y_outer j",
            {"f_filter": None, "f_xi": None, "f_eta": 1, "f_color": 0},
        ),
        Tile(
            "m",
            "x_inner y_inner xi eta",
            "x_outer y_outer j i c",
            {"m_image": None, "m_x": 1, "m_y": 0, "m_color": None},
        ),
        tags={"j": "g.2"},
        priority="i,c,xi,eta",
        x=0,
        y=1,
    ),
    expected=_filtered_images,
)

# --- sums of inverse distances between n points
#
# ``pot[i] = sum(rsqrt(sum((x[k, i] - x[k, j])**2 for k in range(3))) if i != j else 0)`` over j;
# one work item per point. Each group fetches blocks of 3 by 256 points, lanes along points
# (stride 3), and reads its own point from global memory at every use. Distances are computed for
# i = j too; only their inverse square root is conditional. The difference is stored before it is
# squared: Loopy emits a square as a product of its base with itself, and would read and subtract
# twice.

_BLOCK = 256


def _potentials(arguments: Arrays, parameters: Sizes) -> Results:
    n = parameters["n"]
    (x,) = in_f64(arguments, "x")
    pot = np.empty(n)
    for begin in range(0, n, _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        squares = ((x[:, rows, np.newaxis] - x[:, np.newaxis, :]) ** 2).sum(axis=0)
        own = np.arange(begin, begin + _BLOCK)
        squares[own - begin, own] = np.inf
        pot[rows] = (1 / np.sqrt(squares)).sum(axis=1)
    return {"pot": pot}


_N_BODY = LoopyKernel(
    family="n-body",
    purpose="test",
    groups=((256, 1),),
    exponents=range(8, 17),
    sizes=lambda _: (SizeParameter("n", _BLOCK),),
    arguments=arrays("column-major x[3, n], output pot[n]"),
    check={"n": 2},
    domain="{ [i, j, k]: 0 <= i < n and 0 <= j < n and 0 <= k < 3 }",
    instructions="""
        for i
            <> total = 0 {id=begin}
            for j
                <> square = 0 {id=clear}
                for k
                    <> difference = x[k, i] - x$block[k, j] {id=subtract}
                    square = square + difference**2 {id=square, dep=clear:subtract}
                end
                total = total + (rsqrt(square) if i != j else 0) {id=add, dep=begin:square}
            end
            pot[i] = total {dep=add}
        end
    """,
    transform=mapped(
        Tile("x$block", "k j_inner", "i_outer j_outer", {"x_axis": None, "x_point": 0}),
        split={"j": _BLOCK},
        unrolled="k x_axis",
        i=0,
    ),
    expected=_potentials,
)

KERNELS = (_FINITE_DIFFERENCES, _SKINNY, _CONVOLUTION, _N_BODY)
"""All of them."""
