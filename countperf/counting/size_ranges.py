"""Ranges of sizes that the types of integer arguments can represent."""

from __future__ import annotations

from typing import Any

import numpy as np

from countperf.errors import ParameterError


def size_ranges(kernel: Any) -> dict[str, range]:
    """Return which values the integer arguments of a kernel of Loopy's hold, by name."""
    found: dict[str, range] = {}
    for argument in kernel.args:
        if hasattr(argument, "dim_tags"):
            continue
        known = getattr(argument.dtype, "numpy_dtype", kernel.index_dtype.numpy_dtype)
        kind = np.dtype(known)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            found[argument.name] = range(int(limits.min), int(limits.max) + 1)
    return found


def check_range(kernel: str, name: str, value: int, held: range) -> None:
    """Refuse a size that the kernel's argument does not hold."""
    if value not in held:
        bits = (held.stop - held.start - 1).bit_length()
        kind = f"{'u' if held.start == 0 else ''}int{bits}"
        raise ParameterError(
            f"kernel '{kernel}': {name} = {value} is beyond {held.stop - 1}, the largest value of"
            f" its type {kind}; take a smaller size, or declare a wider type, such as"
            f' lp.ValueArg("{name}", np.int64)'
            if value >= held.stop
            else f"kernel '{kernel}': {name} = {value} is below {held.start}, the smallest value of"
            f" its type {kind}; take a larger size",
            parameter=name,
        )
