"""Kernels in the style of pystella: stencils with halos, Fourier space, multigrid."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import loopy as lp

from tests.corpus import Unit
from tests.kernels import made

COEFFICIENTS = {
    1: (-2.0, 1.0),
    2: (-5 / 2, 4 / 3, -1 / 12),
    3: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
    4: (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560),
}
"""Of second derivatives by half their width."""
_GRID = "i<nx, j<ny, k<nz"


def _kernel(body: str, arguments: str) -> Callable[[], Any]:
    """Make a kernel over a grid, ``@`` in its arguments."""
    return partial(
        made,
        _GRID,
        body,
        f"{arguments}; @ i32".replace("@", "nx,ny,nz"),
        arrays={"offset": lp.auto},
        split="k:32 j:4:1",
        tags="i:g.2",
    )


def _padded(half: int) -> str:
    return f"f64 nx+{2 * half},ny+{2 * half},nz+{2 * half}"


def _shifted(half: int, axis: int, by: int) -> str:
    index = [f"{name} + {half + by * (number == axis)}" for number, name in enumerate("ijk")]
    return f"f[{', '.join(index)}]"


def _laplacian(half: int, kind: str = "f64") -> Callable[[], Any]:
    middle, *others = COEFFICIENTS[half]
    parts = [f"{3 * middle}*{_shifted(half, 0, 0)}"]
    for distance, weight in enumerate(others, start=1):
        around = [_shifted(half, axis, sign * distance) for axis in range(3) for sign in (1, -1)]
        parts.append(f"{weight}*({' + '.join(around)})")
    arguments = f"f {_padded(half)}; lap f64 @".replace("f64", kind)
    return _kernel(f"lap[i, j, k] = {' + '.join(parts)}", arguments)


_GRADIENT = "\n".join(
    f"grad[{axis}, i, j, k] = 0.5*({_shifted(1, axis, 1)} - {_shifted(1, axis, -1)})/dx"
    for axis in range(3)
)
_WEIGHTS = {0: "0.5", 1: "0.25", -1: "0.25"}
_RESTRICTED = " + ".join(
    f"{_WEIGHTS[a]}*{_WEIGHTS[b]}*{_WEIGHTS[c]}*f[2*i + {1 + a}, 2*j + {1 + b}, 2*k + {1 + c}]"
    for a, b, c in product(_WEIGHTS, repeat=3)
)


def _streamed() -> Any:
    unit = made(
        "i<n, j<n, k<n",
        """
        lap[i, j, k] = (f[i + 2, j + 1, k + 1] + f[i, j + 1, k + 1] + f[i + 1, j + 2, k + 1]
                        + f[i + 1, j, k + 1] + f[i + 1, j + 1, k + 2] + f[i + 1, j + 1, k]
                        - 6*f[i + 1, j + 1, k + 1])
        """,
        "f f64 n+2,n+2,n+2; lap f64 n,n,n; n i32",
        assumptions="n mod 16 = 0 and n >= 16",
        split="k:16 j:8:1",
    )
    return lp.add_prefetch(
        unit, "f", ["j_inner", "k_inner"], fetch_bounding_box=True, default_tag="l.auto"
    )


def _reduced(value: str) -> Callable[[], Any]:
    arguments = "f,d f64 nx,ny,nz; o f64 nx; nx,ny,nz i32"
    return partial(made, _GRID, f"o[i] = sum((j, k), {value})", arguments, tags="i:g.0")


_MAKERS: dict[str, Callable[[], Any]] = {
    **{f"laplacian_{half}": _laplacian(half) for half in COEFFICIENTS},
    "laplacian_f32": _laplacian(2, "f32"),
    "gradient": _kernel(_GRADIENT, f"f {_padded(1)}; grad f64 3,@; dx f64"),
    "streamed": _streamed,
    "energy": _reduced("0.5*d[i, j, k]**2 + 0.25*f[i, j, k]**4"),
    "largest": _reduced("f[i, j, k]*d[i, j, k]"),
    "restriction": _kernel(f"o[i, j, k] = {_RESTRICTED}", "f f64 2*nx+2,2*ny+2,2*nz+2; o f64 @"),
    "scalar_field": _kernel(
        """
        dd[i, j, k] = (lap[i, j, k] - 2*hubble*d[i, j, k]
                       - a*a*(m2*f[i, j, k] + coupling*f[i, j, k]**3))
        """,
        "dd,lap,d,f f64 @; hubble,a,m2,coupling f64",
    ),
    "low_storage_step": _kernel(
        """
        s[i, j, k] = c*s[i, j, k] + dt*rhs[i, j, k] {id=s}
        f[i, j, k] = f[i, j, k] + b*s[i, j, k] {dep=s}
        """,
        "s,rhs,f f64 @; b,c,dt f64",
    ),
    "relaxation": _kernel(
        "g[i, j, k] = (1 - w)*f[i, j, k] + w*(rho[i, j, k] - lap[i, j, k])/diagonal",
        "g,f,rho,lap f64 @; w,diagonal f64",
    ),
    "prolongation": _kernel(
        "o[i, j, k] = 0.5*(f[i // 2, j // 2, k // 2] + f[(i + 1) // 2, j // 2, k // 2])",
        "f f64 nx//2+2,ny//2+2,nz//2+2; o f64 @",
    ),
    "fourier_derivative": _kernel("o[i, j, k] = 1j*kx[i]*f[i, j, k]", "o,f c128 @; kx f64 nx"),
    "power_spectrum": _kernel(
        "o[i, j, k] = real(f[i, j, k]*conj(f[i, j, k]))*(kx[i]**2 + ky[j]**2 + kz[k]**2)**1.5",
        "o f64 @; f c128 @; kx f64 nx; ky f64 ny; kz f64 nz",
    ),
    "transverse_projection": _kernel(
        """
        <> size = sqrt(kx[i]**2 + ky[j]**2 + kz[k]**2) {id=size}
        <> dot = (kx[i]*v[0, i, j, k] + ky[j]*v[1, i, j, k] + kz[k]*v[2, i, j, k])/size \
{id=dot, dep=size}
        v[0, i, j, k] = v[0, i, j, k] - dot*kx[i]/size {dep=dot}
        v[1, i, j, k] = v[1, i, j, k] - dot*ky[j]/size {dep=dot}
        v[2, i, j, k] = v[2, i, j, k] - dot*kz[k]/size {dep=dot}
        """,
        "v c128 3,@; kx f64 nx; ky f64 ny; kz f64 nz",
    ),
    "random_phases": _kernel(
        "o[i, j, k] = sqrt(-log(u[i, j, k]))*exp(2j*3.141592653589793*v[i, j, k])",
        "o c128 @; u,v f64 @",
    ),
    "halo": _kernel(
        "o[i, j, k] = f[(i + nx - 2) % nx, (j + ny - 2) % ny, (k + nz - 2) % nz]", "o,f f64 @"
    ),
}

UNITS: list[Unit] = [
    (name, make, {"n": 64} if name == "streamed" else {"nx": 32, "ny": 48, "nz": 64})
    for name, make in _MAKERS.items()
]
