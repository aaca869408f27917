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
from dataclasses import dataclass, replace
from functools import partial

from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.random_shapes.derived import even_sizes, guarded
from measurement_kernels.random_shapes.draws import Draw, DrawKernel
from measurement_kernels.random_shapes.indirect import STATISTICS, gather, scatter
from measurement_kernels.random_shapes.loops import arithmetic, integer, interaction, item_loop
from measurement_kernels.random_shapes.maps import elementwise, permutation
from measurement_kernels.random_shapes.products import matmul, small_operator
from measurement_kernels.random_shapes.windows import channel_filter, stencil


@dataclass(frozen=True, slots=True)
class _Family:
    """A family: how many members have any lengths, powers of two, and f64; what draws them."""

    name: str
    description: str
    any_lengths: int
    powers_of_two: int
    double: int
    draw_kernel: DrawKernel


_EVEN_SIZES = "kernel of another random family, at sizes that are powers of two"
_BLOCK = ", a block of results per item"
_FAMILIES = tuple(
    _Family(*each)
    for each in (
        ("random-matmul", "matrix product or a relative, of random shape", 90, 60, 14, matmul),
        (
            "blocked-matmul",
            f"matrix product or a relative{_BLOCK}",
            14,
            36,
            0,
            partial(matmul, blocked=True),
        ),
        ("random-stencil", "stencil of random points and shape", 80, 60, 14, stencil),
        (
            "blocked-stencil",
            f"stencil of random points{_BLOCK}",
            14,
            36,
            0,
            partial(stencil, blocked=True),
        ),
        ("random-elementwise", "random map of arrays, of random shape", 45, 25, 10, elementwise),
        (
            "random-item-loop",
            "random sums and recurrences of single items",
            45,
            25,
            10,
            item_loop,
        ),
        (
            "random-channel-filter",
            "random filter over several channels, of random shape",
            30,
            50,
            10,
            channel_filter,
        ),
        (
            "blocked-filter",
            f"filter of random windows{_BLOCK}",
            14,
            36,
            0,
            partial(channel_filter, blocked=True),
        ),
        (
            "random-arithmetic",
            "random chains of arithmetic, of random shape",
            40,
            15,
            10,
            arithmetic,
        ),
        (
            "random-transpose",
            "random permutation of axes, of random shape",
            30,
            40,
            8,
            permutation,
        ),
        (
            "blocked-transpose",
            f"random permutation of axes{_BLOCK}",
            10,
            30,
            0,
            partial(permutation, blocked=True),
        ),
        (
            "random-small-operator",
            "random small matrices applied to many elements, of random shape",
            40,
            30,
            10,
            small_operator,
        ),
        (
            "blocked-operator",
            f"small matrices applied to many elements{_BLOCK}",
            10,
            30,
            0,
            partial(small_operator, blocked=True),
        ),
        ("random-interaction", "random sums over pairs of points", 50, 30, 12, interaction),
        ("random-integer", "random chains of integer arithmetic", 35, 20, 0, integer),
        (
            "random-guarded",
            "kernel of another random family, in groups that need not divide its sizes",
            50,
            30,
            12,
            guarded,
        ),
        ("random-even-sizes", _EVEN_SIZES, 0, 64, 24, even_sizes),
        ("blocked-even-sizes", _EVEN_SIZES + _BLOCK, 0, 44, 0, partial(even_sizes, blocked=True)),
        ("random-gather", "random reads of tables by numbers", 32, 16, 8, gather),
        ("random-scatter", "random stores at places that are read", 32, 16, 8, scatter),
    )
)


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of all families."""
    for family in _FAMILIES:
        for number in range(family.any_lengths + family.powers_of_two + family.double):
            yield _member(family, number)


def _member(family: _Family, number: int) -> CatalogEntry:
    """Draw a kernel; draw again while choices do not fit together or Loopy has no code for them."""
    is_double = number >= family.any_lengths + family.powers_of_two
    regular = number % 2 == 0 if is_double else number >= family.any_lengths
    draw = Draw(f"{family.name}/{number}", regular=regular)
    drawn = family.draw_kernel(draw)
    while drawn is None or drawn[1].group_shape[0] == 1:  # one item along axis 0: no code
        drawn = family.draw_kernel(draw)
    program, shape = drawn
    if is_double:
        program = replace(program, element_type="f64")
    return program_entry(
        program,
        shape,
        family.name,
        f"{number:03d}",
        family.description,
        (0, 1) if draw.chance(0.5) else (0,),
        collection="random",
        statistics={
            argument.name: STATISTICS[argument.name]
            for argument in program.arguments
            if argument.name in STATISTICS and family.draw_kernel in (gather, scatter)
        },
    )
