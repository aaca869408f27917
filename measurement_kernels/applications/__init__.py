"""Kernels as users have them, by which fitted models are judged; no fit may use them.

Most are in the style of PolyBench 4.2.1 (Pouchet and Yuki): written in Loopy from the mathematics,
and mapped to work groups as a user would map them. Groups need not divide the sizes; phases that
depend on each other are separated by global barriers.

======================  =====================================================================
family                  what it is
======================  =====================================================================
``gemm``                ``c = beta c + alpha a b``, tiles of both factors in local memory
``2mm``                 ``d = alpha a b c + beta d``, two launches, nothing in local memory
``syrk``                lower triangle of ``c = beta c + alpha a a^T``
``trmm``                ``c = alpha a^T b`` for a unit lower triangular a
``covariance``          means, centered data, covariances: three launches
``batched-gemm``        products of 16 by 16 matrices, one for each work group
``atax``                ``y = a^T (a x)``, two launches
``mvt``                 ``x += a v``, ``y += a^T w``
``gesummv``             ``y = alpha a x + beta b x``
``jacobi-2d``           5-point smoothing
``heat-3d``             7-point heat equation, a column of the third axis for each item
``fdtd-2d``             a time step of Maxwell's equations in the plane, two launches
``conv2d``              3 by 3 filter, tile and halo in local memory
``dg-derivative``       derivatives of a discontinuous Galerkin field along x
``spmv``                sparse matrix (CSR) times vector, a row for each item: ``random``
                        columns in rows of uneven length, and ``banded``
======================  =====================================================================
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
