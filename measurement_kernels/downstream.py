"""Kernels after those that other projects generate, which judge models; no fit may use them.

They are listed only for collection ``downstream``. Those of ``downstream-one-group`` are as
pytato, TSFC and feinsum hand them out, untransformed; those of ``downstream-groups`` are as grudge,
pystella and users map them to groups, which need not divide the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended.of_others import Block
from measurement_kernels.nests import Nest, operator_nest
from measurement_kernels.programs import Recurrence

_AROUND = [(1, 1, 0), (1, 1, 2), (1, 0, 1), (1, 2, 1), (0, 1, 1), (2, 1, 1)]
_NEIGHBORS = " + ".join(f"f[i+{a}, j+{b}, k+{c}]" for a, b, c in _AROUND)
_LAPLACIAN = f"lap[i, j, k] = {_NEIGHBORS} - 6.0 * f[i+1, j+1, k+1]"
_RESTRICTION = "o[i, j, k] = " + " + ".join(
    f"{0.5 ** (1 + abs(a - 1) + abs(b - 1) + abs(c - 1))} * f[2*i+{a}, 2*j+{b}, 2*k+{c}]"
    for a, b, c in product(range(3), repeat=3)
)
_EULER = (
    "o[0, e, i] = q[1, e, i]",
    "o[1, e, i] = q[1, e, i]*q[1, e, i]/q[0, e, i] + 0.4*(q[3, e, i]"
    " - 0.5*(q[1, e, i]*q[1, e, i] + q[2, e, i]*q[2, e, i])/q[0, e, i])",
    "o[2, e, i] = q[1, e, i]*q[2, e, i]/q[0, e, i]",
    "o[3, e, i] = 1.4*q[1, e, i]*q[3, e, i]/q[0, e, i]",
)
_CROSS = tuple(
    f"o[{x}, e, i] = u[{y}, e, i]*v[{z}, e, i] - u[{z}, e, i]*v[{y}, e, i]"
    for x, y, z in ((0, 1, 2), (1, 2, 0), (2, 0, 1))
)
_DERIVATIVE = "o[x, e, i] = sum r j: w[x, r, e]*d[r, i, j]*u[e, j]"
_DERIVATIVE_ARRAYS = "w[3, 3, n], d[3, 10, 10], u[n, 10], output o[3, n, 10]"
_DIVERGENCE = "o[e, i] = sum x r j: w[x, r, e]*d[r, i, j]*v[x, e, j]"
_DIVERGENCE_ARRAYS = "w[3, 3, n], d[3, 10, 10], v[3, n, 10], output o[n, 10]"
_FACES = "o[e, i] = sum f j: l[i, f, j]*w[f, e]*v[f, e, j]"
_FACES_ARRAYS = "l[10, 4, 6], w[4, n], v[4, n, 6], output o[n, 10]"

_ONE_GROUP = {
    "operator-35": operator_nest(35, result="z"),
    "operator-10": operator_nest(10, result="z"),
    "operator-20-f32": operator_nest(20, element_type="f32", result="z"),
    "derivative": Nest("x:3 r:3 e:n i:10 j:10", _DERIVATIVE_ARRAYS, _DERIVATIVE),
    "divergence": Nest("x:3 r:3 e:n i:10 j:10", _DIVERGENCE_ARRAYS, _DIVERGENCE),
    "face-mass": Nest("e:n i:10 f:4 j:6", _FACES_ARRAYS, _FACES),
    "filter": Nest(
        "e:n i:10 j:10",
        "u[n, 10], m[10, 10], output o[n, 10]",
        "o[e, i] = sum j: 0.3*m[i, j]*u[e, j]",
    ),
    "matmul": Nest(
        "i:n j:96 k:100",
        "a[n, 100], b[100, 96], output o[n, 96]",
        "o[i, j] = sum k: a[i, k]*b[k, j]",
    ),
    "batched-matmul": Nest(
        "e:n i:8 j:8 k:8",
        "a[n, 8, 8], b[n, 8, 8], output o[n, 8, 8]",
        "o[e, i, j] = sum k: a[e, i, k]*b[e, k, j]",
    ),
    "mass-matrices": Nest(
        "e:n i:6 j:6 q:6",
        "w[6], phi[6, 6], det[n], output o[n, 6, 6]",
        "o[e, i, j] = sum q: w[q]*phi[q, i]*phi[q, j]*det[e]",
    ),
    "axpy": Nest("i:n", "x[n], y[n], output o[n]", "o[i] = 2.5*x[i] + y[i]"),
    "laplacian": Nest("i:n j:30 k:40", "f[n + 2, 32, 42], output lap[n, 30, 40]", _LAPLACIAN),
    "euler-flux": Nest("e:n i:10", "q[4, n, 10], output o[4, n, 10]", _EULER),
    "cross-product": Nest("e:n i:10", "u[3, n, 10], v[3, n, 10], output o[3, n, 10]", _CROSS),
    "maximum": Nest(
        "e:n j:10",
        "u[n, 10], output o[n]",
        Recurrence("o[e]", (("0.0", "fmax(s0, fabs(u[e, j]))"),), "j", "s0"),
    ),
    "gaussian": Nest("e:n i:10", "u[n, 10], output o[n, 10]", "o[e, i] = exp(-u[e, i]*u[e, i])"),
    "transpose": Nest("i:n j:250", "x[n, 250], output o[250, n]", "o[j, i] = x[i, j]"),
    "matvec": Nest(
        "i:n j:800",
        "a[n, 800], x[800], output o[n]",
        "o[i] = sum j: a[i, j]*x[j]",
        element_type="f32",
    ),
}

_GROUPS = {
    "operator-35": operator_nest(35, "e:32", result="z"),
    "operator-10": operator_nest(10, "e:32", result="z"),
    "points-35": operator_nest(35, "i:35", "e", result="z"),
    "derivative": Nest("x:3 r:3 e:n i:10 j:10", _DERIVATIVE_ARRAYS, _DERIVATIVE, "e:32"),
    "divergence": Nest("x:3 r:3 e:n i:10 j:10", _DIVERGENCE_ARRAYS, _DIVERGENCE, "e:32"),
    "face-mass": Nest("e:n i:10 f:4 j:6", _FACES_ARRAYS, _FACES, "e:32"),
    "euler-flux": Nest("e:n i:10", "q[4, n, 10], output o[4, n, 10]", _EULER, "e:32"),
    "cross-product": Nest(
        "e:n i:10", "u[3, n, 10], v[3, n, 10], output o[3, n, 10]", _CROSS, "e:32"
    ),
    "laplacian": Nest(
        "i:n j:60 k:100", "f[n + 2, 62, 102], output lap[n, 60, 100]", _LAPLACIAN, "k:16 j:4", "i"
    ),
    "restriction": Nest(
        "i:n j:30 k:60", "f[2*n + 2, 62, 122], output o[n, 30, 60]", _RESTRICTION, "k:16 j:4", "i"
    ),
    "potential": Nest(
        "i:n j:1500",
        "x[n], y[n], p[1500], q[1500], w[1500], output o[n]",
        "o[i] = sum j: w[j]/sqrt((x[i] - p[j])*(x[i] - p[j]) + (y[i] - q[j])*(y[i] - q[j]) + 0.01)",
        "i:64",
        element_type="f32",
    ),
    "matmul": Nest(
        "i:n j:200 k:300",
        "a[n, 300], b[300, 200], output o[n, 200]",
        "o[i, j] = sum k: a[i, k]*b[k, j]",
        "j:16 i:16",
    ),
    "upwind-flux": Nest(
        "e:n i:6",
        "v[2, n, 6], w[2, n], a[n, 6], b[n, 6], output o[n, 6]",
        "o[e, i] = 0.5*(v[0, e, i]*w[0, e] + v[1, e, i]*w[1, e])*(a[e, i] + b[e, i])"
        " - 0.5*fabs(v[0, e, i]*w[0, e] + v[1, e, i]*w[1, e])*(b[e, i] - a[e, i])",
        "e:32",
    ),
}

_BLOCKS = (Block(6, 4, True, False, (8, 8), "f32"), Block(3, 8, False, True, (16, 4), "f64"))

_STREAM = Nest(
    "i:n",
    "x[n], y[n], z[n], output o[n]",
    "o[i] = x[i] + 0.5*y[i]*z[i]",
    "i:64",
    element_type="f32",
    base=10007,
)
_STREAM_STEPS = (0, 3, 5, 7, 9, 11)


def entries() -> Iterator[CatalogEntry]:
    """List the kernels."""
    listed = partial(Nest.entry, collection="downstream", purpose="application")
    for variant, nest in _ONE_GROUP.items():
        yield listed(nest, "downstream-one-group", variant)
    for variant, nest in _GROUPS.items():
        yield listed(nest, "downstream-groups", variant)
    for block in _BLOCKS:
        kernel = block.kernel("downstream-groups", collection="downstream", purpose="application")
        yield from kernel.entries()
    stream = listed(_STREAM, "downstream-groups", "stream", steps=_STREAM_STEPS)
    yield replace(stream, exponents=range(1))
