"""Families of random shapes, to which models that predict unseen kernels are fitted.

A fixed seed alone chooses their members: work groups (wide, tall, linear, any number of items), the
loop along lanes, blocks of iterations per item, unrolling, tiles in local memory, layouts, numbers
of arrays and of terms, coefficients, sizes. In each family, the first members have any lengths of
work groups, blocks and pieces; these are followed by members with lengths that are powers of two,
as people often choose them, and by a few in ``f64``. All others are in ``f32``.

=========================  =====================================================================
family                     members
=========================  =====================================================================
``random-matmul``          matrix products and their relatives: distances, weighted and batched
                           products, with other terms added
``random-stencil``         stencils of 3 to 12 points in one to three dimensions
``random-elementwise``     maps of one to five arrays in one and two dimensions
``random-item-loop``       loops of each item: sums over rows and columns, recurrences
``random-channel-filter``  filters over several channels, in one and two dimensions
``random-arithmetic``      chains of arithmetic, one or several of them
``random-transpose``       permutations of axes, reversals, interleaving
``random-small-operator``  small matrices applied to the nodes of many elements
``random-interaction``     sums over pairs of points: functions of distances, forces, cut-offs
``random-guarded``         kernels of any sizes, which work groups do not divide
``random-even-sizes``      kernels of the families above at sizes that are powers of two
``random-gather``          elements of tables at indices from an array, alone and summed along rows
``random-scatter``         elements stored at indices from an array
``random-integer``         chains of integer arithmetic with divisions by constants; ``f32`` only
``blocked-matmul``         as ``random-matmul``, with 4 to 16 results of each item
``blocked-stencil``        as ``random-stencil``, with 4 to 32 results of each item; so the others
``blocked-filter``         windows of one to three channels, all terms unrolled or none
``blocked-transpose``      permutations of axes
``blocked-even-sizes``     blocked kernels of the others at sizes that are powers of two
``blocked-operator``       small matrices applied to 4 to 16 elements by each item
=========================  =====================================================================

Blocked families are ``f32`` only. Only they show the code that compilers generate for many copies
side by side: vectors of copies, private arrays in memory, loops over items that stay scalar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import program_entry
from measurement_kernels.random_shapes.derived import even_sizes, guarded
from measurement_kernels.random_shapes.draws import Draw, DrawKernel
from measurement_kernels.random_shapes.indirect import STATISTICS, gather, scatter
from measurement_kernels.random_shapes.loops import arithmetic, integer, interaction, item_loop
from measurement_kernels.random_shapes.maps import elementwise, permutation
from measurement_kernels.random_shapes.products import matmul, small_operator
from measurement_kernels.random_shapes.windows import channel_filter, stencil

_MEMBERS: dict[str, tuple[int, int, int, DrawKernel]] = {
    "random-matmul": (90, 60, 14, matmul),
    "blocked-matmul": (14, 36, 0, partial(matmul, blocked=True)),
    "random-stencil": (80, 60, 14, stencil),
    "blocked-stencil": (14, 36, 0, partial(stencil, blocked=True)),
    "random-elementwise": (45, 25, 10, elementwise),
    "random-item-loop": (45, 25, 10, item_loop),
    "random-channel-filter": (30, 50, 10, channel_filter),
    "blocked-filter": (14, 36, 0, partial(channel_filter, blocked=True)),
    "random-arithmetic": (40, 15, 10, arithmetic),
    "random-transpose": (30, 40, 8, permutation),
    "blocked-transpose": (10, 30, 0, partial(permutation, blocked=True)),
    "random-small-operator": (40, 30, 10, small_operator),
    "blocked-operator": (10, 30, 0, partial(small_operator, blocked=True)),
    "random-interaction": (50, 30, 12, interaction),
    "random-integer": (35, 20, 0, integer),
    "random-guarded": (50, 30, 12, guarded),
    "random-even-sizes": (0, 64, 24, even_sizes),
    "blocked-even-sizes": (0, 44, 0, partial(even_sizes, blocked=True)),
    "random-gather": (32, 16, 8, gather),
    "random-scatter": (32, 16, 8, scatter),
}
"""Numbers of members with any lengths, with powers of two and in f64, and what draws them."""

_DESCRIPTIONS = {
    "random-matmul": "matrix product or a relative, of random shape",
    "blocked-matmul": "matrix product or a relative",
    "random-stencil": "stencil of random points and shape",
    "blocked-stencil": "stencil of random points",
    "random-elementwise": "random map of arrays, of random shape",
    "random-item-loop": "random sums and recurrences of single items",
    "random-channel-filter": "random filter over several channels, of random shape",
    "blocked-filter": "filter of random windows",
    "random-arithmetic": "random chains of arithmetic, of random shape",
    "random-transpose": "random permutation of axes, of random shape",
    "blocked-transpose": "random permutation of axes",
    "random-small-operator": "random small matrices applied to many elements, of random shape",
    "blocked-operator": "small matrices applied to many elements",
    "random-interaction": "random sums over pairs of points",
    "random-integer": "random chains of integer arithmetic",
    "random-guarded": "kernel of another random family, in groups that need not divide its sizes",
    "random-even-sizes": "kernel of another random family, at sizes that are powers of two",
    "blocked-even-sizes": "kernel of another random family, at sizes that are powers of two",
    "random-gather": "random reads of tables by numbers",
    "random-scatter": "random stores at places that are read",
}


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of all families."""
    for family, (any_lengths, powers_of_two, double, draw_kernel) in _MEMBERS.items():
        for number in range(any_lengths + powers_of_two + double):
            is_double = number >= any_lengths + powers_of_two
            regular = number % 2 == 0 if is_double else number >= any_lengths
            draw = Draw(f"{family}/{number}", regular=regular)
            yield _member(family, number, draw, draw_kernel, "f64" if is_double else "f32")


def _member(
    family: str, number: int, draw: Draw, draw_kernel: DrawKernel, element_type: str
) -> CatalogEntry:
    """Draw a kernel; draw again while choices do not fit together or Loopy has no code for them."""
    drawn = draw_kernel(draw)
    while drawn is None or drawn[1].group_shape[0] == 1:  # one item along axis 0: no code
        drawn = draw_kernel(draw)
    program, shape = drawn
    statistics = STATISTICS if draw_kernel in (gather, scatter) else {}
    blocked = ", a block of results per item" if family.startswith("blocked-") else ""
    return program_entry(
        replace(program, element_type=element_type),
        shape,
        family,
        f"{number:03d}",
        _DESCRIPTIONS[family] + blocked,
        (0, 1) if draw.chance(0.5) else (0,),
        collection="random",
        statistics={a.name: statistics[a.name] for a in program.arguments if a.name in statistics},
    )
