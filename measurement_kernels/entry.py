"""One kernel of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import numpy as np
from loopy import TranslationUnit
from numpy.typing import NDArray

from countperf.errors import ParameterError
from countperf.measuring import KernelCase, Purpose, Statistic
from measurement_kernels.arguments import (
    ELEMENT_TYPES,
    TOLERANCES,
    Argument,
    ArrayArgument,
    ScalarArgument,
    SizeParameter,
    Sizes,
)
from measurement_kernels.groups import GroupShape, label, round_up

VARIANTS_PREFIX = "variants-"
"""Prefix of the families of sets of variants."""

ONLY_VARIANT = "plain"
"""Variant of a family with a single variant; names leave it out."""

Collection: TypeAlias = Literal["paper", "extended", "random", "published", "downstream"]
"""Group of families that campaigns measure together."""

COLLECTIONS: tuple[Collection, ...] = get_args(Collection)

INDEX_LIMIT = 2**31
"""Kernels index with signed 32-bit integers: an array has to have fewer elements than this."""


StatisticBySize: TypeAlias = Statistic | Callable[[Sizes], Statistic]
"""Statistic of the data, or a function that returns it at given sizes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogEntry:
    """A kernel for one shape of work group and one element type, at any size."""

    family: str  # family of kernels, and the variant within the family
    variant: str = ONLY_VARIANT
    group_shape: GroupShape  # work items per group along local axes 0 and 1
    element_type: str = "f32"  # type of the numbers that it computes with
    purpose: Purpose = "measurement"  # fits may use only ``measurement``
    collection: Collection = "paper"
    exponents: range  # values of p that make sense on some device, the paper's well inside
    exponent_steps: tuple[int, ...] = (0, 1, 2, 3)  # sizes are ``2**(p + step)``
    sizes: tuple[SizeParameter, ...]  # the kernel's parameters
    arguments: tuple[Argument, ...] = ()  # the kernel's other arguments
    # sizes that take a few thousand work items, different along different axes
    check_parameters: Sizes
    builder: Callable[[], TranslationUnit]  # returns the translation unit, always the same object
    # returns the right outputs, computed in f64, of any element type, from inputs and sizes
    expected: Callable[[Mapping[str, Any], Sizes], Mapping[str, NDArray[Any]]]
    # statistics of the data that `countperf.count_kernel` takes
    statistics: Mapping[str, StatisticBySize] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique name: ``transpose/tiled/16x12/f32``, without the variant where there is one."""
        variant = [] if self.variant == ONLY_VARIANT else [self.variant]
        return "/".join([self.family, *variant, label(self.group_shape), self.element_type])

    def build(self) -> TranslationUnit:
        """Build the kernel, or return the one built before; sizes stay symbolic."""
        return self.builder()

    def parameters(self, exponent: int) -> dict[str, int]:
        """Compute the sizes of a case."""
        low = self.exponents[0] + self.exponent_steps[0]
        high = self.exponents[-1] + self.exponent_steps[-1]
        if not low <= exponent <= high:
            said = f"kernel {self.name!r}: exponent {exponent} is outside {low} to {high}"
            raise ParameterError(f"{said}; for other sizes use case_at(...)", parameter="exponent")
        return {size.name: size.at(exponent) for size in self.sizes}

    def memory_bytes(self, parameters: Sizes) -> int:
        """Add up the arrays, byte."""
        return sum(
            np.dtype(array.dtype(self.element_type)).itemsize * array.elements(parameters)
            for array in self._arrays()
        )

    def statistics_at(self, parameters: Sizes) -> dict[str, Statistic]:
        """Evaluate the statistics of the data."""
        return {
            name: value(parameters) if callable(value) else value
            for name, value in self.statistics.items()
        }

    def make_arguments(self, random: np.random.Generator, parameters: Sizes) -> dict[str, Any]:
        """Return the inputs: arrays uniform on ±1/2 in their type and order, and scalars.

        Outputs are among them if parts of them keep their old values; size parameters are not.
        """
        as_element = np.dtype(ELEMENT_TYPES[self.element_type]).type
        return {
            argument.name: as_element(argument.at(parameters))
            if isinstance(argument, ScalarArgument)
            else argument.draw(random, self.element_type, parameters)
            for argument in self.arguments
            if isinstance(argument, ScalarArgument) or argument.role != "output"
        }

    def reference(self, arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
        """Compute the outputs with NumPy, in f64, and round them to the arrays' types."""
        types = {array.name: array.dtype(self.element_type) for array in self._arrays()}
        expected = self.expected(arguments, parameters)
        return {name: values.astype(types[name], copy=False) for name, values in expected.items()}

    def case(self, exponent: int) -> KernelCase:
        """Return the case of ``parameters(exponent)``."""
        return self.case_at(**self.parameters(exponent))

    def case_at(self, **parameters: int) -> KernelCase:
        """Return a case of any sizes that the kernel takes."""
        sizes = self._checked(parameters)
        values = ",".join(f"{name}={value}" for name, value in sizes.items())
        return KernelCase(
            name=f"{self.name}/{values}",
            kernel=self.name,
            family=self.family,
            variant=self.variant,
            group_shape=self.group_shape,
            element_type=self.element_type,
            build=self.build,
            parameters=sizes,
            make_arguments=self.make_arguments,
            reference=self.reference,
            tolerance=TOLERANCES[self.element_type],
            purpose=self.purpose,
            global_memory_bytes=self.memory_bytes(sizes),
            check_parameters=self.check_parameters,
            statistics=self.statistics_at(sizes),
        )

    def _arrays(self) -> tuple[ArrayArgument, ...]:
        return tuple(a for a in self.arguments if isinstance(a, ArrayArgument))

    def _checked(self, parameters: Sizes) -> dict[str, int]:
        def refuse(said: str, parameter: str) -> NoReturn:
            raise ParameterError(f"kernel {self.name!r}: {said}", parameter=parameter)

        fixed = {size.name: size.fixed for size in self.sizes if size.fixed is not None}
        given = {**fixed, **parameters}
        names = [size.name for size in self.sizes]
        for name in sorted({*names} ^ given.keys()):
            problem = "no value for" if name in names else "no size is called"
            refuse(f"{problem} {name}; its sizes are {', '.join(names)}, pass those", name)
        for size in self.sizes:
            value, multiple = given[size.name], size.multiple
            if value < 1 or value % multiple:
                near = round_up(max(value, 1), multiple)
                said = f"{size.name} = {value} is no positive multiple of {multiple}"
                refuse(f"{said}; pass {near}, say", size.name)
        for array in self._arrays():
            if (elements := array.elements(given)) >= INDEX_LIMIT:
                said = f"array {array.name} would have {elements} elements, too many for its 32-bit"
                refuse(f"{said} indices; pass smaller sizes", names[0])
        return {name: given[name] for name in names}
