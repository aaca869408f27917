"""Direct Coulomb summation of the Kernel Tuning Toolkit, in three dimensions.

The potential of point charges at the points of a cubic grid: each item has ``iterations`` points
along z, and adds ``w * rsqrt(dx*dx + dy*dy + dz*dz)`` of each atom to them. Distances along x and y
are worked out once for an atom, the one along z moves on by the spacing. Each coordinate of the
atoms has an array of its own (``USE_SOA`` in the toolkit).

Source: the toolkit's description of the kernel; Filipovič, Petrovič, Benkner, "Autotuning of OpenCL
kernels with global optimizations" (ANDARE 2017). Counters: github.com/HiPerCoRe/KTT, commit
931c4157, MIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2
from numpy.typing import NDArray

from measurement_kernels.arguments import ScalarArgument, SizeParameter, Sizes, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import GroupShape

ITERATIONS = (1, 2, 4, 8, 16, 32)
"""Points of an item."""

SPACING = 0.5
"""Distance of neighboring points of the grid."""

_GROUPS: tuple[GroupShape, ...] = ((16, 4), (32, 2), (16, 8), (32, 4), (32, 8))
_ARGUMENTS = (
    *arrays("ax[atoms], ay[atoms], az[atoms], w[atoms]"),
    *arrays("updated energy[n, n, n]"),
    ScalarArgument(name="spacing", value=SPACING),
)


@cache
def _build(group: GroupShape, iterations: int) -> TranslationUnit:
    wide, high = group
    unit = lp.make_kernel(
        [
            f"[n] -> {{ [gz, y, x]: 0 <= y, x < n and 0 <= gz and {iterations}*gz < n }}",
            "[atoms] -> { [a]: 0 <= a < atoms }",
            f"{{ [i, j, k]: 0 <= i, j, k < {iterations} }}",
        ],
        f"""
        for gz, y, x
            <int32> ix = x {{id=ix}}
            <int32> iy = y {{id=iy}}
            <int32> iz = {iterations}*gz {{id=iz}}
            <float32> px = ix {{id=px, dep=ix}}
            <float32> py = iy {{id=py, dep=iy}}
            <float32> pz = iz {{id=pz, dep=iz}}
            sums[i] = 0 {{id=zero}}
            for a
                <> dx = spacing*px - ax[a] {{id=dx, dep=px}}
                <> dy = spacing*py - ay[a] {{id=dy, dep=py}}
                <> plane = dx*dx + dy*dy {{id=plane, dep=dx:dy}}
                <> charge = w[a] {{id=charge}}
                <> dz = spacing*pz - az[a] {{id=dz, dep=pz}}
                for j
                    sums[j] = sums[j] + charge*rsqrt(dz*dz + plane) \
                        {{id=add, dep=zero:dz:plane:charge}}
                    dz = dz + spacing {{id=on, dep=add}}
                end
            end
            energy[{iterations}*gz + k, y, x] = \
                energy[{iterations}*gz + k, y, x] + sums[k] {{dep=add}}
        end
        """,
        [
            lp.GlobalArg("ax, ay, az, w", np.float32, shape="(atoms,)"),
            lp.GlobalArg("energy", np.float32, shape="(n, n, n)"),
            lp.ValueArg("spacing", np.float32),
            lp.ValueArg("n, atoms", np.int32),
            lp.TemporaryVariable("sums", np.float32, (iterations,)),
        ],
        name="coulomb",
        assumptions=(
            f"n >= 1 and atoms >= 1 and n mod {wide} = 0 and n mod {high} = 0"
            f" and n mod {iterations} = 0"
        ),
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )
    unit = lp.tag_inames(unit, {"gz": "g.2"})
    for iname, axis, items in (("x", 0, wide), ("y", 1, high)):
        unit = lp.split_iname(unit, iname, items, outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    return unit


def _potential(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    points = SPACING * np.arange(sizes["n"])
    energy = np.array(arguments["energy"], dtype=np.float64)
    atoms = [np.float64(arguments[name]) for name in ("ax", "ay", "az", "w")]
    for x, y, z, w in zip(*atoms, strict=True):
        squares = [(points - place) ** 2 for place in (z, y, x)]
        distance = squares[0][:, None, None] + squares[1][:, None] + squares[2]
        energy += w / np.sqrt(distance)
    return {"energy": energy}


def coulomb_entry(group: GroupShape, iterations: int) -> CatalogEntry:
    """Return the kernel for a shape of groups and so many points of an item."""
    multiple = max(*group, iterations)
    return CatalogEntry(
        family="published-coulomb",
        variant=f"points-{iterations}",
        collection="published",
        group_shape=group,
        exponents=range(5, 9),
        sizes=(SizeParameter("n", multiple), SizeParameter("atoms", fixed=64)),
        arguments=_ARGUMENTS,
        check_parameters={"n": multiple, "atoms": 3},
        builder=partial(_build, group, iterations),
        expected=_potential,
    )


def entries() -> Iterator[CatalogEntry]:
    """List every shape of groups, and every number of points of an item."""
    for group in _GROUPS:
        yield coulomb_entry(group, 4)
    for iterations in ITERATIONS:
        if iterations != 4:
            yield coulomb_entry(_GROUPS[0], iterations)
