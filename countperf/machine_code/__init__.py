"""Executed instructions of machine code, found by following it with concrete sizes.

SASS is read by `sass_instruction` and followed by `warp`. An object file of x86-64 code is
disassembled (`object_file`) and followed for one work group (`interpreter`); `classify_x86` names
what it executes by class, `throughput` asks LLVM's machine code analyzer for its cycles. No device
is known here: `countperf.devices.compile` makes the code.
"""
