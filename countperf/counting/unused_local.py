"""Unused local memory, which limits the work groups that are resident on a compute unit.

Fewer resident groups may be faster (Ma, Chamberlain & Agrawal 2014, section V), and kernels that
are measured at several occupancies show how latency is hidden (Lemeire et al., section 6.3; Gajger
& Czarnul 2018, section 6.3).
"""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.kernel.data import GroupInameTag, LocalInameTag
from pymbolic import var
from pymbolic.primitives import Comparison

from countperf.counting.resources import local_arrays
from countperf.counting.schedule import prepared
from countperf.errors import CountingError

NAME = "unused_local"


def with_unused_local(unit: Any, local_bytes: int) -> Any:
    """Return a kernel whose groups take at least so much local memory, with the same results.

    The largest local array of the kernel gets more rows, which nothing accesses, so that the counts
    stay the same. A kernel without a local array gets one of 32-bit integers: each work item stores
    to it, there is a barrier, and it is read where a size parameter is negative, which is never.
    These accesses are counted like any other; without them compilers would drop the array.

    Parameters
    ----------
    unit : loopy.TranslationUnit
        With one entry point; its local inames are tagged.
    local_bytes : int
        Local memory of a group, byte. `countperf.mechanistic.occupancy.limiting_local_bytes` says
        how much leaves room for a number of groups.

    Returns
    -------
    loopy.TranslationUnit
        The same if the kernel takes as much already.

    Raises
    ------
    CountingError
        Local arrays depend on sizes; or there is none, and the kernel has no size parameter, no
        store to global memory, or no work items of known number along the first axis.
    """
    kernel = unit.default_entrypoint
    arrays = _local_arrays(prepared(unit)[0])
    missing = local_bytes - sum(arrays.values())
    if missing <= 0:
        return unit
    if not arrays:
        return unit.with_kernel(_with_new_array(kernel, local_bytes))
    largest = max(arrays, key=lambda name: arrays[name])
    variable = kernel.temporary_variables[largest]
    rows = -(-missing // (arrays[largest] // variable.shape[0]))
    shape = (variable.shape[0] + rows, *variable.shape[1:])
    temporaries = {**kernel.temporary_variables, largest: variable.copy(shape=shape)}
    return unit.with_kernel(kernel.copy(temporary_variables=temporaries))


def _local_arrays(kernel: Any) -> dict[str, int]:
    """Return the bytes of each local array."""
    arrays: dict[str, int] = {}
    for name, variable, size in local_arrays(kernel):
        if not variable.shape or size is None:
            message = (
                f"kernel '{kernel.name}': the shape {variable.shape} of local array {name} depends"
                " on sizes; fix its sizes before unused local memory is added"
            )
            raise CountingError(message, kernel=kernel.name)
        arrays[name] = size
    return arrays


def _with_new_array(kernel: Any, local_bytes: int) -> Any:
    sizes = sorted(
        item.name
        for item in kernel.args
        if isinstance(item, lp.ValueArg)
        and item.dtype is not None
        and item.dtype.numpy_dtype.kind == "i"
    )
    stores = [item for item in kernel.instructions if _stores_globally(item, kernel)]
    lane = _lane(kernel)
    if not sizes or not stores or lane is None:
        message = (
            f"kernel '{kernel.name}' has no local array that could grow, and an array that is added"
            " needs a size parameter of a signed type, a store to global memory, and an iname with"
            " the tag l.0 of known length; add a local array (lp.add_prefetch) or one of these"
        )
        raise CountingError(message, kernel=kernel.name)
    iname, extent = lane
    last = stores[-1]
    array = lp.TemporaryVariable(
        NAME,
        dtype=np.int32,
        shape=(max(-(-local_bytes // 4), extent),),
        address_space=lp.AddressSpace.LOCAL,
    )
    parallel = frozenset(
        name
        for name in last.within_inames
        if kernel.iname_tags_of_type(name, (LocalInameTag, GroupInameTag))
    )
    store = lp.Assignment(
        id=f"store_{NAME}",
        assignee=var(NAME)[var(iname)],
        expression=var(iname),
        within_inames=parallel,
    )
    read = last.copy(
        id=f"read_{NAME}",
        expression=last.assignee + var(NAME)[extent - 1 - var(iname)],
        depends_on=frozenset({last.id, store.id}),
        depends_on_is_final=True,
        predicates=last.predicates | {Comparison(var(sizes[0]), "<", 0)},
    )
    return kernel.copy(
        instructions=[store, *kernel.instructions, read],
        temporary_variables={**kernel.temporary_variables, NAME: array},
    )


def _stores_globally(instruction: Any, kernel: Any) -> bool:
    return isinstance(instruction, lp.Assignment) and all(
        name in kernel.arg_dict for name in instruction.assignee_var_names()
    )


def _lane(kernel: Any) -> tuple[str, int] | None:
    """Return the iname along the first axis of a group, and its length."""
    for name in sorted(kernel.all_inames()):
        for tag in kernel.iname_tags_of_type(name, LocalInameTag):
            if tag.axis == 0:
                return name, int(kernel.get_constant_iname_length(name))
    return None
