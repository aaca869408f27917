"""Test kernel: the tiled matrix product of class 1 with n = l = m/8."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.matmul_tiled import ARGUMENTS, build, expected, sizes

_GROUP_SHAPE = (16, 16)


def entries() -> Iterator[CatalogEntry]:
    """List the kernel."""
    yield CatalogEntry(
        family="matmul-skinny",
        group_shape=_GROUP_SHAPE,
        purpose="test",
        description="tiled matrix product, inner size eight times the outer ones",
        exponents=range(7, 14),
        sizes=sizes(_GROUP_SHAPE, {"n": 3, "m": 0, "l": 3}),
        arguments=ARGUMENTS,
        check_parameters={"n": 32, "m": 64, "l": 48},
        builder=partial(build, _GROUP_SHAPE, "f32"),
        expected=expected,
    )
