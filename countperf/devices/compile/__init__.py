"""Object code of a kernel, from PoCL and from Intel's runtime.

Each runtime compiles the kernel in a process of its own (`objects`); SASS
(`countperf.devices.nvcc`) needs no device. `countperf.machine_code` reads what comes out.
"""
