"""Arguments of kernels: size parameters, arrays, scalars."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from countperf.errors import KernelSpecificationError
from measurement_kernels.groups import round_up

Sizes: TypeAlias = Mapping[str, int]
"""Values of the size parameters by name."""

ELEMENT_TYPES: Mapping[str, str] = {"f32": "float32", "f64": "float64"}
"""NumPy's names of the element types."""

INDEX_TYPE = "int32"
"""NumPy's name of the type of indices."""

TOLERANCES: Mapping[str, float] = {"f32": 1e-4, "f64": 1e-12}
"""Error that a kernel's results may have, relative to the largest; rounding is below 1e-6 in f32,
and one term left out of the longest sum of a test, 4096 terms, changes the result by 3e-3."""


@dataclass(frozen=True, slots=True)
class SizeParameter:
    """A size of a kernel, and how it follows from the exponent of a case."""

    name: str  # name of the kernel's parameter
    multiple: int = 1  # the kernel assumes that it divides the size
    _: KW_ONLY
    shift: int = 0  # the size is ``base * 2**(exponent - shift)``, rounded up to the multiple
    fixed: int | None = None  # size at every exponent, if it does not scale with the problem
    base: int = 1  # size at exponent 0 (and no shift) before it is rounded up
    thirds: int = 3

    def at(self, exponent: int) -> int:
        """Compute the size from the exponent of a case."""
        if self.fixed is not None:
            return self.fixed
        if self.thirds != 3:
            scale = 2.0 ** (self.thirds * (exponent - self.shift) / 3)
            return round_up(round(self.base * scale), self.multiple)
        return round_up(self.base * 2**exponent >> self.shift, self.multiple)

    @property
    def assumption(self) -> str:
        """The kernel's assumption on the size, as isl text."""
        if self.multiple == 1:
            return f"{self.name} >= 1"
        return f"{self.name} mod {self.multiple} = 0 and {self.name} >= {self.multiple}"


@dataclass(frozen=True, slots=True)
class Extent:
    """Length of one axis of an array: ``factor * parameter + offset``, elements."""

    parameter: str
    offset: int = 0
    factor: int = 1

    def at(self, sizes: Sizes) -> int:
        """Evaluate the extent."""
        return self.factor * sizes[self.parameter] + self.offset

    def __str__(self) -> str:
        scaled = self.parameter if self.factor == 1 else f"{self.factor}*{self.parameter}"
        return f"{scaled} + {self.offset}"


Values: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]
"""Returns the contents of an array from a random generator and its shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayArgument:
    """An array in global memory."""

    name: str  # name of the kernel's argument
    shape: tuple[Extent | int, ...]  # extents, elements
    order: Literal["C", "F"] = "C"  # the last (C) or the first (F) axis varies fastest
    role: Literal["input", "output", "updated"] = "input"  # only read
    # returns the contents of an array of 32-bit integers from a random generator and sizes
    indices: Callable[[np.random.Generator, Sizes], NDArray[np.int32]] | None = None
    # returns these numbers from a random generator and the array's shape
    values: Values | None = None

    def dtype(self, element_type: str) -> str:
        """Return NumPy's name of the type of its elements."""
        return ELEMENT_TYPES[element_type] if self.indices is None else INDEX_TYPE

    def shape_at(self, sizes: Sizes) -> tuple[int, ...]:
        """Evaluate the shape."""
        return tuple(
            extent if isinstance(extent, int) else extent.at(sizes) for extent in self.shape
        )

    def elements(self, sizes: Sizes) -> int:
        """Count the elements."""
        return prod(self.shape_at(sizes))

    def draw(self, random: np.random.Generator, element_type: str, sizes: Sizes) -> NDArray[Any]:
        """Fill a new array of the right type and order: indices, or numbers."""
        if self.indices is not None:
            return self.indices(random, sizes)
        shape = self.shape_at(sizes)
        if self.values is not None:
            made = self.values(random, shape)
            return made.astype(ELEMENT_TYPES[element_type], order=self.order)
        stored = shape if self.order == "C" else shape[::-1]
        dtype: Any = ELEMENT_TYPES[element_type]
        values: NDArray[Any] = random.random(stored, dtype=dtype)
        values -= 0.5
        return values if self.order == "C" else values.T


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarArgument:
    """A number of the element type, passed by value."""

    name: str  # name of the kernel's argument
    value: float | Callable[[Sizes], float]  # the number

    def at(self, sizes: Sizes) -> float:
        """Evaluate the number."""
        return self.value(sizes) if callable(self.value) else self.value


Argument: TypeAlias = ArrayArgument | ScalarArgument


_ARRAY = re.compile(r"((?:output |updated |column-major )*)([a-z]\w*)\[([^]]*)\]")
_EXTENT = re.compile(r"(?:(\d+) ?\* ?)?([a-z]\w*)(?: ?\+ ?(\d+))?")


def arrays(text: str, values: Values | None = None) -> tuple[ArrayArgument, ...]:
    """Return arrays of the element type from a text that lists them with their shapes."""
    found: list[ArrayArgument] = []
    rest = text
    while rest:
        if (match := _ARRAY.match(rest)) is None:
            raise _malformed(rest, text)
        words, name, extents = match.groups()
        role = next((word for word in ("output", "updated") if word in words), "input")
        found.append(
            ArrayArgument(
                name=name,
                shape=tuple(_extent(extent, text) for extent in extents.split(", ")),
                order="F" if "column-major" in words else "C",
                role=cast(Literal["input", "output", "updated"], role),
                values=values,
            )
        )
        rest = rest[match.end() :].removeprefix(",").lstrip()
    return tuple(found)


def _extent(extent: str, text: str) -> Extent | int:
    if extent.isdecimal():
        return int(extent)
    match = _EXTENT.fullmatch(extent)
    if match is None:
        raise _malformed(extent, text)
    factor, parameter, offset = match.groups(default="")
    return Extent(parameter, int(offset or 0), int(factor or 1))


def _malformed(part: str, text: str) -> KernelSpecificationError:
    return KernelSpecificationError(
        f"{part!r} in {text!r} cannot be read; write arrays as in 'a[n + 2, 3], output r[2*n]'"
    )
