"""What all applications are described by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.arguments import Argument, SizeParameter, Sizes
from measurement_kernels.entry import ONLY_VARIANT, CatalogEntry, StatisticBySize
from measurement_kernels.groups import GroupShape

if TYPE_CHECKING:
    from loopy import TranslationUnit
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Application:
    """A kernel for work groups of any shape.

    Attributes
    ----------
    family, variant, group_shape, element_type, description, exponents, exponent_steps
        As in `CatalogEntry`.
    sizes : callable
        From the shape of work groups to the size parameters.
    arguments, check_parameters, expected, statistics
        As in `CatalogEntry`.
    domain : str or tuple of str
        Loops, isl text.
    instructions : str
        What is done in them.
    transform : callable
        Maps the loops to work items, for a shape of work groups.
    """

    family: str
    variant: str = ONLY_VARIANT
    group_shape: GroupShape
    element_type: str = "f32"
    description: str
    exponents: range
    exponent_steps: tuple[int, ...] = (0, 1, 2, 3)
    sizes: Callable[[GroupShape], tuple[SizeParameter, ...]]
    arguments: tuple[Argument, ...]
    check_parameters: Sizes
    domain: str | tuple[str, ...]
    instructions: str
    transform: Callable[[TranslationUnit, GroupShape], TranslationUnit]
    expected: Callable[[Mapping[str, Any], Sizes], Mapping[str, NDArray[Any]]]
    statistics: Mapping[str, StatisticBySize] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Family, and the variant where there are several."""
        return self.family if self.variant == ONLY_VARIANT else f"{self.family}/{self.variant}"

    def unit(self, group_shape: GroupShape | None = None) -> TranslationUnit:
        """Build the kernel, by default for its own shape of work groups; always the same object."""
        return _build(self, group_shape or self.group_shape)

    def entry(self) -> CatalogEntry:
        """Return the kernel as the catalogue has it."""
        return CatalogEntry(
            family=self.family,
            variant=self.variant,
            group_shape=self.group_shape,
            element_type=self.element_type,
            purpose="application",
            description=self.description,
            exponents=self.exponents,
            exponent_steps=self.exponent_steps,
            sizes=self.sizes(self.group_shape),
            arguments=self.arguments,
            check_parameters=self.check_parameters,
            builder=partial(_build, self, self.group_shape),
            expected=self.expected,
            statistics=self.statistics,
        )


@cache
def _build(application: Application, group_shape: GroupShape) -> TranslationUnit:
    from measurement_kernels.units import make_unit

    name = application.key.replace("-", "_").replace("/", "_").replace("2mm", "two_mm")
    unit = make_unit(
        name,
        domain=application.domain,
        instructions=application.instructions,
        sizes=application.sizes(group_shape),
        arguments=application.arguments,
        element_type=application.element_type,
    )
    return application.transform(unit, group_shape)


def any_sizes(*names: str, thirds: int = 2) -> Callable[[GroupShape], tuple[SizeParameter, ...]]:
    """Return sizes that no work group has to divide, and few of them powers of two.

    From one exponent to the next, a plane of them grows by a factor of 2.5, a cube by 4.
    """
    sizes = tuple(SizeParameter(name=name, thirds=thirds) for name in names)
    return lambda _: sizes


def mapped(**axes: int) -> Callable[[TranslationUnit, GroupShape], TranslationUnit]:
    """Return what gives each loop to the work items along an axis."""

    def transform(unit: TranslationUnit, group_shape: GroupShape) -> TranslationUnit:
        from measurement_kernels.units import map_to_items

        return map_to_items(unit, axes, group_shape)

    return transform


def in_f64(arguments: Mapping[str, Any], *names: str) -> list[NDArray[Any]]:
    """Return inputs in double precision."""
    return [arguments[name].astype("float64") for name in names]
