"""What the builders of all spaces share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countperf.tuning.steps import step
from measurement_kernels.arguments import ELEMENT_TYPES, ArrayArgument, Sizes
from measurement_kernels.groups import GroupShape

if TYPE_CHECKING:
    import numpy as np
    from loopy import TranslationUnit
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Makes a space's inputs; goes to other processes."""

    arguments: tuple[ArrayArgument, ...]
    element_type: str = "f32"

    def __call__(self, random: np.random.Generator, sizes: Sizes) -> dict[str, Any]:
        """Draw the input arrays."""
        return {
            array.name: array.draw(random, self.element_type, sizes)
            for array in self.arguments
            if array.role == "input"
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """A reference in f64, rounded to the element type; goes to other processes."""

    expected: Callable[[Mapping[str, Any], Sizes], Mapping[str, NDArray[Any]]]
    element_type: str = "f32"

    def __call__(self, arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Compute the outputs."""
        dtype = ELEMENT_TYPES[self.element_type]
        return {
            name: values.astype(dtype, copy=False)
            for name, values in self.expected(arguments, sizes).items()
        }


@step
def split_to_items(
    unit: TranslationUnit, iname: str, *, axis: int, items: int, each: int
) -> TranslationUnit:
    """Give a loop to groups of `items` work items along an axis, `each` iterations to an item.

    The loops are ``<iname>_group``, ``<iname>_item`` where there are several items, and
    ``<iname>_each`` where an item has several iterations; neighbors go to neighbors.
    """
    import loopy as lp

    group, item, own = (f"{iname}_{part}" for part in ("group", "item", "each"))
    if items * each == 1:
        return lp.tag_inames(lp.rename_iname(unit, iname, group), {group: f"g.{axis}"})
    unit = lp.split_iname(
        unit,
        iname,
        items * each,
        outer_iname=group,
        inner_iname=own if items == 1 else item if each == 1 else f"{iname}_in",
        outer_tag=f"g.{axis}",
        inner_tag=f"l.{axis}" if items > 1 and each == 1 else None,
    )
    if items == 1 or each == 1:
        return unit
    return lp.split_iname(
        unit,
        f"{iname}_in",
        items,
        outer_iname=own,
        inner_iname=item,
        inner_tag=f"l.{axis}",
    )


def split_plane(
    unit: TranslationUnit, *, items: tuple[int, int], each: tuple[int, int], lanes: str
) -> tuple[TranslationUnit, tuple[int, int], GroupShape]:
    """Divide the loops i and j among groups and their items, as `split_to_items` does.

    Parameters
    ----------
    unit : loopy.TranslationUnit
        With the loops i and j.
    items, each : tuple of int
        Items of a group along i and j, and iterations of each item.
    lanes : {"i", "j"}
        The loop along local axis 0.

    Returns
    -------
    (loopy.TranslationUnit, tuple of int, tuple of int)
        The divided unit, the axes of i and j, and the group's shape along axes 0 and 1.
    """
    axes = (1, 0) if lanes == "j" else (0, 1)
    for iname, axis, number, own in zip("ij", axes, items, each, strict=True):
        unit = split_to_items(unit, iname, axis=axis, items=number, each=own)
    return unit, axes, (items[axes[0]], items[axes[1]])


def written_as(
    unit: TranslationUnit, block: str, own: Sequence[str], unrolled: Sequence[str] = ()
) -> TranslationUnit:
    """Say how loops are written, the last step, since variants that differ in it share the others.

    Parameters
    ----------
    unit : loopy.TranslationUnit
        The kernel.
    block : str
        Tag of an item's own loops, or ``for``.
    own : sequence of str
        These loops, as far as there are such.
    unrolled : sequence of str
        Loops to unroll.
    """
    import loopy as lp

    if block.startswith("ilp"):
        unit = _silenced(unit)
    tags = {} if block == "for" else dict.fromkeys(sweep_of(unit, own), block)
    tags.update(dict.fromkeys(unrolled, "unr"))
    return lp.tag_inames(unit, tags) if tags else unit


@step
def in_order(unit: TranslationUnit, inames: Sequence[str]) -> TranslationUnit:
    """Nest those of the loops that there are, outermost first, which is else left to chance."""
    import loopy as lp

    there = sweep_of(unit, inames)
    return lp.prioritize_loops(unit, there) if len(there) > 1 else unit


def prefetch_tile(
    unit: TranslationUnit,
    array: str,
    *,
    sweep: Sequence[str],
    within: Sequence[str],
    axes: Mapping[str, int | None],
    group_shape: GroupShape,
) -> TranslationUnit:
    """Fetch what a group reads as `prefetch` does, whatever loops a variant has.

    Loops of ``sweep`` that there are not are left out, and loops of the fetch along axes of which
    a group has one item are left to that item.
    """
    from measurement_kernels.units import prefetch

    return prefetch(
        unit,
        array,
        sweep=sweep_of(unit, sweep),
        within=within,
        axes={
            iname: None if axis is None or group_shape[axis] == 1 else axis
            for iname, axis in axes.items()
        },
        group_shape=group_shape,
    )


def _silenced(unit: TranslationUnit) -> TranslationUnit:
    """Have Loopy not warn that it takes its older scheduler, the one that knows ``ilp``."""
    kernel = unit.default_entrypoint
    silenced = frozenset({*kernel.silenced_warnings, "v1_scheduler_fallback"})
    return unit.with_kernel(kernel.copy(silenced_warnings=silenced))


def sweep_of(unit: TranslationUnit, inames: Sequence[str]) -> list[str]:
    """Return those of the loops that there are."""
    there = unit.default_entrypoint.all_inames()
    return [iname for iname in inames if iname in there]
