"""The CUDA code of every kernel that this project ships or tests with, generated once."""

from __future__ import annotations

from functools import cache
from typing import Any

import loopy as lp

from countperf.harness.cuda.target import CudaCode, generate_cuda
from measurement_kernels.catalog import entries
from tests.counting.applications import APPLICATIONS


def application(name: str) -> Any:
    """Build an application kernel.

    The branches of fdtd-2d exclude each other, which Loopy's check of the order of accesses does
    not see.
    """
    return lp.set_options(APPLICATIONS[name].build(), enforce_variable_access_ordered="no_check")


@cache
def all_code() -> dict[str, CudaCode]:
    """Generate the code of the catalogue, f32 and f64, tests included, and of the applications."""
    everything = {each.name: each.build for each in entries(element_type=None, purpose=None)}
    code = {name: generate_cuda(build()) for name, build in everything.items()}
    return code | {name: generate_cuda(application(name)) for name in APPLICATIONS}
