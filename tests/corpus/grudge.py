"""Kernels in the style of grudge and meshmode: contractions and gathers over elements."""

from __future__ import annotations

from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from tests.corpus import Unit

F4, F8, C16, I4, I8 = np.float32, np.float64, np.complex128, np.int32, np.int64
NODES, FACES, FACE_NODES = 10, 4, 6


def _program(
    domain: str,
    body: str,
    arrays: dict[str, str],
    *,
    dtype: Any = F8,
    integers: tuple[str, ...] = (),
    split: str = "e",
    length: int = 32,
    scalars: str = "",
    is_offset: bool = True,
) -> Any:
    """Return a kernel over elements, with arrays as an array context passes them."""
    offset = lp.auto if is_offset else None
    arguments: list[Any] = [
        lp.GlobalArg(name, I4 if name in integers else dtype, shape=shape, offset=offset or 0)
        for name, shape in arrays.items()
    ]
    if scalars:
        arguments.append(lp.ValueArg(scalars, dtype))
    others = ",nb" if "< nb" in domain else ""
    unit = lp.make_kernel(
        domain,
        body,
        [*arguments, lp.ValueArg(f"n{others}", I4)],
        assumptions="nb >= 1" if "< nb" in domain else "n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(unit, split, length, outer_tag="g.0", inner_tag="l.0") if split else unit


_EI = f"{{ [e, i] : 0 <= e < n and 0 <= i < {NODES} }}"
_EIJ = f"{{ [e, i, j] : 0 <= e < n and 0 <= i, j < {NODES} }}"
_U = f"n,{NODES}"
_M = f"{NODES},{NODES}"
_FIELDS = {"u": _U, "o": _U}

PROGRAMS: dict[str, dict[str, Any]] = {
    "mass": {
        **{"domain": _EIJ, "body": "o[e, i] = sum(j, mass[i, j]*jac[e]*u[e, j])"},
        "arrays": {**_FIELDS, "mass": _M, "jac": "n"},
    },
    "inverse_mass": {
        **{"domain": _EIJ, "body": "o[e, i] = sum(j, mass[i, j]*u[e, j])/jac[e]"},
        "arrays": {**_FIELDS, "mass": _M, "jac": "n"},
    },
    "mass_f32": {
        **{"domain": _EIJ, "body": "o[e, i] = sum(j, mass[i, j]*jac[e]*u[e, j])"},
        **{"arrays": {**_FIELDS, "mass": _M, "jac": "n"}, "dtype": F4},
    },
    "mass_complex": {
        **{"domain": _EIJ, "body": "o[e, i] = sum(j, mass[i, j]*u[e, j])"},
        **{"arrays": {**_FIELDS, "mass": _M}, "dtype": C16},
    },
    "derivative": {
        "domain": f"{{ [x, r, e, i, j] : 0 <= x, r < 3 and 0 <= e < n and 0 <= i, j < {NODES} }}",
        "body": "o[x, e, i] = sum((r, j), metric[x, r, e]*diff[r, i, j]*u[e, j])",
        "arrays": {
            **{"u": _U, "o": f"3,n,{NODES}", "metric": "3,3,n"},
            "diff": f"3,{NODES},{NODES}",
        },
    },
    "divergence": {
        "domain": f"{{ [x, r, e, i, j] : 0 <= x, r < 3 and 0 <= e < n and 0 <= i, j < {NODES} }}",
        "body": "o[e, i] = sum((x, r, j), metric[x, r, e]*diff[r, i, j]*v[x, e, j])",
        "arrays": {
            **{"v": f"3,n,{NODES}", "o": _U, "metric": "3,3,n"},
            "diff": f"3,{NODES},{NODES}",
        },
    },
    "face_mass": {
        "domain": f"{{ [e, i, f, j] : 0 <= e < n and 0 <= i < {NODES} and 0 <= f < {FACES}"
        f" and 0 <= j < {FACE_NODES} }}",
        "body": "o[e, i] = sum((f, j), lift[i, f, j]*jac[f, e]*flux[f, e, j])",
        "arrays": {
            **{"o": _U, "lift": f"{NODES},{FACES},{FACE_NODES}", "jac": f"{FACES},n"},
            "flux": f"{FACES},n,{FACE_NODES}",
        },
    },
    "filter": {
        **{"domain": _EIJ, "body": "o[e, i] = u[e, i] - alpha*sum(j, modes[i, j]*u[e, j])"},
        **{"arrays": {**_FIELDS, "modes": _M}, "scalars": "alpha"},
    },
    "runge_kutta_stage": {
        "domain": _EI,
        "body": """
        k[e, i] = a*k[e, i] + dt*o[e, i] {id=k}
        u[e, i] = u[e, i] + b*k[e, i] {dep=k}
        """,
        **{"arrays": {**_FIELDS, "k": _U}, "scalars": "a,b,dt"},
    },
    "upwind_flux": {
        "domain": f"{{ [e, i] : 0 <= e < n and 0 <= i < {FACE_NODES} }}",
        "body": """
        <> vn = v[0, e, i]*normal[0, e] + v[1, e, i]*normal[1, e] {id=vn}
        o[e, i] = 0.5*vn*(inner[e, i] + outer[e, i]) - 0.5*fabs(vn)*(outer[e, i] - inner[e, i]) \
{dep=vn}
        """,
        "arrays": {
            **{"v": f"2,n,{FACE_NODES}", "normal": "2,n", "o": f"n,{FACE_NODES}"},
            **{"inner": f"n,{FACE_NODES}", "outer": f"n,{FACE_NODES}"},
        },
    },
    "maxwell_cross": {
        "domain": _EI,
        "body": """
        o[0, e, i] = u[1, e, i]*v[2, e, i] - u[2, e, i]*v[1, e, i]
        o[1, e, i] = u[2, e, i]*v[0, e, i] - u[0, e, i]*v[2, e, i]
        o[2, e, i] = u[0, e, i]*v[1, e, i] - u[1, e, i]*v[0, e, i]
        """,
        "arrays": dict.fromkeys("uvo", f"3,n,{NODES}"),
    },
    "euler_flux": {
        "domain": _EI,
        "body": """
        <> rho = q[0, e, i] {id=rho}
        <> u = q[1, e, i]/rho {id=u, dep=rho}
        <> v = q[2, e, i]/rho {id=v, dep=rho}
        <> p = (gamma - 1)*(q[3, e, i] - 0.5*rho*(u*u + v*v)) {id=p, dep=u:v}
        o[0, e, i] = q[1, e, i]
        o[1, e, i] = q[1, e, i]*u + p {dep=p}
        o[2, e, i] = q[1, e, i]*v {dep=v}
        o[3, e, i] = u*(q[3, e, i] + p) {dep=p}
        """,
        "arrays": dict.fromkeys("qo", f"4,n,{NODES}"),
        "scalars": "gamma",
    },
    "element_maximum": {
        **{"domain": _EIJ, "body": "o[e, i] = max(j, fabs(u[e, j]))", "arrays": _FIELDS},
    },
    "element_sum": {
        **{"domain": _EIJ, "body": "o[e] = sum(j, u[e, j])", "arrays": {"u": _U, "o": "n"}},
    },
    "jacobian": {
        "domain": _EI,
        "body": """
        o[e, i] = (d[0, 0, e, i]*(d[1, 1, e, i]*d[2, 2, e, i] - d[1, 2, e, i]*d[2, 1, e, i])
                 - d[0, 1, e, i]*(d[1, 0, e, i]*d[2, 2, e, i] - d[1, 2, e, i]*d[2, 0, e, i])
                 + d[0, 2, e, i]*(d[1, 0, e, i]*d[2, 1, e, i] - d[1, 1, e, i]*d[2, 0, e, i]))
        """,
        "arrays": {"d": f"3,3,n,{NODES}", "o": _U},
    },
    "normals": {
        "domain": f"{{ [e, i] : 0 <= e < n and 0 <= i < {FACE_NODES} }}",
        "body": """
        <> size = sqrt(t[0, e, i]**2 + t[1, e, i]**2) {id=size}
        o[0, e, i] = t[1, e, i]/size {dep=size}
        o[1, e, i] = -t[0, e, i]/size {dep=size}
        """,
        "arrays": dict.fromkeys("to", f"2,n,{FACE_NODES}"),
    },
    "interpolate_by_matrix": {
        "domain": f"{{ [e, i, j] : 0 <= e < nb and 0 <= i < {FACE_NODES} and 0 <= j < {NODES} }}",
        "body": "o[to[e], i] = sum(j, resample[i, j]*u[source[e], j])",
        "arrays": {
            **{"o": f"n,{FACE_NODES}", "resample": f"{FACE_NODES},{NODES}", "u": _U},
            **{"to": "nb", "source": "nb"},
        },
        "integers": ("to", "source"),
    },
    "pick_nodes": {
        "domain": f"{{ [e, i] : 0 <= e < nb and 0 <= i < {FACE_NODES} }}",
        "body": "o[to[e], i] = u[source[e], picks[kind[e], i]]",
        "arrays": {
            **{"o": f"n,{FACE_NODES}", "u": _U, "picks": f"{FACES},{FACE_NODES}"},
            **dict.fromkeys(("to", "source", "kind"), "nb"),
        },
        "integers": ("to", "source", "kind", "picks"),
    },
    "flatten": {
        "domain": f"{{ [k] : 0 <= k < {NODES}*n }}",
        "body": f"flat[k] = u[k // {NODES}, k % {NODES}]",
        **{"arrays": {"u": _U, "flat": f"{NODES}*n"}, "split": "k", "length": 64},
    },
    "unflatten": {
        **{"domain": _EI, "body": f"o[e, i] = flat[start[0] + {NODES}*e + i]"},
        **{"arrays": {"o": _U, "flat": f"{NODES}*n + 16", "start": "1"}, "integers": ("start",)},
    },
    "inverse_metric": {
        "domain": f"{{ [e, i, j] : 0 <= e < n and 0 <= i, j < {NODES} }}",
        "body": """
        for e, i
            <> xr = sum(j, dr[i, j]*x[e, j]) {id=xr}
            <> yr = sum(j, dr[i, j]*y[e, j]) {id=yr}
            <> xs = sum(j, ds[i, j]*x[e, j]) {id=xs}
            <> ys = sum(j, ds[i, j]*y[e, j]) {id=ys}
            <> det = xr*ys - xs*yr {id=det, dep=xr:yr:xs:ys}
            rx[e, i] = ys/det {dep=det}
            sx[e, i] = -yr/det {dep=det}
        end
        """,
        "arrays": {"dr": _M, "ds": _M, **dict.fromkeys(("x", "y", "rx", "sx"), _U)},
    },
    "subset_of_axis": {
        "domain": "{ [e, i] : 0 <= e < n and 0 <= i < 4 }",
        **{"body": "o[e, i] = u[e, 2*i + 1]", "arrays": {"u": _U, "o": "n,4"}},
    },
    "no_offsets": {
        **{"domain": _EI, "body": "o[e, i] = exp(-u[e, i]**2)", "arrays": _FIELDS},
        "is_offset": False,
    },
}

UNITS: list[Unit] = [
    (
        name,
        partial(_program, **parts),
        {"n": 1000, **({"nb": 300} if "< nb" in parts["domain"] else {})},
    )
    for name, parts in PROGRAMS.items()
]
