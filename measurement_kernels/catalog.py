"""All kernels: list them, filter them, find one by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from countperf.errors import KernelSpecificationError
from measurement_kernels import (
    applications,
    arithmetic,
    convolution,
    empty,
    finite_differences,
    matmul_naive,
    matmul_skinny,
    matmul_tiled,
    n_body,
    stride1,
    strided_filled,
    transpose,
    vector_scale_add,
)
from measurement_kernels.entry import CatalogEntry, Collection
from measurement_kernels.extended import (
    chains,
    functions,
    groupings,
    guards,
    halo,
    item_loops,
    kept,
    launches,
    numbers,
    reductions,
    shared_lines,
    strided,
    through_data,
    walks,
    working_set,
)
from measurement_kernels.groups import GroupShape, SizeClass, group_shapes
from measurement_kernels.random_shapes import arithmetic as random_arithmetic
from measurement_kernels.random_shapes import channel_filter as random_channel_filter
from measurement_kernels.random_shapes import elementwise as random_elementwise
from measurement_kernels.random_shapes import even_sizes as random_even_sizes
from measurement_kernels.random_shapes import guarded as random_guarded
from measurement_kernels.random_shapes import indirect as random_indirect
from measurement_kernels.random_shapes import integer as random_integer
from measurement_kernels.random_shapes import interaction as random_interaction
from measurement_kernels.random_shapes import item_loop as random_item_loop
from measurement_kernels.random_shapes import matmul as random_matmul
from measurement_kernels.random_shapes import small_operator as random_small_operator
from measurement_kernels.random_shapes import stencil as random_stencil
from measurement_kernels.random_shapes import transpose as random_transpose

if TYPE_CHECKING:
    from countperf.measurements import Purpose

__all__ = ["CatalogEntry", "entries", "entry", "families", "group_shapes"]

VARIANTS_PREFIX = "variants-"
"""What the families of sets of variants begin with."""

_MODULES = (
    matmul_tiled,
    matmul_naive,
    vector_scale_add,
    transpose,
    stride1,
    strided_filled,
    arithmetic,
    empty,
    finite_differences,
    matmul_skinny,
    convolution,
    n_body,
    chains,
    kept,
    launches,
    halo,
    groupings,
    item_loops,
    working_set,
    shared_lines,
    strided,
    walks,
    through_data,
    numbers,
    reductions,
    functions,
    guards,
    random_matmul,
    random_stencil,
    random_elementwise,
    random_item_loop,
    random_channel_filter,
    random_arithmetic,
    random_transpose,
    random_small_operator,
    random_interaction,
    random_integer,
    random_guarded,
    random_even_sizes,
    random_indirect,
    applications,
)


@cache
def _everything() -> dict[str, CatalogEntry]:
    return {each.name: each for module in _MODULES for each in module.entries()}


@cache
def _variants() -> dict[str, CatalogEntry]:
    """Return the sets of variants; their spaces are imported only when they are asked for."""
    from measurement_kernels.variants.sets import variant_entries, variant_sets

    return {each.name: each for family in variant_sets() for each in variant_entries(family)}


def _kernels(purpose: Purpose | None) -> dict[str, CatalogEntry]:
    return _variants() if purpose == "variant" else _everything()


def families(
    *, purpose: Purpose | None = "measurement", collection: Collection | None = "paper"
) -> tuple[str, ...]:
    """List the classes of kernels, the paper's first and in its order.

    Parameters
    ----------
    purpose : {"measurement", "test", "application", "variant"} or None
        Which ones; None: all but sets of variants.
    collection : {"paper", "extended", "random"} or None
        Only classes of this collection; None: all.

    Returns
    -------
    tuple of str
    """
    found = [
        e.family
        for e in _kernels(purpose).values()
        if purpose in (None, e.purpose) and collection in (None, e.collection)
    ]
    return tuple(dict.fromkeys(found))


def entries(
    *,
    family: str | None = None,
    variant: str | None = None,
    group_shape: GroupShape | None = None,
    size_class: SizeClass | None = None,
    element_type: str | None = "f32",
    purpose: Purpose | None = "measurement",
    collection: Collection | None = "paper",
) -> tuple[CatalogEntry, ...]:
    """List entries; by default what the paper measures, in all shapes of work group.

    Parameters
    ----------
    family, variant : str, optional
        Class of kernels, and which one of the class.
    group_shape : (int, int), optional
        Only this shape of work group.
    size_class : {"small", "medium", "large"}, optional
        Only shapes of this one of the paper's sets.
    element_type : {"f32", "f64"} or None
        Type of the numbers; None: all. The paper's is ``f32``.
    collection : {"paper", "extended", "random"} or None
        The paper's kernels, those beyond its classes, or families of random shapes; None: all.
    purpose : {"measurement", "test", "application", "variant"} or None
        What they are for: fits (``measurement``) or evaluations; None: all but sets of variants.

    Returns
    -------
    tuple of CatalogEntry
        Empty if nothing fits.

    Raises
    ------
    KernelSpecificationError
        There is no such family.
    ParameterError
        There is no such set of shapes.
    """
    known = families(purpose="variant" if purpose == "variant" else None, collection=None)
    if family is not None and family not in known:
        raise _unknown("family of kernels", family, known)
    shapes = None if size_class is None else group_shapes(size_class)
    return tuple(
        each
        for each in _kernels(purpose).values()
        if family in (None, each.family)
        and variant in (None, each.variant)
        and group_shape in (None, each.group_shape)
        and (shapes is None or each.group_shape in shapes)
        and element_type in (None, each.element_type)
        and purpose in (None, each.purpose)
        and collection in (None, each.collection)
    )


def entry(name: str) -> CatalogEntry:
    """Find a kernel by its name.

    Parameters
    ----------
    name : str
        ``transpose/tiled/16x12/f32``, or a shorthand that leaves out parts as long as only one
        kernel has those that are left: ``n-body``. Where it names no element type, ``f32``.

    Returns
    -------
    CatalogEntry

    Raises
    ------
    KernelSpecificationError
        No kernel is called so, or several could be meant; the message lists the nearest.

    Examples
    --------
    >>> entry("n-body").name
    'n-body/256x1/f32'
    """
    everything = _variants() if name.startswith(VARIANTS_PREFIX) else _everything()
    if name in everything:
        return everything[name]
    parts = name.split("/")
    meant = [full for full in everything if _is_subsequence(parts, full.split("/"))]
    if len(meant) > 1:
        meant = [full for full in meant if everything[full].element_type == "f32"] or meant
    match meant:
        case [only]:
            return everything[only]
        case []:
            known = families(purpose=None, collection=None)
            raise _unknown("kernel", name, [*known, *everything])
        case _:
            raise KernelSpecificationError(
                f"{name!r} could be any of {len(meant)} kernels; add parts of its name: "
                f"{_some(meant)}",
                specification=name,
            )


def _is_subsequence(parts: list[str], full: list[str]) -> bool:
    remaining = iter(full)
    return all(part in remaining for part in parts)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _unknown(what: str, name: str, known: Iterable[str]) -> KernelSpecificationError:
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        mend = f"did you mean {' or '.join(near)}?"
    else:
        mend = f"there are the families {', '.join(families(purpose=None, collection=None))}"
    return KernelSpecificationError(f"no {what} is called {name!r}; {mend}", specification=name)
