"""Private and local arrays: register blocking, and local memory of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import loopy as lp

from countperf.counting.domains import Domains
from countperf.display import ShortRepr
from countperf.errors import UnsupportedExpressionError
from countperf.symbolic.affine import NotAffineError
from countperf.symbolic.quasipolynomial import ONE, QuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayStorage(ShortRepr):
    """A temporary that lives in registers or in local memory."""

    name: str
    space: Literal["private", "local"]  # of an item, or of a group
    shape: tuple[QuasiPolynomial, ...]  # extents as stored, padding included; empty for a scalar
    element_bytes: int  # size of an element
    size_bytes: QuasiPolynomial  # bytes of each item, or of each group


def storage_of(kernel: Any, domains: Domains) -> tuple[ArrayStorage, ...]:
    """List the private and local temporaries of a kernel by name, scalars too."""
    result: list[ArrayStorage] = []
    for name, variable in sorted(kernel.temporary_variables.items()):
        if variable.address_space not in (lp.AddressSpace.PRIVATE, lp.AddressSpace.LOCAL):
            continue
        extents = getattr(variable, "storage_shape", None) or variable.shape or ()
        try:
            shape = tuple(domains.to_polynomial(extent) for extent in extents)
        except (NotAffineError, TypeError) as error:
            raise UnsupportedExpressionError(
                f"kernel '{kernel.name}', temporary '{name}': its shape {extents} is no polynomial "
                "of the sizes; declare it",
                kernel=kernel.name,
                where=name,
            ) from error
        size = variable.dtype.numpy_dtype.itemsize
        total = ONE * size
        for extent in shape:
            total = total * extent
        is_private = variable.address_space == lp.AddressSpace.PRIVATE
        result.append(
            ArrayStorage(
                name=name,
                space="private" if is_private else "local",
                shape=shape,
                element_bytes=size,
                size_bytes=total,
            )
        )
    return tuple(result)
