"""Kernels written as Loopy instructions, for work groups of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, TypeAlias

import loopy as lp
from loopy import TranslationUnit
from numpy.typing import NDArray

from countperf.measuring import Purpose
from measurement_kernels.arguments import ELEMENT_TYPES, Argument, SizeParameter, Sizes
from measurement_kernels.entry import ONLY_VARIANT, CatalogEntry, Collection, StatisticBySize
from measurement_kernels.groups import GroupShape
from measurement_kernels.units import make_unit, map_to_items, prefetch

Transform: TypeAlias = Callable[[TranslationUnit, GroupShape], TranslationUnit]
"""Maps the loops of a unit to work items, for a shape of work groups."""

SizesByGroup: TypeAlias = Callable[[GroupShape], tuple[SizeParameter, ...]]
"""Returns size parameters for a shape of work groups."""

Arrays: TypeAlias = Mapping[str, Any]
"""Inputs by name."""

Results: TypeAlias = dict[str, NDArray[Any]]
"""Outputs by name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopyKernel:
    """A kernel written as Loopy instructions; one catalogue entry per group shape and type."""

    name: str = ""  # name of the translation unit, a C identifier
    family: str  # as in `CatalogEntry`
    variant: str = ONLY_VARIANT
    collection: Collection = "paper"
    purpose: Purpose = "measurement"
    groups: tuple[GroupShape, ...]  # shapes of work groups in the catalogue
    element_types: tuple[str, ...] = ("f32",)  # element types in the catalogue
    exponents: range
    exponent_steps: tuple[int, ...] = (0, 1, 2, 3)
    sizes: SizesByGroup  # returns the size parameters for a shape of work groups
    arguments: tuple[Argument, ...] = ()  # as in `CatalogEntry`
    # sizes at which results are checked, as numbers of each size's ``multiple``
    check: Mapping[str, int]
    domain: str | tuple[str, ...]  # loops, isl text
    instructions: str  # instructions in Loopy's language
    transform: Transform  # maps the loops to work items, for a shape of work groups
    expected: Callable[[Arrays, Sizes], Mapping[str, NDArray[Any]]]
    statistics: Mapping[str, StatisticBySize] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Family, and the variant if the family has several."""
        return self.family if self.variant == ONLY_VARIANT else f"{self.family}/{self.variant}"

    def unit(
        self, group_shape: GroupShape | None = None, element_type: str | None = None
    ) -> TranslationUnit:
        """Build the kernel, by default in the catalogue's first shape and type, once."""
        group_shape = group_shape or self.groups[0]
        sizes = self.sizes(group_shape)
        return _build(
            self.name or self.key.replace("-", "_").replace("/", "_"),
            self.domain,
            self.instructions,
            # whatever size has the multiple: kernels that differ in sizes alone share a unit
            tuple(SizeParameter(size.name, size.multiple) for size in sizes),
            self.arguments,
            element_type or self.element_types[0],
            self.transform,
            group_shape,
        )

    def entries(self) -> tuple[CatalogEntry, ...]:
        """Return the catalogue's entries of this kernel."""
        return tuple(self._entry(g, t) for g in self.groups for t in self.element_types)

    def _entry(self, group_shape: GroupShape, element_type: str) -> CatalogEntry:
        sizes, shared = self.sizes(group_shape), {f.name for f in fields(CatalogEntry)}
        return CatalogEntry(
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name in shared - {"sizes"}},
            group_shape=group_shape,
            element_type=element_type,
            sizes=sizes,
            check_parameters={size.name: self.check[size.name] * size.multiple for size in sizes},
            builder=partial(self.unit, group_shape, element_type),
        )


@cache
def _build(
    name: str,
    domain: str | tuple[str, ...],
    instructions: str,
    sizes: tuple[SizeParameter, ...],
    arguments: tuple[Argument, ...],
    element_type: str,
    transform: Transform,
    group_shape: GroupShape,
) -> TranslationUnit:
    unit = make_unit(
        name,
        domain=domain,
        instructions=instructions.replace("<real>", f"<{ELEMENT_TYPES[element_type]}>"),
        sizes=sizes,
        arguments=arguments,
        element_type=element_type,
    )
    return transform(unit, group_shape)


def sizes_along(thirds: int = 3, **axes: int | None) -> SizesByGroup:
    """Return size parameters that are multiples of the work group along an axis, or of nothing."""
    return lambda group_shape: tuple(
        SizeParameter(name, 1 if axis is None else group_shape[axis], thirds=thirds)
        for name, axis in axes.items()
    )


def any_sizes(*names: str) -> SizesByGroup:
    """Return sizes that groups need not divide; a plane of them grows by 2.5 with the exponent."""
    return sizes_along(thirds=2, **dict.fromkeys(names))


def changed(sizes: SizesByGroup, **changes: Mapping[str, int]) -> SizesByGroup:
    """Return size parameters like others but for some attributes, given by size."""
    return lambda group_shape: tuple(
        replace(size, **changes.get(size.name, {})) for size in sizes(group_shape)
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile that a group fetches into local memory; texts list loops, separated by blanks."""

    reference: str  # as in `measurement_kernels.units.prefetch`
    sweep: str
    within: str
    axes: Mapping[str, int | None]


def mapped(
    *tiles: Tile,
    split: Mapping[str, int] | None = None,
    tags: Mapping[str, str] | None = None,
    unrolled: str = "",
    priority: str = "",
    local: Mapping[str, tuple[int, ...]] | None = None,
    guarded: str = "",
    **axes: int,
) -> Transform:
    """Return a transformation that maps loops to work items and fetches tiles.

    `local` has shapes of arrays in local memory; `guarded` names instructions of one item.
    """

    def transform(unit: TranslationUnit, group_shape: GroupShape) -> TranslationUnit:
        unit = map_to_items(unit, axes, group_shape)
        for loop, length in (split or {}).items():
            unit = lp.split_iname(unit, loop, length or group_shape[0])
        if tags:
            unit = lp.tag_inames(unit, dict(tags))
        for tile in tiles:
            sweep, within = tile.sweep.split(), tile.within.split()
            unit = prefetch(unit, tile.reference, sweep, within, tile.axes, group_shape)
        if unrolled:
            unit = lp.tag_inames(unit, dict.fromkeys(unrolled.split(), "unr"))
        if local or guarded:
            unit = unit.with_kernel(_with_local(unit.default_entrypoint, local or {}, guarded))
        return lp.prioritize_loops(unit, priority) if priority else unit

    return transform


def _with_local(kernel: Any, local: Mapping[str, tuple[int, ...]], guarded: str) -> Any:
    known = dict(kernel.temporary_variables)
    for name, shape in local.items():
        known[name] = lp.TemporaryVariable(
            name, known[name].dtype, shape, address_space=lp.AddressSpace.LOCAL
        )
    silenced = {f"write_race({each})" for each in guarded.split()}
    return kernel.copy(
        temporary_variables=known, silenced_warnings=kernel.silenced_warnings | silenced
    )


ONE_PER_ITEM = mapped(i=1, j=0)
"""Maps the elements of a plane to work items."""


def tile_of(array: str, sweep: str, within: str) -> Tile:
    """Return a tile of a matrix, whose columns are spread along local axis 0."""
    return Tile(array, sweep, within, {f"{array}_row": 1, f"{array}_column": 0})


def in_f64(arguments: Mapping[str, Any], names: str) -> list[NDArray[Any]]:
    """Return inputs in double precision; names are separated by blanks."""
    return [arguments[name].astype("float64") for name in names.split()]


def computed_from(
    names: str, compute: Callable[..., Results]
) -> Callable[[Arrays, Sizes], Results]:
    """Return a reference that computes outputs from inputs in double precision."""
    return lambda arguments, _: compute(*in_f64(arguments, names))
