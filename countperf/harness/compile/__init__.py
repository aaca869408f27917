"""Object code of a kernel: from PoCL, from Intel's runtime, and PTX and SASS from nvcc.

Each runtime compiles the kernel in a process of its own (`objects`); PTX (`ptx`) and SASS
(`countperf.harness.nvcc`) need no device. `countperf.machine_code` reads what comes out.
"""
