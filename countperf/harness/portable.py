"""One dialect for hand-written kernels, which OpenCL and CUDA both compile after a prelude.

A kernel is ``KERNEL name(GLOBAL float *RESTRICT out, int n) { ... }``; it asks for ``GROUP_ID``,
``LOCAL_ID`` and ``GLOBAL_ID``, declares ``LOCAL_ARRAY(float, a, 64);`` and meets at
``LOCAL_BARRIER;``. ``CYCLES`` is the device's own clock, or 0 where it has none. Functions of
numbers are those of OpenCL; ``F4`` is four f32 in a row.
"""

from __future__ import annotations

OPENCL_PRELUDE = """\
#define KERNEL kernel void
#define GLOBAL global
#define RESTRICT restrict
#define LOCAL_ARRAY(type, name, size) local type name[size]
#define LOCAL_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP_ID ((int) get_group_id(0))
#define LOCAL_ID ((int) get_local_id(0))
#define LOCAL_SIZE ((int) get_local_size(0))
#define GLOBAL_ID ((int) get_global_id(0))
#define I64 long
#define CYCLES 0
#define F4 float4
"""

CUDA_PRELUDE = """\
#define KERNEL extern "C" __global__ void
#define GLOBAL
#define RESTRICT __restrict__
#define LOCAL_ARRAY(type, name, size) __shared__ type name[size]
#define LOCAL_BARRIER __syncthreads()
#define GROUP_ID ((int) blockIdx.x)
#define LOCAL_ID ((int) threadIdx.x)
#define LOCAL_SIZE ((int) blockDim.x)
#define GLOBAL_ID ((int) (blockIdx.x * blockDim.x + threadIdx.x))
#define I64 long long
#define CYCLES clock64()
#define F4 float4
"""
