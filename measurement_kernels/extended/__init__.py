"""Classes beyond the paper's nine: what its kernels leave together, taken apart.

==========================  ====================================================================
family                      what it varies
==========================  ====================================================================
``independent-chains``      kind of arithmetic, and how many chains of it an item has: latency
                            and throughput
``chains-behind-barriers``  the same on a table in local memory
``kept-results``            results of an item that wait at barriers, items of a group
``results-in-loops``        results of an item in loops of their own, items of a group
``short-launches``          kernels of a few groups, beside which the launch itself shows
``halo-tile``               points of a stencil, through local memory or not, in 1-D and 2-D
``group-shapes``            work groups of 8 to 1024 items, for streaming kernels
``item-loops``              sums of single items along rows and columns
``working-set``             bytes that are read again and again, 8 KiB to 64 MiB
``strided-access``          strides and offsets in global memory
``local-access``            strides, pitches and offsets in local memory
``walks-of-lanes``          rows between which the items of a group step, loading and storing
``walks-in-loops``          rows between which each item steps in a loop
``rows-in-loops``           rows along which each item goes in a loop
``shared-lines``            copies and transposes by tiles that end within lines, at two pitches
``gathers``                 elements of a table by numbers that are read, near or far
``gathers-in-loops``        sums of such elements
``scatters``                elements stored at places that are read, near or far
``scatters-in-loops``       the same along rows of places
``uneven-rows``             sums of rows whose lengths data decides
``precision``               f64, and f64 sums of f32 numbers
``integer``                 integer arithmetic: products, remainders, quotients
``group-reduction``         sums that the items of a group make together
``function-maps``           special functions and powers of each element
``function-loops``          sums of them in loops, called by all items or by some
``guards``                  copies, stencils and others in groups that need not divide the sizes
==========================  ====================================================================

Indices with divisions (``a[i // 4]``) are not among them: accesses whose address does not change
evenly from item to item have no stride class, and cannot be counted.
"""
