"""Kernels of Rodinia's solver of the Euler equations on an unstructured mesh of tetrahedra."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import ArrayArgument, Extent, Sizes, arrays
from measurement_kernels.loopy_kernels import (
    Arrays,
    Results,
    any_sizes,
    computed_from,
    in_f64,
    mapped,
)
from measurement_kernels.published.rodinia import rodinia_kernel
from measurement_kernels.published.rodinia_grids import positive

_GAMMA, _SMOOTHING = 1.4, 0.2
_MOMENTA = "xyz"


def flowing(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return density, momenta and energy of a gas with positive pressure."""
    made = random.random(shape) - 0.5
    made[0] += 1.5
    made[4] += 3.5
    return made


def _state(prefix: str, place: str) -> str:
    """Return instructions that compute what the flux of an element needs."""
    p = prefix
    return "\n".join(
        [
            f"<> {p}d = v[0, {place}]",
            *(f"<> {p}m{k} = v[{axis + 1}, {place}]" for axis, k in enumerate(_MOMENTA)),
            f"<> {p}e = v[4, {place}]",
            *(f"<> {p}u{k} = {p}m{k}/{p}d" for k in _MOMENTA),
            f"<> {p}square = {p}ux*{p}ux + {p}uy*{p}uy + {p}uz*{p}uz",
            f"<> {p}p = {_GAMMA - 1:.1f}*({p}e - 0.5*{p}d*{p}square)",
            f"<> {p}sound = sqrt({_GAMMA}*{p}p/{p}d)",
        ]
    )


def _fluxes_of(prefix: str) -> str:
    """Return instructions that compute the fluxes of momentum and energy of an element."""
    p = prefix
    pairs = [(a, b) for i, a in enumerate(_MOMENTA) for b in _MOMENTA[i:]]
    return "\n".join(
        [
            *(
                f"<> {p}f{a}{b} = {p}u{a}*{p}m{b}" + (f" + {p}p" if a == b else "")
                for a, b in pairs
            ),
            f"<> {p}h = {p}e + {p}p",
            *(f"<> {p}g{k} = {p}u{k}*{p}h" for k in _MOMENTA),
        ]
    )


def _through(own: str, others: tuple[str, str, str]) -> str:
    """Return what flows through a face: viscosity, and half the sum of both fluxes."""
    terms = [f"half{k}*(q{flux} + {flux})" for k, flux in zip(_MOMENTA, others, strict=True)]
    return f"viscosity*({own} - q{own}) + " + " + ".join(terms)


_FLOWS = {
    "d": ("mx", "my", "mz"),
    "mx": ("fxx", "fxy", "fxz"),
    "my": ("fxy", "fyy", "fyz"),
    "mz": ("fxz", "fyz", "fzz"),
    "e": ("gx", "gy", "gz"),
}

_COMPUTE_FLUX = "\n".join(
    [
        "for i",
        _state("", "i"),
        "<> speed = sqrt(square)",
        _fluxes_of(""),
        *(f"<> sum{own} = 0.0f {{id=zero{own}}}" for own in _FLOWS),
        "for j",
        "<> nb = neighbors[j, i]",
        *(f"<> n{k} = normals[{axis}, j, i]" for axis, k in enumerate(_MOMENTA)),
        "<> length = sqrt(nx*nx + ny*ny + nz*nz)",
        _state("q", "nb"),
        _fluxes_of("q"),
        "<> speeds = speed + sqrt(qsquare) + sound + qsound",
        f"<> viscosity = {-_SMOOTHING / 2}*length*speeds",
        *(f"<> half{k} = 0.5*n{k}" for k in _MOMENTA),
        *(
            f"<> flow{own} = {_through(own, others)}\n"
            f"sum{own} = sum{own} + flow{own} {{id=add{own}, dep=zero{own}}}"
            for own, others in _FLOWS.items()
        ),
        "end",
        *(f"flux[{row}, i] = sum{own} {{dep=add{own}}}" for row, own in enumerate(_FLOWS)),
        "end",
    ]
)


def _gas(v: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return velocities, pressure and speed of sound."""
    u = v[1:4] / v[0]
    p = (_GAMMA - 1) * (v[4] - 0.5 * v[0] * (u * u).sum(axis=0))
    return u, p, np.sqrt(_GAMMA * p / v[0])


def _fluxes(v: NDArray[Any]) -> NDArray[Any]:
    """Return what flows along each axis, of each variable."""
    u, p, _ = _gas(v)
    flow = u[:, None] * v[None]
    flow[:, 4] += u * p
    for axis in range(3):
        flow[axis, axis + 1] += p
    return flow


def _flux(arguments: Arrays, sizes: Sizes) -> Results:
    del sizes
    v, normals = in_f64(arguments, "v normals")
    u, _, sound = _gas(v)
    speed, flow, total = np.sqrt((u * u).sum(axis=0)), _fluxes(v), np.zeros_like(v)
    for face, nb in enumerate(arguments["neighbors"]):
        normal = normals[:, face]
        speeds = speed + speed[nb] + sound + sound[nb]
        viscosity = -_SMOOTHING / 2 * np.sqrt((normal**2).sum(axis=0)) * speeds
        total += viscosity * (v - v[:, nb])
        total += (0.5 * normal[:, None] * (flow + flow[:, :, nb])).sum(axis=0)
    return {"flux": total}


def _step_factor(v: NDArray[Any], areas: NDArray[Any]) -> Results:
    u, _, sound = _gas(v)
    return {"steps": 0.5 / (np.sqrt(areas) * (np.sqrt((u * u).sum(axis=0)) + sound))}


def _mesh(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    return random.integers(sizes["n"], size=(4, sizes["n"]), dtype="int32")


RODINIA_FLOW = (
    rodinia_kernel(
        variant="compute-step-factor",
        groups=((192, 1),),
        sizes=any_sizes("n"),
        arguments=(
            *arrays("v[5, n]", values=flowing),
            *arrays("areas[n]", values=positive),
            *arrays("output steps[n]"),
        ),
        check={"n": 1000},
        domain="{ [i] : 0 <= i < n }",
        instructions=f"for i\n{_state('', 'i')}\n"
        "steps[i] = 0.5/(sqrt(areas[i])*(sqrt(square) + sound))\nend",
        transform=mapped(i=0),
        expected=computed_from("v areas", _step_factor),
    ),
    rodinia_kernel(
        variant="time-step",
        groups=((192, 1),),
        sizes=any_sizes("n"),
        arguments=arrays("steps[n], flux[5, n], old[5, n], output v[5, n]"),
        check={"n": 1000},
        domain="{ [i, k] : 0 <= i < n and 0 <= k < 5 }",
        instructions="""
            <> factor = steps[i] / 3.0f
            v[k, i] = old[k, i] + factor*flux[k, i]
        """,
        transform=mapped(i=0, unrolled="k"),
        expected=computed_from(
            "steps flux old", lambda steps, flux, old: {"v": old + steps / 3 * flux}
        ),
    ),
    rodinia_kernel(
        variant="compute-flux",
        groups=((192, 1),),
        sizes=any_sizes("n"),
        arguments=(
            *arrays("v[5, n]", values=flowing),
            ArrayArgument(name="neighbors", shape=(4, Extent("n")), indices=_mesh),
            *arrays("normals[3, 4, n], output flux[5, n]"),
        ),
        check={"n": 1000},
        domain=("{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < 4 }"),
        instructions=_COMPUTE_FLUX,
        transform=mapped(i=0),
        expected=_flux,
        statistics={"v": "indirect"},
    ),
)
