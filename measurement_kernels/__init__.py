"""Kernels by whose times fits are made, and kernels by which fits are judged.

Source: Stevens and Klöckner, "A Unified, Hardware-Fitted, Cross-GPU Performance Model" (2016),
section on measurement kernels and Table 1. Start at `measurement_kernels.catalog`:
`~measurement_kernels.catalog.entries` lists, `~measurement_kernels.catalog.entry` looks up a name.

An entry is one kernel for one shape of work groups and one element type; its sizes stay symbolic.
Names read ``family/variant/16x12/f32``; a family with a single variant leaves it out.

======================  =====================================================================
family                  variants
======================  =====================================================================
``matmul-tiled``        ``square``, ``half-n``, ``half-m``, ``half-l``: (n by m) by (m by l)
``matmul-naive``        one
``vector-scale-add``    ``stride1``, ``stride2``, ``stride3``
``transpose``           ``tiled``, ``stride1-writes``, ``stride1-reads``
``stride1``             ``copy``, ``add-four``, ``store-index``
``stride2-filled``      ``direct``, ``prefetched``
``stride3-filled``      ``direct``, ``prefetched``
``arithmetic``          ``add``, ``mul``, ``div``, ``pow``, ``rsqrt``, each with ``-k256``,
                        ``-k512``, ``-k768``: terms of the sum
``empty``               one
``finite-differences``  one; a test kernel, as those below
``matmul-skinny``       one
``convolution``         one
``n-body``              one
======================  =====================================================================

Their tables are `measurement_kernels.paper` and `measurement_kernels.paper_tests`. Further classes
are in `measurement_kernels.extended`, families of random shapes in
`measurement_kernels.random_shapes`, both listed as collections of their own. Applications are in
`measurement_kernels.applications`. Sets of variants, by which rankings are judged, are in
`measurement_kernels.variants.sets`; they are listed only for purpose ``variant``. Kernels of
publications on models of GPUs are in `measurement_kernels.published`; they are listed only for
collection ``published``.

A kernel is described in one of two ways: as Loopy instructions with a transformation
(`measurement_kernels.loopy_kernels`), or as formulas with a shape, from which both the Loopy kernel
and its NumPy reference follow (`measurement_kernels.programs`).

Choices that the paper leaves open:

- Every axis has a size parameter of its own, also where the paper says n by n: sizes are rounded
  up to multiples of the work group along their axis, and those multiples differ.
- ``2**exponent`` is the largest size of a matrix product; the other sizes of ``half-*`` and of
  the skinny product follow from it.
- Kernels index with 32 bits. Sizes at which an array has 2**31 elements or more are refused.
- Every kernel reads and writes one element type. ``f32`` is the paper's; ``f64`` exists for the
  matrix products, ``stride1`` and ``arithmetic``, and is listed only on request.
"""
