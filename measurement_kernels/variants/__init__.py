"""Search spaces: parameterized kernels of the library, for ranking and tuning."""

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
