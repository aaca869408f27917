"""Object code of a kernel: from PoCL, from Intel's runtime, and PTX from nvcc.

Each runtime compiles the kernel in a process of its own (`build`, `objects`); PTX needs no device
(`ptx`). `launches` finds what a translation unit launches at given sizes. `countperf.machine_code`
reads what comes out.
"""
