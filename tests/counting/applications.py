"""The application kernels in small work groups, at two sizes that fill no whole number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from measurement_kernels import applications
from measurement_kernels.applications.grids import NODES
from measurement_kernels.arguments import ArrayArgument
from measurement_kernels.groups import GroupShape
from measurement_kernels.loopy_kernels import LoopyKernel


class SmallApplication(NamedTuple):
    """An application in small work groups, and two sets of sizes."""

    source: LoopyKernel  # the library's kernel
    sizes: tuple[Mapping[str, int], Mapping[str, int]]  # values of the parameters
    group_shape: GroupShape  # work items per group

    def build(self) -> Any:
        """Build the kernel."""
        return self.source.unit(self.group_shape)

    def statistics(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return what data decides."""
        return self.source.entries()[0].statistics_at(sizes)

    def contents(self, sizes: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
        """Return the contents of arrays on which control flow or addresses depend."""
        random = np.random.default_rng(8)
        arrays = [a for a in self.source.arguments if isinstance(a, ArrayArgument)]
        return {a.name: a.indices(random, sizes).tolist() for a in arrays if a.indices is not None}


_SIZES: dict[str, tuple[Mapping[str, int], Mapping[str, int]]] = {
    "gemm": ({"n": 8, "m": 4, "l": 12}, {"n": 12, "m": 16, "l": 8}),
    "2mm": ({"n": 6, "m": 9, "l": 5, "o": 7}, {"n": 8, "m": 3, "l": 6, "o": 13}),
    "atax": ({"n": 9, "m": 6}, {"n": 8, "m": 13}),
    "mvt": ({"n": 9}, {"n": 16}),
    "jacobi-2d": ({"n": 8}, {"n": 13}),
    "fdtd-2d": ({"n": 9, "m": 6}, {"n": 8, "m": 13}),
    "trmm": ({"n": 9, "m": 6}, {"n": 12, "m": 7}),
    "syrk": ({"n": 9, "m": 5}, {"n": 14, "m": 3}),
    "covariance": ({"n": 6, "m": 9}, {"n": 11, "m": 6}),
    "conv2d": ({"n": 8, "m": 4}, {"n": 12, "m": 16}),
    "heat-3d": ({"n": 5}, {"n": 8}),
    "gesummv": ({"n": 7}, {"n": 12}),
    "batched-gemm": ({"n": 1}, {"n": 2}),
    "dg-derivative": ({"elements": 4}, {"elements": 6}),
    "spmv/random": ({"n": 8}, {"n": 20}),
    "spmv/banded": ({"n": 20}, {"n": 40}),
}
_SHAPES: dict[str, GroupShape] = {"batched-gemm": (16, 16), "dg-derivative": (NODES, 2)}
APPLICATIONS = {
    name: SmallApplication(applications.APPLICATIONS[name], sizes, _SHAPES.get(name, (4, 4)))
    for name, sizes in _SIZES.items()
}

trmm, syrk, conv2d, fdtd_2d, covariance = (
    APPLICATIONS[name].build for name in ("trmm", "syrk", "conv2d", "fdtd-2d", "covariance")
)
spmv = APPLICATIONS["spmv/random"].build
