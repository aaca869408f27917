"""Kernels of publications on models of GPUs, written in Loopy from words.

They are listed only for collection ``published``; `measurement_kernels.catalog.entry` finds them by
name, such as ``published-matmul/tiled/16x16/f32``.

==========================  ====================================================================
family                      what it is, and who published times and counters
==========================  ====================================================================
``published-matmul``        n by n matrix products (Amaris et al. 2016): ``global`` memory alone, or
                            ``tiled``; ``-swapped`` exchanges the axes of the work items
``published-matrix-sum``    sum of n by n matrices (the same): ``rows``, lanes along rows;
                            ``columns``, lanes along columns
``published-vector-add``    sum of vectors (the same)
``published-dot-product``   scalar product, one partial result per work group (the same)
``published-coulomb``       potential of point charges on a grid, ``points-8`` of an item (KTT)
``published-rodinia``       fourteen kernels of the Rodinia suite (Lemeire et al., Table 9)
``published-merge``         filters, support vectors, options (Hong & Kim 2009, Table 5)
``published-apsp``          step of all-pairs shortest paths (Ma et al. 2014)
``published-saxpy2``        y += a x by additions (Gajger and Czarnul 2018)
==========================  ====================================================================

`measurement_kernels.published.convolution` is a search space of published times.

Amaris, de Camargo, Dyab, Goldman, Trystram, "A comparison of GPU execution time prediction using
machine learning and analytical modeling" (NCA 2016), doi:10.1109/NCA.2016.7778637; measurements:
github.com/marcosamaris/gpuperfpredict, CC-BY 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.published import amaris, coulomb
from measurement_kernels.published.gpu_models import GPU_MODELS
from measurement_kernels.published.rodinia import RODINIA
from measurement_kernels.published.rodinia_flow import RODINIA_FLOW
from measurement_kernels.published.rodinia_grids import RODINIA_GRIDS


def entries() -> Iterator[CatalogEntry]:
    """List the kernels."""
    yield from amaris.entries()
    yield from coulomb.entries()
    for kernel in (*RODINIA, *RODINIA_GRIDS, *RODINIA_FLOW, *GPU_MODELS):
        yield from kernel.entries()
