"""The CUDA code of every kernel that this project ships or tests with, generated once."""

from __future__ import annotations

from functools import cache

from countperf.harness.cuda.target import CudaCode, generate_cuda
from measurement_kernels.catalog import entries


@cache
def all_code() -> dict[str, CudaCode]:
    """Generate the code of the catalogue: all element types and purposes."""
    return {e.name: generate_cuda(e.build()) for e in entries(element_type=None, purpose=None)}
