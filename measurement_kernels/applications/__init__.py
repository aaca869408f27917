"""Kernels as users have them, by which fitted models are judged; no fit may use them.

Most are in the style of PolyBench 4.2.1 (Pouchet and Yuki): written in Loopy from the mathematics,
and mapped to work groups as a user would. Groups need not divide the sizes; phases that depend on
each other are separated by global barriers.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.applications.dense import DENSE
from measurement_kernels.applications.grids import GRIDS
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.loopy_kernels import LoopyKernel

APPLICATIONS: dict[str, LoopyKernel] = {each.key: each for each in (*DENSE, *GRIDS)}
"""All of them by family and, if the family has several, variant: ``spmv/banded``."""


def entries() -> Iterator[CatalogEntry]:
    """List the kernels."""
    for kernel in APPLICATIONS.values():
        yield from kernel.entries()
