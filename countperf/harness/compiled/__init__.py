"""What compilers made of a kernel: instructions by class, loop by loop.

Two sources, both optional: machine code that PoCL compiled for a work group (x86, read with
``objdump``), and PTX that nvcc made for a work item. Nothing else of countperf needs them.
"""
