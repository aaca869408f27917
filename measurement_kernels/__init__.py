"""Kernels by whose times fits are made, and kernels by which fits are judged.

`measurement_kernels.catalog.entries` lists them, `measurement_kernels.catalog.entry` finds one by
name. An entry is a kernel for one shape of work groups and one element type; sizes stay symbolic.
Names read ``family/variant/16x12/f32``; a family with a single variant leaves it out. Collections
are ``paper``, ``extended``, ``random``, ``published`` and ``downstream``; the last two, and sets of
variants, are listed only where they are asked for. A kernel is written as Loopy instructions with a
transformation (`loopy_kernels`), or as formulas with a shape (`programs`).

Kernels index with 32 bits: sizes at which an array has 2**31 elements or more are refused. Sizes
are rounded up to multiples of the work group along their axis, each with a parameter of its own.

Source: Stevens and Klöckner, "A Unified, Hardware-Fitted, Cross-GPU Performance Model" (2016),
section on measurement kernels and Table 1.
"""
