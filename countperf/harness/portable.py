"""One dialect for hand-written kernels, which OpenCL and CUDA both compile after a prelude.

A kernel is ``KERNEL name(GLOBAL float *RESTRICT out, int n) { ... }``; it asks for ``GROUP_ID``,
``LOCAL_ID`` and ``GLOBAL_ID``, declares ``LOCAL_ARRAY(float, a, 64);`` and meets at
``LOCAL_BARRIER;``. ``CYCLES`` is the device's own clock, or 0 where it has none. Functions of
numbers are those of OpenCL; ``F4`` is four f32 in a row.
"""

from __future__ import annotations

from pathlib import Path

OPENCL_PRELUDE, CUDA_PRELUDE = (
    Path(__file__).with_name(f"portable_{name}.h").read_text(encoding="utf-8")
    for name in ("opencl", "cuda")
)
