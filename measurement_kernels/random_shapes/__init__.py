"""Families of random shapes: what models that predict unseen kernels are fitted to.

Nothing but a fixed seed chooses their members: work groups (wide, tall, linear, any number of
items), which loop lanes run along, blocks of iterations per item, unrolling, tiles in local memory,
layouts, numbers of arrays and of terms, coefficients, sizes. In each family the last members have
work groups, blocks and pieces of lengths that are powers of two, those that people choose most;
behind them come a few in ``f64``. All others are in ``f32``.

=========================  =====================================================================
family                     members
=========================  =====================================================================
``random-matmul``          matrix products and what resembles them: distances, weighted and batched
                           products, with what is added to them
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
``random-gather``          elements of tables by numbers that are read, alone and summed along rows
``random-scatter``         elements stored at places that are read
``random-integer``         chains of integer arithmetic with divisions by constants; ``f32`` only
``blocked-matmul``         as ``random-matmul``, with 4 to 16 results of each item
``blocked-stencil``        as ``random-stencil``, with 4 to 32 results of each item; so the others
``blocked-filter``         windows of one to three channels, all terms written out or none
``blocked-transpose``      permutations of axes
``blocked-even-sizes``     blocked kernels of the others at sizes that are powers of two
``blocked-operator``       small matrices applied to 4 to 16 elements by each item
=========================  =====================================================================

Blocked families are ``f32`` only. What compilers make of many copies side by side (vectors of
copies, private arrays in memory, loops over items that stay scalar) shows in no other class.
"""
