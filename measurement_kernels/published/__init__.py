"""Kernels whose times and hardware counters others have published, written in Loopy from words.

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
==========================  ====================================================================

Amaris, de Camargo, Dyab, Goldman, Trystram, "A comparison of GPU execution time prediction using
machine learning and analytical modeling" (NCA 2016), doi:10.1109/NCA.2016.7778637; measurements:
github.com/marcosamaris/gpuperfpredict, CC-BY 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.published import amaris

PUBLISHED_PREFIX = "published-"
"""Prefix of the families of published kernels."""


def entries() -> Iterator[CatalogEntry]:
    """List the kernels."""
    yield from amaris.entries()
