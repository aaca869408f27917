"""Definitions that all applications share."""

from __future__ import annotations

from functools import partial

from measurement_kernels.loopy_kernels import (
    Arrays,
    LoopyKernel,
    Results,
    SizesByGroup,
    mapped,
    sizes_along,
)

__all__ = ["ONE_PER_ITEM", "Arrays", "Results", "any_sizes", "application"]

application = partial(LoopyKernel, purpose="application")
"""Makes a kernel that is an application."""

ONE_PER_ITEM = mapped(i=1, j=0)
"""Maps the elements of a plane to work items."""


def any_sizes(*names: str) -> SizesByGroup:
    """Return sizes that work groups need not divide, and of which few are powers of two.

    From one exponent to the next, a plane of them grows by a factor of 2.5.
    """
    return sizes_along(thirds=2, **dict.fromkeys(names))
