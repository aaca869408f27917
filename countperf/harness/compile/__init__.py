"""Object code of a kernel: from PoCL, from Intel's runtime, and SASS from nvcc.

Each runtime compiles the kernel in a process of its own (`objects`); SASS (`ptx`,
`countperf.harness.nvcc`) needs no device. `countperf.machine_code` reads what comes out.
"""
