"""Preparation of a kernel by Loopy: inlining, preprocessing, scheduling, and its checks.

And what a launch of the kernel needs: the shape of its work groups, local memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy import AddressSpace
from loopy.check import pre_codegen_checks
from loopy.kernel.array import SeparateArrayArrayDimTag
from loopy.kernel.data import GroupInameTag, VectorizeTag
from loopy.schedule import CallKernel, RunInstruction
from loopy.types import LoopyType

from countperf.counting.accesses import with_strides
from countperf.counting.frontend.callees import inline_callees
from countperf.counting.frontend.copies import (
    check_element_types,
    generate_code,
    has_unsigned,
    linearized,
    loopy_reasons,
    preprocessed,
    without_empty_code,
)
from countperf.counting.frontend.loopy_patches import unattended
from countperf.counting.frontend.producers import translation_unit
from countperf.errors import CountingError
from countperf.symbolic.kernel_sets import bounds_of, with_sets_in_fixed_order

_MOST_RECENT = 4
_recent: dict[int, tuple[Any, tuple[Any, Any]]] = {}
"""Translation units by their identity, which no other has as long as they are kept."""


def prepared(t_unit: Any) -> tuple[Any, Any]:
    """Return the only entry point of a translation unit, scheduled, and the table of callables.

    A kernel that the caller has scheduled already is taken as it is. What was prepared lately is
    not prepared again.
    """
    t_unit = translation_unit(t_unit)
    known = _recent.get(id(t_unit))
    if known is None:
        known = _recent[id(t_unit)] = t_unit, _prepared(t_unit)
        for old in list(_recent)[:-_MOST_RECENT]:
            _recent.pop(old, None)
    return known[1]


def _prepared(t_unit: Any) -> tuple[Any, Any]:
    if len(t_unit.entrypoints) != 1:
        names = ", ".join(sorted(t_unit.entrypoints)) or "none"
        raise CountingError(
            f"the translation unit has {len(t_unit.entrypoints)} entry points ({names}); choose "
            "one with t_unit.with_entrypoints(name)"
        )
    whole = without_empty_code(t_unit)
    t_unit = inline_callees(whole)
    if has_unsigned(whole):  # also where inlining leaves nothing of it
        generate_code(whole, CountingError)
    kernel = with_strides(t_unit.default_entrypoint)
    if kernel is not t_unit.default_entrypoint:
        t_unit = t_unit.with_kernel(kernel)
    if kernel.state < lp.KernelState.LINEARIZED:
        with unattended():
            t_unit = preprocessed(t_unit)
            temporaries = t_unit.default_entrypoint.temporary_variables.values()
            if not all(isinstance(v.dtype, LoopyType) for v in temporaries):
                with loopy_reasons(t_unit):  # which preprocessing made, as those of arg-extrema
                    t_unit = lp.infer_unknown_types(t_unit, expect_completion=True)
            kernel = linearized(t_unit)
            t_unit = t_unit.with_kernel(kernel)
    untyped = [v.name for v in (*kernel.args, *kernel.temporary_variables.values()) if not v.dtype]
    if untyped:
        raise CountingError(
            f"kernel '{kernel.name}': the types of {', '.join(sorted(untyped))} are not known; "
            "declare them, or apply loopy.infer_unknown_types"
        )
    check_element_types(kernel)
    _check_for_code(kernel, t_unit)
    return with_sets_in_fixed_order(kernel), t_unit.callables_table


def _check_for_code(kernel: Any, t_unit: Any) -> None:
    """Refuse what Loopy schedules, but generates no code for: ask its own checks.

    Code is generated where loops of different lengths are mapped to one group axis, where an array
    has an axis of separate arguments, whose subscripts have to be constants in the code, and where
    loops are vectors: whether Loopy can do that shows there only.
    """
    with unattended(), loopy_reasons(t_unit):
        pre_codegen_checks(t_unit)
    has_vectors = any(iname.tags_of_type(VectorizeTag) for iname in kernel.inames.values())
    has_separate_arrays = any(
        isinstance(tag, SeparateArrayArrayDimTag)
        for variable in (*kernel.args, *kernel.temporary_variables.values())
        for tag in getattr(variable, "dim_tags", None) or ()
    )
    if has_vectors or has_separate_arrays or _shares_group_axes(kernel):
        generate_code(t_unit, CountingError)


def _shares_group_axes(kernel: Any) -> bool:
    """Return whether loops of different lengths in one program are mapped to one group axis."""
    lengths: dict[int, set[str]] = {}
    for item in kernel.linearization:
        if isinstance(item, CallKernel):
            lengths = {}
        elif isinstance(item, RunInstruction):
            for name in kernel.id_to_insn[item.insn_id].within_inames:
                for tag in kernel.iname_tags_of_type(name, GroupInameTag):
                    length = str(bounds_of(kernel, name)[2])
                    lengths.setdefault(tag.axis, set()).add(length)
            if any(len(some) > 1 for some in lengths.values()):
                return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResources:
    """Resources of a launch."""

    # work items per group along the local axes; None along an axis where it depends on sizes
    group_shape: tuple[int | None, ...]
    local_memory_bytes: int | None  # of a group, as declared, byte; None if it depends on sizes

    @property
    def group_items(self) -> int | None:
        """Work items per group; None where a size decides."""
        known = [extent for extent in self.group_shape if extent is not None]
        return math.prod(known) if len(known) == len(self.group_shape) else None


def scheduled(t_unit: Any) -> tuple[Any, LaunchResources]:
    """Preprocess and schedule a translation unit, once for counting and resources."""
    kernel, callables = prepared(t_unit)
    _, group = kernel.get_grid_size_upper_bounds_as_exprs(callables)
    resources = LaunchResources(
        group_shape=tuple(int(e) if isinstance(e, int) else None for e in group),
        local_memory_bytes=_local_memory(kernel),
    )
    ready = t_unit.copy(callables_table=callables).with_kernel(kernel)
    _recent[id(ready)] = ready, (kernel, callables)  # for counting, which asks for it again
    return ready, resources


def _local_memory(kernel: Any) -> int | None:
    """Return the bytes of local arrays that have memory of their own; None where sizes decide."""
    total = 0
    for variable in kernel.temporary_variables.values():
        if variable.address_space == AddressSpace.LOCAL and variable.base_storage is None:
            if not all(isinstance(extent, int) for extent in variable.shape):
                return None
            total += math.prod(variable.shape) * variable.dtype.itemsize
    return total
