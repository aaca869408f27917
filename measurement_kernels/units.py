"""Steps that all builders of translation units share; the only module that needs Loopy at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2

from countperf.tuning.steps import step
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
    """Make a kernel of the catalogue's arguments, before any transformation.

    Parameters
    ----------
    name : str
        Name of the kernel, a C identifier.
    domain : str or sequence of str
        Loops, isl text; several for loops of which not all lie in one nest.
    instructions : str
        What is done in them, as `loopy.make_kernel` takes it.
    sizes, arguments : sequence
        Size parameters, 32-bit integers, with what is assumed of them; arrays and scalars.
    element_type : str
        Type of the arrays and scalars, a key of `ELEMENT_TYPES`.

    Returns
    -------
    loopy.TranslationUnit
    """
    names = [size.name for size in sizes]
    assumptions = " and ".join(size.assumption for size in sizes)
    return _unit(name, domain, instructions, names, assumptions, arguments, element_type)


@step
def _unit(
    name: str,
    domain: str | Sequence[str],
    instructions: str,
    sizes: Sequence[str],
    assumptions: str,
    arguments: Sequence[Argument],
    element_type: str,
) -> TranslationUnit:
    return lp.make_kernel(
        domain if isinstance(domain, str) else list(domain),
        instructions,
        [
            *(_loopy_argument(argument, element_type) for argument in arguments),
            *(lp.ValueArg(size, np.int32) for size in sizes),
        ],
        name=name,
        assumptions=assumptions,
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


split_iname = step(lp.split_iname)
tag_inames = step(lp.tag_inames)
"""Loopy's transformations, as steps that variants share."""


def map_to_items(
    unit: TranslationUnit, axes: Mapping[str, int], group_shape: GroupShape
) -> TranslationUnit:
    """Give each loop named in ``axes`` to the work items along that axis of the NDRange."""
    for iname, axis in axes.items():
        unit = lp.split_iname(
            unit,
            iname,
            group_shape[axis],
            outer_tag=f"g.{axis}",
            inner_tag=f"l.{axis}",
        )
    return unit


@step
def prefetch(
    unit: TranslationUnit,
    reference: str,
    *,
    sweep: Sequence[str],
    within: Sequence[str],
    axes: Mapping[str, int | None],
    group_shape: GroupShape,
) -> TranslationUnit:
    """Fetch what a group reads of an array into local memory, as a box, all items taking part.

    Parameters
    ----------
    unit : loopy.TranslationUnit
        The kernel.
    reference : str
        The array, or one access to it.
    sweep : sequence of str
        Loops whose joint footprint is fetched.
    within : sequence of str
        Loops around the fetch. They have to include every loop over work groups: Loopy refuses an
        instruction that does not say which groups execute it.
    axes : Mapping from str to int or None
        Names for the loops of the fetch, one for each axis of the array in order, with the local
        axis that each is spread over. None: each item runs through it, or ``sweep`` does not move
        along it, and it needs no loop.
    group_shape : tuple of int
        Work items per local axis; a longer extent takes several slots, the last one guarded.

    Returns
    -------
    loopy.TranslationUnit
    """
    unit = lp.add_prefetch(
        unit,
        reference,
        list(sweep),
        dim_arg_names=list(axes),
        default_tag=None,
        fetch_bounding_box=True,
        fetch_outer_inames=frozenset(within),
    )
    for iname, axis in axes.items():
        if axis is None:
            continue
        extent = unit.default_entrypoint.get_constant_iname_length(iname)
        if extent > group_shape[axis]:
            unit = lp.split_iname(unit, iname, group_shape[axis], inner_tag=f"l.{axis}")
        else:
            unit = lp.tag_inames(unit, {iname: f"l.{axis}"})
    return unit
