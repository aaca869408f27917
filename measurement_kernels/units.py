"""Steps from which builders make translation units: create one, map loops, fetch tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2

from measurement_kernels.arguments import (
    ELEMENT_TYPES,
    Argument,
    ArrayArgument,
    ScalarArgument,
    SizeParameter,
)
from measurement_kernels.groups import GroupShape


def make_unit(
    name: str,
    *,
    domain: str | Sequence[str],
    instructions: str,
    sizes: Sequence[SizeParameter],
    arguments: Sequence[Argument],
    element_type: str,
) -> TranslationUnit:
    """Return a kernel with the catalogue's arguments, before any transformation."""
    return lp.make_kernel(
        domain if isinstance(domain, str) else list(domain),
        instructions,
        [
            *(_loopy_argument(argument, element_type) for argument in arguments),
            *(lp.ValueArg(size.name, np.int32) for size in sizes),
        ],
        name=name,
        assumptions=" and ".join(size.assumption for size in sizes),
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )


def _loopy_argument(argument: Argument, element_type: str) -> lp.ArrayArg | lp.ValueArg:
    match argument:
        case ArrayArgument():
            return lp.GlobalArg(
                argument.name,
                np.dtype(argument.dtype(element_type)),
                shape=tuple(str(extent) for extent in argument.shape),
                order=argument.order,
                is_input=argument.role != "output",
                is_output=argument.role != "input",
            )
        case ScalarArgument():
            return lp.ValueArg(argument.name, np.dtype(ELEMENT_TYPES[element_type]))


def map_to_items(
    unit: TranslationUnit, axes: Mapping[str, int], group_shape: GroupShape
) -> TranslationUnit:
    """Map each loop named in ``axes`` to the work items along that axis of the NDRange."""
    for iname, axis in axes.items():
        unit = lp.split_iname(
            unit, iname, group_shape[axis], outer_tag=f"g.{axis}", inner_tag=f"l.{axis}"
        )
    return unit


def prefetch(
    unit: TranslationUnit,
    array: str,
    sweep: Iterable[str],
    within: Iterable[str],
    axes: Mapping[str, int | None],
    group_shape: GroupShape,
) -> TranslationUnit:
    """Fetch the bounding box of a group's reads of an array into local memory, by all items.

    Loops of ``sweep`` that a unit lacks are left out. A loop of the fetch along an axis with a
    single item is run by that item.
    """
    unit = lp.add_prefetch(
        unit,
        array,
        present(unit, sweep),
        dim_arg_names=list(axes),
        default_tag=None,
        fetch_bounding_box=True,
        fetch_outer_inames=frozenset(within),
    )
    for iname, axis in axes.items():
        if axis is None or group_shape[axis] == 1:
            continue
        extent = unit.default_entrypoint.get_constant_iname_length(iname)
        if extent > group_shape[axis]:
            unit = lp.split_iname(unit, iname, group_shape[axis], inner_tag=f"l.{axis}")
        else:
            unit = lp.tag_inames(unit, {iname: f"l.{axis}"})
    return unit


def split_to_items(
    unit: TranslationUnit, iname: str, *, axis: int, items: int, each: int
) -> TranslationUnit:
    """Map a loop to groups of `items` neighboring work items, `each` iterations per item.

    The new loops are ``<iname>_group``, and, if there are several, ``<iname>_item``,
    ``<iname>_each``.
    """
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
        unit, f"{iname}_in", items, outer_iname=own, inner_iname=item, inner_tag=f"l.{axis}"
    )


def split_plane(
    unit: TranslationUnit,
    loops: str,
    *,
    items: tuple[int, int],
    each: tuple[int, int],
    first_lane: bool,
) -> tuple[TranslationUnit, tuple[int, int], GroupShape]:
    """Map two loops to groups and their items, as `split_to_items` does."""
    axes = (0, 1) if first_lane else (1, 0)
    for iname, axis, number, own in zip(loops, axes, items, each, strict=True):
        unit = split_to_items(unit, iname, axis=axis, items=number, each=own)
    return unit, axes, (items[axes[0]], items[axes[1]])


def in_order(unit: TranslationUnit, inames: Sequence[str]) -> TranslationUnit:
    """Nest loops in this order, outermost first; missing ones are left out."""
    there = present(unit, inames)
    return lp.prioritize_loops(unit, there) if len(there) > 1 else unit


def tag_blocks(
    unit: TranslationUnit, block: str, own: Sequence[str], unrolled: Sequence[str] = ()
) -> TranslationUnit:
    """Tag an item's own loops and unrolled loops."""
    if block.startswith("ilp"):
        # Loopy would warn that it takes its older scheduler, the only one that supports ilp
        kernel = unit.default_entrypoint
        silenced = frozenset({*kernel.silenced_warnings, "v1_scheduler_fallback"})
        unit = unit.with_kernel(kernel.copy(silenced_warnings=silenced))
    tags = {} if block == "for" else dict.fromkeys(present(unit, own), block)
    tags.update(dict.fromkeys(unrolled, "unr"))
    return lp.tag_inames(unit, tags) if tags else unit


def present(unit: TranslationUnit, inames: Iterable[str]) -> list[str]:
    """Return those of some loops that a unit has."""
    there = unit.default_entrypoint.all_inames()
    return [iname for iname in inames if iname in there]
