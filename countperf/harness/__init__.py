"""Runs kernels on OpenCL devices: finding devices, timing, calibration, campaigns.

The only user of pyopencl, which is imported when first needed.
"""
