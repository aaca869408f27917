"""What kernels are called with: size parameters, arrays, scalars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from measurement_kernels.groups import round_up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Sizes: TypeAlias = Mapping[str, int]
"""Values of the size parameters by name."""

ELEMENT_TYPES: Mapping[str, str] = {"f32": "float32", "f64": "float64"}
"""NumPy's names of the element types."""

TOLERANCES: Mapping[str, float] = {"f32": 1e-4, "f64": 1e-12}
"""Error that is put down to rounding, relative to the largest result.

At check sizes rounding leaves less than 1e-6 in f32, where sums have up to 768 terms. A term left
out of the longest sum that a test may have, a product of 4096, changes it by 3e-3.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeParameter:
    """A size of a kernel, and how it follows from the exponent of a case.

    Attributes
    ----------
    name : str
        Name of the kernel's parameter.
    multiple : int
        The kernel assumes that it divides the size.
    shift : int
        The size is ``base * 2**(exponent - shift)``, rounded up to the multiple.
    fixed : int or None
        Size whatever the exponent, for what does not scale with the problem.
    base : int
        Size at exponent 0 (and no shift) before it is rounded up.
    """

    name: str
    multiple: int = 1
    shift: int = 0
    fixed: int | None = None
    base: int = 1

    def at(self, exponent: int) -> int:
        """Compute the size from the exponent of a case."""
        if self.fixed is not None:
            return self.fixed
        return round_up(self.base * 2**exponent >> self.shift, self.multiple)

    @property
    def assumption(self) -> str:
        """What the kernel assumes of the size, as isl text."""
        if self.multiple == 1:
            return f"{self.name} >= 1"
        return f"{self.name} mod {self.multiple} = 0 and {self.name} >= {self.multiple}"


@dataclass(frozen=True, slots=True)
class Extent:
    """Length of one axis of an array: ``parameter + offset``, elements."""

    parameter: str
    offset: int = 0

    def at(self, sizes: Sizes) -> int:
        """Evaluate the extent."""
        return sizes[self.parameter] + self.offset

    def __str__(self) -> str:
        return f"{self.parameter} + {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayArgument:
    """An array in global memory.

    Attributes
    ----------
    name : str
        Name of the kernel's argument.
    shape : tuple of Extent or int
        Extents, elements.
    order : {"C", "F"}
        Whether the last or the first axis varies fastest.
    role : {"input", "output", "updated"}
        Only read; written throughout; or written in part, so that the rest is what it was before.
    """

    name: str
    shape: tuple[Extent | int, ...]
    order: Literal["C", "F"] = "C"
    role: Literal["input", "output", "updated"] = "input"

    def shape_at(self, sizes: Sizes) -> tuple[int, ...]:
        """Evaluate the shape."""
        return tuple(
            extent if isinstance(extent, int) else extent.at(sizes) for extent in self.shape
        )

    def elements(self, sizes: Sizes) -> int:
        """Count the elements."""
        count = 1
        for extent in self.shape_at(sizes):
            count *= extent
        return count

    def draw(
        self, random: np.random.Generator, element_type: str, sizes: Sizes
    ) -> NDArray[np.float32] | NDArray[np.float64]:
        """Fill a new array of the right type and order from the uniform distribution on ±1/2."""
        shape = self.shape_at(sizes)
        stored = shape if self.order == "C" else shape[::-1]
        if element_type == "f32":
            values: NDArray[Any] = random.random(stored, dtype="float32")
        else:
            values = random.random(stored, dtype="float64")
        values -= 0.5
        return values if self.order == "C" else values.T


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarArgument:
    """A number of the element type, passed by value.

    Attributes
    ----------
    name : str
        Name of the kernel's argument.
    value : float
        What it is in every case.
    """

    name: str
    value: float


Argument: TypeAlias = ArrayArgument | ScalarArgument
