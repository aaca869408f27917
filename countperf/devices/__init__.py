"""Devices, and kernels on them; pyopencl and CuPy are imported here alone, when first needed."""
