"""Devices: their documents and identities, and how kernels are built and run on them.

The only importer of pyopencl and CuPy, which are imported when first needed. What differs between
them is behind the protocols of `countperf.devices.device`.
"""
