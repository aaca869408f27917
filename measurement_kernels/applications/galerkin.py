"""Discontinuous Galerkin: derivatives of a field on tetrahedra of order 3, 20 nodes each.

``res[e, i] = sum(g[r, e] * sum(d[r, j, i] * u[e, j] for j) for r)`` over the reference directions
r: the chain rule. Groups take several elements and all nodes, lanes along nodes, and keep the field
of their elements in local memory; matrices are stored so that lanes read them side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from measurement_kernels.applications.common import Application, in_f64
from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.groups import GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray

NODES = 20
"""Nodes of an element, which lanes run along."""

_DIRECTIONS = 3
_ELEMENTS = Extent("elements")


def _transform(unit: TranslationUnit, group_shape: GroupShape) -> TranslationUnit:
    import loopy as lp

    from measurement_kernels.units import prefetch

    unit = lp.split_iname(unit, "e", group_shape[1], outer_tag="g.0", inner_tag="l.1")
    unit = lp.tag_inames(unit, {"i": "l.0", "r": "unr"})
    return prefetch(
        unit,
        "u",
        sweep=["e_inner", "j"],
        within=["e_outer"],
        axes={"u_element": 1, "u_node": 0},
        group_shape=group_shape,
    )


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    del parameters
    d, g, u = in_f64(arguments, "d", "g", "u")
    return {"res": np.einsum("re,rji,ej->ei", g, d, u, optimize=True)}


APPLICATIONS = (
    Application(
        family="dg-derivative",
        group_shape=(NODES, 8),
        description="derivatives on elements of 20 nodes, the field in local memory",
        exponents=range(6, 19),
        exponent_steps=(0, 2, 4, 6),
        sizes=lambda group_shape: (SizeParameter(name="elements", multiple=group_shape[1]),),
        arguments=(
            ArrayArgument(name="d", shape=(_DIRECTIONS, NODES, NODES)),
            ArrayArgument(name="g", shape=(_DIRECTIONS, _ELEMENTS)),
            ArrayArgument(name="u", shape=(_ELEMENTS, NODES)),
            ArrayArgument(name="res", shape=(_ELEMENTS, NODES), role="output"),
        ),
        check_parameters={"elements": 104},
        domain=f"{{ [e, i, j, r] : 0 <= e < elements and 0 <= i, j < {NODES}"
        f" and 0 <= r < {_DIRECTIONS} }}",
        instructions="res[e, i] = sum(r, g[r, e]*sum(j, d[r, j, i]*u[e, j]))",
        transform=_transform,
        expected=_expected,
    ),
)
