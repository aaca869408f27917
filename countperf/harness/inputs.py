"""Default inputs of a kernel, made from its arguments.

Numbers are positive, so that roots, logarithms and divisions are of ordinary values; integer arrays
whose elements are subscripts, or bound loops, hold what keeps every access inside of its array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.counting.index_arrays import index_limits, size_arguments
from countperf.errors import CountingError, KernelBuildError
from countperf.harness.binding import resolve_arguments
from countperf.harness.description import Kernel
from countperf.harness.scalars import components_of

_LOWEST, _HIGHEST = 0.5, 1.5
"""Of floating-point numbers: around 1, so that long products neither vanish nor overflow."""

_LARGEST_INTEGER = 3


def default_inputs(
    kernel: Kernel,
    rng: np.random.Generator,
    parameters: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make inputs for a kernel, from the types and shapes that it declares.

    Parameters
    ----------
    kernel : Kernel
        As `Session.build_kernel` returns it.
    rng : numpy.random.Generator
        Decides the numbers: the same generator state and parameters give the same inputs.
    parameters : mapping from str to number
        Values of the size parameters, and of other scalars that are to be as they are told.
    given : mapping from str to ndarray or number, optional
        Inputs that are there already; they are in what is returned, but for scalars that
        `parameters` has.

    Returns
    -------
    dict from str to ndarray or number
        All arrays that the kernel reads, in the declared shape, and all scalars that `parameters`
        lacks and that are no sizes. Floating-point numbers are from 0.5 to 1.5, complex ones in
        both parts; integers from 1 to 3, unless they are subscripts or bound loops: those lie in
        range, and do not fall where they bound loops. What is only written is not in it, and zero
        in a launch.

    Raises
    ------
    KernelBuildError
        A size is missing, or no elements of an index array are known to keep the kernel inside of
        its arrays: then pass `make_arguments`.
    """
    known = {name: value for name, value in (given or {}).items() if name not in parameters}
    scalars = {
        name: _numbers(rng, dtype, ())[()]
        for name, dtype in kernel.scalars.items()
        if name not in {*parameters, *known, *kernel.optional, *_sizes(kernel)}
    }
    bindings = resolve_arguments(kernel, {**parameters, **scalars}, known)
    limits = _limits(kernel, bindings.scalars, bindings.shapes, known)
    inputs: dict[str, Any] = {**scalars, **known}
    for array in kernel.arrays:
        if not array.is_read or array.name in known:
            continue
        shape = bindings.shapes[array.name]
        if array.name not in limits:
            inputs[array.name] = _numbers(rng, array.dtype, shape)
            continue
        found = limits[array.name]
        high = min(found.high, int(np.iinfo(array.dtype).max))
        if found.bounds_loops:
            values = np.linspace(found.low, high, int(np.prod(shape))).reshape(shape)
        else:
            values = rng.integers(found.low, high + 1, shape)
        inputs[array.name] = np.asarray(values).astype(array.dtype)
    return inputs


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
        found = index_limits(source, sizes, shapes, contents)
    except CountingError as error:
        raise KernelBuildError(
            f"kernel {kernel.name!r}: {error}; no inputs are made for it, pass make_arguments"
        ) from error
    wrong = [a.name for a in kernel.arrays if a.name in found and a.dtype.kind not in "iu"]
    if wrong:
        raise KernelBuildError(
            f"kernel {kernel.name!r}: {wrong[0]!r}, which is no integer array, decides where memory"
            " is accessed; pass make_arguments"
        )
    return found


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
