"""Classes beyond the paper's nine, which separate effects that the paper's kernels combine.

==========================  ====================================================================
family                      what it varies
==========================  ====================================================================
``independent-chains``      kind of arithmetic, and the number of independent chains per item:
                            latency and throughput
``chains-behind-barriers``  the same with operands from a table in local memory
``kept-results``            results per item that live across barriers, items of a group
``results-in-loops``        results per item in loops of their own, items of a group
``short-launches``          kernels of a few groups, whose time is mostly that of the launch
``halo-tile``               points of a stencil, through local memory or not, in 1-D and 2-D
``group-shapes``            work groups of 8 to 1024 items, for streaming kernels
``item-loops``              sums of single items along rows and columns
``working-set``             bytes that are read again and again, 8 KiB to 64 MiB
``strided-access``          strides and offsets in global memory
``local-access``            strides, pitches and offsets in local memory
``walks-of-lanes``          pitch of rows between which lanes step, loading and storing
``walks-in-loops``          pitch of rows between which each item steps in a loop
``rows-in-loops``           pitch of rows along which each item runs in a loop
``shared-lines``            copies and transposes by tiles that end within lines, at two pitches
``gathers``                 elements of a table at indices from an array, near or random
``gathers-in-loops``        sums of such elements
``scatters``                elements stored at indices from an array, near or random
``scatters-in-loops``       the same along rows of indices
``uneven-rows``             sums of rows whose lengths depend on data
``precision``               f64, and f64 sums of f32 numbers
``integer``                 integer arithmetic: products, remainders, quotients
``group-reduction``         sums that the items of a group compute together
``function-maps``           special functions and powers of each element
``function-loops``          sums of them in loops, called by all items or by some
``guards``                  copies, stencils and others in groups that need not divide the sizes
``one-group``               nests that nobody transformed: one group, mostly of one item
``element-einsums``         contractions of each element, in groups that need not divide them
``register-blocks``         products whose items hold blocks of results and operands in registers
``around-caches``           streams of 100 KiB to 200 MiB
==========================  ====================================================================

Indices with divisions (``a[i // 4]``) are not among them: an access whose address does not change
evenly from item to item has no stride class and cannot be counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended import (
    arithmetic,
    groups,
    memory,
    of_others,
    results,
    through_data,
)

_FAMILIES = (
    arithmetic.chains,
    results.several_results,
    groups.short_launches,
    memory.halo_tiles,
    groups.group_shapes,
    memory.item_loops,
    memory.working_sets,
    memory.shared_lines,
    memory.strided_access,
    memory.local_access,
    memory.rows,
    through_data.entries,
    arithmetic.precision,
    arithmetic.integers,
    results.group_reductions,
    arithmetic.function_maps,
    groups.guards,
    of_others.entries,
)


def entries() -> Iterator[CatalogEntry]:
    """List the kernels."""
    for family in _FAMILIES:
        yield from family()
