"""Characterization of a device by microbenchmarks: the constants that mechanistic models need.

`characterize` runs them and returns a `Characterization`, whose `Characterization.parameters` the
mechanistic models read. The same kernels run on OpenCL and CUDA. Times are differences between runs
of different length, so that launching does not count; cycles are those of the clock that the device
itself counts while it runs a kernel, or else of the clock that its driver declares.

Source: Lemeire, Cornelis, Konstantinidis, "Analysis of the analytical performance models for GPUs
and extracting the underlying Pipeline model" (2023), sections 3 to 6, for throughput and latency
of classes of instructions, and barriers.
"""
