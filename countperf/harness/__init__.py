"""Runs kernels on OpenCL and CUDA devices: finding devices, timing, calibration, campaigns.

The only user of pyopencl and CuPy, which are imported when first needed. What differs between them
is behind the protocols of `countperf.harness.device`.
"""
