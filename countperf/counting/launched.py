"""Sizes and types of launches, from the arguments that Loopy's executors were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import get_dependencies
from pymbolic import evaluate
from pymbolic.mapper.coefficient import CoefficientCollector

from countperf.errors import CountingError


def launched_unit(unit: Any, entrypoint: str, types: Mapping[str, str]) -> Any:
    """Return a translation unit with one entry point, and the types that a launch gave it."""
    if unit.entrypoints != frozenset([entrypoint]):
        unit = unit.with_entrypoints(entrypoint)
    kernel = unit[entrypoint]
    missing = {
        argument.name: np.dtype(types[argument.name])
        for argument in kernel.args
        if argument.dtype is None and argument.name in types
    }
    if missing:
        unit = unit.with_kernel(lp.add_dtypes(kernel, missing))
    return unit


def launched_sizes(
    unit: Any, integers: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Return the values of the size parameters of a launch.

    Those that were not passed are found from the shapes of arrays, as Loopy's own wrapper does.
    """
    kernel = unit.default_entrypoint
    names = {each.name for each in kernel.args if isinstance(each, lp.ValueArg)}
    found = {name: value for name, value in integers.items() if name in names}
    equations = [
        (extent, actual)
        for argument in kernel.args
        if isinstance(getattr(argument, "shape", None), tuple) and argument.name in shapes
        for extent, actual in zip(argument.shape, shapes[argument.name], strict=False)
        if extent is not None
    ]
    while True:
        before = len(found)
        for extent, actual in equations:
            unknown = get_dependencies(extent) - set(found)
            if len(unknown) == 1:
                (name,) = unknown
                value = _solved(extent, name, found, actual)
                if value is not None:
                    found[name] = value
        if len(found) == before:
            break
    return {name: value for name, value in found.items() if name in names}


def _solved(extent: Any, name: str, known: Mapping[str, int], actual: int) -> int | None:
    """Return the value of a name with which an extent is what it was; None if it is not linear."""
    try:
        parts = CoefficientCollector([name])(extent)
    except Exception:  # noqa: BLE001  pymbolic refuses what is not linear in several ways
        return None
    coefficients = {str(key): evaluate(value, dict(known)) for key, value in parts.items()}
    slope = coefficients.get(name, 0)
    rest = actual - coefficients.get("1", 0)
    if not slope:
        return None
    if rest % slope:
        raise CountingError(f"no value of {name} makes {extent} equal to {actual}")
    return int(rest // slope)
