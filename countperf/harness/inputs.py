"""Default inputs of a kernel, made from its arguments.

Numbers are positive, so that roots, logarithms and divisions are of ordinary values; integer arrays
whose elements are subscripts, or bound loops, hold what keeps every access inside of its array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.counting.index_arrays import index_limits, size_arguments
from countperf.errors import CountingError, KernelBuildError
from countperf.harness.arrays import components_of
from countperf.harness.binding import resolve_arguments
from countperf.harness.description import Kernel

_LOWEST, _HIGHEST = 0.5, 1.5
"""Of floating-point numbers: around 1, so that long products neither vanish nor overflow."""

_LARGEST_INTEGER = 3


def default_inputs(
    kernel: Kernel,
    rng: np.random.Generator,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    statistics: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make inputs for a kernel, from the types and shapes that it declares."""
    known, scalars, shapes, indices = _found(kernel, rng, parameters, given or {}, statistics or {})
    inputs: dict[str, Any] = {**scalars, **known}
    for array in kernel.arrays:
        if not array.is_read or array.name in known:
            continue
        shape = shapes[array.name]
        if array.name in indices:
            values = indices[array.name].values(rng, shape)
            inputs[array.name] = np.asarray(values).astype(array.dtype)
        else:
            inputs[array.name] = _numbers(rng, array.dtype, shape)
    return inputs


def made_up_indices(
    kernel: Kernel,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any],
    statistics: Mapping[str, Any],
) -> str:
    """Say which index arrays `default_inputs` makes up, and how; nothing if there are none.

    Parameters and errors are those of `default_inputs`.
    """
    *_, indices = _found(kernel, np.random.default_rng(0), parameters, given, statistics)
    return "; ".join(f"{name}: {index.text}" for name, index in indices.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """Elements of an index array: random from `low` to `high`, or rising evenly."""

    low: int
    high: int
    rises: bool
    text: str

    def values(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        if self.rises:
            return np.linspace(self.low, self.high, int(np.prod(shape))).reshape(shape)
        return rng.integers(self.low, self.high + 1, shape)


def _found(
    kernel: Kernel,
    rng: np.random.Generator,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any],
    statistics: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, tuple[int, ...]], dict[str, _Index]]:
    """Return inputs that are known, scalars, shapes of arrays, and what index arrays get."""
    known = {name: value for name, value in given.items() if name not in parameters}
    scalars = {
        name: _numbers(rng, dtype, ())[()]
        for name, dtype in kernel.scalars.items()
        if name not in {*parameters, *known, *kernel.optional, *_sizes(kernel)}
    }
    bindings = resolve_arguments(kernel, {**parameters, **scalars}, known)
    limits = _limits(kernel, bindings.scalars, bindings.shapes, known)
    waiting = {str(name): value for name, value in statistics.items() if value != "indirect"}
    indices: dict[str, _Index] = {}
    for array in kernel.arrays:
        if not array.is_read or array.name in known or array.name not in limits:
            continue
        found = limits[array.name]
        high = min(found.high, int(np.iinfo(array.dtype).max))
        text = f"random, {found.low} to {high}"
        rows = int(np.prod(bindings.shapes[array.name])) - 1
        if found.rows and rows > 0:
            stated = waiting.pop(found.rows, (high - found.low) / rows)
            high = _high_of(found, high, rows, float(stated), parameters)
            text = f"rows of {(high - found.low) / rows:.4g} on average, all alike ({found.rows})"
        elif found.bounds_loops:
            text = f"rising evenly from {found.low} to {high}"
        indices[array.name] = _Index(low=found.low, high=high, rises=found.bounds_loops, text=text)
    source = kernel.addressed.kernel
    loops: frozenset[str] = frozenset() if source is None else source.all_inames()
    made_up = {
        a.name: a.dtype.kind in "iu" for a in kernel.arrays if a.is_read and a.name not in known
    }
    for name, value in waiting.items():
        # access patterns follow from index arrays alone, trip counts from integers alone
        deciding = [a for a, is_integer in made_up.items() if is_integer or name not in loops]
        if isinstance(value, str):
            deciding = list(indices)
        if deciding:
            raise KernelBuildError(
                f"kernel {kernel.name!r}: {name}={value} is stated of the data, and made-up inputs"
                f" ({', '.join(deciding)}) would not be so: pass yours by a function,"
                " make_arguments="
            )
    return known, scalars, bindings.shapes, indices


def _high_of(found: Any, high: int, rows: int, mean: float, parameters: Mapping[str, Any]) -> int:
    """Return the last element of an array of rows, so that these have a mean length."""
    wanted = found.low + round(mean * rows)
    if wanted > high:
        sizes = ", ".join(f"{name}={value}" for name, value in parameters.items())
        raise KernelBuildError(
            f"{rows} rows of {mean:g} elements ({found.rows}) need {wanted}, and the arrays hold"
            f" {high} at {sizes}: make sizes and statistics agree, or pass your data by a"
            " function, make_arguments="
        )
    return wanted


def _sizes(kernel: Kernel) -> frozenset[str]:
    """Return the integer scalars that decide loops, shapes or subscripts."""
    source = kernel.addressed.kernel
    return frozenset(kernel.integers) if source is None else size_arguments(source)


def _limits(
    kernel: Kernel,
    scalars: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    known: Mapping[str, Any],
) -> Mapping[str, Any]:
    source = kernel.addressed.kernel
    if source is None:
        return {}
    sizes = {name: int(scalars[name]) for name in kernel.integers}
    contents = {array.name: known[array.name] for array in kernel.arrays if array.name in known}
    try:
        limits = index_limits(source, sizes, shapes, contents)
    except CountingError as error:
        raise KernelBuildError(
            f"kernel {kernel.name!r}: {error}; no inputs are made for it, pass make_arguments"
        ) from error
    wrong = [a.name for a in kernel.arrays if a.name in limits and a.dtype.kind not in "iu"]
    if wrong:
        raise KernelBuildError(
            f"kernel {kernel.name!r}: {wrong[0]!r}, which is no integer array, decides where memory"
            " is accessed; pass make_arguments"
        )
    return limits


def _numbers(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    names = components_of(dtype)
    if names:
        fields: Any = dtype.fields
        result = np.zeros(shape, dtype)
        for name in names:
            result[name] = _numbers(rng, fields[name][0], shape)
        return result
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(1, _LARGEST_INTEGER + 1, shape)).astype(dtype)
    real = np.asarray(rng.uniform(_LOWEST, _HIGHEST, shape))
    if dtype.kind == "c":
        real = real + 1j * rng.uniform(_LOWEST, _HIGHEST, shape)
    return real.astype(dtype)
