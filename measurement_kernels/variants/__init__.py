"""Search spaces: the ways to write a kernel of the library, for ranking and tuning.

======================  ========================================================================
space                   what can be chosen
======================  ========================================================================
``matmul``              group shape, register block, step of the sum, what is fetched into local
                        memory, how the block is kept, which factor lanes run along, unrolling
``stencil``             5-point stencil: group shape, block per item, tile in local memory, lanes,
                        unrolling
``dg-differentiation``  three derivatives per element: elements per group, items along nodes, what
                        is fetched, lanes, how the block is kept, unrolling
``transpose``           group shape, block per item, tile in local memory, lanes, unrolling
``convolution``         group shape, pixels per item, what is fetched, lanes, unrolling
======================  ========================================================================

Each builds units symbolic in the sizes, and has inputs and a reference of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countperf.tuning import SearchSpace


def spaces() -> dict[str, SearchSpace]:
    """Return the library's search spaces by name."""
    from measurement_kernels.variants import (
        convolution,
        dg_differentiation,
        matmul,
        stencil,
        transpose,
    )

    modules = (matmul, stencil, dg_differentiation, transpose, convolution)
    return {module.SPACE.name: module.SPACE for module in modules}
