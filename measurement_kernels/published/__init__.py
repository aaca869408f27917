"""Kernels of publications on models of GPUs, written in Loopy from words.

They are listed only for collection ``published``; `measurement_kernels.catalog.entry` finds them by
name, such as ``published-matmul/tiled/16x16/f32``. `convolution` is a space of published times.
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
