"""What compilers made of a kernel.

`code` has instructions by class, loop by loop, of machine code that PoCL compiled for a work group
(x86, read with ``objdump``), or of PTX that nvcc made for a work item. `instructions` has those
that all groups execute, by following the machine code of PoCL or Intel's runtime with sizes at
hand, and the cycles that LLVM's analyzer gives them: properties ``code...`` that models may charge.

`crowding` adds what a group keeps on the stack and accesses too late for a first-level cache:
properties ``late...``. Classes that are left out are predicted within a factor of 1.258 with it,
and of 1.265 without it (PoCL on Zen 4), those whose results are kept over barriers within 1.16
instead of 1.32.

All of it is optional: nothing else of countperf needs it.

What was tried besides on Zen 5 (by how much left-out classes of measurement kernels are off, PoCL
and Intel's runtime, all with corrections by similar kernels): instructions alone 1.275 and 1.264,
with cycles 1.256 and 1.257; with lines that two simulated caches miss over neighboring groups,
besides, 1.260 and 1.257. Without corrections (some 1000 and 2300 cases): waits for stores before
(forwarding, aliases in pages) and accesses across lines change nothing, nor does (760 cases of
Intel's) a simulation of two more levels and of address translation over a thread's share of the
groups.
"""
