"""Scalar arguments of kernels as the type that generated code declares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.errors import KernelBuildError


def components_of(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the components of a vector type, padding left out; of others none."""
    components: dict[int, str] = {}
    fields: Any = dtype.fields or {}
    for name in dtype.names or ():
        component = int(fields[name][1])
        if not name.startswith("padding"):
            components.setdefault(component, name)
    return tuple(components[component] for component in sorted(components))


def as_scalar(dtype: np.dtype[Any], value: Any, what: str = "scalar argument") -> Any:
    """Return a number as a NumPy scalar of the type that a kernel declares."""
    try:
        if dtype.names:
            return _vector(dtype, value, what)
        number = np.asarray(value)
        if number.shape != ():
            raise KernelBuildError(f"{what} is an array of shape {number.shape}; pass one number")
        if dtype.kind in "iu" and not _is_integer(number):
            raise KernelBuildError(f"{what} is {value!r}; pass an integer")
        return dtype.type(int(number) if dtype.kind in "iu" else number[()])
    except OverflowError as error:
        limits = np.iinfo(dtype)
        raise KernelBuildError(
            f"{what} is {value}, and its type {dtype} goes from {limits.min} to {limits.max};"
            " declare the argument as np.int64"
        ) from error
    except (TypeError, ValueError) as error:
        raise KernelBuildError(f"{what} is {value!r}; pass a number of type {dtype}") from error


def _is_integer(number: NDArray[Any]) -> bool:
    if number.dtype.kind in "iub":
        return True
    return bool(number.dtype.kind in "fO" and number[()] == int(number[()]))


def _vector(dtype: np.dtype[Any], value: Any, what: str) -> Any:
    if isinstance(value, np.void | np.ndarray) and value.dtype == dtype:
        return np.asarray(value).reshape(())[()]
    names = components_of(dtype)
    numbers = np.asarray(value)
    if numbers.shape not in ((), (len(names),)):
        raise KernelBuildError(f"{what} has {len(names)} components; pass as many numbers, or one")
    result = np.zeros((), dtype)
    for name, number in zip(names, np.broadcast_to(numbers, len(names)), strict=True):
        result[name] = number
    return result[()]


def without_vectors(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of vectors with an axis for their components; others as they are."""
    names = components_of(array.dtype)
    return np.stack([array[name] for name in names], axis=-1) if names else array
