"""Search spaces: parameterized kernels of the library, for ranking and tuning.

======================  ========================================================================
space                   parameters
======================  ========================================================================
``matmul``              group shape, register block, step of the sum, what is fetched into local
                        memory, storage of the block, loop along lanes, unrolling
``stencil``             5-point stencil: group shape, block per item, tile in local memory, lanes,
                        unrolling
``dg-differentiation``  three derivatives per element: elements per group, items along nodes, what
                        is fetched, lanes, storage of the block, unrolling
``transpose``           group shape, block per item, tile in local memory, lanes, unrolling
``convolution``         group shape, pixels per item, what is fetched, lanes, unrolling
======================  ========================================================================

Each builds units symbolic in the sizes, and has inputs and a reference of its own.
"""

from __future__ import annotations

from countperf.tuning.space import SearchSpace
from measurement_kernels.variants.builders import (
    CONVOLUTION,
    DG_DIFFERENTIATION,
    MATMUL,
    STENCIL,
    TRANSPOSE,
)


def spaces() -> dict[str, SearchSpace]:
    """Return the library's search spaces by name."""
    found = (MATMUL, STENCIL, DG_DIFFERENTIATION, TRANSPOSE, CONVOLUTION)
    return {space.name: space for space in found}
