"""Kernels in the style of pystella: stencils with halos, Fourier space, multigrid."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from tests.corpus import Unit

F4, F8, C8, C16, I4 = np.float32, np.float64, np.complex64, np.complex128, np.int32
COEFFICIENTS = {
    1: (-2.0, 1.0),
    2: (-5 / 2, 4 / 3, -1 / 12),
    3: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
    4: (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560),
}
"""Of second derivatives by half their width."""
_GRID = "{ [i, j, k] : 0 <= i < nx and 0 <= j < ny and 0 <= k < nz }"


def _kernel(
    body: str, arrays: dict[str, tuple[Any, str]], *, scalars: str = "", grid: str = _GRID
) -> Any:
    arguments: list[Any] = [
        lp.GlobalArg(name, dtype, shape=shape, offset=lp.auto)
        for name, (dtype, shape) in arrays.items()
    ]
    if scalars:
        arguments.append(lp.ValueArg(scalars, F8))
    unit = lp.make_kernel(
        grid,
        body,
        [*arguments, lp.ValueArg("nx,ny,nz", I4)],
        assumptions="nx, ny, nz >= 1",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "k", 32, outer_tag="g.0", inner_tag="l.0")
    unit = lp.split_iname(unit, "j", 4, outer_tag="g.1", inner_tag="l.1")
    return lp.tag_inames(unit, "i:g.2")


def _padded(half: int, *axes: str) -> str:
    return ",".join((*axes, *(f"{size} + {2 * half}" for size in ("nx", "ny", "nz"))))


def _shifted(half: int, axis: int, by: int) -> str:
    index = [f"{name} + {half + (by if place == axis else 0)}" for place, name in enumerate("ijk")]
    return f"f[{', '.join(index)}]"


def _laplacian(half: int, dtype: Any = F8) -> Any:
    middle, *others = COEFFICIENTS[half]
    parts = [f"{3 * middle}*{_shifted(half, 0, 0)}"]
    for distance, weight in enumerate(others, start=1):
        around = [_shifted(half, axis, sign * distance) for axis in range(3) for sign in (1, -1)]
        parts.append(f"{weight}*({' + '.join(around)})")
    arrays = {"f": (dtype, _padded(half)), "lap": (dtype, "nx,ny,nz")}
    return _kernel(f"lap[i, j, k] = {' + '.join(parts)}", arrays)


def _gradient(half: int = 1) -> Any:
    body = "\n".join(
        f"grad[{axis}, i, j, k] = 0.5*({_shifted(half, axis, 1)} - {_shifted(half, axis, -1)})/dx"
        for axis in range(3)
    )
    arrays = {"f": (F8, _padded(half)), "grad": (F8, "3,nx,ny,nz")}
    return _kernel(body, arrays, scalars="dx")


def _streamed() -> Any:
    unit = lp.make_kernel(
        "{ [i, j, k] : 0 <= i, j, k < n }",
        """
        lap[i, j, k] = (f[i + 2, j + 1, k + 1] + f[i, j + 1, k + 1] + f[i + 1, j + 2, k + 1]
                        + f[i + 1, j, k + 1] + f[i + 1, j + 1, k + 2] + f[i + 1, j + 1, k]
                        - 6*f[i + 1, j + 1, k + 1])
        """,
        [
            lp.GlobalArg("f", F8, shape="n+2,n+2,n+2"),
            lp.GlobalArg("lap", F8, shape="n,n,n"),
            lp.ValueArg("n", I4),
        ],
        assumptions="n mod 16 = 0 and n >= 16",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "k", 16, outer_tag="g.0", inner_tag="l.0")
    unit = lp.split_iname(unit, "j", 8, outer_tag="g.1", inner_tag="l.1")
    return lp.add_prefetch(
        unit, "f", ["j_inner", "k_inner"], fetch_bounding_box=True, default_tag="l.auto"
    )


def _reduced(value: str) -> Any:
    unit = lp.make_kernel(
        _GRID,
        f"o[i] = sum((j, k), {value})",
        [
            lp.GlobalArg("f,d", F8, shape="nx,ny,nz"),
            lp.GlobalArg("o", F8, shape="nx"),
            lp.ValueArg("nx,ny,nz", I4),
        ],
        assumptions="nx, ny, nz >= 1",
        lang_version=(2018, 2),
    )
    return lp.tag_inames(unit, "i:g.0")


def _restricted() -> Any:
    weights = {0: "0.5", 1: "0.25", -1: "0.25"}
    parts = [
        f"{weights[a]}*{weights[b]}*{weights[c]}*f[2*i + {1 + a}, 2*j + {1 + b}, 2*k + {1 + c}]"
        for a in weights
        for b in weights
        for c in weights
    ]
    arrays = {"f": (F8, "2*nx + 2,2*ny + 2,2*nz + 2"), "o": (F8, "nx,ny,nz")}
    return _kernel(f"o[i, j, k] = {' + '.join(parts)}", arrays)


_CUBE = (F8, "nx,ny,nz")
_WAVES = (C16, "nx,ny,nz")
_MAKERS: dict[str, Callable[[], Any]] = {
    **{f"laplacian_{half}": partial(_laplacian, half) for half in COEFFICIENTS},
    "laplacian_f32": partial(_laplacian, 2, F4),
    "gradient": _gradient,
    "streamed": _streamed,
    "energy": partial(_reduced, "0.5*d[i, j, k]**2 + 0.25*f[i, j, k]**4"),
    "largest": lambda: _reduced("f[i, j, k]*d[i, j, k]"),
    "restriction": _restricted,
    "scalar_field": partial(
        _kernel,
        """
        dd[i, j, k] = (lap[i, j, k] - 2*hubble*d[i, j, k]
                       - a*a*(m2*f[i, j, k] + coupling*f[i, j, k]**3))
        """,
        {"dd": _CUBE, "lap": _CUBE, "d": _CUBE, "f": _CUBE},
        scalars="hubble,a,m2,coupling",
    ),
    "low_storage_step": partial(
        _kernel,
        """
        s[i, j, k] = c*s[i, j, k] + dt*rhs[i, j, k] {id=s}
        f[i, j, k] = f[i, j, k] + b*s[i, j, k] {dep=s}
        """,
        {"s": _CUBE, "rhs": _CUBE, "f": _CUBE},
        scalars="b,c,dt",
    ),
    "relaxation": partial(
        _kernel,
        "g[i, j, k] = (1 - w)*f[i, j, k] + w*(rho[i, j, k] - lap[i, j, k])/diagonal",
        {"g": _CUBE, "f": _CUBE, "rho": _CUBE, "lap": _CUBE},
        scalars="w,diagonal",
    ),
    "prolongation": partial(
        _kernel,
        "o[i, j, k] = 0.5*(f[i // 2, j // 2, k // 2] + f[(i + 1) // 2, j // 2, k // 2])",
        {"f": (F8, "nx // 2 + 2,ny // 2 + 2,nz // 2 + 2"), "o": _CUBE},
    ),
    "fourier_derivative": partial(
        _kernel,
        "o[i, j, k] = 1j*kx[i]*f[i, j, k]",
        {"o": _WAVES, "f": _WAVES, "kx": (F8, "nx")},
    ),
    "power_spectrum": partial(
        _kernel,
        "o[i, j, k] = real(f[i, j, k]*conj(f[i, j, k]))*(kx[i]**2 + ky[j]**2 + kz[k]**2)**1.5",
        {"o": _CUBE, "f": _WAVES, "kx": (F8, "nx"), "ky": (F8, "ny"), "kz": (F8, "nz")},
    ),
    "transverse_projection": partial(
        _kernel,
        """
        <> size = sqrt(kx[i]**2 + ky[j]**2 + kz[k]**2) {id=size}
        <> dot = (kx[i]*v[0, i, j, k] + ky[j]*v[1, i, j, k] + kz[k]*v[2, i, j, k])/size \
{id=dot, dep=size}
        v[0, i, j, k] = v[0, i, j, k] - dot*kx[i]/size {dep=dot}
        v[1, i, j, k] = v[1, i, j, k] - dot*ky[j]/size {dep=dot}
        v[2, i, j, k] = v[2, i, j, k] - dot*kz[k]/size {dep=dot}
        """,
        {"v": (C16, "3,nx,ny,nz"), "kx": (F8, "nx"), "ky": (F8, "ny"), "kz": (F8, "nz")},
    ),
    "random_phases": partial(
        _kernel,
        "o[i, j, k] = sqrt(-log(u[i, j, k]))*exp(2j*3.141592653589793*v[i, j, k])",
        {"o": _WAVES, "u": _CUBE, "v": _CUBE},
    ),
    "halo": partial(
        _kernel,
        "o[i, j, k] = f[(i + nx - 2) % nx, (j + ny - 2) % ny, (k + nz - 2) % nz]",
        {"o": _CUBE, "f": _CUBE},
    ),
}

UNITS: list[Unit] = [
    (name, make, {"n": 64} if name == "streamed" else {"nx": 32, "ny": 48, "nz": 64})
    for name, make in _MAKERS.items()
]
